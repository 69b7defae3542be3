"""Progress of the passes over the shards, each of which can take minutes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from uuid import uuid4

from ism_dask._context import bound

OnTask = Callable[[int, int], None]

_WATCHER: ContextVar[OnTask | None] = ContextVar("watcher", default=None)


class _PassCounter:
    """Counts the finished tasks of one pass, from any thread that learns of one."""

    def __init__(self, total: int, on_task: OnTask) -> None:
        self._lock = threading.Lock()
        self._done, self._total, self._on_task = 0, total, on_task

    def one_more(self) -> None:
        with self._lock:
            self._done += 1
            self._on_task(self._done, self._total)


_COUNTERS: dict[str, _PassCounter] = {}


def watching_passes(on_task: OnTask) -> AbstractContextManager[None]:
    """Call `on_task(done, total)` after each task of every pass over the shards in the block.

    It is called from the threads that compute, one at a time, and should be quick.
    """
    return bound(_WATCHER, on_task)


@contextmanager
def count_tasks(total: int) -> Iterator[str | None]:
    """Count `total` tasks in the block, and yield the pass's identifier for `task_done`.

    Yield None if nobody watches.
    """
    on_task = _WATCHER.get()
    if on_task is None:
        yield None
        return
    number = uuid4().hex
    _COUNTERS[number] = _PassCounter(total, on_task)
    try:
        yield number
    finally:
        del _COUNTERS[number]


def task_done(number: str) -> bool:
    """Count one task of the pass `number`, and return whether this process counts that pass."""
    counter = _COUNTERS.get(number)
    if counter is not None:
        counter.one_more()
    return counter is not None
