"""What other variables s leave of y, and of the rows: residuals of a regression on s."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from ism_dask._types import Array
from ism_dask.gamma.base import Dependence, ThinGamma, centred_by

# Ridges of the regression, as shares of the largest eigenvalue of the kernel of s.
_RIDGES = np.geomspace(1e-8, 1e2, 41)
# If s leaves less than this share of y, there is nothing to explain.
_NOTHING = 1e-8


@dataclass(frozen=True, eq=False)
class SideRegression:
    """Kernel ridge regression on s. Each column has the ridge of least cross-validation score.

    The score is that of generalised cross-validation, in closed form.

    Attributes
    ----------
    factor : (n, m) array
        A factor of the kernel of s, with columns of mean 0.
    counts : (n,) array
        How much each row counts.
    """

    factor: Array
    counts: Array

    @classmethod
    def of(cls, side: Dependence) -> Self:
        """Return the regression on s, where rows count by their weights."""
        counts = np.ones(len(side.facts)) if side.weights is None else side.weights
        return cls(centred_by(side.factor * np.sqrt(side.gamma.signs), counts), counts)

    def coefficients(self, cross: Array, squares: Array) -> Array:
        """Return the coefficients (m, k) that predict columns from the factor.

        Parameters
        ----------
        cross : (m, k) array
            The weighted products of the factor with the columns.
        squares : (k,) array
            The weighted sums of squares of the columns, less those of their means.
        """
        values, vectors = self._eigenpairs
        roots = np.sqrt(values)[:, None]
        along = vectors.T @ cross / roots
        shares, _ = ridge_shares(values, along, squares, self.counts.sum())
        return np.asarray(vectors @ (shares / roots * along))

    def residual(self, U: Array) -> Array:
        """Return what s leaves of columns U (n, r), with mean 0."""
        U = centred_by(U, self.counts)
        weighted = self.counts[:, None] * U
        squares = np.einsum("ij,ij->j", weighted, U)
        return np.asarray(U - self.factor @ self.coefficients(self.factor.T @ weighted, squares))

    @cached_property
    def _eigenpairs(self) -> tuple[Array, Array]:
        """The eigenvalues above rounding, ascending, and eigenvectors of `factor^T factor`."""
        values, vectors = np.linalg.eigh(self.factor.T * self.counts @ self.factor)
        positive = values > np.finfo(np.float64).eps * len(values) * values[-1]
        return values[positive], vectors[:, positive]


def ridge_shares(values: Array, along: Array, squares: Array, size: float) -> tuple[Array, Array]:
    """Return the shares (m, k) that ridge regressions fit, and their cross-validation scores (k,).

    Parameters
    ----------
    values : (m,) array
        Eigenvalues of the kernel of s.
    along : (m, k) array
        The products of its orthonormal eigenfunctions with k columns.
    squares : (k,) array
        The sums of squares of the columns.
    size : float
        The number of rows.
    """
    shares = values / (values + values.max() * _RIDGES[:, None])
    errors = squares - (2.0 * shares - shares**2) @ along**2
    free = 1.0 - (shares.sum(axis=1, keepdims=True) + 1.0) / size
    scores = np.divide(errors, free**2, out=np.full(errors.shape, np.inf), where=free > 0)
    best = np.argmin(scores, axis=0)
    return shares[best].T, np.asarray(scores[best, np.arange(len(best))])


def conditional(dependence: Dependence, regression: SideRegression) -> Dependence:
    """Return the dependence on what s leaves of y: `U - E[U | s]` instead of U.

    J is then the squared norm of the mean covariance of kernel features of X W and y at fixed s.
    It is 0 if X W and y are independent at each value of s, however both depend on s.
    """
    signs = dependence.gamma.signs
    U = centred_by(dependence.factor, regression.counts)
    residual = regression.residual(U)
    before, after = (regression.counts @ each**2 @ signs for each in (U, residual))
    if after <= _NOTHING * before:
        raise ValueError(
            "`given` explains y completely: nothing is left for X W to explain. Leave out of "
            "`given` what y follows from"
        )
    return replace(dependence, gamma=ThinGamma(signs), facts=residual)
