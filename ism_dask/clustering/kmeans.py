"""k-means: centres, nearest centres, and a constrained version that keeps given clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.cluster import KMeans

from ism_dask._types import Array
from ism_dask.threads import single_threaded_openmp

# Starts of k-means: 50 up to 5,000 rows, 10 beyond. With twenty clusters of some thirty faces each,
# the best of ten starts differed from seed to seed, the best of fifty did not.
_FEW_ROWS, _MANY_STARTS, _STARTS = 5_000, 50, 10

# Maximum number of iterations of constrained k-means; a few dozen are usual.
_MAX_ITERATIONS = 300
# Rows first searched for enough distinct ones, and the decimals by which rows are compared.
_FIRST_ROWS, _DIGITS = 1_000, 6


def kmeans(rows: Array, k: int, *, seed: Any) -> tuple[Array, Array]:
    """Return centres (k, d) and labels (n,) of k-means, numbered at random.

    If there are fewer than k distinct rows (n, d), some clusters have no rows.
    """
    few = len(rows) <= _FEW_ROWS
    starts = _MANY_STARTS if few else _STARTS
    # No more centres than distinct rows: scikit-learn would warn, and a warning can only be
    # silenced for all threads of the process. Rows of length 1 that agree to some decimals count as
    # one.
    for candidates in (rows[:_FIRST_ROWS], rows):
        count = min(k, len(np.unique(np.round(candidates, _DIGITS), axis=0)))
        if count == k:
            break
    with single_threaded_openmp(few):
        means = KMeans(count, n_init=starts, random_state=seed).fit(rows)
    centres = means.cluster_centers_
    centres = np.concatenate([centres, np.repeat(centres[:1], k - count, axis=0)])
    return centres, nearest_centres(rows, centres)


def order_of_appearance(labels: Array, k: int) -> Array:
    """Return the labels 0 to k - 1 in the order in which they first appear in `labels` (n,)."""
    _, first = np.unique(labels, return_index=True)
    order = labels[np.sort(first)]
    return np.concatenate([order, np.setdiff1d(np.arange(k), order)])


def nearest_centres(rows: Array, centres: Array) -> Array:
    """Return the index of the nearest of the centres (k, d) for each of `rows` (n, d)."""
    # |a - b|^2 without |a|^2, which is the same for all centres.
    distances = (centres**2).sum(axis=1) - 2.0 * rows @ centres.T
    return np.asarray(distances.argmin(axis=1))


def seeded_kmeans(rows: Array, groups: Array, k: int) -> tuple[Array, Array]:
    """Return centres (k, d) and labels (n,) of k-means if the clusters of some rows are given.

    `groups` (n,) has the number of each row's cluster, from 0 up; -1 if it is not given. Rows with
    a number stay in their clusters and set the first centres (constrained k-means, Basu and
    others). Clusters without such a row start at the rows farthest from all other centres.
    """
    has_group = groups >= 0
    given = np.unique(groups[has_group])
    centres = np.stack([rows[groups == group].mean(axis=0) for group in given])
    while len(centres) < k:
        differences = rows - centres[nearest_centres(rows, centres)]
        centres = np.vstack([centres, rows[np.linalg.norm(differences, axis=1).argmax()]])
    labels = np.full(len(rows), -1)
    for _ in range(_MAX_ITERATIONS):
        before, labels = labels, np.where(has_group, groups, nearest_centres(rows, centres))
        if np.array_equal(before, labels):
            break
        for cluster in np.unique(labels):
            centres[cluster] = rows[labels == cluster].mean(axis=0)
    return centres, labels
