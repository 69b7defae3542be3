"""A W told in its own eigenvectors: what there is to say of one that no iteration ended with."""

from __future__ import annotations

from dataclasses import dataclass

from ism_dask._types import Array
from ism_dask.engines.operator import Operator
from ism_dask.linalg.eigen import largest_eigenvalue_outside, rayleigh_ritz


@dataclass(frozen=True)
class RitzPairs:
    """A subspace and what Phi does in it and beside it: fields as those of a `Solution`.

    Attributes
    ----------
    W : (d, q) array
        Turned so that `W^T Phi W` is diagonal.
    eigenvalues : (q,) array
        Its diagonal, falling.
    eigengap : float
        The smallest of them minus the largest eigenvalue of Phi outside of W. Negative where the
        iteration would leave W.
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
        """Look at W (d, q): one Phi."""
        evaluation = operator.phi(W)
        phi = evaluation.matrix
        W, values, product = rayleigh_ritz(W, phi @ W)
        return cls(
            W=W,
            eigenvalues=values,
            eigengap=float(values[-1]) - largest_eigenvalue_outside(phi, W),
            objective=evaluation.objective,
            error=evaluation.error,
            product=product,
        )
