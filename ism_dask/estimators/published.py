"""The published system, HSIC by the Iterative Spectral Method, as an estimator."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

from ism_dask.engines import EngineOptions, as_engine
from ism_dask.estimators.fitted import (
    Fitted,
    contributions,
    measured_avoidance,
    rotated,
    solution_attributes,
)
from ism_dask.estimators.preparation import Report
from ism_dask.estimators.problem import SupervisedProblem
from ism_dask.estimators.supervised import SupervisedBase
from ism_dask.kernels import Kernel, as_kernel
from ism_dask.observe import current_fit
from ism_dask.records.fit_report import Certificate
from ism_dask.records.iteration import State
from ism_dask.rows.execution import on_this_machine
from ism_dask.solvers import Solver
from ism_dask.solvers.base import TimeLimit, as_solver, solver_name
from ism_dask.solvers.certificates import certify_dependence
from ism_dask.solvers.search import Search, solution_of_whole_space
from ism_dask.status import components_advice


@dataclass(eq=False, repr=False)
class SupervisedIKDR(SupervisedBase):
    """The published system: W maximises HSIC with labels or numbers, by the spectral method.

    Finds W with orthonormal columns so that `X W` depends on y as strongly as possible, by the
    Hilbert-Schmidt independence criterion, with the Iterative Spectral Method (ISM), its kernels
    and its engines. Each new feature is a weighted sum of the (standardised) old ones; the weights
    are `components_`.

    Take it to repeat the published method, for other kernels than positive definite ones, and where
    dependence itself is the question. Take `PredictiveIKDR` for features that predict y: over 17
    designs with a known answer, its mean distance from it is .091, and .58 by HSIC with the
    settings of the paper.

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
        How to read y: as classes, as several labels for each row ("labels": an indicator matrix of
        0 and 1, or columns of classes), or as numbers. "auto" takes labels, and whole numbers with
        up to 20 different values, as classes, or as "labels" if y has several columns, and other
        numbers as "numbers". It raises an error for whole numbers with more than 20 different
        values. "numbers" means "multiscale", or "gaussian" if y has several columns. "linear" means
        the numbers themselves, "gaussian" functions of a gaussian kernel of median width,
        "multiscale" those of three gaussian kernels: of the median width, half of it and a quarter
        of it.
    solver : "ism" or Solver, default "ism"
        "ism" is the Iterative Spectral Method. A solver may also be an object with its options,
        such as `ism_dask.solvers.ISM(tol=0.01, max_iter=500)`.
    engine : {"auto", "closed_form", "landmarks", "exact"} or EngineOptions, default "auto"
        How Phi is computed. "auto" takes the cheapest engine that
        applies, and the next one if that engine declines. "landmarks", which "auto" considers from
        4,000 rows up, approximates Phi, and `engine_error_` says what that does to J; the other
        engines leave nothing out. An engine may also be an object with its options, such as
        `ism_dask.engines.Landmarks(tol=1e-3)`.
    standardize : bool, default True
        Whether to scale the features to mean 0 and standard deviation 1 first.
    rotation : {"varimax"} or None, default None
        "varimax" rotates W within its space, so that each new feature has few large weights. The
        space, J and distances between rows of `X W` do not change.
    avoid_weight : float, default 10
        The weight of the dependence on what `fit` is to avoid, beside that on y. Both are divided
        by the norms of their kernels, so that 1 weighs equal correlations equally.
    class_weight : dict, "balanced" or None, default None
        Weights of classes: each row counts by the weight of its class, times its `sample_weight`.
        A class that the dict leaves out has weight 1. "balanced" gives all classes the same sum of
        weights. It is for classes only.
    warm_start : bool, default False
        Whether to start at `components_`, if there are some. For rows that have changed little,
        such a fit takes a few iterations.
    random_state : int, RandomState or None, default None
        Seed of the random starts, of the sample of rows that determines widths above 5,000 rows,
        and of the landmarks. None is a fixed seed, so that fits repeat.

    Attributes
    ----------
    components_ : (q, d) array
        The weights of the new features in standardised units; the largest entry of each row is
        positive. Rows are orthonormal to 1e-10, including rows of new features that carry
        nothing.
    mean_, scale_ : (d,) arrays
        Mean and scale of each feature: `transform` first computes `(X - mean_) / scale_`.
    eigenvalues_ : (q,) array
        The diagonal of `W^T Phi W`, in descending order: its eigenvalues, unless `rotation` is
        set. Each is half the derivative of J with respect to the logarithm of the scale of its
        new feature; it is not the part of J that the feature contributes, which `contributions_`
        has. A feature with a negative eigenvalue lowers J; a `ComponentsWarning` then reports
        this, with the number of new features that would do.
    eigengap_ : float
        The smallest entry of `eigenvalues_` minus the largest eigenvalue of Phi outside of W, in
        the whole feature space. If it is near zero, the last new feature is one of several
        equally good ones. If it is negative, J is largest at a W that the spectral step would
        leave. A rotation makes it larger, since it brings the entries of `eigenvalues_` closer
        together.
    contributions_ : Contributions
        Two arrays (q,): `alone` is J of each new feature alone, `lost` is by how much J falls
        without it. Computed on a sample of up to 2,000 rows and scaled to `objective_`; exact if
        these are all rows.
    objective_ : float
        J: HSIC, `sum_ij Gamma_ij f(beta_ij)`; see `ism_dask.hsic`.
    residual_ : float
        Distance of W from a stationary point under the true kernel, whatever the engine:
        `||Phi W - W L|| / ||Phi W||`.
    n_iter_ : int
        Number of iterations.
    status_ : Status
        How the fit ended: see `Status.meaning` and `Status.advice`, or docs/published.md.
    converged_ : bool
        Whether `status_` is `Status.CONVERGED`: W is stationary, with a `residual_` of at most
        1e-4 under the true kernel.
    certificate_ : Certificate
        After `certify`: whether W is proved to be a local maximum of J, or why not.
    tolerance_ : float
        The limit in force: on the residual, or, with a number as `tol`, on the change of the
        eigenvalues.
    history_ : tuple of Record
        For each iteration: objective, eigenvalues, change, angle, residual (under the engine's
        Phi), seconds, and whether J rose. It includes steps along the gradient of J.
    engine_ : str
        Name of the engine that computed the result.
    engine_error_ : float
        Bound on the relative error of `objective_` due to approximation, with a wide estimate of
        that due to rounding; infinite if it exceeds 1.
    kernel_ : Kernel
        The kernel with the numbers, such as widths, that the data gave it.
    report_ : FitReport
        Notes, advice and what was measured on the way: see `ism_dask.FitReport`.
    classes_ : (c,) array
        The classes, if y holds classes.
    n_features_in_ : int
        Number of features d.
    feature_names_in_ : (d,) array
        Names of the features, if X was a frame.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from ism_dask import SupervisedIKDR
    >>> X, y = load_wine(return_X_y=True)
    >>> SupervisedIKDR(2).fit(X, y).transform(X).shape
    (178, 2)
    """

    n_components: int | str | None = "auto"
    _: KW_ONLY
    kernel: str | Kernel = "gaussian"
    target: str = "auto"
    solver: str | Solver = "ism"
    engine: str | EngineOptions = "auto"
    standardize: bool = True
    rotation: str | None = None
    avoid_weight: float = 10.0
    class_weight: dict[Any, float] | str | None = None
    warm_start: bool = False
    random_state: Any = None

    def _fitted(self, problem: SupervisedProblem, report: Report) -> Fitted:
        return fit_dependence(problem, report)

    def _certified(self, problem: SupervisedProblem) -> Certificate:
        prepared = problem.prepared(self.kernel_)
        W = prepared.coordinates(problem.parameters.components_)
        rows = problem.dependence_rows(prepared, self.kernel_, W.shape[1])
        return certify_dependence(rows.problem(problem.dependence), W)


def fit_dependence(problem: SupervisedProblem, report: Report) -> Fitted:
    """Return the fit whose X W depends on y most, by HSIC."""
    parameters, dependence = problem.parameters, problem.dependence
    kernel, solver = as_kernel(parameters.kernel), as_solver(parameters.solver)
    engine = as_engine(parameters.engine)
    saved_fit = current_fit()
    time_limit = TimeLimit(solver.max_seconds, saved_fit)
    prepared, earlier = problem.prepared(kernel), problem.earlier
    q = problem.n_components(prepared)
    rows = problem.dependence_rows(prepared, kernel, q)
    whole = rows.problem(dependence)
    if q == prepared.n_varying + prepared.n_constant:
        solution = solution_of_whole_space(whole, engine)
    else:
        start = None
        if earlier is not None and q <= prepared.n_varying:
            start = State.from_weights(prepared.orthonormal(earlier))
        search = Search(engine, solver, partial(report, prepared), time_limit, saved_fit)
        solution = search.run(whole, q, start)
    turned = rotated(solution, prepared, parameters.rotation)
    contributing = rows.contributing(dependence)
    with on_this_machine():
        W = turned.W[: prepared.n_varying]
        parts = contributions(contributing.value, W, solution.objective)
    attributes = {
        **solution_attributes(
            turned,
            prepared,
            rows.sample,
            components_advice=components_advice(solution.eigenvalues.tolist(), solution.eigengap),
            solver=solver_name(solver),
            target_remainder=dependence.remainder,
            avoided=measured_avoidance(rows, turned.W, dependence),
        ),
        "kernel_": rows.fitted_kernel,
        "tolerance_": solver.limit,
        "contributions_": parts,
        "engine_": solution.report.engine,
        "engine_error_": solution.report.engine_error,
    }
    return Fitted(solution, attributes)
