"""Supervised dimension reduction: what both estimators share, and the published system, HSIC."""

from __future__ import annotations

from abc import abstractmethod
from copy import copy, deepcopy
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.utils import Tags, check_consistent_length
from sklearn.utils.validation import check_is_fitted, validate_data

from ism_dask._validation import is_whole, seed_of
from ism_dask.engines import EngineOptions, as_engine
from ism_dask.estimators.base import watched_fit
from ism_dask.estimators.fitted import (
    contributions,
    measured_avoidance,
    rotated,
    solution_attributes,
)
from ism_dask.estimators.input_rows import row_source
from ism_dask.estimators.problem import (
    SupervisedParameters,
    SupervisedProblem,
    supervised_problem,
)
from ism_dask.gamma.row_values import on_this_host
from ism_dask.gamma.target_input import column_target, rows_with_target
from ism_dask.kernels import as_kernel
from ism_dask.linalg.cholesky import reused_matrices
from ism_dask.observe import current_fit, fit_watcher
from ism_dask.records.fit_report import Certificate
from ism_dask.records.iteration import State
from ism_dask.rows.execution import on_this_machine
from ism_dask.selection.sample import share_explained
from ism_dask.solvers import Solver
from ism_dask.solvers.base import TimeLimit, as_solver, solver_name
from ism_dask.solvers.certificates import certify_dependence
from ism_dask.solvers.search import Search
from ism_dask.status import avoidance_advice, components_advice
from ism_dask.threads import single_threaded_blas


