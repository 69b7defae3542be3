"""Compute Phi by sums over rows, given a factor F with `unit_slope(beta_ij) = F_i . F_j`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.closed_form import weighted_gram
from ism_dask.engines.tiles import PROJECTED, ignore_overflow
from ism_dask.gamma.base import GAMMA_FACTS, Gamma
from ism_dask.kernels import Kernel
from ism_dask.kernels.pairing import INNER
from ism_dask.rows.raw import LoadedShard


class FeatureMap(Protocol):
    """A map from projected rows to the rows of F."""

    @property
    def size(self) -> int:
        """The number of columns of F."""

    def __call__(self, Z: Array) -> Array:
        """Return F (b, size) for Z (b, q)."""


@dataclass(frozen=True)
class FactoredSlope:
    """The low-rank factors F of all terms of a kernel, joined, with constants for the m columns.

    Attributes
    ----------
    maps : tuple of FeatureMap
        One map for each term.
    slope : (m,) array
        `weight * amplitude`: column l contributes `slope_l F_il F_jl` to f'.
    coupling, degree : (m,) arrays
        The constants of the pairing, for each column.
    constant, rate : (m,) arrays
        The a and b of `f = (a + b beta) f'`.
    """

    maps: tuple[FeatureMap, ...]
    slope: Array
    coupling: Array
    degree: Array
    constant: Array
    rate: Array

    @classmethod
    def from_maps(cls, kernel: Kernel, maps: Sequence[FeatureMap]) -> FactoredSlope:
        """Return the factored slope of a kernel whose terms have these maps."""
        rows = []
        for (weight, term), each in zip(kernel.terms, maps, strict=True):
            constant, rate = term.value_by_slope or (np.nan, np.nan)
            pairing = term.pairing
            row = (weight * term.amplitude, pairing.coupling, pairing.degree, constant, rate)
            rows += [row] * each.size
        return cls(tuple(maps), *np.array(rows).reshape(-1, 5).T)

    @property
    def size(self) -> int:
        """The number m of columns of F."""
        return len(self.slope)

    @property
    def has_degrees(self) -> bool:
        """Whether Phi contains degrees, the row sums of Psi."""
        return bool(self.degree.any())

    def factor(self, Z: Array) -> Array:
        """Return F (b, m) for Z (b, q), in float64."""
        wide = Z.astype(np.float64)
        return np.hstack([each(wide) for each in self.maps])


@dataclass(frozen=True)
class Moments:
    """Sums over all rows of U_is F_il times 1, z_i and ||z_i||^2, which give J and the degrees.

    Attributes
    ----------
    sums : (r, m, q + 2) array
    signs : (r,) array
        The signs of Gamma.
    """

    sums: Array
    signs: Array

    @property
    def ones(self) -> Array:
        """`sum_i U_is F_il`, (r, m)."""
        return self.sums[..., 0]

    @property
    def points(self) -> Array:
        """`sum_i U_is F_il z_i`, (r, m, q)."""
        return self.sums[..., 1:-1]

    @ignore_overflow
    def objective(self, expansion: FactoredSlope) -> float:
        """Return J, using `f = (a + b beta) f'` for each term."""
        e = expansion
        betas = e.coupling * np.einsum("slk,slk->sl", self.points, self.points)
        betas += e.degree * self.ones * self.sums[..., -1]
        by_column = self.signs @ (e.constant * self.ones**2 + e.rate * betas)
        return float(e.slope @ by_column)

    def psi_coefficients(self, gamma: Gamma, expansion: FactoredSlope) -> Array:
        """Return G (v, m, 1 + q), with which `sum_a V_ia F_i G_a` gives the sums of Psi for row i.

        These are its degree, and then `coupling * (Psi Z)_i`.
        """
        e = expansion
        each = np.concatenate(
            [
                (e.slope * e.degree * self.ones)[..., None],
                (e.slope * e.coupling)[:, None] * self.points,
            ],
            axis=2,
        )
        mixed = np.tensordot(gamma.mixing * self.signs, each, axes=1)
        return np.asarray(mixed)


def moment_columns(Z: Array) -> Array:
    """Return 1, z_i and ||z_i||^2 for each row of Z, as (b, q + 2) columns."""
    return np.column_stack([np.ones(len(Z)), Z, INNER.own(Z)])


@ignore_overflow
def moment_sums(Z: Array, F: Array, facts: Array, gamma: Gamma) -> Array:
    """Return the sums of `Moments` (v, m, q + 2) over some rows, with V in place of U."""
    sides = moment_columns(Z)
    return np.stack([_weighted(F, rows, w).T @ sides[rows] for rows, w in gamma.memberships(facts)])


def psi_rows(F: Array, facts: Array, gamma: Gamma, coefficients: Array) -> Array:
    """Return the degrees of rows, and `coupling * Psi Z` if in `coefficients`: (b, 1 or 1 + q)."""
    out = np.zeros((len(F), coefficients.shape[2]))
    for G, (rows, w) in zip(coefficients, gamma.memberships(facts), strict=True):
        out[rows] += _weighted(F, rows, w) @ G
    return out


@ignore_overflow
def phi_sums(
    piece: LoadedShard, expansion: FactoredSlope, gamma: Gamma, coefficients: Array
) -> tuple[Array, Array | None]:
    """Return the feature sums of a shard, and `X^T diag(degrees) X` if the slope has degrees.

    F is computed again: an exponential costs less than storing n m numbers.
    """
    X, facts = piece.X, piece.facts[GAMMA_FACTS]
    F = expansion.factor(piece.facts[PROJECTED])
    gram = None
    if expansion.has_degrees:
        gram = weighted_gram(X, psi_rows(F, facts, gamma, coefficients)[:, 0])
    return feature_sums(X, F, facts, gamma), gram


def feature_sums(X: Array, F: Array, facts: Array, gamma: Gamma) -> Array:
    """Return `sum_i V_ia F_il x_i` (v, m, d) over some rows."""
    narrow = F.astype(X.dtype, copy=False)
    sums = np.empty((len(gamma.mixing), F.shape[1], X.shape[1]))
    for index, (rows, w) in enumerate(gamma.memberships(facts)):
        sums[index] = _weighted(narrow, rows, w).T @ X[rows]
    return sums


@ignore_overflow
def gradient_sums(
    piece: LoadedShard, expansion: FactoredSlope, gamma: Gamma, coefficients: Array
) -> Array:
    """Return the contribution of a shard to Phi W (d, q)."""
    Z, facts = piece.facts[PROJECTED], piece.facts[GAMMA_FACTS]
    inner = gradient_rows(Z, facts, expansion, gamma, coefficients)
    return (piece.X.T @ inner.astype(piece.X.dtype)).astype(np.float64)


def gradient_rows(
    Z: Array, facts: Array, expansion: FactoredSlope, gamma: Gamma, coefficients: Array
) -> Array:
    """Return the rows R (b, q) for which Phi W is the sum of `x_i R_i` over all rows."""
    rows = psi_rows(expansion.factor(Z), facts, gamma, coefficients)
    return rows[:, 1:] + rows[:, :1] * Z


def phi_from_sums(
    sums: tuple[Array, Array | None], expansion: FactoredSlope, gamma: Gamma
) -> Array:
    """Return Phi (d, d), given the `phi_sums` over all rows."""
    by_column, gram = sums
    matrix = cross_gram(by_column, expansion, gamma)
    return matrix if gram is None else matrix + gram


@ignore_overflow
def cross_gram(by_column: Array, expansion: FactoredSlope, gamma: Gamma) -> Array:
    """Return `coupling * X^T Psi X` (d, d), given the `feature_sums` over all rows."""
    mixed = np.tensordot(gamma.mixing.T, by_column, axes=1)
    weights = np.multiply.outer(gamma.signs, expansion.slope * expansion.coupling)
    return weighted_gram(mixed.reshape(-1, by_column.shape[2]), weights.ravel())


def _weighted(F: Array, rows: Array | slice, weights: Array | None) -> Array:
    return F[rows] if weights is None else F[rows] * weights[rows, None].astype(F.dtype)
