"""Polynomial kernels, exactly: their slope is the product of finitely many monomials."""

from __future__ import annotations

from functools import partial

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.base import Problem
from ism_dask.engines.lowrank.base import EvaluationAtW, LowRankEngine
from ism_dask.engines.lowrank.row_sums import FactoredSlope, cross_gram, feature_sums, moment_sums
from ism_dask.engines.operator import Evaluation
from ism_dask.engines.tile_walk import QUIET, project_piece
from ism_dask.gamma.base import Gamma
from ism_dask.kernels import Kernel
from ism_dask.rows import LoadedShard, Shards

# Monomials for each row above which tiles are the faster way (measured, see docs/engines.md).
_DENSE = 0.1


class MonomialEngine(LowRankEngine):
    """O(n m d) with the m monomials of the projected rows; exact up to rounding."""

    name = "features"

    @classmethod
    def refusal(cls, problem: Problem, q: int) -> str | None:
        """Refuse kernels without a finite map.

        What memory is free is not looked at here: the same problem is to get the same engine. A
        map that does not fit declines at work, and the engine after it has a note of that.
        """
        missing = [type(t).__name__ for _, t in problem.kernel.terms if t.features(q) is None]
        if missing:
            return f"the slope of {missing[0]} is no finite sum of products of features"
        return None

    @classmethod
    def advised(cls, problem: Problem, q: int) -> bool:
        """Say whether the monomials are few beside the rows."""
        return _size(problem.kernel, q) <= _DENSE * problem.shards.n_rows

    def phi(self, W: Array) -> Evaluation:
        """Return J and Phi at W: where there are no degrees, X is read once."""
        expansion, gamma = self._expansion(W.shape[1]), self.problem.gamma
        if expansion.has_degrees:
            return super().phi(W)
        finish = partial(_crossed, expansion=expansion, gamma=gamma)
        matrix, moments = self.problem.shards.fold(_all_sums, W, expansion, gamma, finish=finish)
        objective = self._moments(moments).objective(expansion)
        return self._evaluated(objective, matrix, summed=expansion.size)

    def _expand(self, W: Array, points: Shards) -> EvaluationAtW:
        k = W.shape[1]
        expansion = self._expansion(k)
        sums = points.through(k).fold(_moment_sums, expansion, self.problem.gamma)
        return EvaluationAtW(W, points, expansion, self._moments(sums))

    def _expansion(self, k: int) -> FactoredSlope:
        self._afford_columns(_size(self.problem.kernel, k))
        maps = [term.features(k) for _, term in self.problem.kernel.terms]
        return FactoredSlope.of(self.problem.kernel, [each for each in maps if each is not None])


def _size(kernel: Kernel, q: int) -> int:
    return sum(each.size for _, term in kernel.terms if (each := term.features(q)) is not None)


def _moment_sums(piece: LoadedShard, expansion: FactoredSlope, gamma: Gamma) -> Array:
    Z = piece.X.astype(np.float64, copy=False)
    return moment_sums(Z, expansion.factor(Z), piece.facts[0], gamma)


@QUIET
def _all_sums(
    piece: LoadedShard, W: Array, expansion: FactoredSlope, gamma: Gamma
) -> tuple[Array, Array]:
    Z, facts = project_piece(piece, W).astype(np.float64), piece.facts[0]
    F = expansion.factor(Z)
    return feature_sums(piece.X, F, facts, gamma), moment_sums(Z, F, facts, gamma)


def _crossed(
    sums: tuple[Array, Array], expansion: FactoredSlope, gamma: Gamma
) -> tuple[Array, Array]:
    by_column, moments = sums
    return cross_gram(by_column, expansion, gamma), moments
