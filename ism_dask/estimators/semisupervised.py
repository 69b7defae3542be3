"""Semi-supervised dimension reduction: clusters of X W that agree with scores of some rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ism_dask._types import Array
from ism_dask._validation import positive
from ism_dask.clustering.kmeans import seeded_kmeans
from ism_dask.estimators.clustering import GuidedIKDR
from ism_dask.estimators.partial_targets import PartialScores, partial_scores
from ism_dask.gamma.from_embedding import EmbeddingGuide, ScoreGuide
from ism_dask.kernels import Kernel
from ism_dask.records.checkpoint import Round
from ism_dask.records.iteration import State


class SemiSupervisedIKDR(GuidedIKDR):
    """Interpretable kernel dimension reduction for clustering, with scores of some of the rows.

    As `UnsupervisedIKDR`, but W is to make `X W` depend on the scores as well:
    `Gamma = D^-1/2 U U^T D^-1/2 + mu H K_Y H`. Rows without scores get what a regression on the
    embedding says of them, anew in each round.

    Parameters
    ----------
    n_clusters : int
    n_components : int, optional
        New features. Default: as many as clusters, where d allows.
    mu : float, default 1.0
        What the scores count beside the clusters. The first part of Gamma is divided by degrees,
        which grow with n: at 1 the scores lead, and the clusters fill in what they leave open.
    target : {"auto", "classes", "linear"}, default "auto"
        What scores are: classes, or numbers. "auto" takes labels and whole numbers as classes.
    kernel, solver, engine, engine_tol, standardize, angle_tol, max_iter, on_iteration
        As in `SupervisedIKDR`, for the W of each round.
    max_seconds : float, optional
        What all rounds may take. The one that is under way ends with the best W it has.
    tol, outer_tol, max_outer, n_init, random_state, on_round
        As in `UnsupervisedIKDR`.

    Attributes
    ----------
    classes_ : (c,) array
        Where scores are classes, no more than clusters. Clusters 0 to c - 1 are theirs:
        `labels_` of rows with a class are its number, and pull the others. Rows with a known
        class keep it in `labels_`, while `predict` takes the nearest centre: for those rows the
        two can differ.
    As those of `UnsupervisedIKDR` besides; where rounds did not settle, of the last one.

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
        solver: str = "ism",
        engine: str = "auto",
        engine_tol: float = 1e-4,
        standardize: bool = True,
        tol: float | None = None,
        angle_tol: float | None = None,
        max_iter: int | None = None,
        max_seconds: float | None = None,
        outer_tol: float = 0.01,
        max_outer: int = 20,
        n_init: int | str = "auto",
        random_state: Any = None,
        on_iteration: Callable[[State], None] | None = None,
        on_round: Callable[[Round], None] | None = None,
    ) -> None:
        super().__init__(
            n_clusters,
            n_components,
            mu=mu,
            kernel=kernel,
            solver=solver,
            engine=engine,
            engine_tol=engine_tol,
            standardize=standardize,
            tol=tol,
            angle_tol=angle_tol,
            max_iter=max_iter,
            max_seconds=max_seconds,
            outer_tol=outer_tol,
            max_outer=max_outer,
            n_init=n_init,
            random_state=random_state,
            on_iteration=on_iteration,
            on_round=on_round,
        )
        self.target = target

    def fit(self, X: Any, y: Any = None) -> SemiSupervisedIKDR:
        """Learn the projection and the clusters.

        Parameters
        ----------
        X : (n, d) array, frame, Dask array or opened data set
        y : (n,) labels, or (n,) or (n, t) scores, optional
            NaN, None or pandas' NA where a row has none; as classes also -1, as elsewhere in
            scikit-learn. Without any the clusters are those of `UnsupervisedIKDR`.

        Returns
        -------
        The estimator itself.
        """
        return self._fit_clusters(X, y)

    def _guide(self, y: Any, n: int) -> EmbeddingGuide:
        known = partial_scores(y, n, self.target)
        return _KnownScores(known.scores, positive("`mu`", self.mu), known)

    def _cluster(self, rows: Array, guide: EmbeddingGuide) -> tuple[Array, Array]:
        """Return centres and clusters of the rows; those of a class keep together."""
        known = _classes_of(guide, self.n_clusters)
        if known is None or known.groups is None:
            return super()._cluster(rows, guide)
        return seeded_kmeans(rows, known.groups, self.n_clusters)

    def _number(self, labels: Array, guide: EmbeddingGuide) -> None:
        """Give the clusters of a class its number."""
        self.__dict__.pop("classes_", None)
        known = _classes_of(guide, self.n_clusters)
        if known is None:
            super()._number(labels, guide)
        else:
            self.classes_, self.labels_ = known.classes, labels


def _classes_of(guide: EmbeddingGuide, n_clusters: int) -> PartialScores | None:
    """Return the classes that a guide knows, if there is a cluster for each."""
    scores = guide.scores if isinstance(guide, _KnownScores) else None
    if scores is None or scores.classes is None or len(scores.classes) > n_clusters:
        return None
    return scores


@dataclass(frozen=True, eq=False)
class _KnownScores(ScoreGuide):
    """Scores, and the classes they stand for if they do."""

    scores: PartialScores

    def taken(self, order: Array) -> _KnownScores:
        """Return the same for rows in another order (n,)."""
        return replace(self, Y=self.Y[order], scores=self.scores.taken(order))
