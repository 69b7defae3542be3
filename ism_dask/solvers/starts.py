"""Subspaces to begin with: each sees another way in which y can depend on X."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import scipy.linalg
from sklearn.metrics.pairwise import euclidean_distances

from ism_dask._types import Array
from ism_dask.linalg.eigen import largest_pairs, nearest_orthonormal, whitening_transform
from ism_dask.rows import side_by_side

# Slices that numbers are cut into.
_SLICES = 10
# The ridge of a covariance that is inverted, as a share of its mean eigenvalue.
_RIDGE = 1e-3
# Gradient starts: the width of their kernel as a share of the median distance, and the ridge of
# the regression. The second sees what changes over a shorter way.
_GRADIENTS = {"gradient": (1.0, 1e-3), "narrow gradient": (0.5, 1e-4)}
# What keeps the system of a regression positive definite, as a share of its mean eigenvalue.
_JITTER = 1e-10
# Rows that carry the regression, at which gradients are taken, and columns of the factor of y
# that it explains.
_CENTRES, _FUNCTIONS = 500, 8
# Rows whose distances from the centres give the median.
_MEDIAN_ROWS = 100
# Rows are copies of each other where their squared distance is at most this share of the largest.
_SAME = 1e-12
# Stages in which the directions become fewer.
_STAGES = 5


@dataclass(frozen=True, eq=False)
class SampledRows:
    """Rows in memory with what is to be explained of them.

    Attributes
    ----------
    X : (m, d) array
        Standardised rows, in double precision.
    U : (m, r) array
        A factor of Gamma, `Gamma = U U^T`, with columns of mean 0.
    slices : (m,) array of int
        Groups of rows with similar y.
    """

    X: Array
    U: Array
    slices: Array

    @classmethod
    def of(cls, X: Array, U: Array, classes: Array | None) -> SampledRows:
        """Return the evidence of rows; numbers are cut into slices of equal size."""
        U = U - U.mean(axis=0)
        return cls(X, U, _slices(U) if classes is None else classes)

    @cached_property
    def mean_square(self) -> float:
        """The mean over rows of the squared length of a row of U."""
        return float(np.einsum("ij,ij->", self.U, self.U)) / len(self.U)

    @cached_property
    def covariance(self) -> Array:
        """That of the rows (d, d)."""
        return np.asarray(self.X.T @ self.X / len(self.X))

    @cached_property
    def precondition(self) -> Callable[[Array], Array]:
        """Multiplies a slope of J (d, k) by the inverse covariance of the rows, with a ridge.

        J bends least where the rows vary least.
        """
        covariance = self.covariance.copy()
        covariance[np.diag_indices(len(covariance))] += np.trace(covariance) / len(covariance)
        return partial(scipy.linalg.cho_solve, scipy.linalg.cho_factor(covariance))

    def part(self, rows: Array) -> SampledRows:
        """Return that of some rows (k,)."""
        U = self.U[rows]
        X = self.X[rows]
        return SampledRows(X - X.mean(axis=0), U - U.mean(axis=0), self.slices[rows])


def candidate_starts(evidence: SampledRows, q: int) -> dict[str, Array]:
    """Return subspaces (d, q) to begin with, by name; the spectral start is not among them."""
    functions = _principal_functions(evidence.U)
    calls = {
        name: partial(gradient_subspace, evidence.X, functions, share, ridge, q)
        for name, (share, ridge) in _GRADIENTS.items()
    }
    calls["directional regression"] = partial(directional_regression, evidence, q)
    return dict(zip(calls, side_by_side(list(calls.values()), len(evidence.X)), strict=True))


def directional_regression(evidence: SampledRows, q: int) -> Array:
    """Return the subspace (d, q) in which means or variances of slices differ (Li and Wang)."""
    X = evidence.X
    m, d = X.shape
    whitening = whitening_transform(evidence.covariance, _RIDGE)
    white = X @ whitening
    identity = np.eye(d)
    moments, means, size = np.zeros((d, d)), np.zeros((d, d)), 0.0
    for label in np.unique(evidence.slices):
        rows = white[evidence.slices == label]
        share, mean = len(rows) / m, rows.mean(axis=0)
        departure = rows.T @ rows / len(rows) - identity
        moments += share * departure @ departure
        means += share * np.outer(mean, mean)
        size += share * float(mean @ mean)
    matrix = moments + means @ means + size * means
    return nearest_orthonormal(whitening @ largest_pairs(matrix, q)[1])


def gradient_subspace(X: Array, functions: Array, share: float, ridge: float, q: int) -> Array:
    """Return the subspace (d, q) in which regressions of functions (m, k) of y on X (m, d) vary.

    After Fukumizu and Leng, "Gradient-based kernel dimension reduction" (2014). Gradients are
    taken in fewer and fewer directions, those that the ones before spanned: the fewer there are,
    the more a kernel sees. The width of the kernel is a `share` of the median distance.
    """
    first, *others = _falling_dimensions(X.shape[1], q)
    subspace = largest_pairs(_gradient_moments(X, functions, share, ridge), first)[1]
    for k in others:
        moments = _gradient_moments(X @ subspace, functions, share, ridge)
        subspace = subspace @ largest_pairs(moments, k)[1]
    return subspace


def _falling_dimensions(d: int, q: int) -> list[int]:
    """Return numbers of directions that fall from below `d` to `q`, each by the same factor."""
    numbers = np.rint(np.geomspace(d, q, _STAGES + 1)).astype(int).tolist()
    return sorted({k for k in numbers if q <= k < d} | {q}, reverse=True)


def _gradient_moments(Z: Array, functions: Array, share: float, ridge: float) -> Array:
    """Return the sum (k, k) over centres of the outer products of gradients of regressions on Z.

    Up to 500 of the rows Z (m, k) are centres: they carry the regression, and gradients are taken
    there.
    """
    chosen = np.linspace(0, len(Z) - 1, min(len(Z), _CENTRES)).astype(int)
    centres = Z[chosen]
    squared = euclidean_distances(Z, centres, squared=True)
    some = squared[:: max(len(Z) // _MEDIAN_ROWS, 1)]
    positive = some[some > _SAME * some.max()]
    width = share**2 * float(np.median(positive)) if positive.size else 1.0
    K = np.exp(squared / (-2.0 * width))
    between = K[chosen]
    c, k = centres.shape
    system = K.T @ K + ridge * len(K) * between
    system[np.diag_indices(c)] += _JITTER * np.trace(system) / c
    weights = scipy.linalg.solve(system, K.T @ functions, assume_a="pos")
    # The gradient at centre i is the sum over centres j of w_j K_ij (z_j - z_i).
    weighted = weights[:, :, None] * centres[:, None, :]
    ahead = (between @ weighted.reshape(c, -1)).reshape(weighted.shape)
    gradients = ahead - (between @ weights)[:, :, None] * centres[:, None, :]
    gradients = gradients.reshape(-1, k)
    return np.asarray(gradients.T @ gradients)


def _principal_functions(U: Array) -> Array:
    """Return the (m, k) principal columns of U (m, r), no more than are looked at."""
    if U.shape[1] <= _FUNCTIONS:
        return U
    return np.asarray(U @ largest_pairs(U.T @ U, _FUNCTIONS)[1])


def _slices(U: Array) -> Array:
    """Return the slice of each row, in the order of the first principal column of U (m, r)."""
    along = (U @ largest_pairs(U.T @ U, 1)[1])[:, 0]
    ranks = np.empty(len(U), dtype=int)
    ranks[np.argsort(along, kind="stable")] = np.arange(len(U))
    return ranks * _SLICES // len(U)
