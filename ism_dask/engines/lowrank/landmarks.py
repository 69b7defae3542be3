"""Any kernel whose slopes are numerically low rank: a few rows stand for all, with a bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.base import Problem
from ism_dask.engines.lowrank.base import EvaluationAtW, LowRankEngine
from ism_dask.engines.lowrank.error_bound import (
    RemainderMeasure,
    RemainderRounding,
    TermRemainder,
    measure_remainder,
)
from ism_dask.engines.lowrank.landmark_selection import ExactFactor, SampledLandmarks, TermFactor
from ism_dask.engines.lowrank.pivoted_cholesky import Nystrom
from ism_dask.engines.lowrank.row_sums import FactoredSlope, FeatureMap, Moments
from ism_dask.engines.rounding_error import Maximum
from ism_dask.engines.tile_walk import QUIET
from ism_dask.rows import LoadedShard, Shards

# A term with up to so many monomials keeps them: it needs no landmarks.
_FEW_MONOMIALS = 256
# Rows to choose among, where the problem brings no sample.
_SAMPLE_ROWS = 5000
# From here on landmarks are faster than tiles (measured, see docs/engines.md).
_FROM_ROWS = 4000
# Where W is not stationary under the true kernel, this share of what was left out is left out,
# until that is this share of what was asked for.
_FINER, _FINEST = 0.1, 0.009
# A bound that rounding makes so many times as large is worth a closer look.
_ROUNDED = 1.05


class Landmarks(LowRankEngine):
    """O(n m (m + d)): `shape = F F^T + E`, E positive semi-definite with a known trace.

    Landmarks are chosen among a sample of the projected rows until little is left there. Then
    all rows are looked at, and while they have more than `engine_tol` of their trace left, the
    worst of them come in. Terms with few monomials keep those instead.
    """

    name = "landmarks"
    approximate = True
    jumps = True  # landmarks are chosen anew for each W

    def __init__(self, problem: Problem, q: int) -> None:
        super().__init__(problem, q)
        self._asked = problem.engine_tol

    @classmethod
    def refusal(cls, problem: Problem, q: int) -> str | None:
        """Refuse kernels whose slopes have no thin factor, or do not tell J."""
        for _, term in problem.kernel.terms:
            name = type(term).__name__
            if term.per_row_width or not term.slope_is_psd:
                return f"the slope of {name} is not positive semi-definite, or not declared to be"
            if term.value_by_slope is None:
                return f"f of {name} is not (a + b beta) times its slope, so that J needs all pairs"
        return None

    @classmethod
    def advised(cls, problem: Problem, q: int) -> bool:
        """Say whether there are rows enough."""
        return problem.shards.n_rows >= _FROM_ROWS

    def finer(self) -> Landmarks | None:
        """Return the engine with landmarks that leave out less, down to a hundredth of that."""
        tol = _FINER * self.problem.engine_tol
        if tol < _FINEST * self._asked:
            return None
        other = type(self)(replace(self.problem, engine_tol=tol), self.q)
        other.note, other._asked = self.note, self._asked
        return other

    def _expand(self, W: Array, points: Shards) -> EvaluationAtW:
        found = self.expand(points.through(W.shape[1]), self.sample @ W.astype(self.sample.dtype))
        return EvaluationAtW(W, points, *found)

    @QUIET
    def expand(self, points: Shards, sample: Array) -> tuple[FactoredSlope, Moments, float]:
        """Return the factor of rows that are projected already, and what they come to.

        Parameters
        ----------
        points : Shards
            (n, k) rows.
        sample : (s, k) array
            Some of them, to choose landmarks among.
        """
        choices = self._choices(sample.astype(np.float64))
        while True:
            maps = [choice.map for choice in choices]
            expansion = FactoredSlope.of(self.problem.kernel, maps)
            self._afford_columns(expansion.size)
            audit = RemainderMeasure(self.problem.kernel, expansion, self.problem.gamma)
            sums, gram, found = points.fold(measure_remainder, audit)
            pairs = zip(choices, found, strict=True)
            unmet = [pair for pair in pairs if not pair[0].accepts(pair[1])]
            if not unmet:
                left_out = self._left_out(points, audit, gram, found)
                return expansion, self._moments(sums), left_out
            for choice, each in unmet:
                choice.improve(each)

    def _left_out(
        self, points: Shards, audit: RemainderMeasure, gram: Array, found: tuple[TermRemainder, ...]
    ) -> float:
        """Return a bound on what the landmarks leave out of J, with what rounding does to them."""
        maps = audit.expansion.maps
        largest = [each.largest_weights if isinstance(each, Nystrom) else 0.0 for each in maps]
        bare = audit.left_out(gram, found, self._rounding(maps, [0.0] * len(maps)))
        bound = audit.left_out(gram, found, self._rounding(maps, largest))
        if bound <= _ROUNDED * bare:
            return bound
        # Where little is left out rounding matters, and how long weights are is to be looked up.
        measured = points.fold(_weights, audit.expansion)
        return audit.left_out(gram, found, self._rounding(maps, [w.number for w in measured]))

    def _rounding(
        self, maps: Sequence[FeatureMap], weights: Sequence[float]
    ) -> tuple[RemainderRounding, ...]:
        """Return what rounding does to each term, given its map and the bound on its weights."""
        n, reach, rounding = self.problem.shards.n_rows, self._sizes.reach, []
        terms = zip(self.problem.kernel.terms, maps, weights, strict=True)
        for (weight, term), each, longest in terms:
            if not isinstance(each, Nystrom):
                rounding.append(RemainderRounding())
                continue
            entry = each.rounding(reach, longest)
            constant, rate = term.value_by_slope or (0.0, 0.0)
            of_f = abs(weight * term.amplitude) * (abs(constant) + abs(rate) * 4 * reach**2)
            rounding.append(RemainderRounding(n * entry, of_f * entry * self._absolute_sum))
        return tuple(rounding)

    def _choices(self, Z: Array) -> list[TermFactor]:
        """Return how each term is to be expanded, given a sample Z (s, k) of projected rows."""
        problem = self.problem
        choices: list[TermFactor] = []
        for index, (_, term) in enumerate(problem.kernel.terms):
            features = term.features(Z.shape[1])
            if features is not None and features.size <= _FEW_MONOMIALS:
                choices.append(ExactFactor(features))
            else:
                seed = [problem.seed, index]
                n = problem.shards.n_rows
                choices.append(SampledLandmarks(term, Z, n, problem.engine_tol, seed))
        return choices

    @cached_property
    def sample(self) -> Array:
        """The rows (s, d) to choose landmarks among."""
        if self.problem.sample is not None:
            return self.problem.sample
        n = self.problem.shards.n_rows
        chosen = np.unique(np.linspace(0, n - 1, min(n, _SAMPLE_ROWS)).astype(int))
        return self.problem.shards.rows(chosen)


def _weights(piece: LoadedShard, expansion: FactoredSlope) -> tuple[Maximum, ...]:
    """Return the length of the longest weights of each term's map, 0 where it has none."""
    Z = piece.X.astype(np.float64, copy=False)
    found = []
    for each in expansion.maps:
        number = 0.0
        if isinstance(each, Nystrom):
            weights = each.weights(each(Z))
            number = float(np.sqrt(np.einsum("ij,ij->i", weights, weights).max()))
        found.append(Maximum(number))
    return tuple(found)
