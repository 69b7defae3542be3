"""Alternative clustering: clusters of X W that differ from given labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ism_dask._validation import positive_float
from ism_dask.engines import EngineOptions
from ism_dask.estimators.clustering import GuidedIKDR
from ism_dask.estimators.partial_targets import centred_labels
from ism_dask.gamma.from_embedding import AvoidGuide, EmbeddingGuide
from ism_dask.kernels import Kernel
from ism_dask.records.checkpoint import Round
from ism_dask.solvers import Solver


class AlternativeIKDR(GuidedIKDR):
    """Interpretable kernel dimension reduction for a clustering that avoids given labels.

    As `UnsupervisedIKDR`, but W also makes `X W` depend as little as possible on the given labels:
    `Gamma = Omega / tr Omega - mu H Y Y^T H / tr(H Y Y^T H)`, `Omega = D^-1/2 U U^T D^-1/2`. The
    first W comes from the labels alone.

    Parameters
    ----------
    n_clusters : int
        Number of clusters k.
    n_components : int, optional
        Number of new features q. Default: as many as clusters, if the rows vary in enough
        directions.
    mu : float, default 30.0
        Weight of avoiding the labels, relative to the new clusters. Both parts of Gamma have trace
        one, whatever the number of rows, clusters and classes. (The published method divides both
        by degrees and does not normalise them.) The part of the labels is spread over as many
        directions as there are classes, so `mu` must be well above 1. On the Face data, `mu=1`
        finds the twenty persons again, and `mu` from 20 up finds the poses.
    kernel, engine, standardize
        As in `SupervisedIKDR`, for the W of each round.
    solver, outer_tol, max_outer, n_init, rotation, random_state, on_round
        As in `UnsupervisedIKDR`.

    Attributes
    ----------
    The same as those of `UnsupervisedIKDR`. If the rounds did not converge, they describe the last
    round.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from ism_dask import AlternativeIKDR
    >>> X, y = load_wine(return_X_y=True)
    >>> AlternativeIKDR(3).fit(X, y).labels_.shape
    (178,)
    """

    def __init__(
        self,
        n_clusters: int = 2,
        n_components: int | None = None,
        *,
        mu: float = 30.0,
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

    def fit(self, X: Any, y: Any = None) -> AlternativeIKDR:
        """Learn the projection and the clusters.

        Parameters
        ----------
        X : (n, d) array, frame, Dask array or opened data set
        y : (n,) labels to avoid, optional
            One label for each row, none missing; -1 is a label like any other. Without labels there
            is nothing to avoid, and the clusters are those of `UnsupervisedIKDR`.

        Returns
        -------
        The estimator itself.
        """
        return self._fit_clusters(X, y)

    def _guide(self, y: Any, n: int) -> EmbeddingGuide:
        return AvoidGuide(centred_labels(y, n), positive_float("`mu`", self.mu))
