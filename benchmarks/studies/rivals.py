"""Other methods of dimension reduction, written by their definitions, to compare with the library.

Each takes standardised rows X (n, d), numeric labels or classes (whole numbers) y (n,), and q. It
returns a W (d, q) that spans its subspace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from sklearn.cross_decomposition import PLSRegression
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from benchmarks.studies.rivals_by_gradients import (
    gradient_kernel_dimension_reduction,
    is_classes,
    leading,
    minimum_average_variance,
    outer_product_of_gradients,
    recursive_feature_machine,
)

Array = NDArray[Any]
Rival = Callable[[Array, Array, int], Array]

_SLICES, CLASS_SLICES = 10, 5


def sliced(y: Array, slices: int) -> Array:
    """Return the number (n,) of the slice of each row: its class or, for numbers, a quantile."""
    if is_classes(y):
        return np.unique(y, return_inverse=True)[1]
    ranks = np.argsort(np.argsort(y, kind="stable"))
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
    return root @ leading(M, q)


def partial_least_squares(X: Array, y: Array, q: int) -> Array:
    """Return the rotations of scikit-learn's PLS; classes enter as indicator columns."""
    targets = np.eye(y.max() + 1)[y] if is_classes(y) else y
    return np.asarray(PLSRegression(q).fit(X, targets).x_rotations_)


def linear_discriminants(X: Array, y: Array, q: int) -> Array:
    """Return scikit-learn's discriminants, filled up with eigenvectors of 0 if too few."""
    classes = sliced(y, CLASS_SLICES)
    # "svd" copes with constant columns, but has at most as many directions as classes less one.
    solver = "svd" if q <= classes.max() else "eigen"
    model = LinearDiscriminantAnalysis(solver=solver).fit(X, classes)
    return np.asarray(model.scalings_[:, :q])


def neighbourhood_components(X: Array, y: Array, q: int) -> Array:
    """Return the components of scikit-learn's NCA."""
    model = NeighborhoodComponentsAnalysis(q, random_state=0).fit(X, sliced(y, CLASS_SLICES))
    return np.asarray(model.components_.T)


RIVALS: dict[str, Rival] = {
    "SIR": sliced_inverse_regression,
    "SAVE": sliced_average_variance,
    "DR": directional_regression,
    "PLS": partial_least_squares,
    "LDA": linear_discriminants,
    "NCA": neighbourhood_components,
    "MAVE": minimum_average_variance,
    "OPG": outer_product_of_gradients,
    "gKDR": gradient_kernel_dimension_reduction,
    "RFM": recursive_feature_machine,
}


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
    return root @ leading(M, q)
