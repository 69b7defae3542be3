"""A pivoted Cholesky factor of a positive semi-definite matrix, which grows by blocks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg

from ism_dask._types import Array

# Pivots below this share of the largest diagonal entry are rounding errors.
_ROUNDING_SHARE = 1e-13


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
        self._memory, self._floor = np.empty((0, len(diagonal))), 0.0
        self.pivots: list[int] = []
        self.left = diagonal
        self._raise_floor(diagonal)

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
        self._raise_floor(diagonal)
        self._memory = np.hstack([self._memory[: self.size], rows.T])
        remainder = np.maximum(diagonal - (rows**2).sum(axis=1), 0.0)
        self.left = np.concatenate([self.left, remainder])
        return np.arange(first, len(self.left))

    def _raise_floor(self, diagonal: Array) -> None:
        self._floor = max(self._floor, _ROUNDING_SHARE * float(diagonal.max(initial=0.0)))
