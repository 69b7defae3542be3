"""Positions of rows from those of their nearest neighbours, by locally linear weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ism_dask._types import Array
from ism_dask.unfolding.neighbour_search import NeighbourSearch

# Rows whose neighbours are in memory at a time, by their numbers.
_NUMBERS_AT_ONCE = 4_000_000
# Added to the diagonal of the cosines between differences, as a share of their trace: neighbours in
# few columns have many weights that give the same row.
_RIDGE = 1e-2


@dataclass(frozen=True, eq=False)
class LocalExtension:
    """Positions of new rows beside the rows of a fit.

    A row is written as a weighted mean of its neighbours, as nearly as possible, and its position
    is the same weighted mean of their positions. A copy of a row of the fit has its position.

    Attributes
    ----------
    search : NeighbourSearch
        Finds neighbours among the rows of the fit.
    rows : (n, d) array
    positions : (n, q) array
    """

    search: NeighbourSearch
    rows: Array
    positions: Array

    def __call__(self, X: Array) -> Array:
        """Return the positions (b, q) of rows X (b, d)."""
        return self._placed(X, self.search.of(X))

    def error_without_own(self, neighbours: Array) -> float:
        """Return how far rows of the fit are from where their neighbours (n, k) put them.

        It is the root mean square, as a share of the deviation of the positions.
        """
        apart = self._placed(self.rows, neighbours) - self.positions
        spread = self.positions - self.positions.mean(axis=0)
        return float(np.linalg.norm(apart) / np.linalg.norm(spread))

    def _placed(self, X: Array, neighbours: Array) -> Array:
        step = max(1, _NUMBERS_AT_ONCE // (neighbours.shape[1] * X.shape[1]))
        placed = np.empty((len(X), self.positions.shape[1]))
        for start in range(0, len(X), step):
            run = slice(start, start + step)
            near = neighbours[run]
            weights = _weights(X[run], self.rows[near])
            placed[run] = np.einsum("bk,bkq->bq", weights, self.positions[near])
        return placed


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
    weights = np.linalg.solve(cosines, 1.0 / lengths[..., None])[..., 0] / lengths
    weights = np.where(copies.any(axis=1, keepdims=True), copies, weights)
    return weights / weights.sum(axis=1, keepdims=True)
