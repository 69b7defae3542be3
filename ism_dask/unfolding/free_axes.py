"""Axes of coordinates that hold next to nothing: used where the objective rises, or set to 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from scipy.sparse.linalg import LinearOperator, eigsh

from ism_dask._types import Array
from ism_dask.linalg.eigen import canonical_signs
from ism_dask.unfolding.objective import CoordinateObjective

# An axis is free if its coordinates are at most this share of the first ones.
_FREE = 1e-2
# F stays as it is if it changes by a smaller share of its terms.
_CHANGE = 1e-6
# Up to this number of rows LAPACK is as fast as Lanczos.
_DENSE_ROWS = 400
# Relative accuracy of the eigenvalue by Lanczos.
_TOL = 1e-5


def along_principal_axes(Y: Array) -> Array:
    """Return coordinates (n, q), centred and rotated so that their variances decrease."""
    centred = Y - Y.mean(axis=0)
    axes = np.linalg.svd(centred.T @ centred)[0]
    return canonical_signs(centred @ axes)


def with_free_axes(objective: CoordinateObjective, Y: Array) -> tuple[Array, bool]:
    """Return coordinates (n, q) with free axes used or 0, and whether F is larger there.

    Where the coordinates of an axis are 0, their gradient is 0 as well, so that no ascent along it
    comes to use the axis. The gradient of F in K tells whether F can rise. If it has no positive
    eigenvalue, stationary coordinates with a free axis are the maximum over all K.
    """
    placed, rises = along_principal_axes(Y), False
    here = objective.at(placed)
    while len(_free(placed)):
        raised = along_principal_axes(_with_last_axis_anew(objective, placed))
        there = objective.at(raised)
        if there.value <= here.value + _CHANGE * here.size:
            break
        placed, here, rises = raised, there, True
    if rises:
        return placed, True
    for axis in _free(placed)[::-1]:
        without = placed.copy()
        without[:, axis] = 0.0
        if objective.at(without).value < here.value - _CHANGE * here.size:
            break
        placed = without
    return placed, False


def _free(Y: Array) -> Array:
    """Return the numbers of the free axes among the principal axes of Y (n, q)."""
    lengths = np.linalg.norm(Y, axis=0)
    return np.flatnonzero(lengths <= _FREE * lengths[0])


def _with_last_axis_anew(objective: CoordinateObjective, Y: Array) -> Array:
    """Return coordinates (n, q) with the last of them along the steepest rise of F, if any."""
    Y = Y.copy()
    Y[:, -1] = 0.0
    size = float(np.vdot(Y, Y)) / objective.at(Y).size
    slope, axis = _top(objective.gradient_in_kernel(Y), size)
    if slope * size > _TOL:
        Y[:, -1] = objective.best_length(axis, slope) * axis
    return Y


def _top(matrix: LinearOperator, size: float) -> tuple[float, Array]:
    """Return the largest eigenvalue and its vector (n,) of a matrix (n, n).

    The eigenvalue is exact to a share `_TOL` of itself and 1 / size together.
    """
    n = matrix.shape[0]
    if n <= _DENSE_ROWS:
        values, vectors = scipy.linalg.eigh(matrix @ np.eye(n))
        return float(values[-1]), vectors[:, -1]
    start = np.random.default_rng(0).normal(size=n)
    options: dict[str, Any] = {"k": 1, "which": "LA", "v0": start, "tol": _TOL}
    shifted = LinearOperator((n, n), matvec=lambda z: size * (matrix @ z) + z, dtype=np.float64)
    values, vectors = eigsh(shifted, **options)
    return (float(values[0]) - 1.0) / size, vectors[:, 0]
