"""Sparse rows: scipy's CSR, standardised without a dense copy."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ism_dask._types import Array

# A scipy array or matrix in CSR format.
Csr: TypeAlias = Any


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


@dataclass(frozen=True, eq=False)
class StandardisedSparse:
    """Rows `(S - mean) / scale` (b, d) of a sparse S, of which products alone are computed.

    It stands for the array X of a `LoadedShard` in functions that only multiply with X.

    Attributes
    ----------
    S : (b, d) CSR array
    mean, scale : (d,) arrays
    """

    S: Csr
    mean: Array
    scale: Array

    @classmethod
    def stack(cls, blocks: Sequence[StandardisedSparse]) -> StandardisedSparse:
        """Return the rows of several blocks as one."""
        from scipy.sparse import vstack  # noqa: PLC0415 - as in `is_sparse`

        S = vstack([block.S for block in blocks], format="csr")
        return cls(S, blocks[0].mean, blocks[0].scale)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers."""
        return np.dtype(self.S.dtype)

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return self.S.shape

    @property
    def T(self) -> _Transposed:
        """The transposed rows (d, b)."""
        return _Transposed(self)

    def __len__(self) -> int:
        return int(self.S.shape[0])

    def __matmul__(self, W: Array) -> Array:
        """Return the product with W (d, k), summed in double precision, in that of the rows."""
        weights = W.astype(np.float64) / self.scale[:, None]
        return np.asarray(self.S @ weights - self.mean @ weights).astype(self.dtype)

    def astype(self, dtype: Any, copy: bool = True) -> StandardisedSparse:
        """Return the rows with numbers of another type."""
        return StandardisedSparse(self.S.astype(dtype, copy=copy), self.mean, self.scale)


@dataclass(frozen=True, eq=False)
class _Transposed:
    """The transposed rows of a `StandardisedSparse`."""

    rows: StandardisedSparse

    def __matmul__(self, M: Array) -> Array:
        """Return the product with M (b, k), in double precision."""
        wide = M.astype(np.float64)
        product = self.rows.S.T @ wide - np.outer(self.rows.mean, wide.sum(axis=0))
        return np.asarray(product / self.rows.scale[:, None])

    def astype(self, dtype: Any) -> _Transposed:
        """Return the transposed rows with numbers of another type."""
        return self.rows.astype(dtype).T


def column_sums(S: Csr, weights: Array | None) -> tuple[Array, Array, Array]:
    """Return weighted means and squared deviations from them of the columns (d,), and the range.

    The range is an array (2, d): the least and the largest numbers.
    """
    b, d = S.shape
    counts = np.ones(b) if weights is None else weights
    of_entries = np.repeat(counts, np.diff(S.indptr))
    data, total = S.data.astype(np.float64), float(counts.sum())

    def by_column(values: Array) -> Array:
        return np.bincount(S.indices, values, minlength=d)

    mean = by_column(of_entries * data) / (total or 1.0)
    squares = by_column(of_entries * (data - mean[S.indices]) ** 2)
    squares += (total - by_column(of_entries)) * mean**2
    ends = np.zeros((2, d))
    filled = np.bincount(S.indices, minlength=d) == b
    ends[:, filled] = [[np.inf], [-np.inf]]
    np.minimum.at(ends[0], S.indices, data)
    np.maximum.at(ends[1], S.indices, data)
    return mean, squares, ends
