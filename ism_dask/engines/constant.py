"""The engine for kernels with constant slope: Phi does not depend on W and needs only thin sums."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.base import Engine, Problem
from ism_dask.engines.operator import Evaluation, PhiEvaluation, ProductEvaluation
from ism_dask.engines.row_facts import INVERSE_WIDTHS
from ism_dask.engines.tiles import ignore_overflow
from ism_dask.gamma.base import GAMMA_FACTS, Gamma
from ism_dask.rows.tasks import LoadedShard

# Gamma is centred: column sums of U below this share of the sums of |U| are rounding errors.
_CENTRED = 1e-6


@dataclass(frozen=True, eq=False)
class _TermSums:
    """The sums of one term of a kernel.

    Attributes
    ----------
    S : (d, r) array
        `X^T U`, with rows weighted by their inverse widths if these are their own.
    sums : (r,) array
        The column sums of U.
    coupling, degree : float
        The constants of the term: of `S S^T`, and of the degrees, 0 if there are none.
    width_column : int or None
        The column of the inverse widths that belongs to the term.
    """

    S: Array
    sums: Array
    coupling: float
    degree: float
    width_column: int | None


class ConstantSlope(Engine):
    """O(n d r) and one pass: with `S = X^T U`, Phi is `coupling * S S^T`, plus degrees if any.

    Each term of the kernel has a slope s and weights rho of the rows (1, or inverse per-row
    widths), so that `Psi = s diag(rho) Gamma diag(rho)`.
    """

    name = "closed"

    @classmethod
    def refusal(cls, problem: Problem, q: int) -> str | None:
        """Return a reason if the slope of the kernel varies, otherwise None."""
        if not all(term.constant_slope for _, term in problem.kernel.terms):
            return "the slope of the kernel depends on beta"
        return None

    @cached_property
    @ignore_overflow
    def _phi(self) -> Array:
        problem, gamma = self.problem, self.problem.gamma
        total = np.zeros((problem.d, problem.d))
        for part in self._parts:
            total += part.coupling * (part.S * gamma.signs) @ part.S.T
            if part.degree:
                gram = problem.shards.fold(
                    _phi_of_degrees, gamma, part.width_column, gamma.signs * part.sums
                )
                total += part.degree * gram
        return 0.5 * (total + total.T)

    @cached_property
    @ignore_overflow
    def _parts(self) -> list[_TermSums]:
        """The sums of each term of the kernel."""
        gamma, column, parts = self.problem.gamma, 0, []
        for weight, term in self.problem.kernel.terms:
            width_column = column if term.per_row_width else None
            column += term.per_row_width
            S, sums, size = self.problem.shards.fold(_gamma_sums, gamma, width_column)
            slope = weight * term.amplitude
            has_degrees = term.pairing.degree and np.abs(sums).max() > _CENTRED * size
            degree = slope * term.pairing.degree if has_degrees else 0.0
            parts.append(_TermSums(S, sums, slope * term.pairing.coupling, degree, width_column))
        return parts

    def phi0(self) -> Array:
        """Return Phi, which is the same for every W."""
        return self._phi

    def phi(self, W: Array) -> PhiEvaluation:
        """Return J and Phi at W."""
        J = self._objective(W)
        return PhiEvaluation(J, self._phi, **self._accuracy(J, summed=1))

    @ignore_overflow
    def product(self, W: Array) -> ProductEvaluation:
        """Return J and Phi W."""
        J = self._objective(W)
        return ProductEvaluation(J, self._phi @ W, **self._accuracy(J, summed=1))

    def value(self, W: Array) -> Evaluation:
        """Return J at W."""
        J = self._objective(W)
        return Evaluation(J, **self._accuracy(J, summed=1))

    @ignore_overflow
    def _objective(self, W: Array) -> float:
        """Return `tr W^T Phi W`, which is J because f is proportional to beta."""
        return float(np.vdot(W, self._phi @ W))


def _weighted_factor(piece: LoadedShard, gamma: Gamma, width_column: int | None) -> Array:
    U = gamma.factor(piece.facts[GAMMA_FACTS])
    return U if width_column is None else U * piece.facts[INVERSE_WIDTHS][:, width_column, None]


@ignore_overflow
def _gamma_sums(
    piece: LoadedShard, gamma: Gamma, width_column: int | None
) -> tuple[Array, Array, float]:
    U = _weighted_factor(piece, gamma, width_column)
    # In float64 even for float32 rows: the rank of Phi0, and so the start, depends on these digits.
    return piece.X.T.astype(np.float64) @ U, U.sum(axis=0), float(np.abs(U).sum(axis=0).max())


def _phi_of_degrees(
    piece: LoadedShard, gamma: Gamma, width_column: int | None, sums: Array
) -> Array:
    degrees = _weighted_factor(piece, gamma, width_column) @ sums
    return weighted_gram(piece.X, degrees)


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
