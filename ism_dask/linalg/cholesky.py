"""Cholesky factors of positive definite matrices by LAPACK, and memory for square matrices.

SciPy's wrappers of LAPACK keep all other threads of Python waiting, so that blocks in two threads
would take as long as in one. NumPy's let them run, but copy the matrix. So LAPACK is called as
Cython code calls it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from scipy.linalg import cython_lapack, lapack

from ism_dask._types import Array

# Memory of square matrices that no thread uses at present, the most pieces that stay for later, and
# the blocks of `reused_matrices` that are open.
_UNUSED: list[Array] = []
_MOST_UNUSED = 64
_OPEN: list[None] = []
_INT = ctypes.POINTER(ctypes.c_int)
# The triangle that is upper in Fortran's order is the lower one of a matrix in C order.
_LOWER = ctypes.c_char_p(b"U")


def cholesky(matrix: Array) -> Cholesky | None:
    """Return the factor of a symmetric matrix (n, n) in C order, None if it is not definite.

    The matrix is overwritten.
    """
    potrf, _, numbers = _ROUTINES[matrix.dtype]
    n, info = ctypes.c_int(len(matrix)), ctypes.c_int()
    potrf(_LOWER, n, matrix.ctypes.data_as(numbers), n, info)
    return Cholesky(matrix) if info.value == 0 else None


@dataclass(frozen=True, eq=False)
class Cholesky:
    """The factor L of a matrix (n, n), `L L^T`, as LAPACK leaves it in the lower triangle."""

    factor: Array

    def solution(self, Y: Array) -> Array:
        """Return the solution (n, r) of `L L^T X = Y`."""
        _, potrs, numbers = _ROUTINES[self.factor.dtype]
        columns = np.array(Y.T, dtype=self.factor.dtype, order="C")
        n, r, info = ctypes.c_int(len(self.factor)), ctypes.c_int(len(columns)), ctypes.c_int()
        matrix, right = (each.ctypes.data_as(numbers) for each in (self.factor, columns))
        potrs(_LOWER, n, r, matrix, n, right, n, info)
        return columns.T

    @property
    def half_log_determinant(self) -> float:
        """Half of the logarithm of the determinant of the matrix."""
        return float(np.log(np.diag(self.factor)).sum())

    @property
    def inverse_diagonal(self) -> Array:
        """The diagonal (n,) of the inverse; nothing else is to be read afterwards."""
        inverse = np.triu(lapack.dtrtri(self.factor.T, lower=0, overwrite_c=1)[0])
        return np.asarray(np.einsum("ij,ij->i", inverse, inverse))


@contextmanager
def square_matrices(
    rows: Array, count: int, dtype: DTypeLike = np.float64
) -> Iterator[list[Array]]:
    """Yield `count` matrices (n, n) with any content for rows (n, d), which end with the block.

    Within `reused_matrices` their memory is used again.
    """
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
