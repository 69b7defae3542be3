"""Events of the fits in a block of code, for a watcher, without a callback for each estimator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ism_dask._context import bound

if TYPE_CHECKING:  # programs that do not compute import the progress bar, too
    from ism_dask.records.checkpoint import Round
    from ism_dask.records.iteration import State
    from ism_dask.records.stopping_rule import Stopping


@dataclass(frozen=True)
class FitPlan:
    """The stopping rules of a fit that begins.

    Attributes
    ----------
    iterations : Stopping
        The stopping rule of the iterations, in each round if the fit has rounds.
    rounds : Stopping or None
        The stopping rule of the rounds; None for a fit without rounds.
    """

    iterations: Stopping
    rounds: Stopping | None = None


class FitWatcher:
    """Receives the events of fits. This base class ignores them all.

    Attributes
    ----------
    reports_endings : bool
        Whether the watcher itself reports how fits end and what their features are worth, so that
        fits issue no warnings.
    """

    reports_endings: ClassVar[bool] = False

    def begun(self, plan: FitPlan) -> None:
        """Handle the beginning of a fit."""

    def on_selection(self, done: int, total: int) -> None:
        """Handle a step of a selection: `done` of `total` were taken on a sample of rows."""

    def on_steps(self, unit: str) -> None:
        """Handle that steps of another kind follow; `unit` is "iteration" or "gradient step"."""

    def on_iteration(self, state: State) -> None:
        """Handle the end of an iteration."""

    def on_round(self, done: Round) -> None:
        """Handle the end of a round."""

    def ended(self) -> None:
        """Handle the end of the fit, if it ends without an error."""


_WATCHER: ContextVar[FitWatcher] = ContextVar("fit_watcher", default=FitWatcher())  # noqa: B039


def watching_fits(watcher: FitWatcher) -> AbstractContextManager[None]:
    """Send the events of every fit in the block to `watcher`, within pipelines and searches too.

    Fits that run in other processes or threads than the block send no events.
    """
    return bound(_WATCHER, watcher)


def fit_watcher() -> FitWatcher:
    """Return the watcher of the current block."""
    return _WATCHER.get()


@contextmanager
def announce(plan: FitPlan) -> Iterator[None]:
    """Report the block to the watcher as a fit."""
    watcher = fit_watcher()
    watcher.begun(plan)
    yield
    watcher.ended()
