"""The engine for every kernel and Gamma in linear time, by sums over random blocks of pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.base import TOLERANCE, Engine, Problem
from ism_dask.engines.constant import ConstantSlope
from ism_dask.engines.operator import Evaluation, PhiEvaluation, ProductEvaluation
from ism_dask.engines.pair_sums import (
    PairProblem,
    Partial,
    gradient_of_sampled_pairs,
    objective_of_sampled_pairs,
    phi_of_sampled_pairs,
)
from ism_dask.engines.pilot_sample import Noise, Pilot, Tangents
from ism_dask.engines.random_pairs import PairDesign
from ism_dask.engines.row_facts import PROJECTED, with_projection
from ism_dask.engines.tile_sums import stripe_bytes
from ism_dask.engines.tile_walk import TileModel
from ism_dask.gamma.base import GAMMA_FACTS, Gamma
from ism_dask.kernels import Kernel
from ism_dask.kernels.base import conic_sum
from ism_dask.linalg.eigen import leading_eigenpairs
from ism_dask.rows.shards import Shards, cut
from ism_dask.rows.tasks import LoadedShard

# The variance of Phi W by random pairs, relative to that by a draw of rows, may be this number
# times the tolerance: at 1e-4 a fifth of the standard error.
_VARIANCE_BY_TOL = 400.0
# The least number of partners of a row, and the largest before a solution needs more.
_LEAST_PARTNERS, _MOST_PARTNERS = 125, 4000
# A finer engine has four times the pairs. It is used if W needs over 1.5 times the present ones.
_FINER_FACTOR, _SHORTAGE = 4, 1.5
# A solution is evaluated with this many times the pairs of its fit.
_EVALUATION_FACTOR = 2
# The coarse engine of a warm start takes every 16th shard but at least 16, of at least four times
# as many.
_COARSE_STEP, _COARSE_SHARDS, _COARSE_FACTOR = 16, 16, 4
# With fewer shards it takes a sample of rows: at most this many rows and bytes.
_SAMPLE_ROWS, _SAMPLE_BYTES = 16_384, 64 * 2**20
# From this number of rows "auto" takes `blocks` before `exact`. The break-even is not measured.
_FROM_ROWS = 10_000


class _PairPlan:
    """The pairs of rows that are summed, and the sums in closed form beside them, for all W.

    The tangent, a kernel that is linear in beta, is summed over all pairs in closed form. Random
    pairs estimate the sum of the difference between the kernel and its tangent.

    Parameters
    ----------
    problem : Problem
    q : int
    tol : float
        The tolerance of the engine, which determines the number of pairs.
    partners : float, optional
        The number of partners of each row; by default as many as `tol` needs.
    """

    def __init__(self, problem: Problem, q: int, tol: float, partners: float | None = None) -> None:
        self._problem, self._q, self._tol, self._partners = problem, q, tol, partners

    @cached_property
    def pilot(self) -> Pilot:
        """The pilot sample of rows, with all their pairs."""
        return Pilot(self._problem)

    @cached_property
    def flat_phi(self) -> Array:
        """Phi0, the matrix of the start, over all pairs of rows."""
        return ConstantSlope(self._problem.linearised(), self._q).phi0()

    @cached_property
    def _start(self) -> Array:
        # From all rows: the start of the pilot rows alone could follow outliers among them.
        return leading_eigenpairs(self.flat_phi, min(self._q, len(self.flat_phi) - 1)).vectors

    @cached_property
    def _tangent(self) -> Tangents:
        return self.pilot.tangents(self._start)

    def noise(self, W: Array) -> Noise:
        """Return how much Phi W varies with the choice of pairs and with the choice of rows."""
        return self.pilot.noise(W, self._tangent)

    def needed(self, W: Array) -> float:
        """Return the number of partners that a row needs at W (d, q) for the tolerance."""
        needed = self.noise(W).blur / (_VARIANCE_BY_TOL * self._tol)
        return min(max(needed, _LEAST_PARTNERS), self._problem.shards.n_rows)

    @cached_property
    def design(self) -> PairDesign:
        """The design that draws the pairs."""
        partners = self._partners
        if partners is None:
            partners = min(self.needed(self._start), _MOST_PARTNERS)
        return PairDesign.of(self._problem.shards, partners, self._problem.seed)

    @cached_property
    def tangent(self) -> Kernel | None:
        """The tangent, or None if all pairs of rows are summed."""
        if self.design.is_complete:
            return None
        return conic_sum([(1.0, each) for each in self._tangent])

    @cached_property
    def closed(self) -> tuple[Array, float]:
        """The part of the tangent in Phi (d, d), and its part in J beside `tr W^T Phi W`."""
        problem = self._problem
        if self.tangent is None:
            return np.zeros((problem.d, problem.d)), 0.0
        phi = ConstantSlope(replace(problem, kernel=self.tangent), self._q).phi0()
        gamma = problem.gamma
        total = gamma.signs @ problem.shards.fold(_gamma_sums, gamma) ** 2
        return phi, float(total) * sum(each.constant for each in self._tangent)

    def pair_problem(self, *, measured: bool) -> PairProblem:
        """Return the problem as tasks need it, with the tangent subtracted from the kernel."""
        problem = self._problem
        shards, terms = problem.shards, list(problem.kernel.terms)
        if self.tangent is not None:
            terms += [(-weight, term) for weight, term in self.tangent.terms]
        model = TileModel(conic_sum(terms), problem.gamma, shards.n_rows)
        return PairProblem(model, self.design, shards.bounds[:-1], measured)


class BlockEngine(Engine):
    """O(n B (q + d)) time: each row is paired with B others, the same ones for all W."""

    name = "blocks"
    approximate = True

    def __init__(self, problem: Problem, q: int, tol: float = TOLERANCE) -> None:
        super().__init__(problem, q)
        self._tol = tol
        self._plan = _PairPlan(problem, q, tol)
        self._measures_error = False
        self._last: Array | None = None
        self._is_sample = False

    @classmethod
    def advised(cls, problem: Problem, q: int) -> bool:
        """Return whether there are enough rows, and q < d: a square W needs an exact J only."""
        return problem.shards.n_rows >= _FROM_ROWS and q < problem.d

    @property
    def partners_per_row(self) -> float:
        """The average number of rows that each row is paired with."""
        return self._plan.design.partners_of(self.problem.shards)

    def finer(self) -> BlockEngine | None:
        """Return an engine with four times the pairs, or None if the last W needs no more pairs.

        With the pairs that W needs, the choice of pairs changes W by a small share of the change
        by a draw of other rows.
        """
        if self._last is None or self._plan.design.is_complete:
            return None
        if self._plan.needed(self._last) <= _SHORTAGE * self.partners_per_row:
            return None
        return self._with_plan(self.problem, _FINER_FACTOR * self.partners_per_row)

    def resolution(self, W: Array) -> float:
        """Return the residual at W (d, q) that the random choice of pairs or rows alone causes."""
        partners = np.inf if self._plan.design.is_complete else self.partners_per_row
        noise = self._plan.noise(W)
        return noise.residual(self.problem.shards.n_rows, partners, rows_too=self._is_sample)

    def coarser(self) -> BlockEngine | None:
        """Return an engine on a few shards from all over the file, or on a sample of rows.

        W depends little on the number of rows, so that a few passes over all rows suffice after
        this warm start.
        """
        shards = self.problem.shards
        count = max(_COARSE_SHARDS, len(shards.parts) // _COARSE_STEP)
        if len(shards.parts) >= _COARSE_FACTOR * count:
            numbers = np.linspace(0, len(shards.parts) - 1, count).astype(int).tolist()
            sample = shards.subset(numbers)
        else:
            rows = _SAMPLE_BYTES // (shards.n_columns * shards.dtype.itemsize)
            rows = min(max(rows, _SAMPLE_ROWS // _COARSE_FACTOR), _SAMPLE_ROWS)
            if shards.n_rows < 2 * rows:
                return None
            sample = _sampled_shards(shards, rows, self.problem.seed)
        coarse = type(self)(replace(self.problem, shards=sample), self.q, self._tol)
        coarse._is_sample = True  # an instance of this class
        return coarse

    def for_resamples(self) -> BlockEngine:
        """Return an engine with half the pairs: they add 8% to the variance by the rows, not 4%."""
        partners = max(self.partners_per_row / 2, _LEAST_PARTNERS)
        return self._with_plan(self.problem, min(partners, self.partners_per_row))

    def others(self, most: float) -> BlockEngine:
        """Return an engine with other pairs: twice as many, but at most `most` partners a row."""
        problem = replace(self.problem, seed=self.problem.seed + 1)
        partners = max(self.partners_per_row, min(_EVALUATION_FACTOR * self.partners_per_row, most))
        other = self._with_plan(problem, partners)
        other._measures_error = True  # an instance of this class
        return other

    def _with_plan(self, problem: Problem, partners: float) -> BlockEngine:
        other = self._same_kind(self.problem)
        # `other` is an instance of this class.
        other._plan = _PairPlan(problem, self.q, self._tol, partners)
        return other

    def _same_kind(self, problem: Problem) -> BlockEngine:
        other = type(self)(problem, self.q, self._tol)
        other.note, other._plan, other._measures_error = self.note, self._plan, self._measures_error
        other._is_sample = self._is_sample
        return other

    def phi0(self) -> Array:
        """Return Phi0, the matrix of the start, which has a closed form."""
        return self._plan.flat_phi

    def phi(self, W: Array) -> PhiEvaluation:
        """Return J and Phi at W."""
        self._last = W
        shards, pairs = self.problem.shards, self._plan.pair_problem(measured=False)
        self._check_task_memory(shards, shards, W.shape[1])
        unsymmetric, sums = shards.fold_some_pairs(
            phi_of_sampled_pairs, self._plan.design.tails, shards, pairs, W
        )
        matrix = 0.5 * (unsymmetric + unsymmetric.T) + self._plan.closed[0]
        J, accuracy = self._estimate(W, sums, measured=False)
        return PhiEvaluation(J, matrix, **accuracy)

    def gradient(self, W: Array) -> ProductEvaluation:
        """Return J and Phi W, in double precision."""
        self._last = W
        return super().gradient(W)

    def product(self, W: Array) -> ProductEvaluation:
        """Return J and Phi W."""
        points = with_projection(self.problem.shards, W).persisted()
        tails, measured = points.fact_as_rows(PROJECTED, W.shape[1]), self._measures_error
        matrix, sums = self._walk(gradient_of_sampled_pairs, points, tails, measured=measured)
        J, accuracy = self._estimate(W, sums, measured=measured)
        return ProductEvaluation(J, matrix + self._plan.closed[0] @ W, **accuracy)

    def value(self, W: Array) -> Evaluation:
        """Return J at W."""
        points = with_projection(self.problem.shards, W).persisted()
        points = points.fact_as_rows(PROJECTED, W.shape[1])
        _, sums = self._walk(objective_of_sampled_pairs, points, points, measured=True)
        J, accuracy = self._estimate(W, sums, measured=True)
        return Evaluation(J, **accuracy)

    def _walk(
        self, part: Callable[..., Partial], heads: Shards, tails: Shards, *, measured: bool
    ) -> Any:
        self._check_task_memory(heads, tails, tails.n_columns)
        pairs = self._plan.pair_problem(measured=measured)
        return heads.fold_some_pairs(part, self._plan.design.tails, tails, pairs)

    def _estimate(self, W: Array, sums: Array, *, measured: bool) -> tuple[float, dict[str, Any]]:
        """Return J from the sums of all walks, and its accuracy: a standard error if measured.

        An error bound exists only if all pairs are summed; it then covers rounding alone.
        """
        phi, constant = self._plan.closed
        J = float(sums[:-1].sum()) + constant + float(np.vdot(W, phi @ W))
        accuracy = {**self._accuracy(J), "approximate": False}
        if self._plan.design.is_complete:
            return J, accuracy
        error = self._plan.design.standard_error(sums) if measured else np.inf
        share = error / abs(J) if J else np.inf
        return J, {**accuracy, "bound": _no_bound, "standard_error": share}

    def _check_task_memory(self, heads: Shards, tails: Shards, k: int) -> None:
        """Raise MemoryError, before the first tile, unless the tasks fit into memory."""
        rows, size, d = heads.largest, heads.dtype.itemsize, heads.n_columns
        # The head as loaded and as dealt, and its part of Phi; two tails as loaded and as dealt.
        pieces = size * rows * (3 * d + 4 * tails.n_columns)
        model = TileModel(self.problem.kernel, self.problem.gamma, heads.n_rows)
        tiles = stripe_bytes(rows, replace(model, n_rows=2 * rows), 0, k, size)
        raw = heads.raw_bytes + tails.raw_bytes * min(
            tails.max_shards_per_task or 1, len(tails.parts)
        )
        needed = pieces + tiles + raw + 3 * 8 * d * max(d, k)
        self._check_memory(d + k, needed, f"{rows} of {heads.n_rows} rows x {d} columns")


def _sampled_shards(shards: Shards, count: int, seed: int) -> Shards:
    """Return a random sample of the rows, with their facts, in the memory of this process."""
    rng = np.random.default_rng(seed)
    piece = shards.load_rows(np.sort(rng.choice(shards.n_rows, count, replace=False)))
    sampled = cut(piece.X)
    for fact, values in piece.facts.items():
        sampled = sampled.with_rows(fact, values)
    return sampled


def _gamma_sums(piece: LoadedShard, gamma: Gamma) -> Array:
    return np.asarray(gamma.factor(piece.facts[GAMMA_FACTS]).sum(axis=0))


def _no_bound() -> float:
    """Return an infinite error bound: an estimate of J has a standard error instead."""
    return np.inf
