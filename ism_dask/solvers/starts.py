"""Starts for W: each method detects another way in which y can depend on X."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import scipy.linalg
from sklearn.metrics.pairwise import euclidean_distances

from ism_dask._types import Array
from ism_dask.gamma.base import Dependence
from ism_dask.gamma.combined import AvoidingDependence
from ism_dask.linalg.eigen import largest_pairs, nearest_orthonormal, whitening_transform
from ism_dask.rows.execution import side_by_side

# The number of slices into which numbers y are cut.
_SLICES = 10
# The ridge in the inverse of a covariance, as a share of its mean eigenvalue.
_RIDGE = 1e-3
# Gradient starts: the width of their kernel as a share of the median distance, and the ridge of
# the regression. The second one detects changes of y over shorter distances.
_GRADIENTS = {"gradient": (1.0, 1e-3), "narrow gradient": (0.5, 1e-4)}
# Added to the system of a regression, as a share of its mean eigenvalue, so that it stays positive
# definite.
_JITTER = 1e-10
# The most centres of the regression, which are rows at which gradients are computed, and the most
# columns of the factor of y that it explains.
_CENTRES, _FUNCTIONS = 500, 8
# The number of rows whose distances from the centres give the median.
_MEDIAN_ROWS = 100
# Rows are copies of each other if their squared distance is at most this share of the largest.
_SAME = 1e-12
# The number of stages in which the number of directions falls.
_STAGES = 5


@dataclass(frozen=True, eq=False)
class SampledRows:
    """A sample of rows in memory, with the y to explain.

    Attributes
    ----------
    X : (m, d) array
        Standardised rows, in double precision.
    U : (m, r) array
        A factor of Gamma, `Gamma = U U^T`, with columns of mean 0.
    slices : (m,) array of int
        Groups of rows with similar y.
    avoided : (m, p) array
        A factor of what X W is not to depend on, with columns of mean 0; p is 0 if there is none.
        Its mean square, as a share of that of U, is the weight that it has beside y.
    """

    X: Array
    U: Array
    slices: Array
    avoided: Array

    @classmethod
    def of(cls, X: Array, U: Array, classes: Array | None) -> SampledRows:
        """Return the sample of rows X with factor U; numbers y are cut into equal slices."""
        U = U - U.mean(axis=0)
        return cls(X, U, _slices(U) if classes is None else classes, np.empty((len(X), 0)))

    @classmethod
    def explaining(cls, X: Array, dependence: Dependence) -> SampledRows:
        """Return the sample of rows X with what they are to explain, and what to avoid."""
        if not isinstance(dependence, AvoidingDependence):
            return cls.of(X, dependence.factor, dependence.groups)
        explained, avoided = dependence.explained, dependence.avoided
        sample = cls.of(X, explained.factor, explained.groups)
        V = avoided.factor * np.sqrt(avoided.gamma.signs)
        V -= V.mean(axis=0)
        size = float(_squares(V).mean())
        # Above 1 the noise of the nearest rows in s would outweigh what they explain of y.
        share = min(dependence.weight, 1.0) * sample.mean_square
        # A small sample can lack the rows in which s differs.
        return replace(sample, avoided=np.sqrt(share / size) * V if size else V)

    @cached_property
    def mean_square(self) -> float:
        """The mean squared length of the rows of U."""
        return float(np.einsum("ij,ij->", self.U, self.U)) / len(self.U)

    @cached_property
    def mean_loss(self) -> float:
        """The mean loss if every row is predicted to be like the mean of all."""
        return self.mean_square - float(_squares(self.avoided).mean())

    @cached_property
    def covariance(self) -> Array:
        """The covariance of the rows (d, d)."""
        return np.asarray(self.X.T @ self.X / len(self.X))

    @cached_property
    def precondition(self) -> Callable[[Array], Array]:
        """The function that multiplies a gradient (d, k) by the inverse covariance, with a ridge.

        The curvature of J is smallest along the directions in which the rows vary least.
        """
        return inverse_covariance(self.covariance)

    def part(self, rows: Array) -> SampledRows:
        """Return the sample of some of the rows (k,), centred on them."""
        parts = (matrix[rows] for matrix in (self.X, self.U, self.avoided))
        X, U, avoided = (part - part.mean(axis=0) for part in parts)
        return SampledRows(X, U, self.slices[rows], avoided)

    def losses(self, rows: Array | slice, predicted: Callable[[Array], Array]) -> Array:
        """Return the squared errors of a prediction of y at rows, minus those of what to avoid.

        `predicted` maps values (m, k) of all rows to predictions for `rows`.
        """
        loss = _squares(self.U[rows] - predicted(self.U))
        if self.avoided.shape[1]:
            loss -= _squares(self.avoided[rows] - predicted(self.avoided))
        return loss


def inverse_covariance(covariance: Array) -> Callable[[Array], Array]:
    """Return the function that multiplies (d, k) by the inverse of a covariance with a ridge."""
    ridged = covariance.copy()
    ridged[np.diag_indices(len(ridged))] += np.trace(covariance) / len(covariance)
    return partial(scipy.linalg.cho_solve, scipy.linalg.cho_factor(ridged))


def candidate_starts(evidence: SampledRows, q: int) -> dict[str, Array]:
    """Return starts (d, q) by name; the spectral start is not among them."""
    functions = _principal_functions(evidence.U)
    avoided = _principal_functions(evidence.avoided)
    calls = {
        name: partial(gradient_subspace, evidence.X, functions, share, ridge, q, avoided=avoided)
        for name, (share, ridge) in _GRADIENTS.items()
    }
    calls["directional regression"] = partial(directional_regression, evidence, q)
    return dict(zip(calls, side_by_side(list(calls.values()), len(evidence.X)), strict=True))


def directional_regression(evidence: SampledRows, q: int) -> Array:
    """Return the subspace (d, q) in which slices differ in mean or variance (Li and Wang)."""
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


def gradient_subspace(
    X: Array, functions: Array, share: float, ridge: float, q: int, *, avoided: Array
) -> Array:
    """Return the subspace (d, q) in which regressions of functions (m, k) of y on X (m, d) vary.

    What regressions of the functions to avoid (m, p) vary by counts against a direction.

    After Fukumizu and Leng, "Gradient-based kernel dimension reduction" (2014). Each stage computes
    gradients in the leading directions of the stage before, and so in fewer and fewer: the kernel
    resolves more in fewer dimensions. Its width is a `share` of the median distance.
    """

    def leading(Z: Array, k: int) -> Array:
        moments = _gradient_moments(Z, functions, share, ridge)
        if avoided.shape[1]:
            moments -= _gradient_moments(Z, avoided, share, ridge)
        return largest_pairs(moments, k)[1]

    first, *others = _decreasing_dimensions(X.shape[1], q)
    subspace = leading(X, first)
    for k in others:
        subspace = subspace @ leading(X @ subspace, k)
    return subspace


def _decreasing_dimensions(d: int, q: int) -> list[int]:
    """Return numbers of directions that decrease geometrically from below `d` to `q`."""
    numbers = np.rint(np.geomspace(d, q, _STAGES + 1)).astype(int).tolist()
    return sorted({k for k in numbers if q <= k < d} | {q}, reverse=True)


def _gradient_moments(Z: Array, functions: Array, share: float, ridge: float) -> Array:
    """Return the sum (k, k) over centres of the outer products of gradients of regressions on Z.

    Up to 500 of the rows Z (m, k) are centres of the regression, at which gradients are computed.
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


def _squares(errors: Array) -> Array:
    return np.einsum("ij,ij->i", errors, errors)


def _principal_functions(U: Array) -> Array:
    """Return the leading principal columns (m, k) of U (m, r), at most `_FUNCTIONS` of them."""
    if U.shape[1] <= _FUNCTIONS:
        return U
    return np.asarray(U @ largest_pairs(U.T @ U, _FUNCTIONS)[1])


def _slices(U: Array) -> Array:
    """Return the slice of each row, by the order of the first principal column of U (m, r)."""
    along = (U @ largest_pairs(U.T @ U, 1)[1])[:, 0]
    ranks = np.empty(len(U), dtype=int)
    ranks[np.argsort(along, kind="stable")] = np.arange(len(U))
    return ranks * _SLICES // len(U)
