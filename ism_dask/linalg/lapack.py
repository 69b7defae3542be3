"""Cholesky factorisation and solution by LAPACK, while other threads of Python run.

SciPy's wrappers of the same routines keep all other threads waiting, so that blocks in two threads
would take as long as in one. NumPy's let them run, but copy the matrix. So these are called as
Cython code calls them.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from scipy.linalg import cython_lapack

from ism_dask._types import Array

_INT = ctypes.POINTER(ctypes.c_int)
# The triangle that is upper in Fortran's order is the lower one of a matrix in C order.
_LOWER = ctypes.c_char_p(b"U")


def _routine(name: str, *arguments: Any) -> Any:
    """Return a routine of LAPACK, whose call releases Python's lock."""
    capsules: Any = cython_lapack.__pyx_capi__
    capsule, api = capsules[name], ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    return ctypes.CFUNCTYPE(None, ctypes.c_char_p, *arguments)(address)


def _routines(prefix: str, number: Any) -> tuple[Any, Any, Any]:
    """Return potrf, potrs and the type of their matrices."""
    numbers = ctypes.POINTER(number)
    potrf = _routine(f"{prefix}potrf", _INT, numbers, _INT, _INT)
    potrs = _routine(f"{prefix}potrs", _INT, _INT, numbers, _INT, numbers, _INT, _INT)
    return potrf, potrs, numbers


_ROUTINES = {
    np.dtype(np.float64): _routines("d", ctypes.c_double),
    np.dtype(np.float32): _routines("s", ctypes.c_float),
}


def factorise(matrix: Array) -> bool:
    """Write L with `L L^T = matrix` into the lower triangle of a symmetric matrix (n, n).

    The matrix is in C order. Return False if it is not positive definite in its precision.
    """
    potrf, _, numbers = _ROUTINES[matrix.dtype]
    n, info = ctypes.c_int(len(matrix)), ctypes.c_int()
    potrf(_LOWER, n, matrix.ctypes.data_as(numbers), n, info)
    return info.value == 0


def solution(factor: Array, Y: Array) -> Array:
    """Return the solution (n, r) of `L L^T X = Y`, given L as `factorise` leaves it."""
    _, potrs, numbers = _ROUTINES[factor.dtype]
    columns = np.array(Y.T, dtype=factor.dtype, order="C")
    n, r, info = ctypes.c_int(len(factor)), ctypes.c_int(len(columns)), ctypes.c_int()
    matrix, right = (each.ctypes.data_as(numbers) for each in (factor, columns))
    potrs(_LOWER, n, r, matrix, n, right, n, info)
    return columns.T
