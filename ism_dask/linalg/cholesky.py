"""Cholesky factors of positive definite matrices: by LAPACK for NumPy, else of whole batches.

The standard of arrays has a factorisation, but no solution by it. Other libraries than NumPy
compute the inverse of the factor, by products of its blocks, which a GPU does best, of a batch at
once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.linalg import lapack

from ism_dask._types import Array
from ism_dask.linalg.arrays import namespace, transposed
from ism_dask.linalg.lapack import factorise, solution

# Up to this size the library inverts a block by itself.
_LEAF = 16


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
    """Return the inverses (..., n, n) of the Cholesky factors of matrices.

    Those of small blocks on the diagonal are computed at once, then joined in pairs.
    """
    xp, n = namespace(matrices), matrices.shape[-1]
    doublings = max(0, math.ceil(math.log2(n / _LEAF)))
    size = -(-n // 2**doublings)
    L = _padded(xp.linalg.cholesky(matrices), size * 2**doublings)
    inverses = xp.linalg.inv(_blocks(L, size, size, 0))
    while size < L.shape[-1]:
        first, second = inverses[:, 0::2, ...], inverses[:, 1::2, ...]
        below = _blocks(L, size, 2 * size, size)
        inverses = xp.zeros((*first.shape[:2], 2 * size, 2 * size), dtype=L.dtype, device=L.device)
        inverses[..., :size, :size] = first
        inverses[..., size:, size:] = second
        inverses[..., size:, :size] = -(second @ (below @ first))
        size *= 2
    return xp.reshape(inverses[..., :n, :n], matrices.shape)


def _padded(matrices: Any, size: int) -> Any:
    """Return matrices (..., n, n) as (k, size, size), with ones on the rest of the diagonal."""
    xp, n = namespace(matrices), matrices.shape[-1]
    stack = xp.reshape(matrices, (-1, n, n))
    eye = xp.eye(size, dtype=stack.dtype, device=stack.device)
    padded = xp.asarray(xp.broadcast_to(eye, (stack.shape[0], size, size)), copy=True)
    padded[:, :n, :n] = stack
    return padded


def _blocks(L: Any, size: int, step: int, below: int) -> Any:
    """Return the blocks (k, p, size, size) of L (k, n, n) in each step along the diagonal.

    `below` is how far below of it they begin.
    """
    starts = range(0, L.shape[-1], step)
    blocks = [L[:, i + below : i + below + size, i : i + size] for i in starts]
    return namespace(L).stack(blocks, axis=1)
