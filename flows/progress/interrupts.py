"""Ctrl-C and SIGTERM interrupt the command, not the threads and processes it has started."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from multiprocessing import resource_tracker
from types import FrameType
from typing import NoReturn

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_END_REQUESTED = threading.Event()


def interrupt() -> None:
    """Interrupt the main thread of the command, from any of its threads."""
    # Sent to the thread itself: nothing less interrupts a thread that waits for a lock.
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def install_signal_handlers() -> None:
    """Raise KeyboardInterrupt on SIGTERM as on SIGINT, and record it for `was_interrupted`."""
    _END_REQUESTED.clear()
    # A process that was started with SIGINT ignored must go on ignoring it.
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, _on_signal)
    signal.signal(signal.SIGTERM, _on_signal)


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    _END_REQUESTED.set()
    raise KeyboardInterrupt


def was_interrupted() -> bool:
    """Return whether the command was interrupted, even if the KeyboardInterrupt did not arrive.

    An import, or a library that catches every exception, may turn it into another one.
    """
    return _END_REQUESTED.is_set()


@contextmanager
def delay_interrupts() -> Iterator[None]:
    """Delay an interruption until the block, in which Dask starts, has ended.

    Threads that start in the block, and the processes that those start, never receive one: a
    terminal sends it to all processes, and workers would print long reports of it.
    """
    # Otherwise the first thread that needs the resource tracker starts it, which unblocks SIGINT.
    resource_tracker.ensure_running()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    # SIGTERM must still end those processes. Another thread may receive either signal, upon which
    # Python calls the handler in the main thread.
    received: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {each: signal.getsignal(each) for each in _SIGNALS if is_main}
    for each in handlers:
        signal.signal(each, lambda number, _: received.append(number))
    try:
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if received and callable(handler := handlers[signal.Signals(received[0])]):
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

    def fall_silent(console: Console) -> None:
        console.quiet = True

    Console.on_broken_pipe = fall_silent  # type: ignore[assignment, method-assign]


_SKIP_EXIT_HANDLERS = threading.Event()
# Exit handlers and threads have this long.
_EXIT_SECONDS = 30.0


def skip_exit_handlers() -> None:
    """Make `exit_process` end the process without running exit handlers.

    That of Prefect would try for half a minute to send its events to a server that is away.
    """
    _SKIP_EXIT_HANDLERS.set()


def exit_process(status: int) -> NoReturn:
    """End the process with an exit status, whatever exit handlers and threads do."""
    if _SKIP_EXIT_HANDLERS.is_set():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    _limit_exit(status)
    sys.exit(status)


@cache  # a program may run many commands
def _limit_exit(status: int) -> None:
    """End the process some time after its main thread, whatever else goes on.

    Threads of a cluster that is half closed, or a server that hangs, would keep the command.
    """

    def end() -> None:
        threading.main_thread().join()
        time.sleep(_EXIT_SECONDS)
        os._exit(status)

    threading.Thread(target=end, daemon=True).start()
