"""Other methods of dimension reduction, written by their definitions, to compare with the library.

Each takes standardised rows X (n, d), numeric labels or classes (whole numbers) y (n,), and q. It
returns a W (d, q) that spans its subspace.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, solve
from scipy.spatial.distance import cdist, pdist
from sklearn.cross_decomposition import PLSRegression
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import KFold
from sklearn.neighbors import KNeighborsRegressor, NeighborhoodComponentsAnalysis

Array = NDArray[Any]
Rival = Callable[[Array, Array, int], Array]

_SLICES, _CLASS_SLICES = 10, 5
# The constant of normal kernels in the plug-in bandwidths of Xia et al. (2002).
_BANDWIDTH = 2.34
_REFINEMENTS, _RIDGE = 10, 1e-3
# Eigenvectors of K_Y whose eigenvalue is a smaller share of the trace are dropped.
_NEGLIGIBLE = 1e-4
# gKDR chooses its width from these multiples of the median distance, and its ridge from these, by
# the held-out error of a regression on the nearest neighbours.
_WIDTHS = (0.25, 0.5, 0.75, 1.0, 2.0)
_RIDGES = (1e-7, 1e-5, 1e-3)
_NEIGHBOURS, _FOLDS = 5, 5


def is_classes(y: Array) -> bool:
    """Return whether y holds classes, which are whole numbers here."""
    return y.dtype.kind in "iu"


def sliced(y: Array, slices: int) -> Array:
    """Return the number (n,) of the slice of each row: its class or, for numbers, a quantile."""
    if is_classes(y):
        return np.unique(y, return_inverse=True)[1]
    ranks = np.argsort(np.argsort(y))
    return np.asarray(ranks * slices // len(y))


def sliced_inverse_regression(X: Array, y: Array, q: int) -> Array:
    """Return W by SIR, from the covariance of the slices' means (Li 1991)."""
    return _of_slices(X, y, q, lambda share, mean, _: share * np.outer(mean, mean))


def sliced_average_variance(X: Array, y: Array, q: int) -> Array:
    """Return W by SAVE, from squared deviations of slice covariances from 1 (Cook 1991)."""

    def term(share: float, _mean: Array, covariance: Array) -> Array:
        deviation = np.eye(len(covariance)) - covariance
        return share * deviation @ deviation

    return _of_slices(X, y, q, term)


def directional_regression(X: Array, y: Array, q: int) -> Array:
    """Return W by directional regression (Li and Wang 2007)."""
    Z, root = _whitened(X)
    parts = _slice_moments(Z, y)
    means = np.sum([share * np.outer(mean, mean) for share, mean, _ in parts], axis=0)
    M = 2 * means @ means + 2 * np.trace(means) * means
    for share, mean, covariance in parts:
        deviation = covariance + np.outer(mean, mean) - np.eye(len(means))
        M = M + 2 * share * deviation @ deviation
    return root @ _leading(M, q)


def partial_least_squares(X: Array, y: Array, q: int) -> Array:
    """Return the rotations of scikit-learn's PLS; classes enter as indicator columns."""
    targets = np.eye(y.max() + 1)[y] if is_classes(y) else y
    return np.asarray(PLSRegression(q).fit(X, targets).x_rotations_)


def linear_discriminants(X: Array, y: Array, q: int) -> Array:
    """Return scikit-learn's discriminants, filled up with eigenvectors of 0 if too few."""
    classes = sliced(y, _CLASS_SLICES)
    # "svd" copes with constant columns, but has at most as many directions as classes less one.
    solver = "svd" if q <= classes.max() else "eigen"
    model = LinearDiscriminantAnalysis(solver=solver).fit(X, classes)
    return np.asarray(model.scalings_[:, :q])


def neighbourhood_components(X: Array, y: Array, q: int) -> Array:
    """Return the components of scikit-learn's NCA."""
    model = NeighborhoodComponentsAnalysis(q, random_state=0).fit(X, sliced(y, _CLASS_SLICES))
    return np.asarray(model.components_.T)


def outer_product_of_gradients(X: Array, y: Array, q: int) -> Array:
    """Return W by OPG: the outer product of gradients of local lines, refined (Xia et al. 2002).

    The lines fit an ensemble of functions of y (Yin and Li 2011), which sees more than the mean of
    y. The weights depend on the distances of rows of X, later of X W, at falling bandwidths.
    """
    (n, d), F = X.shape, _features(y)
    bandwidth = _BANDWIDTH * n ** (-1 / (max(d, 3) + 6))
    shrinking = n ** (-1 / (2 * (max(d, 3) + 6)))
    last = _BANDWIDTH * n ** (-1 / (q + 4))
    W = np.eye(d)
    for _ in range(_REFINEMENTS):
        gradients = _local_gradients(X, F, cdist(X @ W, X @ W, "sqeuclidean") / bandwidth**2)
        W = _leading(np.einsum("nik,njk->ij", gradients, gradients), q)
        bandwidth = max(shrinking * bandwidth, last)
    return W


