"""Ctrl-C is for the command, which always hears it, and not for what the command has started."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from types import FrameType
from typing import Any, NoReturn

# After which an interruption that was lost comes again.
_AGAIN_SECONDS = 0.05


def interrupt() -> None:
    """Interrupt the command, from any of its threads."""
    # Sent to the thread itself: one that waits for a lock hears of nothing less.
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


_ASKED = threading.Event()


def end_when_asked() -> None:
    """Let SIGINT and SIGTERM interrupt this command, and be remembered."""
    _ASKED.clear()
    # Whoever is started with SIGINT ignored is not to hear of it.
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, _ask)
    signal.signal(signal.SIGTERM, _ask)


def asked_to_end() -> bool:
    """Say whether the command was interrupted, whatever became of the exception.

    In the middle of an import, or of a library that catches all there is, it comes out as
    another one.
    """
    return _ASKED.is_set()


class _Interruption(KeyboardInterrupt):
    """A KeyboardInterrupt that knows when it has been dropped: when it is gone, and nobody ends."""

    def __del__(self) -> None:
        _insist()


def _ask(_number: int, _frame: FrameType | None) -> None:
    _ASKED.set()
    raise _Interruption


@dataclass(eq=False)
class _Block:
    """A block in which interruptions insist, until one has been heard there or within."""

    over: bool = False

    def interrupt_again(self) -> None:
        """Interrupt the command in a moment, unless that has come to nothing by then."""
        time.sleep(_AGAIN_SECONDS)
        if not self.over:
            interrupt()


_BLOCKS: list[_Block] = []


def _insist() -> None:
    if _BLOCKS and not _BLOCKS[-1].over:
        # Not by `threading`, whose locks may be held by what was interrupted.
        _thread.start_new_thread(_BLOCKS[-1].interrupt_again, ())


@contextmanager
def interrupts_insist() -> Iterator[None]:
    """Let an interruption come again where it is dropped, as long as the block goes on.

    In a destructor, or when a weak reference ends (importing a module ends some), an exception
    has nobody to go to: Python prints it, and goes on as if no one had pressed Ctrl-C. Others
    catch whatever there is.
    """
    block, otherwise = _Block(), sys.unraisablehook

    def hook(lost: Any) -> None:
        if not isinstance(lost.exc_value, KeyboardInterrupt):
            otherwise(lost)
        elif not isinstance(lost.exc_value, _Interruption):
            _insist()

    sys.unraisablehook = hook
    _BLOCKS.append(block)
    handled = _handle()
    try:
        yield
    except BaseException:
        # Whoever ends now in order is not to be interrupted at that.
        for each in _BLOCKS if asked_to_end() else ():
            each.over = True
        raise
    finally:
        block.over = True
        _BLOCKS.remove(block)
        sys.unraisablehook = otherwise
        if handled:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _handle() -> bool:
    """Take SIGINT over from Python, where that is who has it; say whether that was done."""
    here = threading.current_thread() is threading.main_thread()
    taken = here and signal.getsignal(signal.SIGINT) == signal.default_int_handler
    if taken:
        signal.signal(signal.SIGINT, _ask)
    return taken


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Put off an interruption until the block ends.

    Threads that begin in the block, and processes that those start, never see one: a terminal
    sends it to all, and workers would tell at length that they were interrupted.
    """
    # It would let them through again, in the thread that is the first to need it.
    resource_tracker.ensure_running()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with _remembered():
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextmanager
def _remembered() -> Iterator[None]:
    """Take an interruption, which may come by way of any thread, when the block has ended."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python interrupts the main thread only
        return
    seen: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if seen and callable(handler):
            handler(seen[0], None)


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """Let nothing that is imported in the block take interruptions for itself.

    dask_jobqueue would have them end the process without a word; and in a thread, where signals
    cannot be set, its import would fail for trying.
    """
    installed = signal.signal
    signal.signal = lambda *_: None
    try:
        yield
    finally:
        signal.signal = installed


_AT_ONCE = threading.Event()


def leave_at_once() -> None:
    """Let the process end without what is done at exit.

    There Prefect would try for half a minute to tell a server of its events that is away.
    """
    _AT_ONCE.set()


def leave(status: int) -> NoReturn:
    """End the process with an exit status."""
    if _AT_ONCE.is_set():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)
