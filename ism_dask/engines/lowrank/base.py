"""What `features` and `landmarks` share: once the kernel has factors, all sums are over rows."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import partial

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
from ism_dask.engines.operator import Evaluation
from ism_dask.engines.tile_walk import project_piece
from ism_dask.rows import FAN, Shards

# What a row is known by, at most, beside its projection: its class, or its numbers.
_FACT_BYTES = 64


@dataclass(frozen=True, eq=False)
class EvaluationAtW:
    """The problem at one W: its projected rows, their factor, and what both come to.

    Attributes
    ----------
    W : (d, k) array
    points : Shards
        With the rows of Z as their last fact.
    expansion : Expansion
    moments : Moments
    left_out : float
        A bound on what the expansion leaves out of J.
    """

    W: Array
    points: Shards
    expansion: FactoredSlope
    moments: Moments
    left_out: float = 0.0

    @property
    def objective(self) -> float:
        """J."""
        return self.moments.objective(self.expansion)


class LowRankEngine(Engine):
    """O(n m d) time and O(shard) memory: three passes, of which one does not read X."""

    def __init__(self, problem: Problem, q: int) -> None:
        super().__init__(problem, q)
        self._last: EvaluationAtW | None = None

    @abstractmethod
    def _expand(self, W: Array, points: Shards) -> EvaluationAtW:
        """Return the problem at W (d, k), `points` being the shards with Z attached."""

    def phi0(self) -> Array:
        """Return the matrix of the start."""
        return ConstantSlope(self.problem.linearised(), self.q).phi0()

    def phi(self, W: Array) -> Evaluation:
        """Return J and Phi at W."""
        at, gamma = self._at(W), self.problem.gamma
        # Phi needs the degrees only: the first column of what Psi does.
        coefficients = at.moments.psi_coefficients(gamma, at.expansion)[..., :1]
        finish = partial(phi_from_sums, expansion=at.expansion, gamma=gamma)
        matrix = at.points.fold(phi_sums, at.expansion, gamma, coefficients, finish=finish)
        return self._at_evaluated(at, matrix)

    def product(self, W: Array) -> Evaluation:
        """Return J and Phi W."""
        at, gamma = self._at(W), self.problem.gamma
        coefficients = at.moments.psi_coefficients(gamma, at.expansion)
        product = at.points.fold(gradient_sums, at.expansion, gamma, coefficients)
        return self._at_evaluated(at, product)

    def value(self, W: Array) -> Evaluation:
        """Return J at W."""
        return self._at_evaluated(self._at(W), W[:, :0])

    def _at_evaluated(self, at: EvaluationAtW, matrix: Array) -> Evaluation:
        return self._evaluated(at.objective, matrix, at.left_out, at.expansion.size)

    def moved(self, W: Array, X: Array, facts: Array) -> Array:
        """Return what rows X (b, d), with what Gamma knows of them, bring to Phi W: (b, k)."""
        at, gamma = self._at(W), self.problem.gamma
        Z = X @ W.astype(X.dtype)
        return gradient_rows(
            Z, facts, at.expansion, gamma, at.moments.psi_coefficients(gamma, at.expansion)
        )

    def _at(self, W: Array) -> EvaluationAtW:
        """Return the problem at W, made once for all that is asked there."""
        if self._last is None or not np.array_equal(self._last.W, W):
            self._last = None  # what it holds may go before the next takes its place
            points = self.problem.shards.derive(project_piece, W).settled()
            self._last = self._expand(W.copy(), points)
        return self._last

    def _moments(self, sums: Array) -> Moments:
        """Return the moments of U from sums over V (v, m, q + 2)."""
        gamma = self.problem.gamma
        return Moments(np.tensordot(gamma.mixing.T, sums, axes=1), gamma.signs)

    def _afford_columns(self, m: int) -> None:
        """Refuse, before the first tile, a factor of m columns that would not fit."""
        rows, d = self.problem.shards.largest, self.problem.d
        self._afford(
            m, task_bytes(self.problem, m), f"{rows} rows x {d} columns with {m} {self.name}"
        )


def task_bytes(problem: Problem, m: int) -> int:
    """Return the most bytes that a task takes with m columns in F."""
    shards, d = problem.shards, problem.d
    rows = shards.raw_bytes * (1 + min(shards.handed or 0, len(shards.parts)))
    # Standardised, scaled by the degrees or picked by class; F in float64, what it is made of,
    # and as it meets X.
    tiles = shards.largest * shards.dtype.itemsize * (3 * d + m) + 3 * shards.largest * 8 * m
    # What makes F; the sums of a run, those of its last shard, and the product they are made of.
    return rows + tiles + 8 * m**2 + 3 * _partial_bytes(problem, m)


def worker_bytes(problem: Problem, q: int, m: int, *, workers: int, threads: int) -> int:
    """Return the most bytes that a fit with m columns in F takes in each of some workers.

    Beside its tasks a worker keeps its share of the projected rows, a few numbers each, and
    partial sums that wait to be added: some for each level of the tree.
    """
    shards = problem.shards
    kept = shards.n_rows * (shards.dtype.itemsize * q + _FACT_BYTES) // workers
    levels = math.ceil(math.log(max(2, shards.runs), FAN))
    waiting = (FAN - 1) * levels * _partial_bytes(problem, m)
    return threads * task_bytes(problem, m) + kept + waiting


def _partial_bytes(problem: Problem, m: int) -> int:
    groups = len(problem.gamma.mixing)
    return 8 * (groups * m * problem.d + problem.d**2)
