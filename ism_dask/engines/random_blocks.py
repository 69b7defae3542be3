"""Any kernel and any Gamma in linear time: sums over random blocks of pairs, with their error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.base import Engine, Problem
from ism_dask.engines.constant import ConstantSlope
from ism_dask.engines.operator import Evaluation
from ism_dask.engines.pair_design import PairDesign
from ism_dask.engines.pair_sums import PairProblem, Partial, phi_part, product_part, value_part
from ism_dask.engines.pilot_sample import Noise, Pilot, Tangents
from ism_dask.engines.tile_walk import TileModel, project_piece, stripe_bytes
from ism_dask.gamma.base import Gamma
from ism_dask.kernels import Kernel
from ism_dask.kernels.base import conic_sum
from ism_dask.linalg.eigen import leading_eigenpairs
from ism_dask.rows import LoadedShard, Shards, cut

# What random pairs may add to the variance of Phi W by the rows, over `engine_tol`: a fifth of the
# standard error at 1e-4.
_VARIANCE_BY_TOL = 400.0
# Partners of a row, at least, and at most until a solution needs more.
_LEAST, _MOST = 125, 4000
# A finer engine has four times the pairs. It is of use where W needs 1.5 times those there are.
_FINER, _SHORT = 4, 1.5
# A solution is judged by this many times the pairs.
_MORE = 2
# An iteration begins with one shard in 16, but with 16 at least, where there are four times more.
_COARSER, _COARSE_SHARDS, _MANY = 16, 16, 4
# Rows that an iteration begins with where shards are few, and their bytes, at most.
_FEW_ROWS, _FEW_BYTES = 16_384, 64 * 2**20
# From here on blocks are taken in place of tiles of all pairs. Where they cross is not measured.
_FROM_ROWS = 10_000


class _PairPlan:
    """Which pairs of rows are summed, and what is known without them: the same for all W.

    The tangent, a kernel that is linear in beta, is summed over all pairs in closed form. Random
    pairs stand for what the kernel has beside it.

    Parameters
    ----------
    problem : Problem
    q : int
    partners : float, optional
        How many others each row is paired with; by default as many as `engine_tol` needs.
    """

    def __init__(self, problem: Problem, q: int, partners: float | None = None) -> None:
        self._problem, self._q, self._partners = problem, q, partners

    @cached_property
    def pilot(self) -> Pilot:
        """Some rows, and all their pairs."""
        return Pilot(self._problem)

    @cached_property
    def flat_phi(self) -> Array:
        """The matrix of the start, over all pairs of rows."""
        return ConstantSlope(self._problem.linearised(), self._q).phi0()

    @cached_property
    def _start(self) -> Array:
        # The few rows of the pilot may have outliers, and a start that follows these.
        return leading_eigenpairs(self.flat_phi, min(self._q, len(self.flat_phi) - 1)).vectors

    @cached_property
    def _tangent(self) -> Tangents:
        return self.pilot.tangents(self._start)

    def noise(self, W: Array) -> Noise:
        """Return by how much Phi W varies with the pairs and with the rows that are drawn."""
        return self.pilot.noise(W, self._tangent)

    def needed(self, W: Array) -> float:
        """Return how many partners a row needs at W (d, q)."""
        needed = self.noise(W).blur / (_VARIANCE_BY_TOL * self._problem.engine_tol)
        return min(max(needed, _LEAST), self._problem.shards.n_rows)

    @cached_property
    def design(self) -> PairDesign:
        """Which pairs are summed."""
        partners = self._partners
        if partners is None:
            partners = min(self.needed(self._start), _MOST)
        return PairDesign.of(self._problem.shards, partners, self._problem.seed)

    @cached_property
    def tangent(self) -> Kernel | None:
        """The tangent, where only some pairs of rows are summed."""
        if self.design.is_complete:
            return None
        return conic_sum([(1.0, each) for each in self._tangent])

    @cached_property
    def closed(self) -> tuple[Array, float]:
        """What the tangent brings to Phi (d, d), and to J beside `tr W^T Phi W`."""
        problem = self._problem
        if self.tangent is None:
            return np.zeros((problem.d, problem.d)), 0.0
        phi = ConstantSlope(replace(problem, kernel=self.tangent), self._q).phi0()
        gamma = problem.gamma
        total = gamma.signs @ problem.shards.fold(_factor_sums, gamma) ** 2
        return phi, float(total) * sum(each.constant for each in self._tangent)

    def pair_problem(self, *, measured: bool) -> PairProblem:
        """Return what tasks need."""
        problem = self._problem
        shards, terms = problem.shards, list(problem.kernel.terms)
        if self.tangent is not None:
            terms += [(-weight, term) for weight, term in self.tangent.terms]
        model = TileModel(conic_sum(terms), problem.gamma, shards.n_rows)
        return PairProblem(model, self.design, shards.bounds[:-1], measured)


class Blocks(Engine):
    """O(n B (q + d)): each row is paired with B others, the same ones for all W."""

    name = "blocks"
    approximate = True

    def __init__(self, problem: Problem, q: int) -> None:
        super().__init__(problem, q)
        self._plan = _PairPlan(problem, q)
        self._measured = False
        self._last: Array | None = None
        self._is_sample = False

    @classmethod
    def advised(cls, problem: Problem, q: int) -> bool:
        """Return whether there are rows enough, and a W to look for: J alone is wanted exactly."""
        return problem.shards.n_rows >= _FROM_ROWS and q < problem.d

    @property
    def partners(self) -> float:
        """How many others each row is paired with."""
        return self._plan.design.partners_of(self.problem.shards)

    def finer(self) -> Blocks | None:
        """Return an engine with four times the pairs, where the last W needs more than there are.

        Beyond, blocks change W by a small share of what other rows would change it by.
        """
        if self._last is None or self._plan.design.is_complete:
            return None
        if self._plan.needed(self._last) <= _SHORT * self.partners:
            return None
        return self._by(_PairPlan(self.problem, self.q, _FINER * self.partners))

    def resolution(self, W: Array) -> float:
        """Return the residual at W (d, q) that random pairs, or rows, cause by themselves."""
        partners = np.inf if self._plan.design.is_complete else self.partners
        noise = self._plan.noise(W)
        return noise.residual(self.problem.shards.n_rows, partners, rows_too=self._is_sample)

    def coarser(self) -> Blocks | None:
        """Return an engine of a few shards, from all over the file, or of some rows.

        W depends little on the number of rows: a few passes over all of them are left to do.
        """
        shards = self.problem.shards
        count = max(_COARSE_SHARDS, len(shards.parts) // _COARSER)
        if len(shards.parts) >= _MANY * count:
            numbers = np.linspace(0, len(shards.parts) - 1, count).astype(int).tolist()
            fewer = shards.some(numbers)
        else:
            rows = _FEW_BYTES // (shards.n_columns * shards.dtype.itemsize)
            rows = min(max(rows, _FEW_ROWS // _MANY), _FEW_ROWS)
            if shards.n_rows < 2 * rows:
                return None
            fewer = _sampled_problem(shards, rows, self.problem.seed)
        coarse = type(self)(replace(self.problem, shards=fewer), self.q)
        coarse._is_sample = True  # one of this class
        return coarse

    def others(self, most: float) -> Blocks:
        """Return an engine of other pairs, twice as many, with at most `most` partners."""
        problem = replace(self.problem, seed=self.problem.seed + 1)
        partners = max(self.partners, min(_MORE * self.partners, most))
        other = self._by(_PairPlan(problem, self.q, partners))
        other._measured = True  # one of this class
        return other

    def _by(self, plan: _PairPlan) -> Blocks:
        other = self._like(self.problem)
        other._plan = plan  # one of this class
        return other

    def _like(self, problem: Problem) -> Blocks:
        other = type(self)(problem, self.q)
        other.note, other._plan, other._measured = self.note, self._plan, self._measured
        other._is_sample = self._is_sample
        return other

    def phi0(self) -> Array:
        """Return the matrix of the start, which has a closed form."""
        return self._plan.flat_phi

    def phi(self, W: Array) -> Evaluation:
        """Return J and Phi at W."""
        self._last = W
        shards, pairs = self.problem.shards, self._plan.pair_problem(measured=False)
        self._afford_task(shards, shards, W.shape[1])
        half, sums = shards.fold_some_pairs(phi_part, self._plan.design.tails, shards, pairs, W)
        matrix = 0.5 * (half + half.T) + self._plan.closed[0]
        return self._estimated(W, matrix, sums, measured=False)

    def gradient(self, W: Array) -> Evaluation:
        """Return J and Phi W, in double precision."""
        self._last = W
        return super().gradient(W)

    def product(self, W: Array) -> Evaluation:
        """Return J and Phi W."""
        points = self.problem.shards.derive(project_piece, W).settled()
        tails, measured = points.through(W.shape[1]), self._measured
        matrix, sums = self._walked(product_part, points, tails, measured=measured)
        return self._estimated(W, matrix + self._plan.closed[0] @ W, sums, measured=measured)

    def value(self, W: Array) -> Evaluation:
        """Return J at W."""
        points = self.problem.shards.derive(project_piece, W).settled().through(W.shape[1])
        _, sums = self._walked(value_part, points, points, measured=True)
        return self._estimated(W, W[:, :0], sums, measured=True)

    def _walked(
        self, part: Callable[..., Partial], heads: Shards, tails: Shards, *, measured: bool
    ) -> Any:
        self._afford_task(heads, tails, tails.n_columns)
        pairs = self._plan.pair_problem(measured=measured)
        return heads.fold_some_pairs(part, self._plan.design.tails, tails, pairs)

    def _estimated(self, W: Array, matrix: Array, sums: Array, *, measured: bool) -> Evaluation:
        """Return an evaluation of what walks sum up, with its standard error if they measured it.

        No bound is known, unless all pairs are summed: then there is nothing but rounding.
        """
        phi, constant = self._plan.closed
        J = float(sums[:-1].sum()) + constant + float(np.vdot(W, phi @ W))
        evaluation = replace(self._evaluated(J, matrix), approximate=False)
        if self._plan.design.is_complete:
            return evaluation
        error = self._plan.design.standard_error(sums) if measured else np.inf
        share = error / abs(J) if J else np.inf
        return replace(evaluation, bound=_unknown_error, standard_error=share)

    def _afford_task(self, heads: Shards, tails: Shards, k: int) -> None:
        """Refuse, before the first tile, tasks that would not fit."""
        rows, size, d = heads.largest, heads.dtype.itemsize, heads.n_columns
        # The head as it comes and dealt, its part of Phi; two tails as they come and dealt.
        pieces = size * rows * (3 * d + 4 * tails.n_columns)
        model = TileModel(self.problem.kernel, self.problem.gamma, heads.n_rows)
        tiles = stripe_bytes(rows, replace(model, n_rows=2 * rows), 0, k, size)
        raw = heads.raw_bytes + tails.raw_bytes * min(tails.handed or 1, len(tails.parts))
        needed = pieces + tiles + raw + 3 * 8 * d * max(d, k)
        self._afford(d + k, needed, f"{rows} of {heads.n_rows} rows x {d} columns")


def _sampled_problem(shards: Shards, count: int, seed: int) -> Shards:
    """Return some of the rows, with their facts, in the memory of this process."""
    rng = np.random.default_rng(seed)
    piece = shards.pick(np.sort(rng.choice(shards.n_rows, count, replace=False)))
    sampled = cut(piece.X)
    for fact in piece.facts:
        sampled = sampled.with_rows(fact)
    return sampled


def _factor_sums(piece: LoadedShard, gamma: Gamma) -> Array:
    return np.asarray(gamma.factor(piece.facts[0]).sum(axis=0))


def _unknown_error() -> float:
    """Return the bound where nothing is known of J: estimates have a standard error instead."""
    return np.inf
