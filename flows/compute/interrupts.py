"""Ctrl-C is for the command: not for what it has started, which it ends in order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


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
