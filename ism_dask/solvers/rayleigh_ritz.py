"""Rayleigh-Ritz: rotate W so that W^T Phi W is diagonal, and report eigenvalues and eigengap."""

from __future__ import annotations

from dataclasses import dataclass

from ism_dask._types import Array
from ism_dask.engines.operator import Operator
from ism_dask.linalg.eigen import largest_eigenvalue_outside, rayleigh_ritz


@dataclass(frozen=True)
class RitzPairs:
    """The Ritz pairs of Phi in the span of a W, for solvers that do not compute eigenpairs.

    The fields have the names of those of a `Solution`.

    Attributes
    ----------
    W : (d, q) array
        Rotated so that `W^T Phi W` is diagonal.
    eigenvalues : (q,) array
        The diagonal of `W^T Phi W`, in decreasing order.
    eigengap : float
        The smallest of these eigenvalues minus the largest eigenvalue of Phi outside of W. It is
        negative if the spectral step would leave W.
    objective, error : float
        J, and the bound on its relative error.
    product : (d, q) array
        Phi W.
    """

    W: Array
    eigenvalues: Array
    eigengap: float
    objective: float
    error: float
    product: Array

    @classmethod
    def of(cls, operator: Operator, W: Array) -> RitzPairs:
        """Return the Ritz pairs in the span of W (d, q); this computes Phi once."""
        evaluation = operator.phi(W)
        phi = evaluation.phi
        W, values, product = rayleigh_ritz(W, phi @ W)
        return cls(
            W=W,
            eigenvalues=values,
            eigengap=float(values[-1]) - largest_eigenvalue_outside(phi, W),
            objective=evaluation.objective,
            error=evaluation.error,
            product=product,
        )
