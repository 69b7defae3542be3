"""Semi-supervised dimension reduction: clusters of X W that agree with scores of some rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ism_dask._types import Array
from ism_dask._validation import positive_float
from ism_dask.clustering.kmeans import seeded_kmeans
from ism_dask.engines import EngineOptions
from ism_dask.estimators.clustering import GuidedIKDR
from ism_dask.estimators.partial_targets import PartialScores, partial_scores
from ism_dask.gamma.from_embedding import EmbeddingGuide, ScoreGuide
from ism_dask.kernels import Kernel
from ism_dask.records.checkpoint import Round
from ism_dask.solvers import Solver


class SemiSupervisedIKDR(GuidedIKDR):
    """Interpretable kernel dimension reduction for clustering, with scores of some of the rows.

    As `UnsupervisedIKDR`, but W makes `X W` depend on the scores as well:
    `Gamma = D^-1/2 U U^T D^-1/2 + mu H K_Y H`. In each round, a regression on the embedding
    predicts the scores of the rows that have none.

    Parameters
    ----------
    n_clusters : int
        Number of clusters k.
    n_components : int, optional
        Number of new features q. Default: as many as clusters, if the rows vary in enough
        directions.
    mu : float, default 1.0
        Weight of the scores, relative to the clusters. The first part of Gamma is divided by
        degrees, which grow with n. So at 1 the scores dominate, and the clusters decide only what
        the scores leave open.
    target : {"auto", "classes", "linear"}, default "auto"
        How to read the scores: as classes, or as numbers ("linear"). "auto" takes labels and whole
        numbers as classes.
    kernel, engine, standardize
        As in `SupervisedIKDR`, for the W of each round.
    solver, outer_tol, max_outer, n_init, rotation, random_state, on_round
        As in `UnsupervisedIKDR`.

    Attributes
    ----------
    classes_ : (c,) array
        The classes, if the scores are classes and there are no more of them than clusters. Clusters
        0 to c - 1 are then these classes: rows with a given class have its number in `labels_`, and
        pull other rows towards their cluster. `predict` takes the nearest centre for every row, so
        for rows with a given class it can differ from `labels_`.
    All others are the same as those of `UnsupervisedIKDR`. If the rounds did not converge, they
    describe the last round.

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

    def __init__(
        self,
        n_clusters: int = 2,
        n_components: int | None = None,
        *,
        mu: float = 1.0,
        target: str = "auto",
        kernel: str | Kernel = "gaussian",
        solver: str | Solver = "ism",
        engine: str | EngineOptions = "auto",
        standardize: bool = True,
        outer_tol: float = 0.01,
        max_outer: int = 20,
        n_init: int | str = "auto",
        rotation: str | None = None,
        random_state: Any = None,
        on_round: Callable[[Round], None] | None = None,
    ) -> None:
        super().__init__(
            n_clusters,
            n_components,
            kernel=kernel,
            solver=solver,
            engine=engine,
            standardize=standardize,
            outer_tol=outer_tol,
            max_outer=max_outer,
            n_init=n_init,
            rotation=rotation,
            random_state=random_state,
            on_round=on_round,
        )
        self.mu = mu
        self.target = target

    def fit(self, X: Any, y: Any = None) -> SemiSupervisedIKDR:
        """Learn the projection and the clusters.

        Parameters
        ----------
        X : (n, d) array, frame, Dask array or opened data set
        y : (n,) labels, or (n,) or (n, t) scores, optional
            NaN, None or pandas' NA marks a row without a score; for classes so does -1, as
            elsewhere in scikit-learn. Without y the clusters are those of `UnsupervisedIKDR`.

        Returns
        -------
        The estimator itself.
        """
        return self._fit_clusters(X, y)

    def _guide(self, y: Any, n: int) -> EmbeddingGuide:
        partial = partial_scores(y, n, self.target)
        return _PartialScoreGuide(partial.scores, positive_float("`mu`", self.mu), partial)

    def _cluster(self, rows: Array, guide: EmbeddingGuide) -> tuple[Array, Array]:
        """Return centres and clusters of the rows; rows of one class stay in one cluster."""
        scores = _class_scores(guide, self.n_clusters)
        if scores is None or scores.groups is None:
            return super()._cluster(rows, guide)
        return seeded_kmeans(rows, scores.groups, self.n_clusters)

    def _numbered(self, centres: Array, labels: Array, guide: EmbeddingGuide) -> dict[str, Any]:
        """Keep the numbers of clusters that are classes; renumber the clusters otherwise."""
        scores = _class_scores(guide, self.n_clusters)
        if scores is None:
            return super()._numbered(centres, labels, guide)
        return {"cluster_centers_": centres, "labels_": labels, "classes_": scores.classes}


def _class_scores(guide: EmbeddingGuide, n_clusters: int) -> PartialScores | None:
    """Return the class scores of a guide, if it has classes and each can have a cluster."""
    scores = guide.scores if isinstance(guide, _PartialScoreGuide) else None
    if scores is None or scores.classes is None or len(scores.classes) > n_clusters:
        return None
    return scores


@dataclass(frozen=True, eq=False)
class _PartialScoreGuide(ScoreGuide):
    """A guide by partial scores, with their classes if they stand for classes."""

    scores: PartialScores

    def reordered(self, order: Array) -> _PartialScoreGuide:
        """Return the same guide for rows in another order (n,)."""
        return replace(self, Y=self.Y[order], scores=self.scores.reordered(order))
