"""The maximum of J on other rows, or other weights of rows, that is nearest to a fitted W."""

from __future__ import annotations

import copy
from functools import partial
from itertools import islice
from typing import Any

from ism_dask._types import Array
from ism_dask.blas_threads import single_threaded_blas
from ism_dask.engines import Engine, candidate_engines, first_that_serves
from ism_dask.engines.operator import relative_residual
from ism_dask.estimators.preparation import FitRows, Prepared
from ism_dask.estimators.supervised import SupervisedIKDR
from ism_dask.estimators.supervised_fit import PREDICTION
from ism_dask.estimators.supervised_input import CheckedInput
from ism_dask.kernels import as_kernel
from ism_dask.solvers.lbfgs import Precondition, lbfgs_ascent
from ism_dask.status import Status

# The residual at which the steps end: this share of the first one, which the other rows cause, but
# at most `_RESIDUAL`.
_SHARE, _RESIDUAL = 0.02, 2e-3
# The most steps.
_STEPS = 200


def climb_from_fit(
    fitted: SupervisedIKDR, X: Any, y: Any, sample_weight: Array, **sides: Any
) -> tuple[Array, bool]:
    """Return the weights of the new features at the nearest maximum, and whether it was reached.

    A fit with `warm_start` would take the same steps, and then compute eigenvalues, error bounds
    and a search for a higher maximum, which take most of its time.

    Parameters
    ----------
    fitted : SupervisedIKDR
        The steps start at its W, with its kernel.
    X : (n, d) array, Dask array or RowSource
    y : (n,) or (n, t) array
    sample_weight : (n,) array
    **sides
        `avoid` and `given`, as the fit had them.

    Returns
    -------
    weights : (q, d) array
        For X in its own units.
    reached : bool
    """
    model = copy.copy(fitted)  # the check sets attributes
    checked = model._checked_input(X, y, sample_weight, **sides)
    support = None if model.max_features is None else model.get_support()
    if model.criterion_ == PREDICTION:
        return _climb_to_predict(model, checked, support)
    with single_threaded_blas():
        prepared = model._prepared(checked, as_kernel(model.kernel_), support)
        fit_rows = _rows_of_fit(model, prepared, checked)
        W = prepared.lower(model.components_)
        problem = fit_rows.problem(checked.dependence)
        engines = candidate_engines(model._engine, problem, fit_rows.q, climbs=True)
        climb = partial(_climb, start=W, precondition=fit_rows.precondition)
        W, reached = first_that_serves(engines, climb)
    return _in_units(model, prepared, W), reached


def _climb_to_predict(
    model: SupervisedIKDR, checked: CheckedInput, support: Array | None
) -> tuple[Array, bool]:
    """Return the weights in units of X (q, d) that a warm start comes to, and whether it ends."""
    with single_threaded_blas():
        prepared = model._prepared(checked, as_kernel(model.kernel), support)
        fit = model._prediction_fit_of(checked, prepared, len(model.components_))
        solution = model._continued(fit, prepared).solution
    return _in_units(model, prepared, solution.W), solution.status is Status.CONVERGED


def _in_units(model: SupervisedIKDR, prepared: Prepared, W: Array) -> Array:
    """Return W (r, q) as weights (q, d) for X in its own units."""
    components = prepared.lift(W.T)
    return components / prepared.affine.scale if model.standardize else components


def _rows_of_fit(model: SupervisedIKDR, prepared: Prepared, checked: CheckedInput) -> FitRows:
    """Return the rows with the kernel of the fit."""
    q = len(model.components_)
    if q > prepared.n_varying:
        raise ValueError(
            f"the rows vary in {prepared.n_varying} directions, fewer than the {q} new features; "
            "fit with fewer `n_components`"
        )
    return model._fit_rows(prepared, model.kernel_, q, checked)


def _climb(engine: Engine, start: Array, precondition: Precondition) -> tuple[Array, bool]:
    """Return W (d, q) after gradient steps from a start, and whether it is stationary."""
    W, now = start, engine.product(start)
    residual = relative_residual(W, now.product)
    rest = min(_RESIDUAL, _SHARE * residual)
    steps = lbfgs_ascent(engine.product, W, now, precondition)
    if residual > rest:
        # The steps end by themselves if none along the slope raises J any more.
        for W, now in islice(steps, _STEPS):
            residual = relative_residual(W, now.product)
            if residual <= rest:
                break
    return W, residual <= rest
