"""The engine for kernels with constant slope: Phi does not depend on W and needs only thin sums."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.base import Engine, PhiEvaluation, Problem, ProductEvaluation
from ism_dask.engines.tiles import ignore_overflow
from ism_dask.gamma.base import GAMMA_FACTS, Gamma
from ism_dask.rows.raw import LoadedShard

# Gamma is centred: column sums of U below this share of the sums of |U| are rounding errors.
_CENTRED = 1e-6


class ClosedFormEngine(Engine):
    """O(n d r) and one pass: with `S = X^T U`, Phi is `coupling * S S^T`, plus degrees if any."""

    name = "closed_form"

    @classmethod
    def refusal(cls, problem: Problem) -> str | None:
        """Return a reason if the slope of the kernel varies, otherwise None."""
        if all(t.constant_slope and not t.per_row_width for _, t in problem.kernel.terms):
            return None
        return "the slope of the kernel depends on beta"

    @cached_property
    @ignore_overflow
    def _phi(self) -> Array:
        problem, gamma, coupling, degree = self.problem, self.problem.gamma, 0.0, 0.0
        for weight, term in problem.kernel.terms:
            slope = weight * term.amplitude
            coupling += slope * term.pairing.coupling
            degree += slope * term.pairing.degree
        S, sums, size = problem.shards.fold(_gamma_sums, gamma)
        total = coupling * (S * gamma.signs) @ S.T
        if degree and np.abs(sums).max() > _CENTRED * size:
            total += degree * problem.shards.fold(_phi_of_degrees, gamma, gamma.signs * sums)
        return np.asarray(0.5 * (total + total.T))

    def phi0(self) -> Array:
        """Return Phi, which is the same for every W."""
        return self._phi

    def phi(self, W: Array) -> PhiEvaluation:
        """Return J and Phi at W."""
        J = self.product(W).objective
        return PhiEvaluation(J, self._phi, **self._accuracy(J))

    @ignore_overflow
    def product(self, W: Array) -> ProductEvaluation:
        """Return J and Phi W. J is `tr W^T Phi W`, because f is proportional to beta."""
        product = self._phi @ W
        J = float(np.vdot(W, product))
        return ProductEvaluation(J, product, **self._accuracy(J))


@ignore_overflow
def _gamma_sums(piece: LoadedShard, gamma: Gamma) -> tuple[Array, Array, float]:
    U = gamma.factor(piece.facts[GAMMA_FACTS])
    # In float64 even for float32 rows: the rank of Phi0, and so the start, depends on these digits.
    return piece.X.T.astype(np.float64) @ U, U.sum(axis=0), float(np.abs(U).sum(axis=0).max())


def _phi_of_degrees(piece: LoadedShard, gamma: Gamma, sums: Array) -> Array:
    return weighted_gram(piece.X, gamma.factor(piece.facts[GAMMA_FACTS]) @ sums)


@ignore_overflow
def weighted_gram(X: Array, weights: Array) -> Array:
    """Return `X^T diag(weights) X` (d, d) for X (b, d), computed by symmetric products."""
    positive = weights > 0
    sign = 1.0 if 2 * np.count_nonzero(positive) >= len(weights) else -1.0
    rows = X * np.sqrt(np.abs(weights)).astype(X.dtype)[:, None]
    total = sign * (rows.T @ rows).astype(np.float64)
    # Rows with the other sign, usually few or none, were added with the wrong one.
    others = rows[~positive if sign > 0 else positive]
    if len(others):
        total -= 2.0 * sign * (others.T @ others)
    return total
