"""A W told in its own eigenvectors: what there is to say of one that no iteration ended with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from ism_dask.eigen import canonical_signs
from ism_dask.solver import Operator
from ism_dask.typing import Array


@dataclass(frozen=True)
class Ritz:
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
    def of(cls, operator: Operator, W: Array) -> Ritz:
        """Look at W (d, q): one Phi."""
        evaluation = operator.phi(W)
        phi = evaluation.matrix
        values, turn = scipy.linalg.eigh(W.T @ phi @ W)
        W, values = canonical_signs(W @ turn[:, ::-1]), values[::-1]
        return cls(
            W=W,
            eigenvalues=values,
            eigengap=float(values[-1]) - _largest_outside(phi, W),
            objective=evaluation.objective,
            error=evaluation.error,
            product=phi @ W,
        )


def _largest_outside(phi: Array, W: Array) -> float:
    """Return the largest eigenvalue of Phi (d, d) among directions at right angles to W (d, q)."""
    # In a basis of those, for none of W's own eigenvalues is to be taken for one of theirs.
    outside = np.linalg.qr(W, mode="complete")[0][:, W.shape[1] :]
    last = outside.shape[1] - 1
    values = scipy.linalg.eigh(
        outside.T @ phi @ outside, eigvals_only=True, subset_by_index=[last, last]
    )
    return float(values[0])
