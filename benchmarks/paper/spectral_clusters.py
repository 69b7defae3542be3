"""Clusters of rows as they are, for the references of table 5: a projection alone differs."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from ism_dask.blas_threads import single_threaded_blas
from ism_dask.clustering.kmeans import kmeans
from ism_dask.clustering.spectral_embedding import Graph
from ism_dask.engines import Auto
from ism_dask.estimators.dependence_problem import SAMPLE_ROWS
from ism_dask.gamma.embedding_guides import EMBEDDING, normalise_rows
from ism_dask.kernels import Affinity, Gaussian
from ism_dask.rows.shards import cut

# Share of the trace of the kernel that landmarks may leave out.
_LEFT_OUT = 1e-4


def spectral_clusters(Z: Any, n_clusters: int, *, random_state: Any = None) -> Any:
    """Return the clusters (n,) of the rows of Z (n, q), as `UnsupervisedIKDR` computes them of X W.

    It uses the same graph (a gaussian of 3/8 of the median distance), the same embedding and the
    same k-means, without a projection and without standardisation.
    """
    rows = np.asarray(Z)
    n, q = rows.shape
    random = check_random_state(random_state or 0)
    indices = np.sort(random.choice(n, min(n, SAMPLE_ROWS), replace=False))
    sample, seed = rows[indices], int(random.randint(2**31))
    with single_threaded_blas():
        affinity = Affinity.for_kernel(Gaussian(), sample)
        graph = Graph.from_shards(
            cut(rows), affinity, Auto(tol=_LEFT_OUT), sample=sample, seed=seed
        )
        U = graph.embedded(np.eye(q), n_clusters).shards.gather_fact(EMBEDDING)[:, :-1]
        return kmeans(normalise_rows(U), n_clusters, seed=seed)[1]
