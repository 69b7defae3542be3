"""Positions of rows beside those of a fit, from those of their nearest neighbours."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array, vstack

from ism_dask._types import Array
from ism_dask.estimators.row_order import distinct_rows
from ism_dask.rows.sparse import as_dense, is_sparse
from ism_dask.unfolding.neighbour_search import ExactSearch, NeighbourSearch, neighbour_search

# Rows with larger numbers, in units of those of the fit, have distances whose squares overflow.
_FARTHEST = 1e150
# Rows whose neighbours, or the products of these, are in memory at a time, by their numbers.
_NUMBERS_AT_ONCE = 2_000_000
# Sparse rows that become dense together with their neighbours, in the columns of any of them.
_SPARSE_ROWS_AT_ONCE = 8
# Added to the diagonal of the cosines between differences, as a share of their trace: neighbours in
# few columns have many weights that give the same row.
_RIDGE = 1e-2
# The power of the largest weight by which the weights alone decide: a weight of a half, which is
# rare but beside a row of the fit, decides for a sixteenth.
_SHARPNESS = 4


@dataclass(frozen=True, eq=False)
class RowUnits:
    """A shift of rows, the scale of each column, and a power of 2 by which all are divided.

    Distances are then neither lost beside the mean, nor too large or small for fourth powers.

    Attributes
    ----------
    offset, scale : (d,) arrays
        In the precision of the rows.
    exponent : int
    """

    offset: Array
    scale: Array
    exponent: int

    @classmethod
    def of(cls, rows: Any, scale: Array) -> Self:
        """Return the units of different rows (n, d); sparse ones are not shifted."""
        kind = precision(rows)
        offset = 0.0 * scale if is_sparse(rows) else rows.mean(axis=0, dtype=np.float64)
        units = cls(offset.astype(kind), scale.astype(kind), 0)
        return replace(units, exponent=int(np.frexp(abs(units.scaled(rows)).max())[1]))

    def scaled(self, X: Any) -> Any:
        """Return rows X (b, d) shifted and scaled, in the precision of the rows of the fit."""
        if is_sparse(X):
            S = X.astype(self.offset.dtype)
            S.data = np.ldexp(S.data / self.scale[S.indices], -self.exponent)
            return S
        apart = (X.astype(self.offset.dtype) - self.offset) / self.scale
        return np.ldexp(apart, -self.exponent)

    def small(self, embedding: Array) -> Array:
        """Return coordinates (b, q) divided by the power of 2, in double precision."""
        return np.ldexp(embedding.astype(np.float64), -self.exponent)


@dataclass(frozen=True, eq=False)
class Placement:
    """Positions of new rows beside the rows of a fit.

    A row is written as a weighted mean of its neighbours, as nearly as possible. Without
    corrections, its position is the same weighted mean of their positions.

    Positions that are smooth functions on the graph of neighbours are placed better by Nystrom's
    formula. An eigenfunction of the Laplacian is, at any row, the mean of its neighbours divided by
    `1 - eigenvalue / k`, and smooth ones have eigenvalues near 0. So the position is the mean of
    those of the neighbours, plus the weighted mean of what this formula lacks at the neighbours
    themselves, their corrections. As far as one weight outweighs the others, the weights alone
    decide, so that positions do not jump beside a row of the fit.

    A copy of a row of the fit has its position, and rows near to it have positions near to that.

    Attributes
    ----------
    units : RowUnits
        Those of rows, positions and corrections.
    search : NeighbourSearch
        Finds neighbours among the rows of the fit.
    rows : (n, d) array or sparse array
    positions : (n, q) array
    corrections : (n, q) array or None
    """

    units: RowUnits
    search: NeighbourSearch
    rows: Any
    positions: Array
    corrections: Array | None = None

    @classmethod
    def beside(
        cls,
        X: Array,
        scale: Array,
        embedding: Array,
        corrections: Array | None,
        *,
        n_neighbors: int,
        exact: bool,
        seed: int,
    ) -> Self:
        """Return the placement of a fit to rows X (n, d) with the coordinates (n, q).

        `scale` (d,) are the units of its columns. `corrections` (n, q) are those of the fit.
        `exact` says whether the fit has compared each row with all others, `seed` is that of an
        approximate search.
        """
        first, _ = distinct_rows(X)
        units = RowUnits.of(X[first], scale)
        rows = units.scaled(X[first])
        search: NeighbourSearch = (
            ExactSearch.among(rows, n_neighbors)
            if exact
            else neighbour_search(rows, n_neighbors, seed)
        )
        corrections = None if corrections is None else units.small(corrections[first])
        return cls(units, search, rows, units.small(embedding[first]), corrections)

    def fitted(self, neighbours: Array) -> tuple[Self, float]:
        """Return the placement, with corrections if they place the rows of the fit better.

        Also return its error: how far these rows, from their neighbours (n, k) alone, are from
        their positions. It is the root mean square, as a share of the deviation of the positions.
        """
        # A row very near to one of these has that row as a neighbour, and not its farthest one.
        own = np.arange(len(self.positions))[:, None]
        nearest = np.hstack([own, neighbours[:, :-1]])
        corrections = self.positions - self.positions[nearest].mean(axis=1)
        corrected = replace(self, corrections=corrections)
        spread = np.linalg.norm(self.positions - self.positions.mean(axis=0))
        placed = corrected.by_both_formulas(self.rows, neighbours)
        errors = [float(np.linalg.norm(each - self.positions) / spread) for each in placed]
        return (self, errors[0]) if errors[0] <= errors[1] else (corrected, errors[1])

    def __call__(self, X: Any) -> Array:
        """Return the coordinates (b, q) of finite rows X (b, d), in the precision of X.

        Those of rows that are too far from the rows of the fit for their distance are NaN.
        """
        X = csr_array(X) if is_sparse(self.rows) else as_dense(X)
        with np.errstate(over="ignore", invalid="ignore"):
            rows = self.units.scaled(X)
            near = as_dense(abs(rows).max(axis=1)).ravel() < _FARTHEST
        placed = np.full((X.shape[0], self.positions.shape[1]), np.nan)
        if near.any():
            rows = rows[near]
            weighted, corrected = self.by_both_formulas(rows, self.search.of(rows))
            found = weighted if self.corrections is None else corrected
            placed[near] = np.ldexp(found, self.units.exponent)
        return placed.astype(precision(X), copy=False)

    def by_both_formulas(self, X: Any, neighbours: Array) -> tuple[Array, Array]:
        """Return the positions (b, q) without corrections, and with them, if there are any."""
        (b, k), d = neighbours.shape, X.shape[1]
        step = max(1, _NUMBERS_AT_ONCE // (k * max(d, k)))
        step = _SPARSE_ROWS_AT_ONCE if is_sparse(X) else step
        weighted, corrected = np.empty((2, b, self.positions.shape[1]))
        for start in range(0, b, step):
            run = slice(start, start + step)
            near = neighbours[run]
            weights = _weights(*_with_neighbours(X[run], self.rows, near))
            positions = self.positions[near]
            weighted[run] = _means(weights, positions)
            if self.corrections is not None:
                moved = positions.mean(axis=1) + _means(weights, self.corrections[near])
                # Beside a row of the fit its weight decides: of equally near rows, others may be
                # neighbours here than there.
                beside = np.clip(weights.max(axis=1, keepdims=True), 0.0, 1.0) ** _SHARPNESS
                corrected[run] = beside * weighted[run] + (1.0 - beside) * moved
        return weighted, corrected


def precision(X: Any) -> np.dtype[np.floating]:
    """Return the dtype of coordinates of X: single precision for single precision, else double."""
    return np.dtype(np.float32 if X.dtype == np.float32 else np.float64)


def _means(weights: Array, values: Array) -> Array:
    """Return the weighted sums (b, q) of values (b, k, q)."""
    return np.einsum("bk,bkq->bq", weights, values)


def _with_neighbours(X: Any, rows: Any, near: Array) -> tuple[Array, Array]:
    """Return rows X (b, d) and their neighbours (b, k, d), dense.

    Columns in which all of them are 0 are left out if they are sparse: differences stay the same.
    """
    if not is_sparse(X):
        return X, rows[near]
    together = vstack([X, rows[near.ravel()]], format="csr")
    dense = together[:, np.unique(together.indices)].toarray()
    return dense[: len(near)], dense[len(near) :].reshape(*near.shape, -1)


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
