"""Unsupervised dimension reduction: X W is to show clusters."""

from __future__ import annotations

from typing import Any

from ism_dask.estimators.clustering import ClusteringIKDR
from ism_dask.gamma.from_embedding import ClusterGuide, EmbeddingGuide


class UnsupervisedIKDR(ClusteringIKDR):
    """Interpretable kernel dimension reduction for clustering, with nothing known of the rows.

    Finds W with orthonormal columns and clusters of the rows in turns: W so that `X W` depends on
    the spectral embedding U as strongly as possible, U from the graph of the rows of `X W`.

    Parameters
    ----------
    n_clusters : int
    n_components : int, optional
        New features. Default: as many as clusters, where d allows.
    kernel, solver, engine, engine_tol, standardize, angle_tol, max_iter, on_iteration
        As in `SupervisedIKDR`, for the W of each round.
    tol : float, optional
        Default: the W of each round is solved for by the published rule with 0.01, and once the
        rounds have settled the last ones go on until W is stationary. A number is the published
        rule for all rounds.
    max_seconds : float, optional
        What all rounds may take. The one that is under way ends with the best W it has.
    outer_tol : float, default 0.01
        Stop when the eigenvalues of the embedding change by less from round to round, with a W
        that is solved for to the end.
    max_outer : int, default 20
        Rounds at most.
    n_init : int or "auto", default "auto"
        Starts of k-means: 50 up to 5,000 rows, 10 beyond.
    random_state : int, RandomState or None, default None
        For all that is drawn. None is a fixed seed: fits repeat.
    on_round : callable, optional
        Called with a `Round` after each round.

    Attributes
    ----------
    labels_ : (n,) array
        The cluster of each row, numbered as they come up.
    embedding_ : (n, k) array
        U; `labels_` are k-means on its rows, brought to length 1.
    embedding_eigenvalues_ : (k,) array
    cluster_centers_ : (k, k) array
        Among such rows.
    rounds_ : tuple of Round
        Both objectives of each round.
    affinity_ : Kernel
        What weighs the edges of the graph of the rows of `X W`; docs/clustering.md says why it is
        not the kernel.
    components_, mean_, scale_, eigenvalues_, eigengap_, objective_, residual_, residual_rows_, \
n_iter_, status_, tolerance_, history_, engine_, engine_note_, engine_error_, \
engine_standard_error_, kernel_, \
n_features_in_, feature_names_in_
        As in `SupervisedIKDR`, of the last round; where rounds did not settle, of the best by J.
    converged_ : bool
        Whether the rounds have settled, and the W of the last one has converged.

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

    def _guide(self, y: Any, n: int) -> EmbeddingGuide:  # noqa: ARG002  scikit-learn may hand one over
        return ClusterGuide()
