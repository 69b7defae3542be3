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

_INT, _DOUBLES = ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_double)
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


_potrf = _routine("dpotrf", _INT, _DOUBLES, _INT, _INT)
_potrs = _routine("dpotrs", _INT, _INT, _DOUBLES, _INT, _DOUBLES, _INT, _INT)


def factorise(matrix: Array) -> bool:
    """Write L with `L L^T = matrix` into the lower triangle of a symmetric matrix (n, n).

    The matrix is in double precision and in C order. Return False if it is not positive definite.
    """
    n, info = ctypes.c_int(len(matrix)), ctypes.c_int()
    _potrf(_LOWER, n, matrix.ctypes.data_as(_DOUBLES), n, info)
    return info.value == 0


def solution(factor: Array, Y: Array) -> Array:
    """Return the solution (n, r) of `L L^T X = Y`, given L as `factorise` leaves it."""
    columns = np.array(Y.T, dtype=np.float64, order="C")
    n, r, info = ctypes.c_int(len(factor)), ctypes.c_int(len(columns)), ctypes.c_int()
    matrix, right = (each.ctypes.data_as(_DOUBLES) for each in (factor, columns))
    _potrs(_LOWER, n, r, matrix, n, right, n, info)
    return columns.T
