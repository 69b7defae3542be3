"""The exact engine for polynomial kernels, whose slope has a finite monomial feature map."""

from __future__ import annotations

from functools import partial

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.base import Problem
from ism_dask.engines.lowrank.base import EvaluationAtW, LowRankEngine
from ism_dask.engines.lowrank.row_sums import FactoredSlope, cross_gram, feature_sums, moment_sums
from ism_dask.engines.operator import PhiEvaluation
from ism_dask.engines.row_facts import PROJECTED, project_rows
from ism_dask.engines.tiles import ignore_overflow
from ism_dask.gamma.base import GAMMA_FACTS, Gamma
from ism_dask.kernels import Kernel
from ism_dask.rows.shards import Shards
from ism_dask.rows.tasks import LoadedShard

# With more monomials per row than this, tiles are faster (measured, see docs/engines.md).
_DENSE = 0.1


class MonomialEngine(LowRankEngine):
    """O(n m d) time with the m monomials of the projected rows, and exact up to rounding."""

    name = "monomials"

    @classmethod
    def refusal(cls, problem: Problem, q: int) -> str | None:
        """Return a reason if a term of the kernel has no finite feature map, otherwise None.

        Free memory does not count here, so that the same problem always gets the same engine. If
        the map does not fit, the engine declines as it runs, and the next one's note says so.
        """
        missing = [type(t).__name__ for _, t in problem.kernel.terms if t.features(q) is None]
        if missing:
            return f"the slope of {missing[0]} is no finite sum of products of features"
        return None

    @classmethod
    def advised(cls, problem: Problem, q: int) -> bool:
        """Return whether the monomials are few in comparison with the rows."""
        return _monomial_count(problem.kernel, q) <= _DENSE * problem.shards.n_rows

    def phi(self, W: Array) -> PhiEvaluation:
        """Return J and Phi at W, in a single pass over X unless Phi contains degrees."""
        expansion, gamma = self._factored_slope(W.shape[1]), self.problem.gamma
        if expansion.has_degrees:
            return super().phi(W)
        finish = partial(_phi_from_monomials, expansion=expansion, gamma=gamma)
        matrix, moments = self.problem.shards.fold(
            _phi_and_monomial_sums, W, expansion, gamma, finish=finish
        )
        objective = self._moments(moments).objective(expansion)
        accuracy = self._accuracy(objective, summed=expansion.size)
        return PhiEvaluation(objective, matrix, **accuracy)

    def _expand_at(self, W: Array, points: Shards) -> EvaluationAtW:
        k = W.shape[1]
        expansion = self._factored_slope(k)
        sums = points.fact_as_rows(PROJECTED, k).fold(_monomial_sums, expansion, self.problem.gamma)
        return EvaluationAtW(W, points, expansion, self._moments(sums))

    def _factored_slope(self, k: int) -> FactoredSlope:
        self._check_factor_memory(_monomial_count(self.problem.kernel, k))
        maps = [term.features(k) for _, term in self.problem.kernel.terms]
        return FactoredSlope.of(self.problem.kernel, [each for each in maps if each is not None])


def _monomial_count(kernel: Kernel, q: int) -> int:
    return sum(each.size for _, term in kernel.terms if (each := term.features(q)) is not None)


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