def gradient_kernel_dimension_reduction(X: Array, y: Array, q: int) -> Array:
    """Return W by gKDR (Fukumizu and Leng 2014), its width and ridge chosen on held-out rows."""
    F = _features(y)
    median = float(np.median(pdist(X)))
    settings = list(product((factor * median for factor in _WIDTHS), _RIDGES))
    errors = [_held_out_error(X, F, q, *setting) for setting in settings]
    return _gkdr(X, F, q, *settings[int(np.argmin(errors))])


RIVALS: dict[str, Rival] = {
    "SIR": sliced_inverse_regression,
    "SAVE": sliced_average_variance,
    "DR": directional_regression,
    "PLS": partial_least_squares,
    "LDA": linear_discriminants,
    "NCA": neighbourhood_components,
    "OPG": outer_product_of_gradients,
    "gKDR": gradient_kernel_dimension_reduction,
}


def _leading(M: Array, q: int) -> Array:
    """Return the eigenvectors (d, q) of the largest eigenvalues of M (d, d)."""
    return np.asarray(eigh(M)[1][:, ::-1][:, :q])


def _whitened(X: Array) -> tuple[Array, Array]:
    """Return the rows X whitened to covariance 1, and the (d, d) matrix that whitens them."""
    values, vectors = eigh(np.cov(X.T, bias=True))
    root = (vectors / np.sqrt(values)) @ vectors.T
    return (X - X.mean(axis=0)) @ root, root


def _slice_moments(Z: Array, y: Array) -> list[tuple[float, Array, Array]]:
    """Return the share, the mean and the covariance of the rows Z of each slice of y."""
    numbers = sliced(y, _SLICES)
    groups = [Z[numbers == number] for number in range(numbers.max() + 1)]
    return [(len(G) / len(Z), G.mean(axis=0), np.cov(G.T, bias=True)) for G in groups]


def _of_slices(X: Array, y: Array, q: int, term: Callable[[float, Array, Array], Array]) -> Array:
    """Return W from the sum of `term(share, mean, covariance)` over slices of whitened rows."""
    Z, root = _whitened(X)
    M = np.sum([term(*moments) for moments in _slice_moments(Z, y)], axis=0)
    return root @ _leading(M, q)


def _features(y: Array) -> Array:
    """Return functions of y (n, k): indicators of classes, or features of a gaussian of numbers.

    The width of the gaussian is the median distance, and its features are the scaled eigenvectors
    that make up nearly all of its trace.
    """
    if is_classes(y):
        return np.eye(y.max() + 1)[y]
    K = _gaussian(np.subtract.outer(y, y) ** 2, float(np.median(pdist(y[:, None]))))
    values, vectors = eigh(K)
    return np.asarray((vectors * np.sqrt(values.clip(0)))[:, values > _NEGLIGIBLE * len(y)])


def _local_gradients(X: Array, F: Array, distances: Array) -> Array:
    """Return slopes (n, d, k) of weighted linear fits to the columns of F (n, k) at each row."""
    n, d = X.shape
    weights = np.exp(-0.5 * distances)
    lines = np.column_stack([np.ones(n), X])
    products = (lines[:, :, None] * lines[:, None, :]).reshape(n, -1)
    gram = (weights @ products).reshape(n, d + 1, d + 1)
    moments = weights @ (lines[:, :, None] * F[:, None, :]).reshape(n, -1)
    ridge = _RIDGE * np.diag([0.0, *np.ones(d)]) * weights.sum(axis=1)[:, None, None]
    return np.asarray(np.linalg.solve(gram + ridge, moments.reshape(n, d + 1, -1)))[:, 1:]


def _gaussian(squared: Array, width: float) -> Array:
    return np.exp(-0.5 * squared / width**2)


def _gkdr(X: Array, F: Array, q: int, width: float, ridge: float) -> Array:
    """Return W from the gradients of the kernel ridge regression of F (n, k) on X (n, d)."""
    n = len(X)
    K = _gaussian(cdist(X, X, "sqeuclidean"), width)
    A = solve(K + n * ridge * np.eye(n), F, assume_a="pos")
    fitted = K @ A
    slopes = np.stack([(K * x) @ A - x[:, None] * fitted for x in X.T])
    return _leading(np.einsum("ink,jnk->ij", slopes, slopes), q)


def _held_out_error(X: Array, F: Array, q: int, width: float, ridge: float) -> float:
    """Return the error of predicting held-out F (n, k) by the mean over neighbours in X W."""
    errors = []
    for train, test in KFold(_FOLDS, shuffle=True, random_state=0).split(X):
        W = _gkdr(X[train], F[train], q, width, ridge)
        model = KNeighborsRegressor(_NEIGHBOURS).fit(X[train] @ W, F[train])
        errors.append(np.mean((model.predict(X[test] @ W) - F[test]) ** 2))
    return float(np.mean(errors))
