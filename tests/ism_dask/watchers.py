"""A callback of scikit-learn that applies a function to the estimator of every task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


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
