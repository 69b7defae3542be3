"""Widths that come from the data: the median distance, the distance to a neighbour."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from sklearn.utils import gen_batches

from ism_dask.kernels.pairing import INNER
from ism_dask.typing import Array

# Rows at a time where all pairs are looked at.
_BATCH = 256
# Pairs closer than this many roundings of their squared lengths are one point told twice.
_SAME_POINT = 5e3


def median_distance(rows: Array) -> float:
    """Return the median Euclidean distance over all pairs of distinct rows of `rows` (m, d)."""
    m = len(rows)
    if m < 2:
        raise ValueError(f'sigma="median" needs two rows or more; got {m}')
    squared = _pairwise(_centred(rows, rows).astype(_precision(rows)))
    middle = _middle(squared)
    if middle > 0:
        return middle
    # More than half of the pairs are copies: the others still have a scale.
    apart = squared[squared > 0]
    if apart.size == 0:
        raise ValueError('sigma="median" is 0: all rows are equal; give `sigma` a number')
    return _middle(apart)


def neighbor_distances(rows: Array, anchors: Array, neighbor: int) -> Array:
    """Return the (n,) distances of `rows` (n, d) to their `neighbor`-th nearest distinct anchor.

    Where there are fewer the farthest counts, and 1 where there is none.
    """
    squared = _squared(_centred(rows, anchors), _centred(anchors, anchors))
    # The row itself, and exact copies of it, say nothing about its surroundings.
    squared[squared == 0] = np.inf
    squared.sort(axis=1)
    distinct = np.count_nonzero(np.isfinite(squared), axis=1)
    nearest = squared[np.arange(len(rows)), np.minimum(neighbor, np.maximum(distinct, 1)) - 1]
    return np.where(np.isfinite(nearest), np.sqrt(nearest), 1.0)


def _centred(rows: Array, origin: Array) -> Array:
    """Return `rows` in float64 from the mean of `origin`: far from 0 distances lose digits."""
    return np.asarray(rows, dtype=np.float64) - np.mean(origin, axis=0, dtype=np.float64)


def _precision(rows: Array) -> np.dtype[Any]:
    """Return that of `rows`, if they are floats: the median is no better than its rows."""
    return rows.dtype if rows.dtype == np.float32 else np.dtype(np.float64)


def _squared(left: Array, right: Array) -> Array:
    """Return squared distances (a, b), exactly 0 between copies."""
    rows, columns = INNER.own(left), INNER.own(right)
    squared = left @ right.T
    squared *= -2.0
    squared += rows[:, None]
    squared += columns
    same = _SAME_POINT * np.finfo(squared.dtype).eps
    # Most often there are no copies, and one look tells.
    if squared.min(initial=np.inf) <= same * (rows.max() + columns.max()):
        squared[squared <= same * (rows[:, None] + columns)] = 0.0
    return np.asarray(squared)


def _pairwise(rows: Array) -> Array:
    """Return the m (m - 1) / 2 squared distances between `rows` (m, d), and no m x m matrix."""
    m = len(rows)
    squared = np.empty(m * (m - 1) // 2, rows.dtype)

    def fill(batch: slice) -> None:
        above = _squared(rows[batch], rows[batch.start :])
        own, others = np.split(above, [len(above)], axis=1)
        # Rows before this batch have told of all their pairs.
        first = batch.start * (2 * m - batch.start - 1) // 2
        for pairs in (own[np.triu_indices(len(above), k=1)], others.ravel()):
            squared[first : first + pairs.size] = pairs
            first += pairs.size

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(fill, gen_batches(m, _BATCH)))
    return squared


def _middle(squared: Array) -> float:
    # The two middle distances are averaged as distances, not as squares.
    half = squared.size // 2
    middle = (half,) if squared.size % 2 else (half - 1, half)
    squared.partition(middle)
    return float(np.mean(np.sqrt(squared[list(middle)], dtype=np.float64)))
