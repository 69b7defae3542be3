"""Rotation of new features within their space, so that each has few large weights."""

from __future__ import annotations

import numpy as np

from ism_dask._types import Array

# Names of the rotations.
ROTATIONS = ("varimax",)
# The relative gain of the criterion below which it has converged, and the most steps.
_TOL, _STEPS = 1e-12, 1000


def varimax(loadings: Array) -> Array:
    """Return the rotation R (q, q) for which `loadings` (d, q) R has the largest criterion.

    The criterion is the sum over columns of the variance of the squared weights (Kaiser 1958). It
    is large if a column has few large weights and many small ones. The maximum is a local one,
    found from R = I.
    """
    rotation = np.eye(loadings.shape[1])
    criterion = varimax_criterion(loadings)
    for _ in range(_STEPS):
        rotated = loadings @ rotation
        slope = loadings.T @ (rotated**3 - rotated * np.mean(rotated**2, axis=0))
        left, _, right = np.linalg.svd(slope)
        following = left @ right
        reached = varimax_criterion(loadings @ following)
        if not reached > criterion:
            break
        gain, criterion, rotation = reached - criterion, reached, following
        if gain <= _TOL * reached:
            break
    return rotation


def varimax_criterion(loadings: Array) -> float:
    """Return the sum over the columns of `loadings` (d, q) of the variance of their squares."""
    return float((loadings**2).var(axis=0).sum())


def rotate_components(components: Array, eigenvalues: Array) -> tuple[Array, Array]:
    """Return the rotation R (q, q) of new features by varimax, and the diagonal of `R^T L R`.

    The columns of R are ordered so that this diagonal falls.

    Parameters
    ----------
    components : (q, d) array
        The weights of the new features.
    eigenvalues : (q,) array
        The diagonal of L, which is `W^T Phi W` before the rotation.
    """
    rotation = varimax(components.T)
    diagonal = eigenvalues @ rotation**2
    order = np.argsort(-diagonal, kind="stable")
    return rotation[:, order], diagonal[order]
