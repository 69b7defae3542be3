"""Subspaces: angles and distances between them, shares of coordinates, rotation within one.

It needs NumPy alone.
"""

from __future__ import annotations

import numpy as np

from ism_dask._types import Array

# Names of the rotations.
ROTATIONS = ("varimax",)
# The relative gain of the criterion below which a rotation has converged, and the most steps.
_TOL, _STEPS = 1e-12, 1000


def subspace_sine(V: Array, W: Array) -> float:
    """Return the sine of the largest principal angle between the spans of V and W (d, q).

    It is 1 if the spans differ in dimension.
    """
    if V.shape != W.shape:
        return 1.0
    # ||(I - V V^T) W|| resolves small angles, whose digits a cosine would lose.
    return min(1.0, float(np.linalg.svd(tangent(V, W), compute_uv=False).max(initial=0.0)))


def subspace_distance(V: Array, W: Array) -> float:
    """Return |P - Q|_F / sqrt(2 q) of the projectors onto the columns of V and of W (d, q).

    It is 0 if the subspaces are equal and 1 if they are orthogonal. Its square is the mean of the
    squared sines of the principal angles. The columns need not be orthonormal.
    """
    V, W = np.linalg.qr(V)[0], np.linalg.qr(W)[0]
    return min(1.0, float(np.linalg.norm(tangent(V, W)) / np.sqrt(V.shape[1])))


def subspace_shares(components: Array) -> Array:
    """Return the share of each coordinate in the space that the rows of `components` (q, d) span.

    The shares (d,) are from 0 to 1 / q and sum to 1. They depend on the space alone, not on which
    rows span it.
    """
    Q, _ = np.linalg.qr(components.T)
    return np.asarray((Q**2).sum(axis=1) / Q.shape[1])


def tangent(W: Array, Z: Array) -> Array:
    """Return the part of Z (d, k) outside of W (d, k), whose columns are orthonormal."""
    return Z - W @ (W.T @ Z)


def varimax(loadings: Array) -> Array:
    """Return the rotation R (q, q) for which `loadings` (d, q) R has the largest criterion.

    The criterion is the sum over columns of the variance of the squared weights (Kaiser 1958). It
    is large if a column has few large weights and many small ones. The maximum is a local one,
    reached from R = I.
    """
    rotation = following = np.eye(loadings.shape[1])
    criterion = -np.inf
    for _ in range(_STEPS):
        rotated = loadings @ following
        reached = float((rotated**2).var(axis=0).sum())
        if not reached > criterion:
            break
        gain, criterion, rotation = reached - criterion, reached, following
        if gain <= _TOL * reached:
            break
        slope = loadings.T @ (rotated**3 - rotated * np.mean(rotated**2, axis=0))
        left, _, right = np.linalg.svd(slope)
        following = left @ right
    return rotation
