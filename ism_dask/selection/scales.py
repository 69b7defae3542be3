"""Own scales: y may vary faster along one direction of W than along another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.linalg
import scipy.optimize

from ism_dask._types import Array
from ism_dask.criteria.prediction import RidgeRegression, RowsInMemory
from ism_dask.selection.rules import RULES


def own_scales(rows: RowsInMemory, regression: RidgeRegression, W: Array) -> Array:
    """Return the scales A (q, q) of the largest evidence for a regression on X W A.

    A is symmetric and positive semi-definite; W (d, q) and the ridge are held fixed. Only A is
    free: evidence over all weights of W would overfit.
    """
    projected = replace(rows, X=rows.X.astype(np.float64, copy=False) @ W)
    usual, q = replace(regression, scales=None), W.shape[1]
    begin = np.eye(q) if regression.scales is None else regression.scales

    def loss(entries: Array) -> tuple[float, Array]:
        value = usual.evident(projected, entries.reshape(q, q))
        return -value.objective, -2.0 * value.product.ravel()

    found = scipy.optimize.minimize(
        loss,
        begin.ravel(),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-RULES.largest_scale, RULES.largest_scale)] * q**2,
        options={"maxiter": RULES.scale_steps},
    )
    # A rotation of X W A changes nothing.
    return np.asarray(scipy.linalg.polar(found.x.reshape(q, q), side="left")[1])


def turned_scales(scales: Array, before: Array, after: Array) -> Array:
    """Return the scales (q, q) for another basis (d, q) of the span of W (d, q) before."""
    turn = after.T @ before
    return np.asarray(turn @ scales @ turn.T)
