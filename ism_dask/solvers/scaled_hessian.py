"""The inverse of the Hessian of J as far as the eigenvalues of Phi tell it."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask.engines.operator import check_finite
from ism_dask.solvers.lbfgs import Precondition

# Differences of eigenvalues are taken to be at least this share of the largest difference.
_LEAST_GAP = 1e-3


def inverse_gaps(phi: Array, W: Array, eigenvalues: Array) -> Precondition:
    """Return the inverse of the Hessian of J near W (d, q) as far as Phi (d, d) tells it.

    It makes the slope a spectral step, to first order. W is rotated so that `W^T Phi W` is
    diagonal, with these eigenvalues (q,).
    """
    outside, gaps = _gaps(phi, W, eigenvalues)
    sizes = _sizes(gaps)
    largest = float(sizes.max())
    shares = largest / sizes - 1.0

    def precondition(Z: Array) -> Array:
        return np.asarray(Z + outside @ (shares * (outside.T @ Z))) / largest

    return precondition


def _gaps(phi: Array, W: Array, eigenvalues: Array) -> tuple[Array, Array]:
    """Return the eigenvectors of Phi outside of W, and the gaps, as `ScaledHessian` has them."""
    basis = np.linalg.qr(W, mode="complete")[0][:, W.shape[1] :]
    values, rotation = scipy.linalg.eigh(basis.T @ check_finite(phi) @ basis)
    return basis @ rotation, eigenvalues - values[:, None]


def _sizes(gaps: Array) -> Array:
    sizes = np.abs(gaps)
    return np.maximum(sizes, _LEAST_GAP * sizes.max())
