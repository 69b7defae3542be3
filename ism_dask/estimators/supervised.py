"""Supervised dimension reduction: X W is to depend on y."""

from __future__ import annotations

import time
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

from ism_dask._types import Array
from ism_dask._validation import one_of, whole, yes_or_no
from ism_dask.blas_threads import single_threaded_blas
from ism_dask.estimators.base import IKDR, row_source
from ism_dask.estimators.model_choice import FitStart
from ism_dask.estimators.partial_targets import as_array
from ism_dask.estimators.preparation import Prepared, prepare_rows, row_order
from ism_dask.gamma.base import Dependence
from ism_dask.gamma.classes import check_labels
from ism_dask.gamma.targets import target_dependence
from ism_dask.kernels import Kernel, as_kernel
from ism_dask.observe.fit_events import announce
from ism_dask.records.checkpoint import current_fit
from ism_dask.records.iteration import Solution, State
from ism_dask.rows import is_dask
from ism_dask.rows.source import is_row_source
from ism_dask.solvers.multistart import MultistartSearch
from ism_dask.solvers.width_selection import SELECTIONS

# Kinds of numbers, and of labels, that scikit-learn would pass on as they are if they are finite.
_READY_NUMBERS, _READY_LABELS = "iuf", "biufU"
# Iterations at most from a W that a selection chose: steps along the slope, which are cheap.
_STEPS_UPHILL = 1000


