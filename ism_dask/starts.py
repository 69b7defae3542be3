"""Subspaces to begin with: each sees another way in which y can depend on X."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import scipy.linalg
from scipy.spatial.distance import cdist

from ism_dask.eigen import largest_pairs, nearest_orthonormal, whitened_by
from ism_dask.shards import side_by_side
from ism_dask.typing import Array

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


@dataclass(frozen=True, eq=False)
class Evidence:
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
    def of(cls, X: Array, U: Array, classes: Array | None) -> Evidence:
        """Return the evidence of rows; numbers are cut into slices of equal size."""
        U = U - U.mean(axis=0)
        return cls(X, U, _slices(U) if classes is None else classes)

    @cached_property
    def mean_square(self) -> float:
        """The mean over rows of the squared length of a row of U."""
        return float(np.einsum("ij,ij->", self.U, self.U)) / len(self.U)

    def part(self, rows: Array) -> Evidence:
        """Return that of some rows (k,)."""
        U = self.U[rows]
        X = self.X[rows]
        return Evidence(X - X.mean(axis=0), U - U.mean(axis=0), self.slices[rows])


def starts(evidence: Evidence, q: int) -> dict[str, Array]:
    """Return subspaces (d, q) to begin with, by name; the spectral start is not among them."""
    calls = [partial(_by_slices, evidence, q), partial(_by_gradients, evidence, q)]
    by_slices, by_gradients = side_by_side(calls, len(evidence.X))
    return by_slices | by_gradients


def _by_slices(evidence: Evidence, q: int) -> dict[str, Array]:
    return {"directional regression": directional_regression(evidence, q)}


def _by_gradients(evidence: Evidence, q: int) -> dict[str, Array]:
    functions = _leading_functions(evidence.U)
    distances = _CentreDistances.of(evidence.X)
    return {
        name: distances.gradient_subspace(functions, share, ridge, q)
        for name, (share, ridge) in _GRADIENTS.items()
    }


def directional_regression(evidence: Evidence, q: int) -> Array:
    """Return the subspace (d, q) in which means or variances of slices differ (Li and Wang)."""
    X = evidence.X
    m, d = X.shape
    whitening = whitened_by(X.T @ X / m, _RIDGE)
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


@dataclass(frozen=True, eq=False)
class _CentreDistances:
    """Rows X (m, d), the numbers of those that are centres (c,), and squared distances (m, c)."""

    X: Array
    chosen: Array
    squared: Array

    @classmethod
    def of(cls, X: Array) -> _CentreDistances:
        chosen = np.linspace(0, len(X) - 1, min(len(X), _CENTRES)).astype(int)
        return cls(X, chosen, cdist(X, X[chosen], "sqeuclidean"))

    def gradient_subspace(self, functions: Array, share: float, ridge: float, q: int) -> Array:
        """Return the subspace (d, q) that the gradients of regressions of `functions` span.

        After Fukumizu and Leng, "Gradient-based kernel dimension reduction" (2014). The width of
        the kernel is a `share` of the median distance. The centres carry the regression, and
        gradients are taken there.
        """
        positive = self.squared[self.squared > 0]
        width = share**2 * float(np.median(positive)) if positive.size else 1.0
        K = np.exp(self.squared / (-2.0 * width))
        between = K[self.chosen]
        c = len(between)
        system = K.T @ K + ridge * len(K) * between
        system[np.diag_indices(c)] += _JITTER * np.trace(system) / c
        weights = scipy.linalg.solve(system, K.T @ functions, assume_a="pos")
        centres = self.X[self.chosen]
        M = np.zeros((self.X.shape[1],) * 2)
        for column in weights.T:
            weighted = between * column
            gradients = weighted @ centres - weighted.sum(axis=1)[:, None] * centres
            M += gradients.T @ gradients
        return largest_pairs(M, q)[1]


def _leading_functions(U: Array) -> Array:
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
