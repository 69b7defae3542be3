"""Cholesky factors of positive definite matrices: by LAPACK for NumPy, else of whole batches.

SciPy's wrappers of LAPACK keep all other threads of Python waiting, so that blocks in two threads
would take as long as in one. NumPy's let them run, but copy the matrix. So LAPACK is called as
Cython code calls it. The standard of arrays has a factorisation, but no solution by it. Other
libraries than NumPy compute the inverse of the factor, by products of its blocks, which a GPU does
best, of a batch at once.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike
from scipy.linalg import cython_lapack, lapack

from ism_dask._types import Array
from ism_dask.linalg.arrays import namespace, transposed

# Up to this size the library inverts a block by itself.
_LEAF = 16
# Memory of square matrices that no thread uses at present, the most pieces that stay for later, and
# the blocks of `reused_matrices` that are open.
_UNUSED: list[Array] = []
_MOST_UNUSED = 64
_OPEN: list[None] = []
_INT = ctypes.POINTER(ctypes.c_int)
# The triangle that is upper in Fortran's order is the lower one of a matrix in C order.
_LOWER = ctypes.c_char_p(b"U")


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
        potrf, _, numbers = _ROUTINES[matrices.dtype]
        n, info = ctypes.c_int(len(matrices)), ctypes.c_int()
        potrf(_LOWER, n, matrices.ctypes.data_as(numbers), n, info)
        return _Lapack(matrices) if info.value == 0 else None
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
        _, potrs, numbers = _ROUTINES[self.factor.dtype]
        columns = np.array(Y.T, dtype=self.factor.dtype, order="C")
        n, r, info = ctypes.c_int(len(self.factor)), ctypes.c_int(len(columns)), ctypes.c_int()
        matrix, right = (each.ctypes.data_as(numbers) for each in (self.factor, columns))
        potrs(_LOWER, n, r, matrix, n, right, n, info)
        return columns.T

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
    stack = xp.reshape(xp.linalg.cholesky(matrices), (-1, n, n))
    # Ones on the rest of the diagonal make n a multiple of the size.
    eye = xp.eye(size * 2**doublings, dtype=stack.dtype, device=stack.device)
    L = xp.asarray(xp.broadcast_to(eye, (stack.shape[0], *eye.shape)), copy=True)
    L[:, :n, :n] = stack
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


def _blocks(L: Any, size: int, step: int, below: int) -> Any:
    """Return the blocks (k, p, size, size) of L (k, n, n) in each step along the diagonal.

    `below` is how far below of it they begin.
    """
    starts = range(0, L.shape[-1], step)
    blocks = [L[:, i + below : i + below + size, i : i + size] for i in starts]
    return namespace(L).stack(blocks, axis=1)


@contextmanager
def square_matrices(
    rows: Any, count: int, dtype: DTypeLike = np.float64
) -> Iterator[list[Array | None]]:
    """Yield `count` matrices (n, n) with any content for rows (n, d), which end with the block.

    Within `reused_matrices` their memory is used again. Rows of another library than NumPy get
    None: it reuses its memory itself.
    """
    if not isinstance(rows, np.ndarray):
        yield [None] * count
        return
    n, memory = len(rows), []
    for _ in range(count):
        try:
            unused = _UNUSED.pop()
        except IndexError:
            unused = np.empty(n * n)
        memory.append(unused if len(unused) >= n * n else np.empty(n * n))
    try:
        yield [each.view(dtype)[: n * n].reshape(n, n) for each in memory]
    finally:
        if _OPEN:
            _UNUSED.extend(memory[: max(0, _MOST_UNUSED - len(_UNUSED))])


@contextmanager
def reused_matrices() -> Iterator[None]:
    """Use the memory of square matrices again until the block ends, or the last that overlaps it.

    For some hundred rows, to get fresh memory from the system takes as long as the arithmetic.
    """
    _OPEN.append(None)
    try:
        yield
    finally:
        _OPEN.pop()
        if not _OPEN:
            _UNUSED.clear()


def _routines(prefix: str, number: Any) -> tuple[Any, Any, Any]:
    """Return potrf, potrs and the type of their matrices; their calls release Python's lock."""
    api, numbers = ctypes.pythonapi, ctypes.POINTER(number)
    capsules: Any = cython_lapack.__pyx_capi__
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]

    def routine(name: str, *arguments: Any) -> Any:
        capsule = capsules[prefix + name]
        address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
        return ctypes.CFUNCTYPE(None, ctypes.c_char_p, *arguments)(address)

    potrf = routine("potrf", _INT, numbers, _INT, _INT)
    return potrf, routine("potrs", _INT, _INT, numbers, _INT, numbers, _INT, _INT), numbers


_ROUTINES = {
    np.dtype(np.float64): _routines("d", ctypes.c_double),
    np.dtype(np.float32): _routines("s", ctypes.c_float),
}
