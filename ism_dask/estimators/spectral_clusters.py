"""Spectral clustering of rows without a projection, as a reference for `UnsupervisedIKDR`."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_array, check_random_state

from ism_dask._types import Array
from ism_dask._validation import is_whole
from ism_dask.blas_threads import single_threaded_blas
from ism_dask.clustering.kmeans import kmeans
from ism_dask.clustering.spectral_embedding import Graph
from ism_dask.engines import Auto
from ism_dask.estimators.preparation import SAMPLE_ROWS
from ism_dask.gamma.from_embedding import EMBEDDING, normalise_rows
from ism_dask.kernels import Affinity, Gaussian
from ism_dask.rows.shards import cut

# Share of the trace of the kernel that landmarks may leave out.
_TOL = 1e-4


def spectral_clusters(Z: Any, n_clusters: int, *, random_state: Any = None) -> Array:
    """Return the clusters of the rows of Z, found as `UnsupervisedIKDR` finds them in X W.

    It uses the same graph (a gaussian of 3/8 of the median distance), the same embedding and the
    same k-means, without a projection.

    Parameters
    ----------
    Z : (n, q) array
        The rows, used without standardisation.
    n_clusters : int
        Number of clusters.
    random_state : int, RandomState or None, default None
        Seed of the samples and of k-means. None is a fixed seed.

    Returns
    -------
    (n,) whole numbers: clusters, numbered in the order in which they first appear.
    """
    rows = np.asarray(check_array(Z, dtype=[np.float64, np.float32], ensure_min_samples=2))
    n, q = rows.shape
    if not is_whole(n_clusters) or not 1 <= n_clusters < n:
        raise ValueError(
            f"`n_clusters` must be a whole number from 1 to {n - 1}; got {n_clusters!r}"
        )
    random = check_random_state(random_state or 0)
    indices = np.sort(random.choice(n, min(n, SAMPLE_ROWS), replace=False))
    sample, seed = rows[indices], int(random.randint(2**31))
    with single_threaded_blas():
        affinity = Affinity.of(Gaussian(), sample)
        graph = Graph.of(cut(rows), affinity, Auto(tol=_TOL), sample=sample, seed=seed)
        U = graph.embedded(np.eye(q), n_clusters).shards.gather_fact(EMBEDDING)[:, :-1]
        return kmeans(normalise_rows(U), n_clusters, seed=seed)[1]
