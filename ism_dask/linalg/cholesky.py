"""Cholesky factors, by LAPACK or with pivots, and memory for square matrices.

SciPy's wrappers of LAPACK keep all other threads of Python waiting, so that blocks in two threads
would take as long as in one. NumPy's let them run, but copy the matrix. So LAPACK is called as
Cython code calls it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from scipy.linalg import cython_lapack, lapack

from ism_dask._types import Array

# Memory of square matrices that no thread uses at present, the most pieces that stay for later, and
# the blocks of `reused_matrices` that are open.
_UNUSED: list[Array] = []
_MOST_UNUSED = 64
_OPEN: list[None] = []
_INT, _NUMBERS = ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_double)
# The triangle that is upper in Fortran's order is the lower one of a matrix in C order.
_LOWER = ctypes.c_char_p(b"U")
# Pivots below this share of the largest diagonal entry are rounding errors.
_ROUNDING_SHARE = 1e-13


def cholesky(matrix: Array) -> Cholesky | None:
    """Return the factor of a symmetric matrix (n, n) in C order, None if it is not definite.

    The matrix is overwritten.
    """
    n, info = ctypes.c_int(len(matrix)), ctypes.c_int()
    _POTRF(_LOWER, n, matrix.ctypes.data_as(_NUMBERS), n, info)
    return Cholesky(matrix) if info.value == 0 else None


@dataclass(frozen=True, eq=False)
class Cholesky:
    """The factor L of a matrix (n, n), `L L^T`, as LAPACK leaves it in the lower triangle."""

    factor: Array

    def solution(self, Y: Array) -> Array:
        """Return the solution (n, r) of `L L^T X = Y`."""
        columns = np.array(Y.T, dtype=np.float64, order="C")
        n, r, info = ctypes.c_int(len(self.factor)), ctypes.c_int(len(columns)), ctypes.c_int()
        matrix, right = (each.ctypes.data_as(_NUMBERS) for each in (self.factor, columns))
        _POTRS(_LOWER, n, r, matrix, n, right, n, info)
        return columns.T

    @property
    def inverse(self) -> Array:
        """The inverse (n, n), in place of the factor; nothing else is to be read afterwards."""
        n, info, matrix = ctypes.c_int(len(self.factor)), ctypes.c_int(), self.factor
        _POTRI(_LOWER, n, matrix.ctypes.data_as(_NUMBERS), n, info)
        above = np.triu_indices(len(matrix), 1)
        matrix[above] = matrix.T[above]
        return matrix

    @property
    def inverse_diagonal(self) -> Array:
        """The diagonal (n,) of the inverse; nothing else is to be read afterwards."""
        inverse = np.triu(lapack.dtrtri(self.factor.T, lower=0, overwrite_c=1)[0])
        return np.asarray(np.einsum("ij,ij->i", inverse, inverse))


class PivotedCholesky:
    """F (n, m) with `K - F F^T` positive semi-definite, and 0 in the rows of the pivots.

    Parameters
    ----------
    columns : callable
        Returns columns (n, b) of the matrix K for indices (b,).
    diagonal : (n,) array
        Of K. Rows with 0 are never pivots.

    Attributes
    ----------
    pivots : list of int
    left : (n,) array
        The diagonal of `K - F F^T`.
    """

    def __init__(self, columns: Callable[[Array], Array], diagonal: Array) -> None:
        self._columns = columns
        self._memory, self._floor = np.empty((0, 0)), 0.0
        self.pivots: list[int] = []
        self.left = np.empty(0)
        self.append(np.empty((len(diagonal), 0)), diagonal)

    @property
    def size(self) -> int:
        """The number of pivots so far."""
        return len(self.pivots)

    @property
    def factor(self) -> Array:
        """F (n, m)."""
        return self._memory[: self.size].T

    def add(self, block: Array, thresholds: Array) -> bool:
        """Add pivots from the rows (b,) of a block; return whether any was accepted.

        A row is accepted if the pivots of the block before it leave more than its threshold of what
        was left of it.
        """
        rows, before = self._columns(block).T, self._memory[: self.size]
        rows = rows - before[:, block].T @ before
        remainder, accepted, columns = rows[:, block].copy(), [], []
        initial = np.diag(remainder).copy()
        for index, threshold in enumerate(thresholds):
            pivot = remainder[index, index]
            if pivot > max(self._floor, threshold * initial[index]):
                column = remainder[:, index] / np.sqrt(pivot)
                remainder -= np.multiply.outer(column, column)
                accepted.append(index)
                columns.append(column)
        if not accepted:
            return False
        triangle = np.array(columns).T[accepted]
        added = scipy.linalg.solve_triangular(
            triangle, rows[accepted], lower=True, overwrite_b=True, check_finite=False
        )
        first, last = self.size, self.size + len(accepted)
        if last > len(self._memory):  # twice as much each time, so that few copies are made
            more = np.empty((max(last, 2 * first) - len(self._memory), len(self.left)))
            self._memory = np.concatenate([self._memory, more])
        self._memory[first:last] = added
        self.pivots += block[accepted].tolist()
        self.left = np.maximum(self.left - np.einsum("ij,ij->j", added, added), 0.0)
        self.left[self.pivots] = 0.0
        return True

    def append(self, rows: Array, diagonal: Array) -> Array:
        """Add rows to the matrix, with their rows (b, m) of F; return their indices (b,)."""
        first = len(self.left)
        self._floor = max(self._floor, _ROUNDING_SHARE * float(diagonal.max(initial=0.0)))
        self._memory = np.hstack([self._memory[: self.size], rows.T])
        remainder = np.maximum(diagonal - (rows**2).sum(axis=1), 0.0)
        self.left = np.concatenate([self.left, remainder])
        return np.arange(first, len(self.left))


@contextmanager
def square_matrices(rows: Array, count: int) -> Iterator[list[Array]]:
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
        yield [each[: n * n].reshape(n, n) for each in memory]
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


def _routine(name: str, *arguments: Any) -> Any:
    """Return a routine of LAPACK; its calls release Python's lock."""
    capsules: Any = cython_lapack.__pyx_capi__
    api, capsule = ctypes.pythonapi, capsules[name]
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    return ctypes.CFUNCTYPE(None, ctypes.c_char_p, *arguments)(address)


_POTRF = _routine("dpotrf", _INT, _NUMBERS, _INT, _INT)
_POTRI = _routine("dpotri", _INT, _NUMBERS, _INT, _INT)
_POTRS = _routine("dpotrs", _INT, _INT, _NUMBERS, _INT, _NUMBERS, _INT, _INT)
