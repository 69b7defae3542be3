"""An operator that answers until the time is up."""

from __future__ import annotations

import time

from ism_dask.solver import Evaluation, Operator, finite
from ism_dask.states import Stopping
from ism_dask.typing import Array


class OverCapError(Exception):
    """The time is up."""


class Capped:
    """Answers as another operator does, unless the time is up or the answer is no number.

    The clock starts with it.

    Parameters
    ----------
    operator : Operator
    stopping : Stopping
        Whose `max_seconds` count.
    """

    def __init__(self, operator: Operator, stopping: Stopping) -> None:
        self._operator, self._stopping = operator, stopping
        self._started = time.perf_counter()

    @property
    def seconds(self) -> float:
        """How long it has answered."""
        return time.perf_counter() - self._started

    def gradient(self, W: Array) -> Evaluation:
        """Return J and Phi(W) W (d, k)."""
        self._look_at_the_clock()
        evaluation = self._operator.gradient(W)
        finite(evaluation.matrix)
        return evaluation

    def curvature(self, W: Array, Z: Array) -> Array:
        """Return the (d, k) derivative of Phi(W) W along Z (d, k)."""
        self._look_at_the_clock()
        return self._operator.curvature(W, Z)

    def _look_at_the_clock(self) -> None:
        if self._stopping.over_cap(self.seconds):
            raise OverCapError
