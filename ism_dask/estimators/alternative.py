"""Alternative clustering: clusters of X W that are not those already known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ism_dask.alternation import Round
from ism_dask.checks import positive
from ism_dask.estimators.clustering import GuidedIKDR
from ism_dask.estimators.knowledge import centred_labels
from ism_dask.guides import Avoided, Guide
from ism_dask.kernels import Kernel
from ism_dask.solver import State


class AlternativeIKDR(GuidedIKDR):
    """Interpretable kernel dimension reduction for another clustering than a known one.

    As `UnsupervisedIKDR`, but W is to make `X W` depend on the known labels as little as
    possible: `Gamma = D^-1/2 (U U^T - mu H Y Y^T H) D^-1/2`. The first W comes of the labels
    alone.

    Parameters
    ----------
    n_clusters : int
    n_components : int, optional
        New features. Default: as many as clusters, where d allows.
    mu : float, default 1.0
        What it counts to be away from the labels, beside the new clusters.
    kernel, engine, engine_tol, standardize, tol, angle_tol, max_iter, on_iteration
        As in `SupervisedIKDR`, for the W of each round.
    outer_tol, max_outer, n_init, random_state, on_round
        As in `UnsupervisedIKDR`.

    Attributes
    ----------
    As those of `UnsupervisedIKDR`.

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
        mu: float = 1.0,
        kernel: str | Kernel = "gaussian",
        engine: str = "auto",
        engine_tol: float = 1e-4,
        standardize: bool = True,
        tol: float = 0.01,
        angle_tol: float | None = None,
        max_iter: int = 100,
        outer_tol: float = 0.01,
        max_outer: int = 20,
        n_init: int | str = "auto",
        random_state: Any = None,
        on_iteration: Callable[[State], None] | None = None,
        on_round: Callable[[Round], None] | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_components = n_components
        self.mu = mu
        self.kernel = kernel
        self.engine = engine
        self.engine_tol = engine_tol
        self.standardize = standardize
        self.tol = tol
        self.angle_tol = angle_tol
        self.max_iter = max_iter
        self.outer_tol = outer_tol
        self.max_outer = max_outer
        self.n_init = n_init
        self.random_state = random_state
        self.on_iteration = on_iteration
        self.on_round = on_round

    def fit(self, X: Any, y: Any) -> AlternativeIKDR:
        """Learn the projection and the clusters.

        Parameters
        ----------
        X : (n, d) array, frame, Dask array or opened data set
        y : (n,) labels to avoid

        Returns
        -------
        The estimator itself.
        """
        return self._fit_clusters(X, y)

    def _guide(self, y: Any, n: int) -> Guide:
        return Avoided(centred_labels(y, n), positive("`mu`", self.mu))
