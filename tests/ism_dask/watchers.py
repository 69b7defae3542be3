"""Watchers of fits: of their iterations, and a callback of scikit-learn for every task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ism_dask.observe.fit_events import FitPlan, FitWatcher, fit_watcher, watching_fits
from ism_dask.records.checkpoint import Round
from ism_dask.records.iteration import State


class _Iterations(FitWatcher):
    """Applies a function to every state, once the watcher around it has seen the same event."""

    def __init__(self, look: Callable[[State], Any]) -> None:
        self._look, self._outer = look, fit_watcher()

    def begun(self, plan: FitPlan) -> None:
        self._outer.begun(plan)

    def on_iteration(self, state: State) -> None:
        self._outer.on_iteration(state)
        self._look(state)

    def on_round(self, done: Round) -> None:
        self._outer.on_round(done)

    def ended(self) -> None:
        self._outer.ended()


@contextmanager
def watching_iterations(look: Callable[[State], Any]) -> Iterator[None]:
    """Apply a function to the state after each iteration of the fits in the block."""
    with watching_fits(_Iterations(look)):
        yield


class Watcher:
    """Collects the names of events, and what `look` returns for the estimator after each task."""

    def __init__(self, look: Callable[[Any], Any]) -> None:
        self.look = look
        self.events: list[str] = []
        self.seen: list[Any] = []

    def setup(self, estimator: Any, context: Any) -> None:
        self.events.append("setup")

    def teardown(self, estimator: Any, context: Any) -> None:
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Do nothing: the end of a task is enough."""

    def on_fit_task_end(self, estimator: Any, context: Any, *, fitted_estimator: Any) -> None:
        self.events.append(context.task_name)
        self.seen.append(self.look(fitted_estimator))
