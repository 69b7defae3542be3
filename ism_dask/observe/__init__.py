"""What a block of code watches and saves: the events of its fits and passes, and checkpoints.

No estimator needs a callback of its own, and fits within pipelines and searches are watched, too.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, ClassVar

from ism_dask.threads import bound

if TYPE_CHECKING:  # programs that do not compute import the progress bar, too
    from ism_dask.records.checkpoint import CheckpointedFit
    from ism_dask.records.iteration import Round, State, Stopping


class FitWatcher:
    """Receives the events of fits. This base class ignores them all."""

    # Whether the watcher itself reports how fits end and what their features are worth, so that
    # fits issue no warnings.
    reports_endings: ClassVar[bool] = False

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
        """Handle that `done` of the tasks of a pass are done; it may come from a thread."""


_WATCHER: ContextVar[FitWatcher] = ContextVar("fit_watcher", default=FitWatcher())  # noqa: B039
_SAVED: ContextVar[list[CheckpointedFit]] = ContextVar("saved_fit", default=[])  # noqa: B039


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
