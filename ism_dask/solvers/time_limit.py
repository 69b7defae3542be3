"""An operator with a time limit."""

from __future__ import annotations

import time

from ism_dask._types import Array
from ism_dask.engines.operator import (
    Operator,
    PhiEvaluation,
    ProductEvaluation,
    check_finite,
    space_of,
)
from ism_dask.linalg.null_space import RowSpace
from ism_dask.records.stopping_rule import Stopping


class TimeIsUpError(Exception):
    """Signals that the time limit is reached."""


class TimeLimited:
    """Evaluates another operator until a time limit, and checks that gradients are finite.

    The clock starts when the object is made. After the `max_seconds` of the stopping rule each
    evaluation raises TimeIsUpError.
    """

    def __init__(self, operator: Operator, stopping: Stopping) -> None:
        self._operator, self._stopping = operator, stopping
        self._started = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds since the clock started."""
        return time.perf_counter() - self._started

    @property
    def space(self) -> RowSpace | None:
        """The space of the operator."""
        return space_of(self._operator)

    def phi(self, W: Array) -> PhiEvaluation:
        """Return J and the (d, d) matrix Phi at W (d, k)."""
        self._check_time()
        return self._operator.phi(W)

    def gradient(self, W: Array) -> ProductEvaluation:
        """Return J and Phi(W) W (d, k)."""
        self._check_time()
        evaluation = self._operator.gradient(W)
        check_finite(evaluation.product)
        return evaluation

    def curvature(self, W: Array, Z: Array) -> Array:
        """Return the (d, k) derivative of Phi(W) W along Z (d, k)."""
        self._check_time()
        return self._operator.curvature(W, Z)

    def _check_time(self) -> None:
        if self._stopping.time_is_up(self.seconds):
            raise TimeIsUpError
