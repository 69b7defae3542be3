"""Watch the fits of a block of code, without a callback for each estimator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:  # a bar is imported by those who do not compute, too
    from ism_dask.records.checkpoint import Round
    from ism_dask.records.iteration import State
    from ism_dask.records.stopping import Stopping


@dataclass(frozen=True)
class FitPlan:
    """A fit that begins.

    Attributes
    ----------
    estimator : str
        The name of its class.
    iterations : Stopping
        When its iterations end, of each round where it goes in rounds.
    rounds : Stopping or None
        When its rounds end.
    """

    estimator: str
    iterations: Stopping
    rounds: Stopping | None = None


class FitWatcher:
    """Whoever wants to know how fits come along; as it is, nobody.

    Attributes
    ----------
    tells_endings : bool
        Whether it says itself how fits end and what their features are worth, so that fits warn
        of nothing.
    """

    tells_endings: ClassVar[bool] = False

    def begun(self, plan: FitPlan) -> None:
        """Take note of a fit that begins."""

    def on_selection(self, done: int, total: int) -> None:
        """Take note that `done` of `total` widths were tried on a sample of the rows."""

    def on_iteration(self, state: State) -> None:
        """Take note of an iteration that has ended."""

    def on_round(self, done: Round) -> None:
        """Take note of a round that has ended."""

    def ended(self) -> None:
        """Take note that the fit has ended, without an error."""


_WATCHER: ContextVar[FitWatcher] = ContextVar("fit_watcher", default=FitWatcher())  # noqa: B039


@contextmanager
def watching_fits(watcher: FitWatcher) -> Iterator[None]:
    """Tell `watcher` of every fit in the block, within pipelines and searches too.

    Fits that run in other processes or threads than the block tell nothing.
    """
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def fit_watcher() -> FitWatcher:
    """Return whoever watches."""
    return _WATCHER.get()


@contextmanager
def announce(plan: FitPlan) -> Iterator[None]:
    """Report the block to the watcher as a fit."""
    watcher = fit_watcher()
    watcher.begun(plan)
    yield
    watcher.ended()
