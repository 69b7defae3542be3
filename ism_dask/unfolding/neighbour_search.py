"""Searches for the nearest rows: exact, or approximate where an exact one would take too long."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, TypeAlias

import numpy as np
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.extmath import row_norms

from ism_dask._types import Array
from ism_dask.rows.execution import cluster, results_in_order
from ism_dask.rows.sparse import is_sparse

# Rows whose neighbours a task on a cluster searches.
_ROWS_PER_TASK = 2048
# Products of numbers up to which a search is exact: those of 60,000 rows of 784 columns are 2.8e12
# and take 2 minutes of one core.
_MOST_PRODUCTS = 1e13
# Rounding of squared distances by scikit-learn, as a share of the squared lengths of the two rows,
# and of the squared distance itself.
_ROUNDING, _RELATIVE_ROUNDING = 1e-12, 1e-6
# Squared distances are compared by this many parts of a power of 2.
_KEPT = 2.0**30
# Rows that are searched for at a time, enough for all cores, and numbers of their neighbours.
_ROWS_AT_ONCE = 8192
_NUMBERS_AT_ONCE = 2_000_000
# Up to this number of columns a tree makes an exact search short.
_TREE_COLUMNS = 15


@dataclass(frozen=True, eq=False)
class ExactSearch:
    """Compares each of some rows (n, d) with all others, or with those in a part of a tree."""

    exact: ClassVar[bool] = True
    search: NearestNeighbors
    rows: Any

    @classmethod
    def among(cls, rows: Any, k: int) -> ExactSearch:
        """Return the search for k neighbours among rows (n, d), which may be sparse."""
        return cls(NearestNeighbors(n_neighbors=k).fit(rows), rows)

    @cached_property
    def largest_norm(self) -> float:
        """The largest squared length of a row."""
        return float(row_norms(self.rows, squared=True).max())

    def of(self, X: Any, k: int | None = None) -> Array:
        """Return the nearest rows (b, k) of X (b, d), nearest first."""
        k = self.search.n_neighbors if k is None else k
        starts = range(0, X.shape[0], _ROWS_AT_ONCE)
        blocks = (X[start : start + _ROWS_AT_ONCE] for start in starts)
        return np.concatenate([self._nearest_of_block(block, k) for block in blocks])

    def of_own_rows(self) -> Array:
        """Return the nearest other rows (n, k) of each row of the fit, nearest first."""
        # Without a cluster in one piece: it then uses all cores by itself.
        n = self.rows.shape[0]
        size = n if cluster() is None else _ROWS_PER_TASK
        ranges = [(start, min(start + size, n)) for start in range(0, n, size)]
        return np.concatenate(list(results_in_order(_search_range, self, ranges)))

    def _nearest_of_block(self, X: Any, k: int) -> Array:
        """Return the nearest rows (b, k) of X (b, d), of equally near ones those of lower numbers.

        scikit-learn's order of equally near rows depends on the threads and on the other rows of X,
        and its distances lose digits. So it finds more rows than k, and their differences decide.
        Where rows that it has not found may be as near, it is asked for more.
        """
        nearest, n = np.empty((X.shape[0], k), dtype=np.int64), self.rows.shape[0]
        open_rows, count = np.arange(X.shape[0]), min(n, 2 * k)
        while len(open_rows):
            distances, found = self.search.kneighbors(X[open_rows], count)
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


@dataclass(frozen=True, eq=False)
class ApproximateSearch:
    """Follows neighbours of neighbours by pynndescent; it misses some of the nearest rows."""

    exact: ClassVar[bool] = False
    index: Any
    k: int

    @classmethod
    def among(cls, rows: Any, k: int, seed: int) -> ApproximateSearch:
        """Return the search for k neighbours among rows (n, d), which may be sparse."""
        pynndescent = import_module("pynndescent")
        return cls(pynndescent.NNDescent(rows, n_neighbors=k + 1, random_state=seed), k)

    def of(self, X: Any) -> Array:
        """Return the nearest rows (b, k) that it finds."""
        return np.asarray(self.index.query(X, k=self.k)[0])

    def of_own_rows(self) -> Array:
        """Return the nearest other rows (n, k) that it finds of each row of the fit."""
        return _others(np.asarray(self.index.neighbor_graph[0]), 0)


NeighbourSearch: TypeAlias = ExactSearch | ApproximateSearch


def neighbour_search(rows: Any, k: int, seed: int = 0) -> NeighbourSearch:
    """Return a search for k neighbours among rows (n, d), which may be sparse.

    It is approximate if an exact one would take tens of minutes and pynndescent is installed.
    """
    n, d = rows.shape
    is_long = d > _TREE_COLUMNS and n * n * _row_numbers(rows) > _MOST_PRODUCTS
    if is_long and find_spec("pynndescent") is not None:
        return ApproximateSearch.among(rows, k, seed)
    return ExactSearch.among(rows, k)


def squared_distances(X: Any, numbers: Array, rows: Any, others: Array) -> Array:
    """Return the squared distances (m,) of rows of X with `numbers` (m,) from `others` of `rows`.

    They are sums of squared differences, which lose no digits of short distances.
    """
    squared = np.empty(len(numbers))
    step = max(1, _NUMBERS_AT_ONCE // _row_numbers(X))
    for start in range(0, len(squared), step):
        run = slice(start, start + step)
        apart = rows[others[run]].astype(np.float64) - X[numbers[run]]
        squared[run] = row_norms(apart, squared=True)
    return squared


def _row_numbers(X: Any) -> int:
    """Return how many numbers a row of X (n, d) has, on average without zeros if X is sparse."""
    return int(max(1, X.nnz // X.shape[0]) if is_sparse(X) else X.shape[1])


def comparable(squared: Array) -> Array:
    """Return squared distances in which those that differ by a share of 1e-9 are mostly equal.

    So equally near rows stay so, whatever the units and the mean of the rows.
    """
    mantissas, exponents = np.frexp(squared)
    return np.ldexp(np.rint(mantissas * _KEPT), exponents)


def _search_range(search: ExactSearch, rows: tuple[int, int]) -> Array:
    """Return the nearest other rows (b, k) of those from a start to a stop, as a task."""
    start, stop = rows
    return _others(search.of(search.rows[start:stop], search.search.n_neighbors + 1), start)


def _others(nearest: Array, start: int) -> Array:
    """Return nearest rows (b, k) from (b, k + 1): without the rows themselves, from `start` on."""
    others = nearest != np.arange(start, start + len(nearest))[:, None]
    # Among rows that rounding makes equal, a row itself may be further down, or not listed.
    others[others.all(axis=1), -1] = False
    return nearest[others].reshape(len(nearest), -1)
