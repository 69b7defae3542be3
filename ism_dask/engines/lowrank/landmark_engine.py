"""The engine for kernels whose slopes are numerically low rank: landmarks, with an error bound."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.base import TOLERANCE, Engine, Problem
from ism_dask.engines.exact import ExactEngine
from ism_dask.engines.lowrank.base import EvaluationAtW, LowRankEngine
from ism_dask.engines.lowrank.error_bound import RemainderMeasure
from ism_dask.engines.lowrank.landmark_selection import SampledLandmarks
from ism_dask.engines.lowrank.pivoted_cholesky import Nystrom
from ism_dask.engines.lowrank.row_sums import (
    FactoredSlope,
    FeatureMap,
    Moments,
    cross_gram,
    feature_sums,
    moment_sums,
)
from ism_dask.engines.operator import PhiEvaluation
from ism_dask.engines.row_facts import PROJECTED, project_rows
from ism_dask.engines.tiles import ignore_overflow
from ism_dask.gamma.base import GAMMA_FACTS, Gamma
from ism_dask.kernels import PointwiseKernel
from ism_dask.kernels.inner_products import Monomials
from ism_dask.rows.shards import Shards
from ism_dask.rows.tasks import LoadedShard

# A term uses its monomials instead of landmarks if there are at most so many, or at most this share
# of the number of rows: with more, tiles are faster (measured, see docs/engines.md).
_FEW_MONOMIALS, _MONOMIALS_SHARE = 256, 0.1
# From this number of rows on, landmarks are faster than tiles (measured, see docs/engines.md).
_FROM_ROWS = 4000
# If W is not stationary under the true kernel, the tolerance is multiplied by the first factor, as
# long as it stays above this share of the user's tolerance.
_FINER_FACTOR, _LEAST_TOL_SHARE = 0.1, 0.009


class LandmarkEngine(LowRankEngine):
    """O(n m (m + d)): `unit_slope = F F^T + E`, E positive semi-definite with a known trace.

    Landmarks are chosen from a sample of the projected rows until the remainder there is small.
    Then the remainder is measured over all rows. While it exceeds the share `tol` of the trace, the
    rows with the largest remainders become landmarks.

    The slope of a linear or polynomial term has a finite rank: it is a product of monomials, which
    take the place of landmarks if they are few. If all terms are such, the engine is exact.

    Attributes
    ----------
    tol : float
        The share of the trace of the kernel that may be left out.
    """

    name = "landmarks"

    def __init__(self, problem: Problem, q: int, tol: float = TOLERANCE) -> None:
        super().__init__(problem, q)
        self.tol = self._user_tol = tol
        # Landmarks, unlike monomials, are chosen again for each W, which makes J jump.
        terms = [term for _, term in problem.kernel.terms]
        self.approximate = self.jumps = any(self._features(term, q) is None for term in terms)
        # The landmarks of each term, as indices of the sample; None chooses them for each W.
        self._chosen: list[list[int] | None] | None = None

    @classmethod
    def refusal(cls, problem: Problem, q: int) -> str | None:
        """Return a reason if slopes have no low-rank factor or do not give J, otherwise None."""
        for _, term in problem.kernel.terms:
            name = type(term).__name__
            if term.per_row_width or not term.slope_is_psd:
                return f"the slope of {name} is not positive semi-definite, or not declared to be"
            if term.value_by_slope is None:
                return f"f of {name} is not (a + b beta) times its slope, so that J needs all pairs"
        return None

    @classmethod
    def advised(cls, problem: Problem, q: int) -> bool:
        """Return whether there are enough rows."""
        return problem.shards.n_rows >= _FROM_ROWS

    def phi(self, W: Array) -> PhiEvaluation:
        """Return J and Phi at W, by monomials in one pass over X unless Phi contains degrees."""
        terms, gamma, k = self.problem.kernel.terms, self.problem.gamma, W.shape[1]
        if self.approximate or any(term.pairing.degree for _, term in terms):
            return super().phi(W)
        expansion = self._factored([self._features(term, k) for _, term in terms])
        finish = partial(_phi_from_monomials, expansion=expansion, gamma=gamma)
        matrix, sums = self.problem.shards.fold(
            _phi_and_monomial_sums, W, expansion, gamma, finish=finish
        )
        J = self._moments(sums).objective(expansion)
        return PhiEvaluation(J, matrix, **self._accuracy(J, summed=expansion.size))

    def finer(self) -> Engine | None:
        """Return the engine with a tenth of the tolerance, down to a hundredth of the user's."""
        if not self.approximate:
            return super().finer()
        tol = _FINER_FACTOR * self.tol
        is_least = tol < _LEAST_TOL_SHARE * self._user_tol
        return None if is_least else self._with_tol(self.problem, tol)

    def _same_kind(self, problem: Problem) -> LandmarkEngine:
        return self._with_tol(problem, self.tol)

    def _with_tol(self, problem: Problem, tol: float) -> LandmarkEngine:
        other = type(self)(problem, self.q, tol)
        other.note, other._user_tol, other._chosen = self.note, self._user_tol, self._chosen
        return other

    def steady(self, W: Array) -> LandmarkEngine:
        """Return the engine that has the same rows as landmarks for every W: those for W (d, k)."""
        factors = self._term_factors((self.sample @ W.astype(self.sample.dtype)).astype(np.float64))
        other = self._with_tol(self.problem, self.tol)
        other._chosen = [
            each.chosen if isinstance(each, SampledLandmarks) else None for each in factors
        ]
        return other

    def curvature(self, W: Array, Z: Array) -> Array:
        """Return the derivative of Phi(W) W (d, k) at W along Z (d, k), under the true kernel."""
        if self.approximate:
            return ExactEngine(self.problem, self.q).curvature(W, Z)
        return super().curvature(W, Z)

    def _expand_at(self, W: Array, points: Shards) -> EvaluationAtW:
        expanded = self.expand(
            points.fact_as_rows(PROJECTED, W.shape[1]), self.sample @ W.astype(self.sample.dtype)
        )
        return EvaluationAtW(W, points, *expanded)

    @ignore_overflow
    def expand(self, points: Shards, sample: Array) -> tuple[FactoredSlope, Moments, float]:
        """Return the factored slope, the moments and the bound on the omitted J for projected rows.

        Parameters
        ----------
        points : Shards
            The (n, k) projected rows.
        sample : (s, k) array
            Some of them, the candidates for landmarks.
        """
        factors = self._term_factors(sample.astype(np.float64))
        while True:
            maps = [each.map if isinstance(each, SampledLandmarks) else each for each in factors]
            expansion = self._factored(maps)
            if not self.approximate:
                sums = points.fold(_monomial_sums, expansion, self.problem.gamma)
                return expansion, self._moments(sums), 0.0
            audit = RemainderMeasure(self.problem.kernel, expansion, self.problem.gamma)
            sums, gram, remainders = points.fold(audit.measure_remainders)
            pairs = zip(factors, remainders, strict=True)
            too_coarse = [
                (factor, remainder)
                for factor, remainder in pairs
                if isinstance(factor, SampledLandmarks) and not factor.accepts(remainder)
            ]
            if not too_coarse:
                left_out = audit.left_out(gram, remainders, points.n_rows)
                return expansion, self._moments(sums), left_out
            for factor, remainder in too_coarse:
                factor.improve(remainder)

    def _factored(self, maps: Sequence[FeatureMap | None]) -> FactoredSlope:
        """Return the factored slope of these maps; raise a MemoryError if it is too large."""
        expansion = FactoredSlope.of(self.problem.kernel, [each for each in maps if each])
        self._check_factor_memory(expansion.size)
        return expansion

    def _term_factors(self, Z: Array) -> list[FeatureMap | SampledLandmarks]:
        """Return the monomials of each term, or its landmarks, given a sample Z (s, k)."""
        problem = self.problem
        factors: list[FeatureMap | SampledLandmarks] = []
        for index, (_, term) in enumerate(problem.kernel.terms):
            features = self._features(term, Z.shape[1])
            if features is not None:
                factors.append(features)
            elif self._chosen is not None:
                factors.append(Nystrom.at(term, Z[self._chosen[index]]))
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


@ignore_overflow
def _monomial_sums(piece: LoadedShard, expansion: FactoredSlope, gamma: Gamma) -> Array:
    Z = piece.X.astype(np.float64, copy=False)
    return moment_sums(Z, expansion.factor(Z), piece.facts[GAMMA_FACTS], gamma)


@ignore_overflow
def _phi_and_monomial_sums(
    piece: LoadedShard, W: Array, expansion: FactoredSlope, gamma: Gamma
) -> tuple[Array, Array]:
    Z, facts = project_rows(piece, W).astype(np.float64), piece.facts[GAMMA_FACTS]
    F = expansion.factor(Z)
    return feature_sums(piece.X, F, facts, gamma), moment_sums(Z, F, facts, gamma)


def _phi_from_monomials(
    sums: tuple[Array, Array], expansion: FactoredSlope, gamma: Gamma
) -> tuple[Array, Array]:
    by_column, moments = sums
    return cross_gram(by_column, expansion, gamma), moments
