"""Positions of rows from those of their nearest neighbours, by one of two formulas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from ism_dask._types import Array
from ism_dask.unfolding.neighbour_search import NeighbourSearch

# Rows whose neighbours, or the products of these, are in memory at a time, by their numbers.
_NUMBERS_AT_ONCE = 2_000_000
# Added to the diagonal of the cosines between differences, as a share of their trace: neighbours in
# few columns have many weights that give the same row.
_RIDGE = 1e-2
# The power of the largest weight by which the weights alone decide: a weight of a half, which is
# rare but beside a row of the fit, decides for a sixteenth.
_SHARPNESS = 4


@dataclass(frozen=True, eq=False)
class LocalExtension:
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
    search : NeighbourSearch
        Finds neighbours among the rows of the fit.
    rows : (n, d) array
    positions : (n, q) array
    corrections : (n, q) array or None
    """

    search: NeighbourSearch
    rows: Array
    positions: Array
    corrections: Array | None = None

    @classmethod
    def fitted(
        cls, search: NeighbourSearch, rows: Array, positions: Array, neighbours: Array
    ) -> tuple[Self, float]:
        """Return the extension that places the rows of a fit better without themselves.

        Also return its error: how far these rows, from their neighbours (n, k) alone, are from
        their positions. It is the root mean square, as a share of the deviation of the positions.
        """
        corrections = positions - _mean_with_own(positions, neighbours)
        corrected = cls(search, rows, positions, corrections)
        placed = corrected._by_both_formulas(rows, neighbours)
        errors = [corrected._error(each) for each in placed]
        if errors[0] <= errors[1]:
            return cls(search, rows, positions), errors[0]
        return corrected, errors[1]

    def error_without_own(self, neighbours: Array) -> float:
        """Return how far rows of the fit are from where their neighbours (n, k) alone put them."""
        return self._error(self._placed(self.rows, neighbours))

    def __call__(self, X: Array) -> Array:
        """Return the positions (b, q) of rows X (b, d)."""
        return self._placed(X, self.search.of(X))

    def _placed(self, X: Array, neighbours: Array) -> Array:
        weighted, corrected = self._by_both_formulas(X, neighbours)
        return weighted if self.corrections is None else corrected

    def _error(self, placed: Array) -> float:
        spread = self.positions - self.positions.mean(axis=0)
        return float(np.linalg.norm(placed - self.positions) / np.linalg.norm(spread))

    def _by_both_formulas(self, X: Array, neighbours: Array) -> tuple[Array, Array]:
        """Return the positions (b, q) without corrections, and with them, if there are any."""
        k, d = neighbours.shape[1], X.shape[1]
        step = max(1, _NUMBERS_AT_ONCE // (k * max(d, k)))
        weighted, corrected = np.empty((2, len(X), self.positions.shape[1]))
        for start in range(0, len(X), step):
            run = slice(start, start + step)
            near = neighbours[run]
            weights, positions = _weights(X[run], self.rows[near]), self.positions[near]
            weighted[run] = _means(weights, positions)
            if self.corrections is not None:
                moved = positions.mean(axis=1) + _means(weights, self.corrections[near])
                # Beside a row of the fit its weight decides: of equally near rows, others may be
                # neighbours here than there.
                beside = np.clip(weights.max(axis=1, keepdims=True), 0.0, 1.0) ** _SHARPNESS
                corrected[run] = beside * weighted[run] + (1.0 - beside) * moved
        return weighted, corrected


def _mean_with_own(positions: Array, neighbours: Array) -> Array:
    """Return the mean position (n, q) of each row and its neighbours (n, k) but the farthest.

    These are the k rows that a row very near to it has as neighbours.
    """
    own = np.arange(len(positions))[:, None]
    return positions[np.hstack([own, neighbours[:, :-1]])].mean(axis=1)


def _means(weights: Array, values: Array) -> Array:
    """Return the weighted sums (b, q) of values (b, k, q)."""
    return np.einsum("bk,bkq->bq", weights, values)


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