class SupervisedBase(SupervisedParameters):
    """What both estimators of labels and numbers share: the rows of a fit, and what follows it."""

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        avoid: Any = None,
        given: Any = None,
        groups: Any = None,
    ) -> Self:
        """Learn the projection.

        Parameters
        ----------
        X : (n, d) array, frame, sparse array, Dask array or opened data set
            Arrays of other libraries than NumPy, such as tensors of PyTorch on a GPU, are those of
            scikit-learn's `array_api_dispatch`. A Dask array of more than 50
            million numbers is computed anew on each pass, two passes per iteration, so it need not
            fit into memory. If it fits, `persist` it first.
        y : (n,) labels, (n, t) labels, also as a sparse indicator, or (n,) or (n, t) numbers
            Rows whose y is NaN, None or pandas' NA help the means and scales of X and the width of
            the kernel, and nothing else; `report_.rows_without_y` counts them.
        sample_weight : (n,) numbers, optional
            Weights of the rows. A row of weight 2 counts as two equal rows, one of weight 0 not at
            all; other weights than whole numbers count in proportion.
        avoid : (n,) or (n, t) labels or numbers, or a frame, optional
            What `X W` is not to depend on, such as age and sex; `transform` does not need it.
            Strings, truth values, and whole numbers with up to 20 different values are classes. See
            docs/avoiding.md.
        given : (n,) or (n, t) labels or numbers, or a frame, optional
            What is known: `X W` is to explain what these do not explain of y. The fit also takes
            from the columns of X what these explain of them; `transform` does not, and needs none.
        groups : (n,) labels, optional
            Rows of one group, such as those of one patient, stay together where rows that W has not
            seen judge it. It is for `PredictiveIKDR`, which does so with copies of a row anyway.
        """
        parameters, seed = self.get_params(deep=False), self.random_state
        if seed is not None and not is_whole(seed):
            parameters["random_state"] = seed_of(seed)  # a generator draws another one each time
        parameters, fixed = deepcopy(parameters), copy(self)
        fixed.__dict__.update(parameters)
        sides = {"avoid": avoid, "given": given, "groups": groups}
        problem = supervised_problem(fixed, X, y, sample_weight, **sides)
        ordered = problem.in_order()
        classes = ordered.dependence.classes  # a ValueError if nothing is left to explain
        validate_data(self, row_source(X), skip_check_array=True)
        with (
            single_threaded_blas(),
            reused_matrices(),
            watched_fit(self),
        ):
            attributes = {**self._fitted(ordered), **problem.gaps}
            without_y = 0 if problem.others is None else problem.others.moments.n_rows
            attributes["report_"] = replace(attributes["report_"], rows_without_y=without_y)
            if (library := problem.library) is not None:
                attributes = {
                    name: library.put(value) if isinstance(value, np.ndarray) else value
                    for name, value in attributes.items()
                }
            self._set_fitted(attributes | ({} if classes is None else {"classes_": classes}))
        self._sides, self._fit_parameters = problem.sides, parameters
        self._rows_digest = problem.digest
        self._warn_about_fit()
        return self

    @abstractmethod
    def _fitted(self, problem: SupervisedProblem) -> dict[str, Any]:
        """Return the fitted attributes of the W that solves a problem."""

    @abstractmethod
    def _certified(self, problem: SupervisedProblem) -> Certificate:
        """Return whether the W of the fit that solved a problem is proved to be a maximum."""

    def score(self, X: Any, y: Any) -> float:
        """Return the share of y that X W explains in these rows: 1 all of it, about 0 nothing.

        Each row is predicted by others from X W, by a gaussian kernel ridge regression whose
        width and ridge these rows choose, whatever the criterion and the kernel of the fit. So the
        score compares any fits, and searches such as `GridSearchCV` use it. It is below 0 if the
        mean of y predicts better. W depends on the y of the rows that it was fitted to even if that
        is noise: score other rows.

        Parameters
        ----------
        X : (n, d) array, frame, Dask array or opened data set
        y : (n,) or (n, t) labels or numbers
            Read as the parameter `target` says; rows without y do not count. The numbers themselves
            are to be explained, or functions of them, if `target` says so or the fit chose these
            (`report_.target`).
        """
        check_is_fitted(self)
        Z = np.asarray(on_this_host(self._new_features(X)), dtype=np.float64)
        y, has_y = rows_with_target(on_this_host(y))
        check_consistent_length(Z, has_y)
        Z, y = Z[has_y], column_target(y)
        if (y == y[:1]).all():
            raise ValueError(
                f"all {len(y)} rows have the same `y` ({y.tolist()[0]!r}): nothing can depend on "
                "it; score rows of several, as folds of StratifiedKFold or KFold(shuffle=True) are"
            )
        if not np.ptp(Z, axis=0).any():
            return 0.0
        targets = SupervisedProblem(self.as_fitted(), Z, y).targets
        target = targets.get(self.report_.target) or next(iter(targets.values()))
        with single_threaded_blas():
            return share_explained(Z, target.Y, target.keys)

    def certify(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        avoid: Any = None,
        given: Any = None,
        groups: Any = None,
    ) -> Certificate:
        """Set and return `certificate_`: whether W is proved to be a local maximum of J.

        For a `PredictiveIKDR` it takes a few passes over the rows, and the curvature on 10,000 of
        them at most; with more than 1,000 free weights, (d - q) q, it raises a ValueError. For a
        `SupervisedIKDR` it takes passes over all pairs of rows, whatever the engine: two gradients
        by engine="exact" for each free weight up to 200, some hundred beyond.

        All arguments are those of `fit`, with rows in the same order. Of more than 10 million
        numbers some are compared with those of the fit, of more rows than fit into memory none.

        Examples
        --------
        >>> from sklearn.datasets import load_wine
        >>> from ism_dask import PredictiveIKDR
        >>> X, y = load_wine(return_X_y=True)
        >>> fitted = PredictiveIKDR(2).fit(X, y)
        >>> fitted.certify(X, y).is_certified
        True
        """
        sides = {"avoid": avoid, "given": given, "groups": groups}
        problem = self.problem_of_fit(X, y, sample_weight, what="`certify`", **sides)
        with single_threaded_blas():
            self.certificate_ = self._certified(problem)
        return self.certificate_

    def problem_of_fit(
        self, X: Any, y: Any, sample_weight: Any, *, what: str, **sides: Any
    ) -> SupervisedProblem:
        """Return the problem that the fit has solved, with its parameters and its seed.

        Raise a ValueError that names `what` if the rows are not those of the fit.
        """
        check_is_fitted(self)
        validate_data(self, row_source(X), reset=False, skip_check_array=True)
        problem = supervised_problem(self.as_fitted(), X, y, sample_weight, **sides)
        if problem.sides != self._sides:
            had, has = (" and ".join(each) or "none" for each in (self._sides, problem.sides))
            raise ValueError(
                f"of `avoid`, `given` and `groups`, the fit had {had}, and {what} has {has}; give "
                "it the same"
            )
        if problem.digest != self._rows_digest:
            raise ValueError(
                f"these rows are not those of the fit, and {what} judges W on those: give the same "
                "X, y and weights in the same order, or fit again"
            )
        return problem.in_order()

    def __sklearn_tags__(self) -> Tags:
        """Declare that y is required and that rows may be in another library."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.array_api_support = True
        return tags


@dataclass(eq=False, repr=False)
class SupervisedIKDR(SupervisedBase):
    """The published system: W maximises HSIC with labels or numbers, by the spectral method.

    Finds W with orthonormal columns so that `X W` depends on y as strongly as possible, by the
    Hilbert-Schmidt independence criterion, with the Iterative Spectral Method (ISM), its kernels
    and its engines. Each new feature is a weighted sum of the (standardised) old ones; the weights
    are `components_`.

    Take it to repeat the published method, for other kernels than positive definite ones, and where
    dependence itself is the question. Take `PredictiveIKDR` for features that predict y: its mean
    distance from the known answer of 17 designs is .005 (.091 with all features), and that of HSIC
    with the settings of the paper .58.

    Parameters
    ----------
    n_components : int, "auto" or None, default "auto"
        Number of new features q, at most d - 1. "auto" and None mean the same: one feature fewer
        than there are classes, or one for each column of numbers, below the number of directions in
        which the rows vary.
    kernel : str or Kernel, default "gaussian"
        A name in `ism_dask.kernels.KERNELS`, a kernel object, or a sum such as
        `0.5 * Gaussian() + 0.5 * Polynomial(degree=3)`.
    target : {"auto", "classes", "labels", "numbers", "linear", "gaussian", "multiscale"}, \
