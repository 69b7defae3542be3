"""Centres of clusters: k-means, which is the nearest, how rows of known clusters pull them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.cluster import KMeans

from ism_dask._types import Array
from ism_dask.blas_threads import single_threaded_loops

# Starts of k-means up to so many rows. With twenty clusters of some thirty faces the best of ten
# was another for every seed, of fifty for none.
_FEW_ROWS, _MANY_STARTS, _STARTS = 5_000, 50, 10

# Turns of k-means at most; a few dozen are usual.
_TURNS = 300
# Rows that are looked at first to see whether enough of them differ, and the digits they differ in.
_LOOKED_AT, _DIGITS = 1_000, 6
# Centres among rows of length 1 that are nearer than this are one.
_SAME = 1e-6


def kmeans(rows: Array, k: int, *, seed: Any, starts: int | None = None) -> tuple[Array, Array]:
    """Return centres (k, d) and labels (n,) of k-means, the clusters numbered as they come up.

    Parameters
    ----------
    rows : (n, d) array
    k : int
        Where fewer rows differ, some clusters have no rows.
    seed : int or RandomState
    starts : int, optional
        Default: 50 up to 5,000 rows, 10 beyond.
    """
    few = len(rows) <= _FEW_ROWS
    if starts is None:
        starts = _MANY_STARTS if few else _STARTS
    # No more centres than there are different rows: k-means would warn of it, and a warning can
    # be silenced for all threads of the process only.
    count = _distinct(rows, k)
    with single_threaded_loops(few):
        means = KMeans(count, n_init=starts, random_state=seed).fit(rows)
    centres = _merge_equal_centres(means.cluster_centers_)
    centres = np.concatenate([centres, np.repeat(centres[:1], k - count, axis=0)])
    # k-means numbers clusters by its draws.
    centres = centres[order_of_appearance(nearest_centres(rows, centres), k)]
    return centres, nearest_centres(rows, centres)


def _distinct(rows: Array, k: int) -> int:
    """Return how many of `rows` (n, d) differ, at most k."""
    few = rows[:_LOOKED_AT]
    for some in (few, rows):
        # Rows of length 1 that agree to some digits are one.
        found = len(np.unique(np.round(some, _DIGITS), axis=0))
        if found >= k:
            break
    return min(found, k)


def order_of_appearance(labels: Array, k: int) -> Array:
    """Return the numbers 0 to k - 1 in the order in which they appear in `labels` (n,)."""
    _, first = np.unique(labels, return_index=True)
    order = labels[np.sort(first)]
    return np.concatenate([order, np.setdiff1d(np.arange(k), order)])


def _merge_equal_centres(centres: Array) -> Array:
    """Return `centres` (k, d), those that differ by rounding being made equal to the first.

    Rows that are copies then go to the same one, by whichever way they were computed.
    """
    merged = centres.copy()
    for number in range(1, len(merged)):
        near = np.linalg.norm(merged[:number] - merged[number], axis=1) < _SAME
        if near.any():
            merged[number] = merged[near.argmax()]
    return merged


def nearest_centres(rows: Array, centres: Array) -> Array:
    """Return the number of the centre (k, d) that each of `rows` (n, d) is nearest to."""
    # |a - b|^2 less what all centres have in common.
    distances = (centres**2).sum(axis=1) - 2.0 * rows @ centres.T
    return np.asarray(distances.argmin(axis=1))


def seeded_kmeans(rows: Array, groups: Array, k: int) -> tuple[Array, Array]:
    """Return centres (k, d) and labels (n,) of k-means where some rows' clusters are known.

    Those rows stay where they are and begin the clusters (constrained k-means, Basu and others).

    Parameters
    ----------
    rows : (n, d) array
    groups : (n,) array
        The number of each row's cluster, from 0 up, -1 where it is not known.
    k : int
        Clusters; those that no row is known of begin with the rows farthest from all others.
    """
    known = groups >= 0
    given = np.unique(groups[known])
    centres = np.stack([rows[groups == group].mean(axis=0) for group in given])
    while len(centres) < k:
        apart = rows - centres[nearest_centres(rows, centres)]
        centres = np.vstack([centres, rows[np.linalg.norm(apart, axis=1).argmax()]])
    labels = np.full(len(rows), -1)
    for _ in range(_TURNS):
        before, labels = labels, np.where(known, groups, nearest_centres(rows, centres))
        if np.array_equal(before, labels):
            break
        for cluster in np.unique(labels):
            centres[cluster] = rows[labels == cluster].mean(axis=0)
    return centres, labels
