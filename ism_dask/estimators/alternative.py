"""Alternative clustering: clusters of X W that are not those already known."""

from __future__ import annotations

from typing import Any

from ism_dask.checks import positive
from ism_dask.estimators.clustering import GuidedIKDR
from ism_dask.estimators.knowledge import centred_labels
from ism_dask.guides import Avoided, Guide


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
        What it counts to be away from the labels, beside the new clusters. Columns of U have
        length 1, those of Y sqrt(n_c) for a class of n_c rows: at 1 the labels weigh in the
        order of n / k times the clusters (some 40 times at 178 rows and k = 3), so that they are
        avoided first of all.
    kernel, solver, engine, engine_tol, standardize, tol, angle_tol, max_iter, on_iteration
        As in `SupervisedIKDR`, for the W of each round.
    max_seconds : float, optional
        What all rounds may take. The one that is under way ends with the best W it has.
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

    def fit(self, X: Any, y: Any) -> AlternativeIKDR:
        """Learn the projection and the clusters.

        Parameters
        ----------
        X : (n, d) array, frame, Dask array or opened data set
        y : (n,) labels to avoid
            One for each row, none missing; -1 is a label like any other.

        Returns
        -------
        The estimator itself.
        """
        return self._fit_clusters(X, y)

    def _guide(self, y: Any, n: int) -> Guide:
        return Avoided(centred_labels(y, n), positive("`mu`", self.mu))