default "auto"
        How to read y, as in `PredictiveIKDR`, but that "numbers" means "multiscale", or "gaussian"
        if y has several columns.
    solver : "ism" or Solver, default "ism"
        "ism" is the Iterative Spectral Method. A solver may also be an object with its options,
        such as `ism_dask.solvers.ISM(tol=0.01, max_iter=500)`.
    engine : {"auto", "closed_form", "landmarks", "exact"} or EngineOptions, default "auto"
        How Phi is computed. "auto" takes the cheapest engine that
        applies, and the next one if that engine declines. "landmarks", which "auto" considers from
        4,000 rows up, approximates Phi, and `report_.engine_error` says what that does to J; the
        other engines leave nothing out. An engine may also be an object with its options, such as
        `ism_dask.engines.EngineOptions("landmarks", tol=1e-3)`.
    standardize, missing, rotation, avoid_weight, class_weight, warm_start
        As in `PredictiveIKDR`.
    random_state : int, RandomState or None, default None
        Seed of the sample of rows that determines widths above 5,000 rows, of that of
        `contributions_` above 2,000, and of the landmarks. None is a fixed seed, so that fits
        repeat.

    Attributes
    ----------
    objective_ : float
        J: HSIC, `sum_ij Gamma_ij f(beta_ij)`; see `ism_dask.hsic`.
    residual_ : float
        As in `PredictiveIKDR`, under the true kernel, whatever the engine; 1 if J does not depend
        on W.
    converged_ : bool
        Whether `status_` is `Status.CONVERGED`: W is stationary, with a `residual_` of at most
        1e-4 under the true kernel.
    history_ : tuple of Record
        For each iteration: objective, eigenvalues, change, angle, residual (under the engine's
        Phi), seconds, and whether J rose. It includes steps along the gradient of J.
    components_, mean_, scale_, gap_means_, gap_counts_, eigenvalues_, eigengap_, \
contributions_, n_iter_, status_, certificate_, kernel_, report_, classes_, n_features_in_, \
feature_names_in_
        As in `PredictiveIKDR`, without the words on `max_features`; docs/published.md explains how
        a fit may end.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from ism_dask import SupervisedIKDR
    >>> X, y = load_wine(return_X_y=True)
    >>> SupervisedIKDR(2).fit(X, y).transform(X).shape
    (178, 2)
    """

    _: KW_ONLY
    solver: str | Solver = "ism"
    engine: str | EngineOptions = "auto"

    def _fitted(self, problem: SupervisedProblem) -> dict[str, Any]:
        parameters, dependence = problem.parameters, problem.dependence
        kernel, solver = as_kernel(parameters.kernel), as_solver(parameters.solver)
        engine = as_engine(parameters.engine)
        saved_fit = current_fit()
        time_limit = TimeLimit(solver.max_seconds, saved_fit)
        prepared, earlier = problem.prepared(kernel), problem.earlier
        q = problem.n_components(prepared)
        rows = problem.dependence_rows(prepared, kernel, q)
        start = None
        if earlier is not None and q <= prepared.n_varying:
            start = State.from_weights(prepared.orthonormal(earlier))
        search = Search(engine, solver, fit_watcher().on_iteration, time_limit, saved_fit)
        solution = search.run(rows.problem(dependence), q, start)
        turned = rotated(solution, prepared, parameters.rotation)
        contributing = rows.contributing(dependence)
        with on_this_machine():
            W = turned.W[: prepared.n_varying]
            parts = contributions(contributing.value, W, solution.objective)
        advice = components_advice(solution.eigenvalues.tolist(), solution.eigengap)
        if problem.avoid is not None and solution.objective <= 0.0:
            advice = avoidance_advice(solution.objective, parameters.avoid_weight)
        return {
            **solution_attributes(
                turned,
                prepared,
                rows.sample,
                prepared,
                components_advice=advice,
                solver=solver_name(solver),
                tolerance=solver.limit,
                avoided=measured_avoidance(rows, turned.W, dependence),
            ),
            "kernel_": rows.fitted_kernel,
            "contributions_": parts,
        }

    def _certified(self, problem: SupervisedProblem) -> Certificate:
        prepared = problem.prepared(self.kernel_)
        W = prepared.coordinates(problem.parameters.components_)
        rows = problem.dependence_rows(prepared, self.kernel_, W.shape[1])
        return certify_dependence(rows.problem(problem.dependence), W)
