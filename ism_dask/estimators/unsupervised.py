"""Unsupervised dimension reduction: fit W so that X W shows clusters."""

from __future__ import annotations

from typing import Any

from ism_dask.estimators.clustering import ClusteringIKDR
from ism_dask.gamma.from_embedding import ClusterGuide, EmbeddingGuide


class UnsupervisedIKDR(ClusteringIKDR):
    """Interpretable kernel dimension reduction for clustering, without labels.

    Finds W with orthonormal columns and clusters of the rows in alternating rounds. W makes `X W`
    depend as strongly as possible on a spectral embedding U of the rows; U is the embedding of the
    graph of the rows of `X W`.

    Parameters
    ----------
    n_clusters : int
        Number of clusters k.
    n_components : int, optional
        Number of new features q. Default: as many as clusters, if the rows vary in enough
        directions.
    kernel, engine, standardize
        As in `SupervisedIKDR`, for the W of each round.
    solver : {"ism", "stiefel", "grassmann", "dimension-growth"} or Solver, default "ism"
        As in `SupervisedIKDR`, for the W of each round. With None as its `tol`, "ism" solves each
        round by the published rule with 0.01; once the embedding has converged, the last rounds
        continue until W is stationary. A number is the published rule for all rounds. Its
        `max_seconds` limit all rounds together: the round in progress ends with the best W that it
        has.
    outer_tol : float, default 0.01
        Stop when the eigenvalues of the embedding change by less than this from round to round,
        with each W solved to convergence.
    max_outer : int, default 20
        Maximum number of rounds.
    n_init : int or "auto", default "auto"
        Number of starts of k-means; "auto" is 50 up to 5,000 rows and 10 beyond.
    rotation : {"varimax"} or None, default None
        As in `SupervisedIKDR`, for the W of the result. The clusters do not change.
    random_state : int, RandomState or None, default None
        Seed of everything that is drawn at random. None is a fixed seed, so that fits repeat.
    on_round : callable, optional
        Called with a `Round` after each round.

    Attributes
    ----------
    labels_ : (n,) array
        The cluster of each row. Clusters are numbered in the order in which they first appear.
    embedding_ : (n, k) array
        The spectral embedding U; `labels_` come from k-means on its rows, scaled to length 1.
    embedding_eigenvalues_ : (k,) array
        The eigenvalues of the embedding.
    cluster_centers_ : (k, k) array
        The centres of the clusters, among the rows of U scaled to length 1.
    rounds_ : tuple of Round
        A record of each round, with the objectives of W and of the embedding.
    affinity_ : Kernel
        The kernel that weighs the edges of the graph of the rows of `X W`; docs/clustering.md
        explains why it differs from `kernel_`.
    components_, mean_, scale_, eigenvalues_, eigengap_, objective_, residual_, residual_rows_, \
    n_iter_, status_, certificate_, tolerance_, history_, engine_, engine_note_, engine_error_, \
    kernel_, \
    n_features_in_, feature_names_in_
        As in `SupervisedIKDR`, for the last round; if the rounds did not converge, for the round
        with the largest J.
    converged_ : bool
        Whether the rounds have converged, and the W of the last one as well.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from ism_dask import UnsupervisedIKDR
    >>> X, _ = load_wine(return_X_y=True)
    >>> UnsupervisedIKDR(3).fit_predict(X).shape
    (178,)
    """

    def fit(self, X: Any, y: Any = None) -> UnsupervisedIKDR:
        """Learn the projection and the clusters.

        Parameters
        ----------
        X : (n, d) array, frame, Dask array or opened data set
        y : ignored

        Returns
        -------
        The estimator itself.
        """
        return self._fit_clusters(X, y)

    def _guide(self, y: Any, n: int) -> EmbeddingGuide:  # noqa: ARG002  scikit-learn may pass a y
        return ClusterGuide()
