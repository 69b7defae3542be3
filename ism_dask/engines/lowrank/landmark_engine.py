"""The engine for kernels whose slopes are numerically low rank: landmarks, with an error bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.base import (
    TOLERANCE,
    Engine,
    Evaluation,
    PhiEvaluation,
    Problem,
    ProductEvaluation,
)
from ism_dask.engines.closed_form import ClosedFormEngine
from ism_dask.engines.exact import ExactEngine
from ism_dask.engines.lowrank.landmarks import Nystrom, SampledLandmarks
from ism_dask.engines.lowrank.row_sums import FactoredSlope, FeatureMap
from ism_dask.engines.tiles import PROJECTED, ignore_overflow, with_projection
from ism_dask.kernels import PointwiseKernel
from ism_dask.kernels.inner_products import Monomials
from ism_dask.rows.shards import Shards

# A term uses its monomials instead of landmarks if there are at most this many, or at most this
# share of the number of rows: with more, tiles are faster (measured, see docs/engines.md).
_FEW_MONOMIALS, _MONOMIALS_SHARE = 256, 0.1
# From this number of rows on, landmarks are faster than tiles (measured, see docs/engines.md).
_FROM_ROWS = 4000
# If W is not stationary under the true kernel, the tolerance is multiplied by the first factor, as
# long as it stays above this share of the user's tolerance.
_FINER_FACTOR, _LEAST_TOL_SHARE = 0.1, 0.009


@dataclass(frozen=True, eq=False)
class EvaluationAtW:
    """The problem at one W (d, k): the projected rows, their low-rank factor, and J.

    The points are the shards with the fact `PROJECTED`, and the coefficients (v, m, 1 + k) of F
    give Phi W.
    """

    W: Array
    points: Shards
    expansion: FactoredSlope
    coefficients: Array
    value: Evaluation


class LandmarkEngine(Engine):
    """O(n m (m + d)): `unit_slope = F F^T + E`, E positive semi-definite with a known trace.

    With a low-rank factor, all sums run over rows: in three passes, one of which does not read X.

    Landmarks are chosen from a sample of the projected rows until the remainder there is small.
    Then the remainder is measured over all rows. While it exceeds the share `tol` of the trace, the
    rows with the largest remainders become landmarks.

    The slope of a linear or polynomial term has a finite rank: it is a product of monomials, which
    take the place of landmarks if they are few. If all terms are such, the engine is exact.
    """

    name = "landmarks"

    def __init__(self, problem: Problem, q: int, tol: float = TOLERANCE) -> None:
        super().__init__(problem, q)
        self.tol = self._user_tol = tol
        # Landmarks, unlike monomials, are chosen again for each W, which makes J jump.
        terms = [term for _, term in problem.kernel.terms]
        self.approximate = any(self._features(term, q) is None for term in terms)
        # The landmarks of each term, as indices of the sample; None chooses them for each W.
        self._chosen: list[list[int] | None] | None = None
        self._last: EvaluationAtW | None = None

    @classmethod
    def refusal(cls, problem: Problem) -> str | None:
        """Return a reason if slopes have no low-rank factor or do not give J, otherwise None."""
        for _, term in problem.kernel.terms:
            name = type(term).__name__
            if not term.slope_is_psd:
                return f"the slope of {name} is not positive semi-definite, or not declared to be"
            if term.value_by_slope is None:
                return f"f of {name} is not (a + b beta) times its slope, so that J needs all pairs"
        return None

    @classmethod
    def advised(cls, problem: Problem) -> bool:
        """Return whether there are enough rows."""
        return problem.shards.n_rows >= _FROM_ROWS

    def phi0(self) -> Array:
        """Return Phi0, the matrix of the start."""
        return ClosedFormEngine(self.problem.linearised(), self.q).phi0()

    def phi(self, W: Array) -> PhiEvaluation:
        """Return J and Phi at W."""
        last = self._evaluated(W)
        expansion = last.expansion
        # Phi needs only the degrees, the first column of the coefficients.
        degrees = last.coefficients[..., :1]
        matrix = last.points.fold(expansion.phi_sums, degrees, finish=expansion.phi_from_sums)
        return PhiEvaluation(phi=matrix, **vars(last.value))

    def product(self, W: Array) -> ProductEvaluation:
        """Return J and Phi W."""
        last = self._evaluated(W)
        product = last.points.fold(last.expansion.gradient_sums, last.coefficients)
        return ProductEvaluation(product=product, **vars(last.value))

    def value(self, W: Array) -> Evaluation:
        """Return J at W."""
        return self._evaluated(W).value

    def product_rows(self, W: Array, X: Array, facts: Array) -> Array:
        """Return the rows R (b, k) with which X (b, d) contributes `X^T R` to Phi W."""
        last = self._evaluated(W)
        return last.expansion.gradient_rows(X @ W.astype(X.dtype), facts, last.coefficients)

    def finer(self) -> Engine | None:
        """Return the engine with a tenth of the tolerance, down to a hundredth of the user's."""
        if not self.approximate:
            return super().finer()
        tol = _FINER_FACTOR * self.tol
        is_least = tol < _LEAST_TOL_SHARE * self._user_tol
        return None if is_least else self._same_kind(self.problem, tol)

    def _same_kind(self, problem: Problem, tol: float | None = None) -> LandmarkEngine:
        other = type(self)(problem, self.q, tol or self.tol)
        other.note, other._user_tol, other._chosen = self.note, self._user_tol, self._chosen
        return other

    def steady(self, W: Array) -> LandmarkEngine:
        """Return the engine that has the same rows as landmarks for every W: those for W (d, k)."""
        factors = self._term_factors((self.sample @ W.astype(self.sample.dtype)).astype(np.float64))
        other = self._same_kind(self.problem)
        other._chosen = [
            each.chosen if isinstance(each, SampledLandmarks) else None for each in factors
        ]
        return other

    def curvature(self, W: Array, Z: Array) -> Array:
        """Return the derivative of Phi(W) W (d, k) at W along Z (d, k), under the true kernel."""
        if self.approximate:
            return ExactEngine(self.problem, self.q).curvature(W, Z)
        return super().curvature(W, Z)

    def _evaluated(self, W: Array) -> EvaluationAtW:
        """Return the problem at W, computed once for all calls with the same W."""
        if self._last is None or not np.array_equal(self._last.W, W):
            self._last = None  # free its memory before the next one is computed
            points = with_projection(self.problem.shards, W).persisted()
            projected = points.fact_as_rows(PROJECTED, W.shape[1])
            sample = self.sample @ W.astype(self.sample.dtype)
            expansion, moments, left_out = self.expand(projected, sample)
            J, coefficients = expansion.objective(moments), expansion.psi_coefficients(moments)
            value = Evaluation(J, **self._accuracy(J, left_out))
            self._last = EvaluationAtW(W.copy(), points, expansion, coefficients, value)
        return self._last

    @ignore_overflow
    def expand(self, points: Shards, sample: Array) -> tuple[FactoredSlope, Array, float]:
        """Return the factored slope, the moments and the bound on the omitted J for projected rows.

        A sample (s, k) of these points (n, k) are the candidates for landmarks.
        """
        problem, factors = self.problem, self._term_factors(sample.astype(np.float64))
        while True:
            maps = [each.map if isinstance(each, SampledLandmarks) else each for each in factors]
            expansion = FactoredSlope.from_maps(problem.kernel, problem.gamma, maps)
            m, rows, d = expansion.size, problem.shards.largest, problem.d
            what = f"{rows} rows x {d} columns with {m} {self.name}"
            self._check_memory(m, task_bytes(problem, m), what)
            if not self.approximate:
                return expansion, expansion.moments(points.fold(expansion.moment_sums)), 0.0
            sums, gram, remainders = points.fold(expansion.measure_remainders)
            pairs = zip(factors, remainders, strict=True)
            too_coarse = [
                (factor, remainder)
                for factor, remainder in pairs
                if isinstance(factor, SampledLandmarks) and not factor.accepts(remainder)
            ]
            if not too_coarse:
                left_out = expansion.left_out(gram, remainders, points.n_rows)
                return expansion, expansion.moments(sums), left_out
            for factor, remainder in too_coarse:
                factor.improve(remainder)

    def _term_factors(self, Z: Array) -> list[FeatureMap | SampledLandmarks]:
        """Return the monomials of each term, or its landmarks, given a sample Z (s, k)."""
        problem = self.problem
        factors: list[FeatureMap | SampledLandmarks] = []
        for index, (_, term) in enumerate(problem.kernel.terms):
            features = self._features(term, Z.shape[1])
            if features is not None:
                factors.append(features)
            elif self._chosen is not None:
                factors.append(Nystrom.from_landmarks(term, Z[self._chosen[index]]))
            else:
                seed = [problem.seed, index]
                n = problem.shards.n_rows
                factors.append(SampledLandmarks(term, Z, n, self.tol, seed))
        return factors

    def _features(self, term: PointwiseKernel, q: int) -> Monomials | None:
        """Return the monomials of a term for rows Z (b, q), None if it has none, or too many."""
        features = None if term.power is None else Monomials(q, *term.power)
        most = max(_FEW_MONOMIALS, _MONOMIALS_SHARE * self.problem.shards.n_rows)
        return features if features is not None and features.size <= most else None


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
