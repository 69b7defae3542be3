"""Supervised dimension reduction: X W is to depend on y."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import Tags
from sklearn.utils.validation import (
    assert_all_finite,
    check_consistent_length,
    column_or_1d,
    validate_data,
)

from ism_dask.checks import whole
from ism_dask.estimators.base import IKDR, rows_of
from ism_dask.estimators.knowledge import as_array
from ism_dask.estimators.preparation import row_order
from ism_dask.gamma import check_labels, dependence
from ism_dask.kernels import Kernel
from ism_dask.rows import RowSource
from ism_dask.search import Search
from ism_dask.shards import is_dask
from ism_dask.states import State
from ism_dask.typing import Array


class SupervisedIKDR(IKDR):
    """Interpretable kernel dimension reduction guided by labels or numbers.

    Finds W with orthonormal columns that maximises the Hilbert-Schmidt independence criterion
    between `X W` and y under a kernel, by the Iterative Spectral Method. Each new feature is a
    weighted sum of the (standardised) old ones, and the weights are `components_`.

    Parameters
    ----------
    n_components : int, optional
        New features. Default: the number of classes (1 for numbers), where d allows.
    kernel : str or Kernel, default "gaussian"
        A name in `ism_dask.kernels.KERNELS`, a kernel, or a sum such as
        `0.5 * Gaussian() + 0.5 * Polynomial(degree=3)`.
    target : {"auto", "classes", "linear", "gaussian"}, default "auto"
        What y is: classes, or numbers under a linear or a gaussian kernel. "auto" takes labels
        and whole numbers as classes, other numbers as "linear".
    solver : {"ism", "stiefel", "grassmann", "dimension-growth"}, default "ism"
        The Iterative Spectral Method, or one of those that it is measured against. They maximise
        the same J on the same engine, and end by the residual or where J stalls; "grassmann"
        needs pymanopt.
    engine : {"auto", "closed", "features", "landmarks", "exact"}, default "auto"
        How Phi is computed; "auto" takes the cheapest that serves. All but "landmarks", which
        "auto" takes from 4,000 rows up, are exact up to rounding.
    engine_tol : float, default 1e-4
        How much of the trace of the kernel "landmarks" may leave out. What that can do to J is
        told by `engine_error_`; measured errors are far smaller.
    standardize : bool, default True
        Whether to bring the features to mean 0 and deviation 1 first.
    tol : float, default 1e-5
        For "ism": stop when the eigenvalues change by less, relative to their norm, or by less
        than half of what bounds the error of an approximate engine. The published 0.01 can end
        where the iteration is only slow.
    angle_tol : float, optional
        For "ism": stop only when the sine of the largest angle between successive subspaces is
        below, too.
    max_iter : int, optional
        Default: 200 for "ism", for the others as `ism_dask.rivals.SOLVERS` says.
    max_seconds : float, optional
        Stop after the iteration that is under way then, and keep the best W so far.
    n_init : int, default 1
        Starts: the spectral one, and so many less one drawn at random. ISM takes all to a
        loose tolerance, and `solver` the one with the largest J to the end; `history_` and
        `n_iter_` are of it. Of polynomials the highest maxima can be those of a few rows far
        out: docs/solvers.md.
    continuation : bool, default False
        Whether to begin with a kernel of larger width, where it has one, and follow its W.
    refine : bool, default False
        Whether to end with steps of the second order, which bring the residual to rounding. Each
        takes some passes over all pairs of rows, whatever the engine.
    random_state : int, RandomState or None, default None
        For starts, for the sample of rows that widths are taken from above 5,000 rows, and for
        landmarks. None is a fixed seed: fits repeat.
    on_iteration : callable, optional
        Called with a `State` after each iteration.

    Attributes
    ----------
    components_ : (q, d) array
        The new features in standardised units, orthonormal rows, the largest entry positive.
    mean_, scale_ : (d,) arrays
    eigenvalues_ : (q,) array
        Of Phi, falling: how much each new feature contributes.
    eigengap_ : float
        The smallest of these minus the next eigenvalue; near zero, the last new feature is one
        of several as good. Below zero, J is largest at a W that the bare iteration would leave.
    objective_ : float
        J = sum_ij Gamma_ij f(beta_ij); see `ism_dask.hsic`.
    residual_ : float
        How far W is from a stationary point under the true kernel, whatever the engine:
        `||Phi W - W L|| / ||Phi W||`.
    residual_rows_ : int
        How many rows that was measured on, against all rows: n, or a sample where n^2 q is
        beyond some seconds of work.
    n_iter_ : int
    status_ : Status
        How the iteration ended: settled, out of iterations, or over the cap of seconds.
    converged_ : bool
    history_ : tuple of Record
        Objective, eigenvalues, change, angle and seconds of each iteration.
    engine_ : str
    engine_note_ : str
        Why "auto" left an engine that it had begun with, if it did.
    engine_error_ : float
        A bound on the relative error of `objective_` that the engine makes: 0 for exact ones,
        infinite where the bound says nothing.
    kernel_ : Kernel
        With the numbers that the data gave it.
    classes_ : (c,) array
        Where y are classes.
    n_features_in_ : int
    feature_names_in_ : (d,) array

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from ism_dask import SupervisedIKDR
    >>> X, y = load_wine(return_X_y=True)
    >>> SupervisedIKDR(2).fit(X, y).transform(X).shape
    (178, 2)
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        kernel: str | Kernel = "gaussian",
        target: str = "auto",
        solver: str = "ism",
        engine: str = "auto",
        engine_tol: float = 1e-4,
        standardize: bool = True,
        tol: float | None = None,
        angle_tol: float | None = None,
        max_iter: int | None = None,
        max_seconds: float | None = None,
        n_init: int = 1,
        continuation: bool = False,
        refine: bool = False,
        random_state: Any = None,
        on_iteration: Callable[[State], None] | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.target = target
        self.solver = solver
        self.engine = engine
        self.engine_tol = engine_tol
        self.standardize = standardize
        self.tol = tol
        self.angle_tol = angle_tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.n_init = n_init
        self.continuation = continuation
        self.refine = refine
        self.random_state = random_state
        self.on_iteration = on_iteration

    def fit(self, X: Any, y: Any) -> SupervisedIKDR:
        """Learn the projection.

        Parameters
        ----------
        X : (n, d) array, frame, Dask array or opened data set
            A Dask array is computed anew for each pass, so that it need not fit into memory: two
            passes an iteration. Where it fits, `persist` it first.
        y : (n,) labels, or (n,) or (n, t) numbers

        Returns
        -------
        The estimator itself.
        """
        self.__dict__.pop("classes_", None)
        X, y = self._validated(rows_of(X), y)
        order = row_order(X, y)
        if order is not None:
            X, y = X[order], y[order]
        known = dependence(y, self.target)
        if known.classes is not None:
            self.classes_ = known.classes
        width = y.shape[1] if y.ndim == 2 else 1
        default = width if known.classes is None else len(known.classes)
        self._fit_projection(X, known, self.n_components, default)
        return self

    @property
    def _search(self) -> Search:
        return replace(
            super()._search,
            n_init=self.n_init,
            continuation=self.continuation,
            refine=self.refine,
        )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        whole("`n_init`", self.n_init)
        for name in ("continuation", "refine"):
            if getattr(self, name) not in (True, False):
                raise ValueError(f"`{name}` must be True or False; got {getattr(self, name)!r}")

    def _validated(self, X: Any, y: Any) -> tuple[Any, Array]:
        if y is None:
            raise ValueError(
                "SupervisedIKDR requires y to be passed, but the target y is None: give the "
                "labels or numbers that X W is to depend on"
            )
        y = _column(y)
        if y.dtype.kind == "O":
            check_labels(y)
        if not (isinstance(X, RowSource) or is_dask(X)):
            several = y.ndim == 2
            checks = {"ensure_min_samples": 2, "ensure_min_features": 2}
            return validate_data(self, X, y, dtype="numeric", multi_output=several, **checks)
        if is_dask(X) and np.isnan(X.shape[0]):
            X = X.copy().compute_chunk_sizes()
        self._take_width(X)
        check_consistent_length(X, y)
        assert_all_finite(y, input_name="y")
        return X, y

    def __sklearn_tags__(self) -> Tags:
        """Say that y is needed and that float32 stays float32."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _column(y: Any) -> Array:
    """Return y as an array, (n, 1) as (n,) with scikit-learn's warning."""
    labels = as_array(y)
    return labels if labels.ndim == 2 and labels.shape[1] > 1 else column_or_1d(labels, warn=True)
