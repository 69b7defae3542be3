"""Widths that come from the data: the median distance, the distance to a neighbour."""

from __future__ import annotations

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import gen_batches

from ism_dask.typing import Array

# Rows at a time where all pairs are looked at.
_BATCH = 256
# Pairs closer than this share of their squared lengths are one point told twice.
_SAME_POINT = 1e-12


def median_distance(rows: Array) -> float:
    """Return the median Euclidean distance over all pairs of distinct rows of `rows` (m, d)."""
    m = len(rows)
    if m < 2:
        raise ValueError(f'sigma="median" needs two rows or more; got {m}')
    exact = np.asarray(rows, dtype=np.float64)
    squared = _pairwise(exact)
    middle = _middle(squared)
    if middle > 0:
        return middle
    # More than half of the pairs are copies: the others still have a scale.
    apart = squared[squared > 0]
    if apart.size == 0:
        raise ValueError('sigma="median" is 0: all rows are equal; give `sigma` a number')
    return _middle(apart)


def _pairwise(rows: Array) -> Array:
    """Return the m (m - 1) / 2 squared distances between `rows` (m, d), and no m x m matrix."""
    m = len(rows)
    squared = np.empty(m * (m - 1) // 2)
    filled = 0
    for batch in gen_batches(m, _BATCH):
        above = euclidean_distances(rows[batch], rows[batch.start :], squared=True)
        rising = above[np.triu_indices(len(above), k=1, m=above.shape[1])]
        squared[filled : filled + rising.size] = rising
        filled += rising.size
    return squared


def _middle(squared: Array) -> float:
    # The two middle distances are averaged as distances, not as squares.
    half = squared.size // 2
    middle = (half,) if squared.size % 2 else (half - 1, half)
    squared.partition(middle)
    return float(np.mean(np.sqrt(squared[list(middle)])))


def neighbor_distances(rows: Array, anchors: Array, neighbor: int) -> Array:
    """Return the (n,) distances of `rows` (n, d) to their `neighbor`-th nearest distinct anchor."""
    exact = np.asarray(rows, dtype=np.float64)
    anchors = np.asarray(anchors, dtype=np.float64)
    squared = euclidean_distances(exact, anchors, squared=True)
    lengths = np.einsum("ij,ij->i", exact, exact)[:, None]
    lengths = lengths + np.einsum("ij,ij->i", anchors, anchors)
    # The row itself, and exact copies of it, say nothing about its surroundings.
    squared[squared <= _SAME_POINT * lengths] = np.inf
    k = min(neighbor, len(anchors)) - 1
    nearest = np.sqrt(np.partition(squared, k, axis=1)[:, k])
    return np.where(np.isfinite(nearest), nearest, 1.0)
