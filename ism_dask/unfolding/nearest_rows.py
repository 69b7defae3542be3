"""The nearest rows of each row of a fit, and positions of new rows among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array, vstack
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.extmath import row_norms

from ism_dask._types import Array
from ism_dask.rows.raw import as_dense, is_sparse

# Rounding of squared distances by scikit-learn, as a share of the squared lengths of the two rows,
# and of the squared distance itself.
_ROUNDING, _RELATIVE_ROUNDING = 1e-12, 1e-6
# Squared distances are compared by this many parts of a power of 2.
_COMPARED = 2.0**30
# Rows that are searched for at a time, enough for all cores, and numbers of their neighbours.
_ROWS_AT_ONCE = 8192
_NUMBERS_AT_ONCE = 2_000_000
# Sparse rows that become dense together with their neighbours, in the columns of any of them.
_SPARSE_ROWS_AT_ONCE = 8
# Rows with larger numbers have distances whose squares overflow.
_FARTHEST = 1e150
# Added to the diagonal of the cosines between differences, as a share of their trace: neighbours in
# few columns have many weights that give the same row.
_RIDGE = 1e-2


@dataclass(frozen=True, eq=False)
class NearestRows:
    """Finds the nearest k of some rows (n, d), dense or sparse, by their exact distances."""

    rows: Any
    k: int
    index: NearestNeighbors
    largest_norm: float

    @classmethod
    def among(cls, rows: Any, k: int) -> Self:
        """Return the search for k neighbours among rows (n, d)."""
        index = NearestNeighbors(n_neighbors=k).fit(rows)
        return cls(rows, k, index, float(row_norms(rows, squared=True).max()))

    def nearest_to(self, X: Any, k: int | None = None) -> Array:
        """Return the numbers (b, k) of the rows that are nearest to X (b, d), nearest first."""
        k = self.k if k is None else k
        starts = range(0, X.shape[0], _ROWS_AT_ONCE)
        return np.concatenate(
            [self._nearest_to_block(X[each : each + _ROWS_AT_ONCE], k) for each in starts]
        )

    def nearest_others(self) -> Array:
        """Return the numbers (n, k) of the nearest other rows of each row, nearest first."""
        n = self.rows.shape[0]
        nearest = self.nearest_to(self.rows, self.k + 1)
        others = nearest != np.arange(n)[:, None]
        # Among rows that rounding makes equal, a row itself may be further down, or not listed.
        others[others.all(axis=1), -1] = False
        return nearest[others].reshape(n, -1)

    def _nearest_to_block(self, X: Any, k: int) -> Array:
        """Return the nearest rows (b, k) of X (b, d), of equally near ones those of lower numbers.

        scikit-learn's order of equally near rows depends on the threads and on the other rows of X,
        and its distances lose digits. So it finds more rows than k, and their differences decide.
        Where rows that it has not found may be as near, it searches for more.
        """
        nearest, n = np.empty((X.shape[0], k), dtype=np.int64), self.rows.shape[0]
        open_rows, count = np.arange(X.shape[0]), min(n, 2 * k)
        while len(open_rows):
            distances, found = self.index.kneighbors(X[open_rows], count)
            numbers = np.repeat(open_rows, count)
            squared = squared_distances(X, numbers, self.rows, found.ravel()).reshape(found.shape)
            order = np.lexsort((found, comparable(squared)), axis=1)[:, :k]
            nearest[open_rows] = np.take_along_axis(found, order, axis=1)
            if count == n:
                break
            farthest = np.take_along_axis(squared, order[:, -1:], axis=1)[:, 0]
            norms = row_norms(X[open_rows].astype(np.float64), squared=True)
            rounding = _ROUNDING * (norms + self.largest_norm)
            not_found = (1.0 - _RELATIVE_ROUNDING) * distances[:, -1].astype(np.float64) ** 2
            open_rows = open_rows[farthest + rounding >= not_found]
            count = min(n, 4 * count)
        return nearest


def squared_distances(X: Any, numbers: Array, rows: Any, others: Array) -> Array:
    """Return the squared distances (m,) of rows of X with `numbers` (m,) from `others` of `rows`.

    They are sums of squared differences, which lose no digits of short distances.
    """
    squared = np.empty(len(numbers))
    width = max(1, X.nnz // X.shape[0]) if is_sparse(X) else X.shape[1]
    step = max(1, _NUMBERS_AT_ONCE // width)
    for start in range(0, len(squared), step):
        run = slice(start, start + step)
        apart = rows[others[run]].astype(np.float64) - X[numbers[run]]
        squared[run] = row_norms(apart, squared=True)
    return squared


def comparable(squared: Array) -> Array:
    """Return squared distances in which those that differ by a share of 1e-9 are mostly equal.

    So equally near rows stay so, whatever the units and the mean of the rows.
    """
    mantissas, exponents = np.frexp(squared)
    return np.ldexp(np.rint(mantissas * _COMPARED), exponents)


@dataclass(frozen=True, eq=False)
class Placement:
    """Places new rows by the positions (n, q) of their nearest rows among those of a fit.

    A row is written as a weighted mean of its neighbours, as nearly as possible. Its position is
    the same weighted mean of their positions. So a copy of a row of the fit has its position, and
    rows near to it have positions near to that.

    Rows are shifted by the offset (d,), so that distances are not lost beside the mean, and divided
    by the scale (d,).
    """

    offset: Array
    scale: Array
    search: NearestRows
    positions: Array

    @classmethod
    def among(cls, X: Any, scale: Array, k: int) -> Self:
        """Return the placement by k of different rows X (n, d), which have no positions yet.

        `scale` (d,) has the units of the columns. Sparse rows are not shifted.
        """
        kind = precision(X)
        offset = 0.0 * scale if is_sparse(X) else X.mean(axis=0, dtype=np.float64)
        units = offset.astype(kind), scale.astype(kind)
        search = NearestRows.among(_scaled(X, *units), k)
        return cls(*units, search, np.empty((X.shape[0], 0)))

    def __call__(self, X: Any) -> Array:
        """Return the coordinates (b, q) of finite rows X (b, d), in the precision of X.

        Raise a ValueError if rows are too far from the rows of the fit for their distance.
        """
        X = csr_array(X) if is_sparse(self.search.rows) else as_dense(X)
        with np.errstate(over="ignore", invalid="ignore"):
            rows = _scaled(X, self.offset, self.scale)
            far = np.flatnonzero(~(as_dense(abs(rows).max(axis=1)).ravel() < _FARTHEST))
        if len(far):
            raise ValueError(
                f"{len(far)} rows of X, the first number {far[0]}, are so far from all rows of the "
                "fit that their distances overflow; correct them, or leave them out"
            )
        return self._weighted(rows, self.search.nearest_to(rows)).astype(precision(X), copy=False)

    def _weighted(self, X: Any, neighbours: Array) -> Array:
        """Return the positions (b, q) of scaled rows X (b, d) from those of neighbours (b, k)."""
        (b, k), placed = neighbours.shape, np.empty((X.shape[0], self.positions.shape[1]))
        step = max(1, _NUMBERS_AT_ONCE // (k * max(X.shape[1], k)))
        step = _SPARSE_ROWS_AT_ONCE if is_sparse(X) else step
        for start in range(0, b, step):
            run = slice(start, start + step)
            near, rows = neighbours[run], X[run]
            dense = self.search.rows[near.ravel()]
            if is_sparse(X):
                # Without columns in which all of them are 0: differences stay the same.
                both = vstack([rows, dense], format="csr")
                both = both[:, np.unique(both.indices)].toarray()
                rows, dense = both[: len(near)], both[len(near) :]
            weights = _weights(rows, dense.reshape(*near.shape, -1))
            placed[run] = np.einsum("bk,bkq->bq", weights, self.positions[near])
        return placed


def precision(X: Any) -> np.dtype[np.floating]:
    """Return the dtype of coordinates of X: single precision for single precision, else double."""
    return np.dtype(np.float32 if X.dtype == np.float32 else np.float64)


def _scaled(X: Any, offset: Array, scale: Array) -> Any:
    """Return rows X (b, d) shifted and divided, in the precision of the offset."""
    if not is_sparse(X):
        return (X.astype(offset.dtype) - offset) / scale
    S = X.astype(offset.dtype)
    S.data = S.data / scale[S.indices]
    return S


def _weights(X: Array, near: Array) -> Array:
    """Return weights (b, k) with sum 1 by which neighbours (b, k, d) come nearest to rows X (b, d).

    Without the ridge they are the locally linear weights of Roweis and Saul. The ridge is in
    proportion to the squared distance of each neighbour: the nearer one is, the more the weights
    depend on it alone, so that rows that approach a row of the fit approach its position.
    """
    apart = near.astype(np.float64) - X[:, None, :]
    distances = np.sqrt(np.einsum("bkd,bkd->bk", apart, apart))
    copies = distances == 0
    lengths = np.where(copies, 1.0, distances)
    apart /= lengths[..., None]
    k = apart.shape[1]
    cosines = apart @ apart.transpose(0, 2, 1) + _RIDGE * k * np.eye(k)
    lengths /= lengths.min(axis=1, keepdims=True)  # squares of short ones underflow
    weights = np.linalg.solve(cosines, 1.0 / lengths[..., None])[..., 0] / lengths
    weights = np.where(copies.any(axis=1, keepdims=True), copies, weights)
    return weights / weights.sum(axis=1, keepdims=True)
