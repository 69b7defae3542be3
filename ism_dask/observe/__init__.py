"""What a block of code watches and saves: the events of its fits and passes, and checkpoints.

No estimator needs a callback of its own, and fits within pipelines and searches are watched, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from itertools import count
from typing import TYPE_CHECKING, ClassVar
from uuid import uuid4

from ism_dask.threads import bound

if TYPE_CHECKING:  # programs that do not compute import the progress bar, too
    from ism_dask.records.checkpoint import CheckpointedFit
    from ism_dask.records.iteration import Round, State, Stopping


class FitWatcher:
    """Receives the events of fits. This base class ignores them all."""

    # Whether the watcher itself reports how fits end and what their features are worth, so that
    # fits issue no warnings, and whether it wants `on_task`, for which tasks are counted.
    reports_endings: ClassVar[bool] = False
    counts_tasks: ClassVar[bool] = False

    def begun(self, iterations: Stopping, rounds: Stopping | None = None) -> None:
        """Handle the beginning of a fit, given the limits of its iterations and of its rounds."""

    def on_selection(self, done: int, total: int) -> None:
        """Handle a step of a selection: `done` of `total` were taken on a sample of rows."""

    def on_iteration(self, state: State) -> None:
        """Handle the end of an iteration."""

    def on_round(self, done: Round) -> None:
        """Handle the end of a round."""

    def ended(self) -> None:
        """Handle the end of the fit, if it ends without an error."""

    def on_task(self, done: int, total: int) -> None:
        """Handle that `done` of the tasks of a pass are done: computing threads wait for it."""


_WATCHER: ContextVar[FitWatcher] = ContextVar("fit_watcher", default=FitWatcher())  # noqa: B039
_SAVED: ContextVar[list[CheckpointedFit]] = ContextVar("saved_fit", default=[])  # noqa: B039

# A function that counts one more task, for each pass that is under way and watched.
_PASSES: dict[str, Callable[[], None]] = {}


def watching_fits(watcher: FitWatcher) -> AbstractContextManager[None]:
    """Send the events of every fit and every pass in the block to `watcher`.

    Fits that run in other processes or threads than the block send no events.
    """
    return bound(_WATCHER, watcher)


def fit_watcher() -> FitWatcher:
    """Return the watcher of the current block."""
    return _WATCHER.get()


def saving_checkpoints(saved_fit: CheckpointedFit) -> AbstractContextManager[None]:
    """Make the first fit that begins in the block use `saved_fit`; later fits do not."""
    return bound(_SAVED, [saved_fit])


def current_fit() -> CheckpointedFit | None:
    """Return the `CheckpointedFit` for the fit that begins now, if it is to be saved.

    The first call in a block of `saving_checkpoints` returns that block's.
    """
    waiting = _SAVED.get()
    return waiting.pop() if waiting else None


@contextmanager
def count_tasks(total: int) -> Iterator[str | None]:
    """Count tasks in the block; yield the identifier for `task_done`, None if none are counted."""
    watcher = fit_watcher()
    if not watcher.counts_tasks:
        yield None
        return
    lock, numbers, identifier = threading.Lock(), count(1), uuid4().hex

    def count_one_more() -> None:
        with lock:
            watcher.on_task(next(numbers), total)

    _PASSES[identifier] = count_one_more
    try:
        yield identifier
    finally:
        del _PASSES[identifier]


def task_done(identifier: str) -> bool:
    """Count one task of a pass, and return whether this process counts the tasks of that pass."""
    count_one_more = _PASSES.get(identifier)
    if count_one_more is not None:
        count_one_more()
    return count_one_more is not None
