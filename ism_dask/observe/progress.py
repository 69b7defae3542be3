"""Progress of a fit and of its passes over the shards, each of which can take minutes."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from ism_dask.records.iteration import State
    from ism_dask.records.stopping_rule import Stopping

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


@contextmanager
def watching_passes(on_task: OnTask) -> Iterator[None]:
    """Call `on_task(done, total)` after each task of every pass over the shards in the block.

    It is called from the threads that compute, one at a time, and should be quick.
    """
    token = _WATCHER.set(on_task)
    try:
        yield
    finally:
        _WATCHER.reset(token)


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


def converged_share(state: State, stopping: Stopping) -> float:
    """Return the estimated share of the iterations that is done, from 0 to 1."""
    if stopping.reached(state.history[-1]):
        return 1.0
    measured = [stopping.measured(record) for record in state.history]
    shares = [log_progress(measured, stopping.limit)]
    if stopping.angle_tol is not None:
        shares.append(log_progress([record.angle for record in state.history], stopping.angle_tol))
    return max(state.iteration / stopping.max_iter, min(shares))


def log_progress(values: Sequence[float], tol: float) -> float:
    """Return the share of the way to `tol` on a log scale, for values that shrink geometrically."""
    # The minimum so far, so that a value that grows for once does not lower the progress.
    first, last = values[0], min(values)
    return 1.0 if last <= tol else math.log(first / last) / math.log(first / tol)
