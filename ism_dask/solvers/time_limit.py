"""An operator that answers until the time is up."""

from __future__ import annotations

import time

from ism_dask._types import Array
from ism_dask.engines.operator import Evaluation, Operator, check_finite, space_of
from ism_dask.linalg.row_space import RowSpace
from ism_dask.records.stopping import Stopping


class TimeIsUpError(Exception):
    """The time is up."""


class TimeLimited:
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

    @property
    def space(self) -> RowSpace | None:
        """That of the operator."""
        return space_of(self._operator)

    def phi0(self) -> Array:
        """Return the (d, d) matrix of the start."""
        self._check_time()
        return self._operator.phi0()

    def phi(self, W: Array) -> Evaluation:
        """Return J and the (d, d) matrix Phi at W (d, k)."""
        self._check_time()
        return self._operator.phi(W)

    def gradient(self, W: Array) -> Evaluation:
        """Return J and Phi(W) W (d, k)."""
        self._check_time()
        evaluation = self._operator.gradient(W)
        check_finite(evaluation.matrix)
        return evaluation

    def curvature(self, W: Array, Z: Array) -> Array:
        """Return the (d, k) derivative of Phi(W) W along Z (d, k)."""
        self._check_time()
        return self._operator.curvature(W, Z)

    def _check_time(self) -> None:
        if self._stopping.time_is_up(self.seconds):
            raise TimeIsUpError
