"""Cholesky factors of positive definite matrices: by LAPACK for NumPy, else of whole batches.

The standard of arrays has a factorisation, but no solution by it. So other libraries than NumPy
compute the inverse of the factor, by halves: its work is products of matrices, which a GPU does
best, of a batch at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.linalg import lapack

from ism_dask._types import Array
from ism_dask.linalg.arrays import namespace, transposed
from ism_dask.linalg.lapack import factorise, solution

# Up to this size the library factorises a matrix by itself.
_LEAF = 64


class Cholesky(Protocol):
    """The factor L of matrices (..., n, n) with `L L^T` equal to them."""

    def solution(self, Y: Array) -> Array:
        """Return the solution (..., n, r) of `L L^T X = Y`."""

    @property
    def half_log_determinant(self) -> Array:
        """Half of the logarithms (...) of the determinants."""

    @property
    def inverse_diagonal(self) -> Array:
        """The diagonals (..., n) of the inverses; nothing else is to be read afterwards."""


def cholesky(matrices: Any) -> Cholesky | None:
    """Return the factor of symmetric matrices (..., n, n), None if one is not positive definite.

    Matrices of NumPy are one (n, n) in C order, which is overwritten.
    """
    if isinstance(matrices, np.ndarray):
        return _Lapack(matrices) if factorise(matrices) else None
    try:
        return _Inverse(_inverse_factor(matrices))
    except Exception as error:
        if "LinAlgError" not in type(error).__name__:  # each library has a class of its own
            raise
        return None


@dataclass(frozen=True, eq=False)
class _Lapack:
    """The factor as LAPACK leaves it in the lower triangle of a matrix (n, n)."""

    factor: Array

    def solution(self, Y: Array) -> Array:
        return solution(self.factor, Y)

    @property
    def half_log_determinant(self) -> Array:
        return np.log(np.diag(self.factor)).sum()

    @property
    def inverse_diagonal(self) -> Array:
        inverse = np.triu(lapack.dtrtri(self.factor.T, lower=0, overwrite_c=1)[0])
        return np.asarray(np.einsum("ij,ij->i", inverse, inverse))


@dataclass(frozen=True, eq=False)
class _Inverse:
    """The inverses (..., n, n) of the factors."""

    inverse: Any

    def solution(self, Y: Any) -> Any:
        Y = namespace(Y).astype(Y, self.inverse.dtype, copy=False)
        return transposed(self.inverse) @ (self.inverse @ Y)

    @property
    def half_log_determinant(self) -> Any:
        xp = namespace(self.inverse)
        return -xp.sum(xp.log(xp.linalg.diagonal(self.inverse)), axis=-1)

    @property
    def inverse_diagonal(self) -> Any:
        return namespace(self.inverse).sum(self.inverse**2, axis=-2)


def _inverse_factor(matrices: Any) -> Any:
    """Return the inverses (..., n, n) of the Cholesky factors of matrices."""
    xp, n = namespace(matrices), matrices.shape[-1]
    if n <= _LEAF:
        return xp.linalg.inv(xp.linalg.cholesky(matrices))
    half = n // 2
    first = _inverse_factor(matrices[..., :half, :half])
    below = matrices[..., half:, :half] @ transposed(first)
    second = _inverse_factor(matrices[..., half:, half:] - below @ transposed(below))
    inverse = xp.zeros_like(matrices)
    inverse[..., :half, :half] = first
    inverse[..., half:, half:] = second
    inverse[..., half:, :half] = -(second @ (below @ first))
    return inverse
