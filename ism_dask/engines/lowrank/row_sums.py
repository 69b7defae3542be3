"""Compute Phi by sums over rows, given a factor F with `unit_slope(beta_ij) = F_i . F_j`.

What F by landmarks omits is measured over all rows, and its effect on J is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask.engines.closed_form import weighted_gram
from ism_dask.engines.lowrank.landmarks import (
    LargestRemainders,
    Nystrom,
    TermRemainder,
    unit_slope_diagonal,
)
from ism_dask.engines.tiles import PROJECTED, ignore_overflow
from ism_dask.gamma.base import GAMMA_FACTS, Gamma
from ism_dask.kernels import Kernel, PointwiseKernel
from ism_dask.kernels.inner_products import Monomials
from ism_dask.kernels.pairing import INNER
from ism_dask.rows.raw import LoadedShard

# Up to this many columns, the eigenvalues of the Gram matrix of the error are cheap to compute.
_MOST, _MOST_OF_U = 256, 2048


# A map from projected rows (b, q) to the rows of F (b, size).
FeatureMap: TypeAlias = Monomials | Nystrom


@dataclass(frozen=True)
class FactoredSlope:
    """The low-rank factors F of all terms of a kernel, joined, with Gamma: what tasks need.

    There is one map for each term, and constants for the m columns of F: `slope_l F_il F_jl` is
    what column l contributes to f', coupling and degree are those of the pairing, and `constant`
    and `rate` are the a and b of `f = (a + b beta) f'`.
    """

    kernel: Kernel
    gamma: Gamma
    maps: tuple[FeatureMap, ...]
    slope: Array
    coupling: Array
    degree: Array
    constant: Array
    rate: Array

    @classmethod
    def from_maps(cls, kernel: Kernel, gamma: Gamma, maps: Sequence[FeatureMap]) -> FactoredSlope:
        """Return the factored slope of a kernel whose terms have these maps."""
        rows = []
        for (weight, term), each in zip(kernel.terms, maps, strict=True):
            constant, rate = term.value_by_slope or (np.nan, np.nan)
            pairing = term.pairing
            row = (weight * term.amplitude, pairing.coupling, pairing.degree, constant, rate)
            rows += [row] * each.size
        return cls(kernel, gamma, tuple(maps), *np.array(rows).reshape(-1, 5).T)

    @property
    def size(self) -> int:
        """The number m of columns of F."""
        return len(self.slope)

    def factor(self, Z: Array) -> Array:
        """Return F (b, m) for Z (b, q), in float64."""
        wide = Z.astype(np.float64)
        return np.hstack([each(wide) for each in self.maps])

    @ignore_overflow
    def moment_sums(self, piece: LoadedShard) -> Array:
        """Return the sums of V_ia F_il times 1, z_i and ||z_i||^2 over projected rows of a shard.

        They are (v, m, q + 2), and those over all rows become the moments, with U in place of V.
        """
        Z = piece.X.astype(np.float64, copy=False)
        return self._moment_sums(self.factor(Z), _moment_columns(Z), piece.facts[GAMMA_FACTS])

    def _moment_sums(self, F: Array, sides: Array, facts: Array) -> Array:
        groups = self.gamma.memberships(facts)
        return np.stack([_weighted(F, rows, w).T @ sides[rows] for rows, w in groups])

    def moments(self, sums: Array) -> Array:
        """Return the sums of U_is F_il times 1, z_i and ||z_i||^2 over all rows: (r, m, q + 2)."""
        return np.tensordot(self.gamma.mixing.T, sums, axes=1)

    @ignore_overflow
    def objective(self, moments: Array) -> float:
        """Return J, using `f = (a + b beta) f'` for each term."""
        ones, points, squares = moments[..., 0], moments[..., 1:-1], moments[..., -1]
        betas = self.coupling * np.einsum("slk,slk->sl", points, points)
        betas += self.degree * ones * squares
        by_column = self.gamma.signs @ (self.constant * ones**2 + self.rate * betas)
        return float(self.slope @ by_column)

    @ignore_overflow
    def psi_coefficients(self, moments: Array) -> Array:
        """Return G (v, m, 1 + q), with which `sum_a V_ia F_i G_a` gives the sums of Psi for row i.

        These are its degree, and then `coupling * (Psi Z)_i`.
        """
        degrees = (self.slope * self.degree * moments[..., 0])[..., None]
        points = (self.slope * self.coupling)[:, None] * moments[..., 1:-1]
        mixing = self.gamma.mixing * self.gamma.signs
        return np.asarray(np.tensordot(mixing, np.concatenate([degrees, points], axis=2), axes=1))

    def _psi_rows(self, F: Array, facts: Array, coefficients: Array) -> Array:
        """Return what `psi_coefficients` (v, m, c) give for rows: (b, c)."""
        out = np.zeros((len(F), coefficients.shape[2]))
        for G, (rows, w) in zip(coefficients, self.gamma.memberships(facts), strict=True):
            out[rows] += _weighted(F, rows, w) @ G
        return out

    @ignore_overflow
    def phi_sums(self, piece: LoadedShard, coefficients: Array) -> tuple[Array, Array | None]:
        """Return the sums `V_ia F_il x_i` (v, m, d) of a shard, and `X^T diag(degrees) X`.

        If the slope has no degrees, the second is None. F is computed again: an exponential costs
        less than storing n m numbers.
        """
        X, facts = piece.X, piece.facts[GAMMA_FACTS]
        F = self.factor(piece.facts[PROJECTED])
        gram = None
        if self.degree.any():
            gram = weighted_gram(X, self._psi_rows(F, facts, coefficients)[:, 0])
        narrow = F.astype(X.dtype, copy=False)
        sums = np.empty((len(self.gamma.mixing), F.shape[1], X.shape[1]))
        for index, (rows, w) in enumerate(self.gamma.memberships(facts)):
            sums[index] = _weighted(narrow, rows, w).T @ X[rows]
        return sums, gram

    @ignore_overflow
    def phi_from_sums(self, sums: tuple[Array, Array | None]) -> Array:
        """Return Phi (d, d), given the `phi_sums` over all rows."""
        by_column, gram = sums
        mixed = np.tensordot(self.gamma.mixing.T, by_column, axes=1)
        weights = np.multiply.outer(self.gamma.signs, self.slope * self.coupling)
        matrix = weighted_gram(mixed.reshape(-1, by_column.shape[2]), weights.ravel())
        return matrix if gram is None else matrix + gram

    @ignore_overflow
    def gradient_sums(self, piece: LoadedShard, coefficients: Array) -> Array:
        """Return the contribution of a shard to Phi W (d, q)."""
        inner = self.gradient_rows(piece.facts[PROJECTED], piece.facts[GAMMA_FACTS], coefficients)
        return (piece.X.T @ inner.astype(piece.X.dtype)).astype(np.float64)

    def gradient_rows(self, Z: Array, facts: Array, coefficients: Array) -> Array:
        """Return the rows R (b, q) for which Phi W is the sum of `x_i R_i` over all rows."""
        rows = self._psi_rows(self.factor(Z), facts, coefficients)
        return rows[:, 1:] + rows[:, :1] * Z

    @ignore_overflow
    def measure_remainders(
        self, piece: LoadedShard
    ) -> tuple[Array, Array, tuple[TermRemainder, ...]]:
        """Return `moment_sums`, the Gram matrix of the error and the remainder of each term.

        The rows of the shard are projected ones.
        """
        Z, facts = piece.X.astype(np.float64, copy=False), piece.facts[GAMMA_FACTS]
        F, sides = self.factor(Z), _moment_columns(Z)
        terms, first = [], 0
        for (_, term), each in zip(self.kernel.terms, self.maps, strict=True):
            diagonal = unit_slope_diagonal(term, Z)
            columns = F[:, first : first + each.size]
            rest = np.maximum(diagonal - np.einsum("ij,ij->i", columns, columns), 0.0)
            largest = LargestRemainders(rest, piece.start + np.arange(len(Z)), Z)
            terms.append((float(diagonal.sum()), float(rest.sum()), largest))
            first += each.size
        # Without rates, the error needs only the column of ones.
        gram = _gram(self.gamma.factor(facts), sides if self.rate.any() else sides[:, :1])
        return self._moment_sums(F, sides, facts), gram, tuple(terms)

    def left_out(self, gram: Array, found: tuple[TermRemainder, ...], n_rows: int) -> float:
        """Return a bound on the part of J that the landmarks omit.

        The part of a term is `sum_ij M_ij E_ij`, with `M = Gamma o (a + b beta)` and a positive
        semi-definite E: it lies between the extreme eigenvalues of M times the trace of E. The Gram
        matrix and the remainders are those of all rows.
        """
        low = high = 0.0
        terms = zip(self.kernel.terms, found, self.maps, strict=True)
        for (weight, term), (_, rest, _), each in terms:
            rounding = n_rows * each.rounding if isinstance(each, Nystrom) else 0.0
            ends = weight * term.amplitude * (rest + rounding) * self._ends(term, gram)
            low, high = low + ends.min(), high + ends.max()
        return max(abs(low), abs(high))

    def _ends(self, term: PointwiseKernel, gram: Array) -> Array:
        """Return bounds on the least eigenvalue of M, at most 0, and on the largest, at least 0."""
        constant, rate = term.value_by_slope or (0.0, 0.0)
        inner, outer = rate * term.pairing.coupling, rate * term.pairing.degree
        width = len(gram) // len(self.gamma.signs)
        if gram.ndim == 1:
            # For each column u of U, M is a sum of outer products, bounded by the norms of their
            # factors.
            ones, *z, squares = gram.reshape(-1, width).T if width > 1 else (gram, 0.0 * gram)
            each = abs(constant) * ones + abs(outer) * np.sqrt(ones * squares)
            each += abs(inner) * np.sum(z, axis=0)
            return float(np.abs(self.gamma.signs) @ each) * np.array([-1.0, 1.0])
        form = np.zeros((width, width))
        form[0, 0] = constant
        if width > 1:
            middle = np.arange(1, width - 1)
            form[middle, middle] = inner
            form[0, -1] = form[-1, 0] = outer / 2
        values, vectors = scipy.linalg.eigh(gram)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        M = root.T @ np.kron(np.diag(self.gamma.signs), form) @ root
        ends = scipy.linalg.eigvalsh(M)[[0, -1]]
        return np.array([min(ends[0], 0.0), max(ends[1], 0.0)])


def _moment_columns(Z: Array) -> Array:
    """Return 1, z_i and ||z_i||^2 for each row of Z, as (b, q + 2) columns."""
    return np.column_stack([np.ones(len(Z)), Z, INNER.own(Z)])


def _weighted(F: Array, rows: Array | slice, weights: Array | None) -> Array:
    return F[rows] if weights is None else F[rows] * weights[rows, None].astype(F.dtype)


def _gram(U: Array, sides: Array) -> Array:
    """Return the Gram matrix (rp, rp) of the products of columns of U (b, r) and sides (b, p).

    If it would be large, return its diagonal (rp,) instead.
    """
    if U.shape[1] * sides.shape[1] > (_MOST if sides.shape[1] > 1 else _MOST_OF_U):
        return np.ravel((U**2).T @ sides**2)
    basis = (U[:, :, None] * sides[:, None, :]).reshape(len(U), -1)
    return np.asarray(basis.T @ basis)
