"""Ctrl-C always interrupts the command, and never the threads and processes it has started."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType
from typing import Any, NoReturn

# Seconds after which an interruption that was lost is sent again.
_AGAIN_SECONDS = 0.05


def interrupt() -> None:
    """Interrupt the main thread of the command, from any of its threads."""
    # Sent to the thread itself: nothing less interrupts a thread that waits for a lock.
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


_END_REQUESTED = threading.Event()


def install_signal_handlers() -> None:
    """Install handlers of SIGINT and SIGTERM that interrupt this command, and record that.

    `was_interrupted` returns the record.
    """
    _END_REQUESTED.clear()
    # A process that was started with SIGINT ignored must go on ignoring it.
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, _on_signal)
    signal.signal(signal.SIGTERM, _on_signal)


def was_interrupted() -> bool:
    """Return whether the command was interrupted, even if the KeyboardInterrupt did not arrive.

    An import, or a library that catches every exception, may turn it into another one.
    """
    return _END_REQUESTED.is_set()


class _Interruption(KeyboardInterrupt):
    """A KeyboardInterrupt that is sent again if it is deleted while the command goes on."""

    def __del__(self) -> None:
        _send_again()


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    _END_REQUESTED.set()
    raise _Interruption


# The innermost block in which lost interruptions are sent again, and those around it, unless an
# interruption has ended it or a block within.
_BLOCKS: list[object] = []


def _send_again() -> None:
    if _BLOCKS:
        # Not by `threading`: the code that was interrupted may have its locks.
        _thread.start_new_thread(_interrupt_again, (_BLOCKS[-1],))


def _interrupt_again(block: object) -> None:
    """Interrupt the command after a moment, unless the block has ended by then."""
    time.sleep(_AGAIN_SECONDS)
    if _BLOCKS and _BLOCKS[-1] is block:
        interrupt()


@contextmanager
def resend_lost_interrupts() -> Iterator[None]:
    """Send an interruption again if it is lost, as long as the block goes on.

    Python cannot raise an exception from a destructor or from the callback of a weak reference
    (importing a module calls some): it prints the exception, and goes on as if nobody had pressed
    Ctrl-C. Some libraries catch every exception.
    """
    previous_hook, around = sys.unraisablehook, [*_BLOCKS]

    def hook(lost: Any) -> None:
        if not isinstance(lost.exc_value, KeyboardInterrupt):
            previous_hook(lost)
        elif not isinstance(lost.exc_value, _Interruption):
            _send_again()

    sys.unraisablehook = hook
    _BLOCKS.append(object())
    # Python's default handler, as in a flow run of a worker.
    replaced = _in_main_thread() and signal.getsignal(signal.SIGINT) == signal.default_int_handler
    if replaced:
        signal.signal(signal.SIGINT, _on_signal)
    try:
        yield
    except BaseException:
        # The command is ending in order: do not interrupt it once more.
        around = [] if was_interrupted() else around
        raise
    finally:
        _BLOCKS[:] = around
        sys.unraisablehook = previous_hook
        if replaced:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextmanager
def delay_interrupts() -> Iterator[None]:
    """Delay an interruption until the block ends.

    Threads that start in the block, and the processes that those start, never receive one: a
    terminal sends it to all processes, and workers would print long reports of it.
    """
    # Otherwise the first thread that needs the resource tracker starts it, which unblocks SIGINT.
    resource_tracker.ensure_running()
    received: list[int] = []
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    # Another thread may receive it, upon which Python calls the handler in the main thread.
    handler = signal.getsignal(signal.SIGINT)
    if _in_main_thread():
        signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        yield
    finally:
        if _in_main_thread():
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if received and callable(handler):
            handler(received[0], None)


@contextmanager
def block_signal_handlers() -> Iterator[None]:
    """Prevent modules that are imported in the block from installing signal handlers.

    The handler of dask_jobqueue would end the process without a message. In a thread, which
    cannot set signal handlers, the import of dask_jobqueue would fail.
    """
    set_handler = signal.signal
    signal.signal = lambda *_: None
    try:
        yield
    finally:
        signal.signal = set_handler


def go_on_without_readers() -> None:
    """Let this process go on when nobody reads its output any more.

    The worker that started a flow run reads what Prefect logs there. If it dies, rich, which writes
    the log, would end the run.
    """
    from rich.console import Console  # noqa: PLC0415

    def drop_output(console: Console) -> None:
        console.quiet = True
        with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - a device
            for stream in (sys.stdout, sys.stderr):
                os.dup2(nowhere.fileno(), stream.fileno())

    Console.on_broken_pipe = drop_output  # type: ignore[assignment, method-assign]


_SKIP_EXIT_HANDLERS = threading.Event()


def skip_exit_handlers() -> None:
    """Make `exit_process` end the process without running exit handlers.

    That of Prefect would try for half a minute to send its events to a server that is away.
    """
    _SKIP_EXIT_HANDLERS.set()


def exit_process(status: int) -> NoReturn:
    """End the process with an exit status."""
    if _SKIP_EXIT_HANDLERS.is_set():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)
