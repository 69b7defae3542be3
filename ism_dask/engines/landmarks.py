"""Any kernel whose slopes are numerically low rank: a few rows stand for all, with a bound."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ism_dask.engines.audit import Audit, look
from ism_dask.engines.base import Problem
from ism_dask.engines.choice import Choice, Monomial, Sampled
from ism_dask.engines.expansion import QUIET, Expansion, Moments
from ism_dask.engines.factored import Expanded, Factored
from ism_dask.shards import Shards
from ism_dask.typing import Array

# A term with up to so many monomials keeps them: it needs no landmarks.
_FEW_MONOMIALS = 256
# Rows to choose among, where the problem brings no sample.
_SAMPLE_ROWS = 5000
# From here on landmarks are faster than tiles (measured, see docs/engines.md).
_FROM_ROWS = 4000


class Landmarks(Factored):
    """O(n m (m + d)): `shape = F F^T + E`, E positive semi-definite with a known trace.

    Landmarks are chosen among a sample of the projected rows until little is left there. Then
    all rows are looked at, and while they have more than `engine_tol` of their trace left, the
    worst of them come in. Terms with few monomials keep those instead.
    """

    name = "landmarks"
    approximate = True

    @classmethod
    def refusal(cls, problem: Problem, q: int) -> str | None:
        """Refuse kernels that are not positive semi-definite."""
        for _, term in problem.kernel.terms:
            if term.local or not term.definite or term.value_by_slope is None:
                return f"the slope of {type(term).__name__} is not positive semi-definite"
        return super().refusal(problem, q)

    @classmethod
    def advised(cls, problem: Problem, q: int) -> bool:
        """Say whether there are rows enough."""
        return problem.shards.n_rows >= _FROM_ROWS

    def _expand(self, W: Array, points: Shards) -> Expanded:
        found = self.expand(points.through(W.shape[1]), self.sample @ W.astype(self.sample.dtype))
        return Expanded(W, points, *found)

    @QUIET
    def expand(self, points: Shards, sample: Array) -> tuple[Expansion, Moments, float]:
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
            expansion = Expansion.of(self.problem.kernel, maps)
            self._afford_columns(expansion.size)
            audit = Audit(self.problem.kernel, expansion, self._gamma, points.dtype)
            sums, gram, found = points.fold(look, audit)
            pairs = zip(choices, found, strict=True)
            unmet = [pair for pair in pairs if not pair[0].accepts(pair[1])]
            if not unmet:
                moments = self._moments(sums)
                return expansion, moments, audit.error(moments.objective(expansion), gram, found)
            for choice, each in unmet:
                choice.improve(each)

    def _choices(self, Z: Array) -> list[Choice]:
        """Return how each term is to be expanded, given a sample Z (s, k) of projected rows."""
        problem = self.problem
        choices: list[Choice] = []
        for index, (_, term) in enumerate(problem.kernel.terms):
            features = term.features(Z.shape[1])
            if features is not None and features.size <= _FEW_MONOMIALS:
                choices.append(Monomial(features))
            else:
                seed = [problem.seed, index]
                n = problem.shards.n_rows
                choices.append(Sampled(term, Z, n, problem.engine_tol, seed))
        return choices

    @cached_property
    def sample(self) -> Array:
        """The rows (s, d) to choose landmarks among."""
        if self.problem.sample is not None:
            return self.problem.sample
        n = self.problem.shards.n_rows
        chosen = np.unique(np.linspace(0, n - 1, min(n, _SAMPLE_ROWS)).astype(int))
        return self.problem.shards.rows(chosen)
