"""The base class of `landmarks`: with a low-rank factor, all sums run over rows."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.base import Engine, Problem
from ism_dask.engines.constant import ConstantSlope
from ism_dask.engines.lowrank.row_sums import (
    FactoredSlope,
    Moments,
    gradient_rows,
    gradient_sums,
    phi_from_sums,
    phi_sums,
)
from ism_dask.engines.operator import Evaluation, PhiEvaluation, ProductEvaluation
from ism_dask.engines.row_facts import with_projection
from ism_dask.rows.shards import Shards

# The columns of W for which the memory of a product with sparse rows is estimated.


@dataclass(frozen=True, eq=False)
class EvaluationAtW:
    """The problem at one W: the projected rows, their low-rank factor, and the moments of both.

    Attributes
    ----------
    W : (d, k) array
    points : Shards
        The shards with the fact `PROJECTED`.
    expansion : FactoredSlope
    moments : Moments
    left_out : float
        A bound on the part of J that the low-rank factor omits.
    """

    W: Array
    points: Shards
    expansion: FactoredSlope
    moments: Moments
    left_out: float = 0.0

    @property
    def objective(self) -> float:
        """The objective J at W."""
        return self.moments.objective(self.expansion)


class LowRankEngine(Engine):
    """O(n m d) time and O(shard) memory, in three passes; one of them does not read X."""

    def __init__(self, problem: Problem, q: int) -> None:
        super().__init__(problem, q)
        self._last: EvaluationAtW | None = None

    @abstractmethod
    def _expand_at(self, W: Array, points: Shards) -> EvaluationAtW:
        """Return the problem at W (d, k); `points` are the shards with the fact `PROJECTED`."""

    def phi0(self) -> Array:
        """Return Phi0, the matrix of the start."""
        return ConstantSlope(self.problem.linearised(), self.q).phi0()

    def phi(self, W: Array) -> PhiEvaluation:
        """Return J and Phi at W."""
        at, gamma = self._at(W), self.problem.gamma
        # Phi needs only the degrees, the first column of the coefficients.
        coefficients = at.moments.psi_coefficients(gamma, at.expansion)[..., :1]
        finish = partial(phi_from_sums, expansion=at.expansion, gamma=gamma)
        matrix = at.points.fold(phi_sums, at.expansion, gamma, coefficients, finish=finish)
        return PhiEvaluation(at.objective, matrix, **self._accuracy_at(at))

    def product(self, W: Array) -> ProductEvaluation:
        """Return J and Phi W."""
        at, gamma = self._at(W), self.problem.gamma
        coefficients = at.moments.psi_coefficients(gamma, at.expansion)
        product = at.points.fold(gradient_sums, at.expansion, gamma, coefficients)
        return ProductEvaluation(at.objective, product, **self._accuracy_at(at))

    def value(self, W: Array) -> Evaluation:
        """Return J at W."""
        at = self._at(W)
        return Evaluation(at.objective, **self._accuracy_at(at))

    def _accuracy_at(self, at: EvaluationAtW) -> dict[str, Any]:
        return self._accuracy(at.objective, at.left_out, at.expansion.size)

    def product_rows(self, W: Array, X: Array, facts: Array) -> Array:
        """Return the rows R (b, k) with which X (b, d) contributes `X^T R` to Phi W."""
        at, gamma = self._at(W), self.problem.gamma
        Z = X @ W.astype(X.dtype)
        return gradient_rows(
            Z, facts, at.expansion, gamma, at.moments.psi_coefficients(gamma, at.expansion)
        )

    def _at(self, W: Array) -> EvaluationAtW:
        """Return the problem at W, computed once for all calls with the same W."""
        if self._last is None or not np.array_equal(self._last.W, W):
            self._last = None  # free its memory before the next one is computed
            points = with_projection(self.problem.shards, W).persisted()
            self._last = self._expand_at(W.copy(), points)
        return self._last

    def _moments(self, sums: Array) -> Moments:
        """Return the moments over the columns of U, given the sums (v, m, q + 2) over V."""
        gamma = self.problem.gamma
        return Moments(np.tensordot(gamma.mixing.T, sums, axes=1), gamma.signs)

    def _check_factor_memory(self, m: int) -> None:
        """Raise MemoryError, before the first tile, unless a factor of m columns fits."""
        rows, d = self.problem.shards.largest, self.problem.d
        self._check_memory(
            m, task_bytes(self.problem, m), f"{rows} rows x {d} columns with {m} {self.name}"
        )


def task_bytes(problem: Problem, m: int) -> int:
    """Return the peak memory of a task, in bytes, for m columns in F."""
    shards = problem.shards
    rows = shards.raw_bytes * (1 + min(shards.max_shards_per_task or 0, len(shards.parts)))
    # X standardised, scaled by the degrees or selected by class; F in float64, the arrays that it
    # is computed from, and F in the precision of X.
    tiles = 3 * shards.loaded_bytes + shards.largest * m * (shards.dtype.itemsize + 3 * 8)
    # The map to F; the sums of a task, those of its last shard, and the product that gives these.
    return rows + tiles + 8 * m**2 + 3 * partial_bytes(problem, m)


def partial_bytes(problem: Problem, m: int) -> int:
    """Return the bytes of the sums that a task returns, for m columns in F."""
    groups = len(problem.gamma.mixing)
    return 8 * (groups * m * problem.d + problem.d**2)
