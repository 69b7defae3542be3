"""Gamma of what is left of y once other variables s are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ism_dask._types import Array
from ism_dask.gamma.base import Dependence, ThinGamma
from ism_dask.gamma.weighted import centred_by, with_weights

# Ridges of the regression, as shares of the largest eigenvalue of the kernel of s.
_RIDGES = np.geomspace(1e-8, 1e2, 41)
# If s leaves less than this share of y, there is nothing to explain.
_NOTHING = 1e-8


def conditional(dependence: Dependence, side: Dependence, weights: Array | None) -> Dependence:
    """Return the dependence on y minus what s explains of it: `U - E[U | s]` instead of U.

    With `Gamma = U U^T` of a kernel of y, J is then the squared norm of the mean of the covariances
    of X W and y at fixed values of s. It is 0 if X W and y are independent at each value of s,
    however both depend on s.

    Parameters
    ----------
    dependence, side : Dependence
        The dependences on y and s.
    weights : (n,) array or None
        Weights of the rows.
    """
    whole, known = dependence.equal_rows or dependence, side.equal_rows or side
    counts = np.ones(len(whole.facts)) if weights is None else weights
    factor = centred_by(known.factor * np.sqrt(known.gamma.signs), counts)
    U = centred_by(whole.factor, counts)
    residual = U - smooth(factor, U, counts)
    if counts @ residual**2 @ whole.gamma.signs <= _NOTHING * (counts @ U**2 @ whole.gamma.signs):
        raise ValueError(
            "`given` explains y completely: nothing is left for X W to explain. Leave out of "
            "`given` what y follows from"
        )
    left = replace(whole, gamma=ThinGamma(whole.gamma.signs), facts=residual, equal_rows=None)
    return left if weights is None else with_weights(left, weights)


def smooth(factor: Array, U: Array, counts: Array) -> Array:
    """Return the kernel ridge regression (n, r) of U (n, r) on a factor (n, m) of a kernel.

    The ridge has the least generalised cross-validation score over all columns of U. Rows count by
    `counts` (n,), and both matrices have columns of mean 0.
    """
    values, vectors = np.linalg.eigh(factor.T * counts @ factor)
    positive = values > np.finfo(np.float64).eps * len(values) * values[-1]
    values, vectors = values[positive], vectors[:, positive]
    cross = vectors.T @ (factor.T * counts @ U)
    explained, total = (cross**2).sum(axis=1) / values, float(counts @ (U**2).sum(axis=1))
    shares = values / (values + values[-1] * _RIDGES[:, None])
    error = total - (2.0 * shares - shares**2) @ explained
    free = 1.0 - (shares.sum(axis=1) + 1.0) / counts.sum()
    scores = np.divide(error, free**2, out=np.full(len(free), np.inf), where=free > 0)
    best = shares[np.argmin(scores)]
    return np.asarray(factor @ (vectors * (best / values)) @ cross)
