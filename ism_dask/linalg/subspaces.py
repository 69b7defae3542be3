"""Distances between subspaces, and the shortest way from one to another."""

from __future__ import annotations

import numpy as np

from ism_dask._types import Array


def subspace_distance(V: Array, W: Array) -> float:
    """Return |P - Q|_F / sqrt(2 q) of the projectors onto the columns of V and of W (d, q).

    It is 0 if the subspaces are equal and 1 if they are orthogonal. Its square is the mean of the
    squared sines of the principal angles. The columns need not be orthonormal.
    """
    V, W = np.linalg.qr(V)[0], np.linalg.qr(W)[0]
    # The part of W outside of V resolves small angles, whose digits a cosine would lose.
    return min(1.0, float(np.linalg.norm(W - V @ (V.T @ W)) / np.sqrt(V.shape[1])))


def turn_towards(V: Array, W: Array, share: float) -> Array:
    """Return the subspace at `share` of the shortest way from V to W (d, q), in a basis of V.

    Each principal angle is multiplied by `share`, up to a right angle. A negative share leads away
    from W. The result (d, q) has orthonormal columns. For `share` 1 it spans the same as W.
    """
    V, W = np.linalg.qr(V)[0], np.linalg.qr(W)[0]
    left, cosines, right = np.linalg.svd(V.T @ W)
    from_V, outside = V @ left, W @ right.T - V @ (left * cosines)
    sines = np.linalg.norm(outside, axis=0)
    directions = np.divide(outside, sines, out=np.zeros_like(outside), where=sines > 0)
    angles = np.clip(share * np.arctan2(sines, cosines), -np.pi / 2, np.pi / 2)
    return np.asarray((from_V * np.cos(angles) + directions * np.sin(angles)) @ left.T)
