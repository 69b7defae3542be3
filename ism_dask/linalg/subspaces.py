"""Compare subspaces: angles, distances, and the shares of coordinates. It needs NumPy alone."""

from __future__ import annotations

import numpy as np

from ism_dask._types import Array


def subspace_sine(V: Array, W: Array) -> float:
    """Return the sine of the largest principal angle between the spans of V and W (d, q).

    It is 1 if the spans differ in dimension.
    """
    if V.shape != W.shape:
        return 1.0
    # ||(I - V V^T) W|| resolves small angles, whose digits a cosine would lose.
    return min(1.0, float(np.linalg.svd(W - V @ (V.T @ W), compute_uv=False).max(initial=0.0)))


def subspace_distance(V: Array, W: Array) -> float:
    """Return |P - Q|_F / sqrt(2 q) of the projectors onto the columns of V and of W (d, q).

    It is 0 if the subspaces are equal and 1 if they are orthogonal. Its square is the mean of the
    squared sines of the principal angles. The columns need not be orthonormal.
    """
    V, W = np.linalg.qr(V)[0], np.linalg.qr(W)[0]
    # The part of W outside of V resolves small angles, whose digits a cosine would lose.
    return min(1.0, float(np.linalg.norm(W - V @ (V.T @ W)) / np.sqrt(V.shape[1])))


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
