"""Sources of rows: data sets that any process can read, and sparse rows that become dense."""

from __future__ import annotations

import sys
from typing import Any, Protocol, TypeAlias, TypeGuard, runtime_checkable

import numpy as np

from ism_dask._types import Array

# A scipy array or matrix in CSR format.
Csr: TypeAlias = Any


@runtime_checkable
class RowSource(Protocol):
    """Rows that any process can read by itself, such as an opened data set."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    chunk_rows: int

    def read(self, start: int, stop: int) -> Array:
        """Return rows `start` to `stop` as a (stop - start, d) array."""


def is_row_source(X: Any) -> TypeGuard[RowSource]:
    """Return whether X is a `RowSource`; an array is not, and none of its attributes is read."""
    return not isinstance(X, np.ndarray) and isinstance(X, RowSource)


def is_sparse(X: Any) -> bool:
    """Return whether X is a sparse array or matrix of scipy."""
    # A program that only reads rows need not wait for the import of scipy: without it, no X can be.
    scipy_sparse = sys.modules.get("scipy.sparse")
    return scipy_sparse is not None and bool(scipy_sparse.issparse(X))


def as_dense(X: Any) -> Array:
    """Return an array as it is, and a sparse one with its zeros."""
    return np.asarray(X.toarray() if is_sparse(X) else X)


def rows_between(X: Csr, start: int, stop: int) -> Csr:
    """Return rows `start` to `stop` of X (n, d) without a copy of their numbers."""
    from scipy.sparse import csr_array  # noqa: PLC0415 - as in `is_sparse`

    first, last = X.indptr[start], X.indptr[stop]
    parts = X.data[first:last], X.indices[first:last], X.indptr[start : stop + 1] - first
    return csr_array(parts, shape=(stop - start, X.shape[1]), copy=False)


class SparseRows:
    """A `RowSource` of sparse rows with few columns: it makes those dense that a task reads."""

    def __init__(self, X: Csr, chunk_rows: int) -> None:
        self._X, self.chunk_rows = X, chunk_rows
        self.shape: tuple[int, int] = X.shape
        self.dtype: np.dtype[Any] = X.dtype

    def part(self, start: int, stop: int) -> SparseRows:
        """Return rows `start` to `stop` as a source of their own, which a task takes along."""
        return SparseRows(rows_between(self._X, start, stop), self.chunk_rows)

    def read(self, start: int, stop: int) -> Array:
        """Return rows `start` to `stop` as a (stop - start, d) array."""
        return np.asarray(rows_between(self._X, start, stop).toarray())
