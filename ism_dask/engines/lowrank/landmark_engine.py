"""The engine for kernels whose slopes are numerically low rank: landmarks, with an error bound."""

from __future__ import annotations

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.base import TOLERANCE, Problem
from ism_dask.engines.exact import ExactEngine
from ism_dask.engines.lowrank.base import EvaluationAtW, LowRankEngine
from ism_dask.engines.lowrank.error_bound import RemainderMeasure
from ism_dask.engines.lowrank.landmark_selection import SampledLandmarks
from ism_dask.engines.lowrank.pivoted_cholesky import Nystrom
from ism_dask.engines.lowrank.row_sums import FactoredSlope, FeatureMap, Moments
from ism_dask.engines.row_facts import PROJECTED
from ism_dask.engines.tiles import ignore_overflow
from ism_dask.rows.shards import Shards

# A term with at most this many monomials uses them instead of landmarks.
_FEW_MONOMIALS = 256
# From this number of rows on, landmarks are faster than tiles (measured, see docs/engines.md).
_FROM_ROWS = 4000
# If W is not stationary under the true kernel, the tolerance is multiplied by the first factor, as
# long as it stays above this share of the user's tolerance.
_FINER_FACTOR, _LEAST_TOL_SHARE = 0.1, 0.009


class LandmarkEngine(LowRankEngine):
    """O(n m (m + d)): `unit_slope = F F^T + E`, E positive semi-definite with a known trace.

    Landmarks are chosen from a sample of the projected rows until the remainder there is small.
    Then the remainder is measured over all rows. While it exceeds the share `tol` of the trace, the
    rows with the largest remainders become landmarks. Terms with few monomials use these instead.

    Attributes
    ----------
    tol : float
        The share of the trace of the kernel that may be left out.
    """

    name = "landmarks"
    approximate = True
    jumps = True  # landmarks are chosen again for each W

    def __init__(self, problem: Problem, q: int, tol: float = TOLERANCE) -> None:
        super().__init__(problem, q)
        self.tol = self._user_tol = tol
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

    def finer(self) -> LandmarkEngine | None:
        """Return the engine with a tenth of the tolerance, down to a hundredth of the user's."""
        tol = _FINER_FACTOR * self.tol
        return (
            None if tol < _LEAST_TOL_SHARE * self._user_tol else self._with_tol(self.problem, tol)
        )

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
        return ExactEngine(self.problem, self.q).curvature(W, Z)

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
            expansion = FactoredSlope.of(self.problem.kernel, maps)
            self._check_factor_memory(expansion.size)
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

    def _term_factors(self, Z: Array) -> list[FeatureMap | SampledLandmarks]:
        """Return the few monomials of each term, or its landmarks, given a sample Z (s, k)."""
        problem = self.problem
        factors: list[FeatureMap | SampledLandmarks] = []
        for index, (_, term) in enumerate(problem.kernel.terms):
            features = term.features(Z.shape[1])
            if features is not None and features.size <= _FEW_MONOMIALS:
                factors.append(features)
            elif self._chosen is not None:
                factors.append(Nystrom.at(term, Z[self._chosen[index]]))
            else:
                seed = [problem.seed, index]
                n = problem.shards.n_rows
                factors.append(SampledLandmarks(term, Z, n, self.tol, seed))
        return factors
