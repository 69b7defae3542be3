"""Any kernel and any Gamma in linear time: sums over random blocks of pairs, with their error."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ism_dask.engines.base import Engine, Problem
from ism_dask.engines.closed import Closed
from ism_dask.engines.meeting_stripes import Met, Partial, phi_part, product_part, value_part
from ism_dask.engines.meetings import Design
from ism_dask.engines.tiles import Model, projected
from ism_dask.solver import Evaluation
from ism_dask.typing import Array


class Blocks(Engine):
    """O(n B (q + d)): each row stands against B others, the same ones for all W."""

    name = "blocks"
    approximate = True

    @classmethod
    def refusal(cls, problem: Problem, q: int) -> str | None:
        """Refuse nothing."""
        return None

    @cached_property
    def design(self) -> Design:
        return Design.of(self.problem.shards, self.partners, self.problem.seed)

    partners = 1000.0

    def phi0(self) -> Array:
        flat = self.problem.flat()
        return Closed(flat, self.q).phi0()

    def phi(self, W: Array) -> Evaluation:
        """Return J and Phi at W."""
        shards, met = self.problem.shards, self._met(measured=False)
        matrix, sums = shards.fold_meetings(phi_part, self.design.tails, shards, met, W)
        return self._summed(0.5 * (matrix + matrix.T), sums)

    def product(self, W: Array) -> Evaluation:
        """Return J and Phi W."""
        points = self.problem.shards.derive(projected, W).settled()
        tails, met = points.through(W.shape[1]), self._met(measured=True)
        return self._summed(*points.fold_meetings(product_part, self.design.tails, tails, met))

    def value(self, W: Array) -> Evaluation:
        """Return J at W."""
        points = self.problem.shards.derive(projected, W).settled().through(W.shape[1])
        met = self._met(measured=True)
        _, sums = points.fold_meetings(value_part, self.design.tails, points, met)
        return self._summed(W[:, :0], sums)

    def _summed(self, matrix, sums):
        self.last_sums = sums
        return Evaluation(float(sums[:-1].sum()), matrix, np.inf)

    def _met(self, *, measured: bool) -> Met:
        problem = self.problem
        model = Model(problem.kernel, problem.gamma, problem.shards.n_rows)
        return Met(model, self.design, problem.shards.bounds[:-1], measured)
