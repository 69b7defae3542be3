"""The clusterers: without labels, with labels to avoid, with scores of some rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ism_dask._types import Array
from ism_dask._validation import positive_float
from ism_dask.clustering.kmeans import seeded_kmeans
from ism_dask.estimators.clustering import ClusteringIKDR
from ism_dask.estimators.partial_targets import labels_to_avoid, partial_scores
from ism_dask.estimators.row_order import in_given_order
from ism_dask.gamma.embedding_guides import EmbeddingGuide


@dataclass(eq=False, repr=False)
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
    solver : "ism" or Solver, default "ism"
        As in `SupervisedIKDR`, for the W of each round. With None as its `tol`, "ism" solves each
        round by the published rule with 0.01; once W and the embedding stay, the last rounds
        continue until W is stationary. A number is the published rule for all rounds. Its
        `max_seconds` limit all rounds together: the round in progress ends with the best W that it
        has.
    graph : {"regularised", "kernel"}, default "regularised"
        The graph of the rows of `X W`. "kernel" is the published one: the affinity is the kernel
        itself, as wide as for W, degrees are its row sums, nothing is centred, and
        `Gamma = D^-1/2 H U U^T H D^-1/2`. The default has a narrower gaussian, raises each degree
        by 0.3 n, and centres (docs/clustering.md compares them).
    outer_tol : float, default 0.01
        Stop when from round to round, with each W solved to convergence, the eigenvalues of the
        embedding change by less than this, and W turns by an angle with a smaller sine, and if
        `residual_` is below it as well. A rough graph of many rows raises it to 0.03
        (docs/clustering.md).
    max_outer : int, default 100
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
        A record of each round, with the objectives of W and of the embedding. J of a round is that
        under the embedding before, to which W was fitted.
    affinity_ : Kernel
        The kernel that weighs the edges of the graph of the rows of `X W`; docs/clustering.md
        explains why it differs from `kernel_`.
    components_, mean_, scale_, eigenvalues_, eigengap_, objective_, residual_, \
    engine_, engine_error_, kernel_, report_, n_features_in_, feature_names_in_
        As in `SupervisedIKDR`, for the W of the last round under the Gamma of `embedding_`.
    n_iter_, status_, history_
        As in `SupervisedIKDR`, for the fit of this W to the embedding before.
    tolerance_ : float
        The limit in force: `outer_tol`, on `residual_`; with `status_` `Status.TOLERANCE` that on
        the change of the eigenvalues of Phi.
    converged_ : bool
        Whether W and the embedding stay when each is fitted to the other: the rounds have ended by
        `outer_tol`, and `status_` is `Status.CONVERGED`.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from ism_dask import UnsupervisedIKDR
    >>> X, _ = load_wine(return_X_y=True)
    >>> UnsupervisedIKDR(3).fit_predict(X).shape
    (178,)
    """


@dataclass(eq=False, repr=False)
class AlternativeIKDR(ClusteringIKDR):
    """Interpretable kernel dimension reduction for a clustering that avoids given labels.

    As `UnsupervisedIKDR`, but W also makes `X W` depend as little as possible on the given labels:
    `Gamma = Omega / tr Omega - mu H Y Y^T H / tr(H Y Y^T H)`, `Omega = D^-1/2 U U^T D^-1/2`. The
    first W comes from the labels alone. `fit` takes one label for each row, none missing; -1 is a
    label like any other. If y has several columns (n, t), each is a clustering to avoid, with a
    part `-mu ...` of its own.

    Parameters
    ----------
    mu : float, default 30.0
        Weight of avoiding the labels, relative to the new clusters. Both parts of Gamma have trace
        one, whatever the number of rows, clusters and classes. (The published ones are not
        normalised.) The part of the labels is spread over as many directions as there are classes,
        so `mu` must be well above 1. On the Face data, `mu=1` finds the twenty persons again, and
        `mu` from 20 up finds the poses.
    n_clusters, n_components, kernel, solver, engine, standardize, graph, outer_tol, max_outer, \
n_init, rotation, random_state, on_round
        As in `UnsupervisedIKDR`.

    Attributes
    ----------
    The same as those of `UnsupervisedIKDR`.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from ism_dask import AlternativeIKDR
    >>> X, y = load_wine(return_X_y=True)
    >>> AlternativeIKDR(3).fit(X, y).labels_.shape
    (178,)
    """

    mu: float = field(default=30.0, kw_only=True)

    def _guide(self, y: Any, n: int, weights: Array | None) -> EmbeddingGuide:
        return labels_to_avoid(y, n, positive_float("`mu`", self.mu), weights)


@dataclass(eq=False, repr=False)
class SemiSupervisedIKDR(ClusteringIKDR):
    """Interpretable kernel dimension reduction for clustering, with scores of some of the rows.

    As `UnsupervisedIKDR`, but W makes `X W` depend on the scores of experts e as well:
    `Gamma = Omega / tr Omega + mu sum_e H K_e H / tr(H K_e H)`, `Omega = D^-1/2 U U^T D^-1/2`.
    In each round, a regression on the embedding predicts the scores of the rows that have none.
    `fit` takes labels or scores (n,), or those of t experts (n, t), also as a frame: NaN, None or
    pandas' NA marks a row that the expert has not scored; for classes so does -1, as elsewhere in
    scikit-learn.

    Parameters
    ----------
    mu : float, default 1.0
        Weight of the scores of each expert, relative to the clusters. All parts of Gamma have trace
        one, whatever the number of rows, clusters and classes.
    target : {"auto", "classes", "linear"}, default "auto"
        How to read the scores of each expert: as classes, or as numbers ("linear"). "auto" takes
        labels and whole numbers as classes.
    n_clusters, n_components, kernel, solver, engine, standardize, graph, outer_tol, max_outer, \
n_init, rotation, random_state, on_round
        As in `UnsupervisedIKDR`.

    Attributes
    ----------
    classes_ : (c,) array
        The classes, if the first expert gives classes, no more than there are clusters. Clusters
        0 to c - 1 are then these classes: rows with a given class have its number in `labels_`, and
        pull other rows towards their cluster. `predict` takes the nearest centre for every row, so
        for rows with a given class it can differ from `labels_`.
    All others are the same as those of `UnsupervisedIKDR`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_wine
    >>> from ism_dask import SemiSupervisedIKDR
    >>> X, y = load_wine(return_X_y=True)
    >>> scores = np.where(np.arange(178) % 10 == 0, y, np.nan)
    >>> SemiSupervisedIKDR(3, 2, target="classes").fit(X, scores).labels_.shape
    (178,)
    """

    mu: float = field(default=1.0, kw_only=True)
    target: str = field(default="auto", kw_only=True)

    def _guide(self, y: Any, n: int, weights: Array | None) -> EmbeddingGuide:
        return partial_scores(y, n, self.target, positive_float("`mu`", self.mu), weights)

    def _clustered(
        self, rows: Array, guide: EmbeddingGuide, order: Array | None, weights: Array | None
    ) -> dict[str, Any]:
        """Return centres and clusters; with fewer classes than clusters, these stay together."""
        groups, classes = (getattr(guide, name, None) for name in ("groups", "classes"))
        if groups is None or classes is None or len(classes) > self.n_clusters:
            return super()._clustered(rows, guide, order, weights)
        centres, labels = seeded_kmeans(rows, groups, self.n_clusters, weights)
        return {
            "cluster_centers_": centres,
            "labels_": in_given_order(labels, order),
            "classes_": classes,
        }