class SupervisedIKDR(IKDR):
    """Interpretable kernel dimension reduction guided by labels or numbers.

    Finds W with orthonormal columns that maximises the Hilbert-Schmidt independence criterion
    between `X W` and y under a kernel, by the Iterative Spectral Method. Each new feature is a
    weighted sum of the (standardised) old ones, and the weights are `components_`.

    Parameters
    ----------
    n_components : int, "auto" or None, default "auto"
        New features, up to d - 1. "auto", as None: the classes less one; for numbers as many, up to
        six, as let the nearest rows in X W explain clearly more of y, or without a `selection` one
        for each column of y. Always fewer than the directions in which the rows vary.
    kernel : str or Kernel, default "gaussian"
        A name in `ism_dask.kernels.KERNELS`, a kernel, or a sum such as
        `0.5 * Gaussian() + 0.5 * Polynomial(degree=3)`.
    target : {"auto", "classes", "linear", "gaussian", "multiscale"}, default "auto"
        What y is: classes, or numbers under a linear kernel, a gaussian one of median width, or
        the mean of three gaussian ones ("multiscale": the median width, a half and a quarter of
        it). "auto" takes labels and whole numbers of up to 20 values as classes, and other numbers
        as "multiscale", or as "gaussian" where rows have several. It raises an error for whole
        numbers of more values.
    solver : {"ism", "stiefel", "grassmann", "dimension-growth"}, default "ism"
        The Iterative Spectral Method, or one of those that it is measured against. They maximise
        the same J on the same engine, and end by the residual or where J stalls; `tol` and
        `angle_tol` do not count for them. "grassmann" needs pymanopt.
    engine : {"auto", "closed", "features", "landmarks", "blocks", "exact"}, default "auto"
        How Phi is computed; "auto" takes the cheapest that serves, and the next one where that
        declines. All but "landmarks", which "auto" takes from 4,000 rows up, and "blocks", which
        it takes from 10,000 up, leave nothing out. `engine_error_` bounds what the engine and
        rounding do to J.
    engine_tol : float, default 1e-4
        How much of the trace of the kernel "landmarks" may leave out. Where W is then not
        stationary under the true kernel, a tenth and a hundredth of it are tried, too.
        `engine_error_` bounds what that does to J; measured errors are far smaller. "blocks" draw
        pairs until they add 400 times this number to the variance of the slope of J by
        the rows.
    standardize : bool, default True
        Whether to bring the features to mean 0 and deviation 1 first.
    whiten : bool, default False
        Whether to bring the covariance of the features to I, but for a small ridge: correlated
        features then count as one. The rows of `components_` are no longer orthonormal.
    tol : float or None, default None
        For "ism". None: go on until W is stationary, which `converged_` then claims. A number:
        the published rule, which stops when the eigenvalues change by less, relative to their
        norm; 0.01 is as published. It can end where the iteration is only slow, and
        `converged_` is then false and `status_` `Status.TOLERANCE`.
    angle_tol : float, optional
        For "ism" with a `tol`: stop only when the sine of the largest angle between successive
        subspaces is below, too.
    max_iter : int, optional
        Iterations after which to give up. Default: 300 for "ism", or 1000 where a selection chose
        the W to begin with and steps cost no Phi; for the others as
        `ism_dask.solvers.SOLVERS` says. Steps along the slope of J, which take over where the
        spectral iteration comes to no end, count, too.
    max_seconds : float, optional
        Stop when so much time is used up, and keep the best W so far.
    selection : {"heldout"} or None, default "heldout"
        How width and start are chosen, on up to 2,000 rows, where `kernel` leaves its width to the
        data ("root") or is "distance". "heldout": several of both are tried, and that is taken
        whose nearest rows in X W explain most of y, as far as held-out rows confirm it. None: the
        width as it is, from the spectral start.
    n_init : int, default 1
        The number of starts: the spectral one, and random ones. ISM takes the random ones
        to a loose tolerance, and `solver` the one with the largest J to the end. The answer is
        the better of that and the plain run; `history_` and `n_iter_` are of it. Of polynomials
        the highest maxima can be those of a few rows far out: docs/solvers.md.
    continuation : bool, default False
        Whether to begin with a kernel of larger width, where it has one, and follow its W. The
        answer is the better of that and the plain run.
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
        The new features in standardised units, the largest entry of each positive. Rows are
        orthonormal to 1e-10, also where a new feature carries nothing, unless `whiten` is set.
    mean_, scale_ : (d,) arrays
    eigenvalues_ : (q,) array
        Of `W^T Phi W`, falling. Each is half the derivative of J by the logarithm of the scale
        of its new feature, and not the part of J that the feature brings. Where one is
        negative, its feature lowers J; a `ComponentsWarning` says so, with the number of new
        features that would do.
    eigengap_ : float
        The smallest of these minus the largest eigenvalue of Phi outside of W, in the whole
        space of the features. Near zero, the last new feature is one of several as good. Below
        zero, J is largest at a W that the spectral step would leave.
    objective_ : float
        J = sum_ij Gamma_ij f(beta_ij), in double precision; see `ism_dask.hsic`.
    residual_ : float
        How far W is from a stationary point under the true kernel, whatever the engine:
        `||Phi W - W L|| / ||Phi W||`.
    residual_rows_ : int
        How many rows that was measured on, against all rows: n, or a sample where n^2 q is
        beyond some seconds of work.
    n_iter_ : int
    status_ : Status
        How the fit ended: see `Status.meaning` and `Status.advice`, or docs/method.md.
    converged_ : bool
        Whether `status_` is `Status.CONVERGED`. With "ism" and no `tol` this claims that W is
        stationary (`residual_` at most 1e-4), that fifty more iterations would gain less than
        0.1% of J, and that no way up was found from W. The other solvers claim the residual
        alone.
    tolerance_ : float
        The limit that was in force: of the residual, or `tol`, of the eigenvalues' change.
    history_ : tuple of Record
        Objective, eigenvalues, change, angle, residual (under the engine's Phi), seconds, and
        whether J rose, of each iteration, steps along the slope of J included. Steps of `refine`
        are not in it.
    engine_ : str
    engine_note_ : str
        Why "auto" left an engine that it had begun with, if it did.
    engine_error_ : float
        A bound on the relative error of `objective_`, by approximation and by rounding, for
        every engine; infinite where it says nothing.
    engine_standard_error_ : float
        The relative standard error of `objective_`, where "blocks" estimate it; else 0.
    kernel_ : Kernel
        With the numbers that the data gave it.
    components_advice_ : str
        What is to be said against the number of new features, or nothing.
    selection_ : tuple of Trial
        What a selection tried, the best first: see `ism_dask.solvers.width_selection.Trial`.
    target_remainder_ : float
        The share of the trace of the kernel of y that its thin factor leaves out.
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
        n_components: int | str | None = "auto",
        *,
        kernel: str | Kernel = "gaussian",
        target: str = "auto",
        solver: str = "ism",
        engine: str = "auto",
        engine_tol: float = 1e-4,
        standardize: bool = True,
        whiten: bool = False,
        tol: float | None = None,
        angle_tol: float | None = None,
        max_iter: int | None = None,
        max_seconds: float | None = None,
        selection: str | None = "heldout",
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
        self.whiten = whiten
        self.tol = tol
        self.angle_tol = angle_tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.selection = selection
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
        X, y = self._validated(row_source(X), y)
        order = row_order(X, y)
        if order is not None:
            X, y = X[order], y[order]
        known = target_dependence(y, self.target)
        if known.classes is not None:
            self.classes_ = known.classes
        self._check_parameters()
        with announce(self.plan), single_threaded_blas():
            solution, advice = self._learn(X, known)
        self._warn_of_ending(solution, advice)
        return self

    def _learn(self, X: Any, dependence: Dependence) -> tuple[Solution, str]:
        """Return the solution for validated rows X (n, d), and what is to be said against q."""
        started = time.perf_counter()
        kernel = as_kernel(self.kernel)
        prepared = prepare_rows(X, kernel, standardize=self.standardize)
        if self.whiten:
            prepared = prepared.whitened()
        beginning = self._beginning(prepared, kernel, dependence)
        drawn, q = beginning.drawn, beginning.q
        problem = drawn.problem(dependence)
        search = self._search
        stopping = search.stopping.after(time.perf_counter() - started)
        search = replace(search, stopping=stopping, precondition=beginning.precondition)
        if search.climbs and self.max_iter is None:
            search = replace(search, stopping=replace(stopping, max_iter=_STEPS_UPHILL))
        engine, solution = search.run(problem, q, beginning.state, saved_fit=current_fit())
        self._keep(solution, prepared)
        # Rows in a kernel are in the features of the user.
        self.kernel_ = drawn.kernel.with_rows_mapped(prepared.lift_rows)
        self._keep_engine(engine, solution)
        self.target_remainder_ = dependence.remainder
        self.selection_ = beginning.trials
        return solution, beginning.advice(solution)

    def _beginning(self, prepared: Prepared, kernel: Kernel, dependence: Dependence) -> FitStart:
        """Return the number of new features, the width and the W that the fit begins with."""
        if dependence.classes is None:
            default = dependence.columns
        else:
            default = max(len(dependence.classes) - 1, 1)
        q = self._count(self.n_components, default, prepared)
        drawn = prepared.drawn(kernel, self.engine_tol, self.random_state, q)
        plain = FitStart(drawn, q)
        if self.selection is None or not kernel.multiples or not plain.can_select:
            return plain
        if self.n_components not in (None, "auto") or dependence.classes is not None:
            return plain.selected(dependence, kernel.multiples)
        return plain.grown(dependence, kernel.multiples, prepared.n_varying - 1)

    @property
    def _search(self) -> MultistartSearch:
        return replace(
            super()._search,
            n_init=self.n_init,
            continuation=self.continuation,
            refine=self.refine,
        )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        whole("`n_init`", self.n_init)
        for name in ("continuation", "refine", "whiten"):
            yes_or_no(f"`{name}`", getattr(self, name))
        if self.selection is not None:
            one_of("`selection`", self.selection, SELECTIONS)

    def _validated(self, X: Any, y: Any) -> tuple[Any, Array]:
        if y is None:
            raise ValueError(
                "SupervisedIKDR requires y to be passed, but the target y is None: give the "
                "labels or numbers that X W is to depend on"
            )
        y = _column(y)
        if y.dtype.kind in "OmM":
            check_labels(y)
        if _is_ready(X, y):
            self._take_width(X)
            return X, y
        if not (is_row_source(X) or is_dask(X)):
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


def _is_ready(X: Any, y: Array) -> bool:
    """Return whether arrays X (n, d) and y (n,) are what `validate_data` would return of them.

    Small fits would spend a fifth of their time there. For anything else it says what is wrong.
    """
    if type(X) is not np.ndarray or X.ndim != 2 or y.ndim != 1 or len(X) != len(y):
        return False
    if X.dtype.kind not in _READY_NUMBERS or y.dtype.kind not in _READY_LABELS:
        return False
    return min(X.shape) > 1 and all(map(_is_surely_finite, (X, y)))


@np.errstate(over="ignore", invalid="ignore")
def _is_surely_finite(values: Array) -> bool:
    """Return whether all values are finite: false also where only their sum is not."""
    return values.dtype.kind != "f" or bool(np.isfinite(values.sum()))


def _column(y: Any) -> Array:
    """Return y as an array, (n, 1) as (n,) with scikit-learn's warning."""
    labels = as_array(y)
    if labels.ndim == 1 and labels.dtype.kind in _READY_LABELS:
        return np.ascontiguousarray(labels)
    return labels if labels.ndim == 2 and labels.shape[1] > 1 else column_or_1d(labels, warn=True)
