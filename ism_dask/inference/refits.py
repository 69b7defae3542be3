"""Warm refits of an estimator to resampled rows, independent of each other."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from ism_dask._types import Array
from ism_dask._validation import is_whole
from ism_dask.blas_threads import single_threaded_blas
from ism_dask.engines import Engine, as_engine, first_that_serves
from ism_dask.engines.operator import relative_residual
from ism_dask.estimators.checks import row_source
from ism_dask.estimators.pose import PREDICTION, SupervisedProblem, as_given, row_weights
from ism_dask.estimators.prediction_steps import PredictionFit
from ism_dask.estimators.preparation import Prepared
from ism_dask.estimators.supervised import SupervisedBase
from ism_dask.estimators.wide_rows import check_dense
from ism_dask.gamma.weighted import check_weights
from ism_dask.observe.fit_events import FitWatcher, watching_fits
from ism_dask.observe.progress import watching_passes
from ism_dask.rows.devices import AUTO, CPU, Device, device_here
from ism_dask.rows.execution import is_dask, on_this_machine, results_in_order
from ism_dask.solvers.lbfgs import lbfgs_ascent
from ism_dask.status import Status

# With fewer rows, a resample has too few different ones.
_FEWEST_ROWS = 20
# Rows of this size in memory are refitted side by side. Refits of larger rows follow each other,
# and each spreads its passes over all workers.
_SIDE_BY_SIDE_BYTES = 64 * 2**20
# Times that a resample is drawn again if it has lost a class.
_DRAWS = 100
# The residual at which the steps of a refit end: this share of the first one, which the other rows
# cause, but at most `_RESIDUAL`; and the most steps.
_SHARE, _RESIDUAL, _STEPS = 0.02, 2e-3, 200


@dataclass(frozen=True, eq=False)
class Refit:
    """The subspace of a refit to resampled rows.

    Attributes
    ----------
    weights : (q, d) array
        The weights of the new features, for X in its own units.
    converged : bool
        Whether the fit has converged.
    """

    weights: Array
    converged: bool


@dataclass(frozen=True, eq=False)
class RefitPlan:
    """The rows of a fit, from which any refit can be made by its number.

    Make one with `plan_refits`.

    Attributes
    ----------
    problem : SupervisedProblem
        The problem of the fit, with the rows as they are given and with the fitted estimator.
    weights : (n,) array or None
        Weights that the rows had in the fit, without those of classes.
    seed : int
    """

    problem: SupervisedProblem
    weights: Array | None
    seed: int

    @property
    def fitted(self) -> SupervisedBase:
        """The fitted estimator."""
        return self.problem.parameters

    def refit(self, number: int, device: Device | None = None) -> Refit:
        """Return the refit with this number; its rows depend on the seed and the number alone.

        The steps of a fit by prediction are computed on the device if there is one.
        """
        counts = self._resample(np.random.default_rng([self.seed, number]))
        drawn = counts if self.weights is None else counts * self.weights
        weights = row_weights(self.problem.y, self.fitted.target, self.fitted.class_weight, drawn)
        problem = replace(self.problem, weights=weights, device=device).in_order()
        silently = watching_fits(_Silent()), watching_passes(lambda _done, _total: None)
        with single_threaded_blas(), silently[0], silently[1]:
            return nearest_maximum(problem)

    def refits(self, numbers: Sequence[int]) -> Iterator[tuple[int, Refit]]:
        """Yield the refits with their numbers, in order."""
        n, d = self.problem.X.shape
        side_by_side = not is_dask(self.problem.X) and 8 * n * d <= _SIDE_BY_SIDE_BYTES
        if side_by_side:
            refits = results_in_order(_refit_by_itself, self, numbers)
        else:
            refits = map(partial(self.refit, device=self._device()), numbers)
        yield from zip(numbers, refits, strict=True)

    def _device(self) -> Device | None:
        """Return the device that the engine of the fit names, if it is here."""
        name = getattr(as_engine(self.fitted.engine), "device", AUTO)
        return None if name in (AUTO, CPU) else device_here(name)

    def _resample(self, rng: np.random.Generator) -> Array:
        """Return how often each row is drawn (n,), if n rows are drawn with replacement."""
        n = len(self.problem.y)
        for _ in range(_DRAWS):
            counts = np.bincount(rng.integers(n, size=n), minlength=n)
            classes = getattr(self.fitted, "classes_", ())
            if not len(classes) or len(np.unique(self.problem.y[counts > 0])) == len(classes):
                return counts
        raise ValueError(
            f"{_DRAWS} resamples of the {n} rows lacked a class each; leave out classes of one or "
            "two rows"
        )


def nearest_maximum(problem: SupervisedProblem) -> Refit:
    """Return the maximum of J on the rows of a problem that is nearest to the W of its estimator.

    A fit with `warm_start` would take the same steps, and then compute eigenvalues, error bounds
    and a search for a higher maximum, which take most of its time.
    """
    fitted = problem.parameters
    if fitted.criterion_ == PREDICTION:
        fit = PredictionFit.of_fitted(problem)
        prepared, solution = fit.prepared, fit.continued().solution
        W, reached = solution.W, solution.status is Status.CONVERGED
    else:
        prepared = problem.prepared(fitted.kernel_)
        W, reached = _climb_dependence(problem, prepared)
    return Refit(prepared.lift(W.T) / prepared.affine.scale, reached)


def _climb_dependence(problem: SupervisedProblem, prepared: Prepared) -> tuple[Array, bool]:
    """Return W (r, q) after gradient steps from that of the fit, and whether it is stationary."""
    fitted, q = problem.parameters, len(problem.parameters.components_)
    prepared.check_varying(q)
    rows = problem.fit_rows(prepared, fitted.kernel_, q)
    start = prepared.lower(fitted.components_)
    posed = rows.problem(problem.dependence)
    engines = as_engine(fitted.engine).on(None).engines(posed, q, climbs=True)

    def climb(engine: Engine) -> tuple[Array, bool]:
        W, now = start, engine.product(start)
        residual = relative_residual(W, now.product)
        rest = min(_RESIDUAL, _SHARE * residual)
        steps = lbfgs_ascent(engine.product, W, now, rows.precondition)
        if residual > rest:
            # The steps end by themselves if none along the slope raises J any more.
            for W, now in islice(steps, _STEPS):
                residual = relative_residual(W, now.product)
                if residual <= rest:
                    break
        return W, residual <= rest

    return first_that_serves(engines, climb)


def plan_refits(
    fitted: Any,
    X: Any,
    y: Any,
    *,
    sample_weight: Any = None,
    random_state: int | None = None,
    avoid: Any = None,
    given: Any = None,
    caller: str = "`bootstrap`",
) -> RefitPlan:
    """Return the plan of refits to X (n, d) and y (n,) or (n, t); raise an error for misfits.

    Errors name the `caller`.
    """
    if not isinstance(fitted, SupervisedBase):
        raise TypeError(
            f"`fitted` is a {type(fitted).__name__}; expected a fitted SupervisedIKDR: the "
            "clusters of a refit would be other groups of rows, with another W"
        )
    check_is_fitted(fitted)
    X = row_source(X)
    validate_data(fitted, X, reset=False, skip_check_array=True)
    problem = as_given(fitted, X, y, sample_weight, avoid=avoid, given=given)
    check_dense(problem.X, caller)
    n = len(problem.y)
    if n < _FEWEST_ROWS:
        raise ValueError(f"X has {n} rows; {caller} needs {_FEWEST_ROWS} or more")
    problem.check_same_sides(fitted.sides_, caller)
    found = problem.in_order().dependence.classes
    _check_same_classes(found, getattr(fitted, "classes_", None))
    weights = None if sample_weight is None else check_weights(sample_weight, n)
    # A generator would change from one refit to the next.
    own_seed = fitted.random_state if is_whole(fitted.random_state) else None
    fitted = copy.copy(fitted.on_host()).set_params(random_state=own_seed)
    seed = 0 if random_state is None else int(random_state)
    return RefitPlan(replace(problem, parameters=fitted), weights, seed)


def _check_same_classes(found: Array | None, fitted: Array | None) -> None:
    """Raise a ValueError if y has other classes than the fit, or numbers in place of classes."""
    ours, theirs = (
        "numbers" if each is None else f"the classes {', '.join(map(str, each))}"
        for each in (found, fitted)
    )
    if ours != theirs:
        raise ValueError(
            f"y has {ours}, but `fitted` was fitted to {theirs}; give the y of that fit"
        )


class _Silent(FitWatcher):
    """Ignores the events of refits, which issue no warnings: the result counts failures."""

    reports_endings = True


def _refit_by_itself(plan: RefitPlan, number: int) -> Refit:
    """Return a refit that is computed in this thread or on this worker."""
    with on_this_machine():
        return plan.refit(number)
