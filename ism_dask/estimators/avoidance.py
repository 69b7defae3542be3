"""How strongly the new features still depend on what they were to avoid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances

from ism_dask._types import Array
from ism_dask.estimators.preparation import FitRows
from ism_dask.gamma.base import Dependence
from ism_dask.gamma.combined import AvoidingDependence
from ism_dask.gamma.thin_factors import alignment
from ism_dask.kernels.widths import mean_of_gaussians, median_distance

# The most rows of which all pairs are compared.
_ROWS = 1000
# The fewest rows for the estimate without bias.
_FEWEST_ROWS = 4


@dataclass(frozen=True)
class Avoidance:
    """HSIC correlations with s, the variables to avoid: 0 if independent, at most 1.

    They have no bias, so that they can be slightly negative. A correlation of fitted rows is still
    smaller than that of other rows, since W was fitted to avoid s on them.

    Attributes
    ----------
    features : float
        The correlation of all features with s.
    new_features : float
        The correlation of the new features with s.
    n_rows : int
        The number of rows of the fit that it was measured on.
    """

    features: float
    new_features: float
    n_rows: int


def measured_avoidance(rows: FitRows, W: Array, dependence: Dependence) -> Avoidance | None:
    """Return the correlations for a solution W, or None if nothing was to be avoided."""
    if not isinstance(dependence, AvoidingDependence):
        return None
    some = np.linspace(0, len(rows.chosen) - 1, min(len(rows.chosen), _ROWS)).astype(int)
    X = rows.sample[some]
    side = dependence.avoided.part(rows.chosen[some])
    kernel_of_s = side.factor * side.gamma.signs @ side.factor.T
    of_all, of_new = (_kernel(each) for each in (X, X @ W[: X.shape[1]]))
    return Avoidance(_correlation(of_all, kernel_of_s), _correlation(of_new, kernel_of_s), len(X))


def _kernel(points: Array) -> Array:
    """Return the mean (m, m) of gaussian kernels of three widths of points (m, k)."""
    if not np.ptp(points, axis=0).any():
        return np.ones((len(points), len(points)))
    median = median_distance(points, "the median distance of the rows")
    return mean_of_gaussians(euclidean_distances(points, squared=True), median)


def _correlation(K: Array, L: Array) -> float:
    """Return the correlation of two kernels (m, m) by the estimate of HSIC without bias."""
    if len(K) < _FEWEST_ROWS:
        return 0.0
    return alignment(_centred(K), _centred(L))


def _centred(K: Array) -> Array:
    """Return a kernel without diagonal, centred so that inner products have no bias.

    After Szekely and Rizzo, "Partial distance correlation" (2014), and Song et al. (2012).
    """
    m = len(K)
    off = K - np.diag(np.diag(K))
    sums = off.sum(axis=0)
    centred = off - (sums + sums[:, None]) / (m - 2) + sums.sum() / ((m - 1) * (m - 2))
    np.fill_diagonal(centred, 0.0)
    return np.asarray(centred)
