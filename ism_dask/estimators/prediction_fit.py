"""A fit by prediction: the rows, what they choose, the steps of W, and the fitted attributes."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask._validation import is_whole, seed_of
from ism_dask.estimators.fitted import (
    Fitted,
    contributions,
    measured_avoidance,
    prediction_advice,
    rotated,
    solution_attributes,
)
from ism_dask.estimators.growth import climbed, grown
from ism_dask.estimators.problem import SupervisedProblem, limited
from ism_dask.estimators.training_rows import LAW, MEAN, Target, TrainingRows
from ism_dask.kernels import as_kernel
from ism_dask.linalg.eigen import largest_eigenvalue_outside
from ism_dask.observe import current_fit, fit_watcher
from ism_dask.records.checkpoint import CheckpointedFit
from ism_dask.records.fit_report import DimensionTrial, FitReport
from ism_dask.records.iteration import Solution
from ism_dask.rows.execution import on_this_machine
from ism_dask.rows.raw import MANY_ROWS, fits_memory
from ism_dask.selection.choices import (
    Choice,
    choose,
    choose_by_evidence,
    choose_dimension,
    law_is_better,
)
from ism_dask.selection.rules import RULES
from ism_dask.selection.sample import Sample
from ism_dask.selection.support import few_features, marginal_shares
from ism_dask.solvers import as_solver
from ism_dask.solvers.ascent import Curvature, ascend, diagonalised, no_curvature
from ism_dask.solvers.base import TimeLimit
from ism_dask.status import Status

# `max_features` if unseen rows choose whether there are few.
AUTO: Any = "auto"


def fit_prediction(problem: SupervisedProblem) -> Fitted:
    """Return the fit whose X W predicts y best."""
    parameters, warm = problem.parameters, problem.earlier is not None
    most, solver, saved_fit = parameters.max_features, as_solver(parameters.solver), current_fit()
    path: tuple[DimensionTrial, ...] = ()
    # Tasks of a cluster would take longer for few rows.
    with on_this_machine() if problem.X.shape[0] < MANY_ROWS else nullcontext():
        rows = training_rows(problem, TimeLimit(solver.max_seconds, saved_fit))
        q, varying = problem.n_components(rows.prepared), rows.prepared.affine.varying
        if most is not None:
            rows.prepared.check_varying(q)
        # Of many features, W may use those that explain most of y by themselves.
        if most not in (None, AUTO) and not warm and rows.prepared.has_many_features:
            rows = with_features(problem, rows, _best_alone(rows, q))
        # Rows that W has not seen choose how many features there are, what of y to predict, from
        # which start, and with which width and ridge; rows that join choose the last two anew.
        curvature = no_curvature()
        if warm:
            target, choice = _earlier_choice(problem, rows)
        else:
            q, path, target, choice = _choices(problem, rows, q)
        sample = rows.sample(target, q)
        if not (warm or rows.are_one_block):
            choice = grown(rows, target, sample, choice, curvature)
        # W climbs on all rows, and then once more with the features that matter alone.
        last_steps = partial(_last_steps, max_iter=solver.max_iter, saved_fit=saved_fit)
        keeps_few = warm and most == AUTO and choice.is_few
        steps: dict[str, Any] = {"max_iter": 0} if keeps_few else {}
        ascent, choice = last_steps(rows, target, sample, choice, curvature, **steps)
        full_objective, first = ascent.objective if choice.is_few else None, sample
        if choice.is_few:
            rows, choice = _with_few_features(problem, rows, sample, choice, ascent.W)
            sample = rows.sample(target, q)
            ascent, choice = last_steps(rows, target, sample, choice, no_curvature())
            if np.array_equal(rows.prepared.affine.varying, varying):  # all have been chosen
                full_objective = None
        _check_avoidance(problem, choice, ascent.objective)
        found: dict[str, Any] = {"target": target.name, "full_objective": full_objective}
        found |= {"dimensions": path, "first": first}
        return _fitted(problem, rows, sample, choice, ascent, q=q, **found)


def _check_avoidance(problem: SupervisedProblem, choice: Choice, objective: float) -> None:
    """Raise a ValueError if W tells more of what it is to avoid than of y, in unseen rows as well.

    W tells a little of anything in the rows that it is fitted to.
    """
    is_clear = any(each.explained > RULES.clear * each.error for each in choice.trials)
    if problem.avoid is not None and objective <= 0.0 and not is_clear:
        weight = problem.parameters.avoid_weight
        raise ValueError(
            f"no W was found that explains y and avoids `avoid`: J is {objective:.3g}, which is "
            "the share of y less `avoid_weight` times that of what is avoided; expected more than "
            f"0. Lower `avoid_weight` ({weight:g}), or leave out of `avoid` what y follows from"
        )


def training_rows(problem: SupervisedProblem, time_limit: TimeLimit | None = None) -> TrainingRows:
    """Return the prepared rows of a problem, with all features."""
    parameters = problem.parameters
    kernel, seed = as_kernel(parameters.kernel), seed_of(parameters.random_state)
    limit = time_limit or TimeLimit()
    with on_this_machine() if fits_memory(problem.X.shape) else nullcontext():
        prepared = problem.prepared(kernel)
        targets, weights, groups = problem.targets, problem.weights, problem.groups
        return TrainingRows(prepared, targets, weights, kernel, seed, limit, groups)


def with_features(problem: SupervisedProblem, rows: TrainingRows, chosen: Array) -> TrainingRows:
    """Return the rows of a problem with the features alone for which `chosen` (d,) is true."""
    with on_this_machine() if fits_memory(problem.X.shape) else nullcontext():
        return replace(rows, prepared=problem.prepared(rows.kernel, chosen))


def _best_alone(rows: TrainingRows, q: int) -> Array:
    """Return which features (d,) explain most of y by themselves."""
    sample, features = rows.sample(rows.first_target, q), rows.prepared.features
    varying, some = np.flatnonzero(rows.prepared.affine.varying), sample.rows
    shares = marginal_shares(some.X @ features[:, varying], sample.explained_columns, some.weights)
    count = max(q + 1, some.n_rows // RULES.rows_per_feature)
    best = varying[np.argsort(-shares, kind="stable")[:count]]
    return np.isin(np.arange(features.shape[1]), best)


def _choices(
    problem: SupervisedProblem, rows: TrainingRows, q: int
) -> tuple[int, tuple[DimensionTrial, ...], Target, Choice]:
    """Return what a sample chooses: the number of new features, the target, and the rest.

    If none is given, the number is the one that the rows ask for, up to six; there are trials of
    each. `q` is the given or the usual one.
    """

    @cache
    def evident(target: Target, q: int) -> Choice:
        return choose_by_evidence(rows.sample(target, q))

    def evident_target(q: int) -> Target:
        if len(rows.targets) == 1:
            return rows.first_target
        mean, law = rows.targets[MEAN], rows.targets[LAW]
        better = law_is_better(rows.sample(law, q), evident(mean, q), evident(law, q))
        return law if better else mean

    path: tuple[DimensionTrial, ...] = ()
    given, few = problem.parameters.n_components, rows.n_rows < RULES.fewest_rows
    if given in (None, "auto") and not few and problem.usual_components <= RULES.most_features:
        most = limited(rows.prepared.n_varying - 1, problem.parameters.max_features)
        target = evident_target(min(2, most))
        numbers = range(1, min(most, RULES.most_features) + 1)
        q, path = choose_dimension((rows.sample(target, k), evident(target, k)) for k in numbers)
    watcher, count = fit_watcher(), len(rows.targets)
    watcher.on_selection(0, count)
    target = evident_target(q)
    watcher.on_selection(count - 1, count)
    choice = evident(target, q)
    if not few and rows.n_rows < RULES.network_rows:  # else rows that join will judge
        few_of = rows.prepared.features if _tries_few(problem, rows, q) else None
        tries_scales = _tries_scales(problem, rows, q)
        choice = choose(rows.sample(target, q), choice, few_of, tries_scales=tries_scales)
    watcher.on_selection(count, count)
    if problem.parameters.max_features not in (None, AUTO):
        choice = replace(choice, is_few=True)
    return q, path, target, choice


def _tries_few(problem: SupervisedProblem, rows: TrainingRows, q: int) -> bool:
    """Return whether W may turn out to have few features alone."""
    n_weights = (int(rows.prepared.affine.varying.sum()) - q) * q
    is_small = rows.are_one_block and n_weights <= RULES.tried_weights
    return is_small and problem.parameters.max_features == AUTO


def _tries_scales(problem: SupervisedProblem, rows: TrainingRows, q: int) -> bool:
    """Return whether each direction of W may turn out to need a scale of its own."""
    may_have_all = problem.parameters.max_features in (None, AUTO)
    return may_have_all and rows.are_one_block and q > 1 and rows.kernel.width_is_free


def _earlier_choice(problem: SupervisedProblem, rows: TrainingRows) -> tuple[Target, Choice]:
    """Return the target, the width, the ridge and the W of the estimator's last fit.

    A start that no step had changed stays one: steps would lead to what unseen rows refuted.
    """
    fitted = problem.parameters
    if fitted.setting_ is None or fitted.report_.target not in rows.targets:
        raise ValueError(
            "`warm_start` continues a fit of PredictiveIKDR to the same kind of y; "
            "set warm_start=False"
        )
    W, is_start = rows.prepared.lower(fitted.components_), fitted.status_ is Status.START
    most, used = fitted.max_features, np.asarray(fitted.components_.any(axis=0))
    is_few = not used[rows.prepared.affine.varying].all() if most == AUTO else most is not None
    choice = Choice(W, fitted.setting_, np.nan, "earlier fit", is_start, is_few)
    choice = replace(choice, scales=fitted.scales_ if rows.are_one_block else None)
    return rows.targets[fitted.report_.target], choice


def _last_steps(
    rows: TrainingRows,
    target: Target,
    sample: Sample,
    choice: Choice,
    curvature: Curvature,
    *,
    max_iter: int,
    saved_fit: CheckpointedFit | None,
) -> tuple[Solution, Choice]:
    """Return the ascent over all rows from the choice's W (r, q), and the choice with its W.

    Its steps are saved; what precedes them is repeated, to the same bits.
    """
    options: dict[str, Any] = {
        "max_iter": 0 if choice.is_start else max_iter,
        "saved_fit": saved_fit,
        "on_iteration": fit_watcher().on_iteration,
        "curvature": curvature,
    }
    if rows.are_one_block:
        regression, block = choice.regression(sample), rows.block(target, rows.counting)
        evaluate = partial(regression.explained, block)
        limit = rows.time_limit
        ascent = ascend(evaluate, choice.W, sample.precondition, time_limit=limit, **options)
        ascent = replace(ascent, report=FitReport(engine="exact", residual_rows=rows.n_rows))
    else:
        ascent = climbed(rows, target, sample, choice, **options)
    turned, scales = diagonalised(ascent), choice.scales
    if scales is not None:
        scales = _turned_scales(scales, ascent.W, turned.W)
    choice = replace(choice, W=turned.W, scales=scales)
    return replace(turned, status=Status.START) if choice.is_start else turned, choice


def _with_few_features(
    problem: SupervisedProblem, rows: TrainingRows, sample: Sample, choice: Choice, W: Array
) -> tuple[TrainingRows, Choice]:
    """Return the rows with few features alone, and the choice with the W (r, q) of these."""
    most, prepared = problem.parameters.max_features, rows.prepared
    weights, size = prepared.lift(W.T).T, int(most) if is_whole(most) else None
    features, regression = prepared.features, sample.regression(choice.setting)
    if most == AUTO and problem.earlier is not None:
        chosen = np.asarray(problem.earlier.any(axis=0))
        few = np.where(chosen[:, None], weights, 0.0)
    else:
        with on_this_machine():
            chosen, few = few_features(sample.rows, regression, features, weights, size)
    rows = with_features(problem, rows, chosen)
    # The trials were judged on unseen rows with all features.
    W = rows.prepared.orthonormal(few.T)
    return rows, replace(choice, W=W, evidence=np.nan, is_start=False)


def _fitted(
    problem: SupervisedProblem,
    rows: TrainingRows,
    sample: Sample,
    choice: Choice,
    ascent: Solution,
    *,
    q: int,
    first: Sample,
    **report: Any,
) -> Fitted:
    """Return the solution of a fit, with the eigengap of Phi on the sample, and its attributes.

    If fewer than q directions vary, W has others, in which the rows are constant. The sample
    `first` has all features, of which the fit may have few. `report` are fields of the `FitReport`.
    """
    prepared, W, regression = rows.prepared, ascent.W, choice.regression(sample)
    more = q - W.shape[1]
    phi = regression.phi(sample.rows, W)
    outside = largest_eigenvalue_outside(phi, W)
    if prepared.n_constant > more:
        outside = max(outside, 0.0)  # Phi is 0 along directions in which the rows are constant
    whole = np.asarray(scipy.linalg.block_diag(W, np.eye(more)))
    values = np.pad(ascent.eigenvalues, (0, more))
    solution = replace(
        ascent,
        state=replace(ascent.state, W=whole, eigenvalues=values),
        product=np.pad(ascent.product, [(0, more), (0, more)]),
        eigengap=float(np.linalg.eigvalsh(W.T @ phi @ W)[0]) - outside,
    )
    turned = rotated(solution, prepared, problem.parameters.rotation)
    scales = choice.scales
    if scales is not None:
        scales = _turned_scales(scipy.linalg.block_diag(scales, np.eye(more)), whole, turned.W)
    evaluate = partial(replace(regression, scales=scales).explained, sample.rows)
    parts = contributions(evaluate, turned.W[: prepared.n_varying], solution.objective)
    avoided = None
    if problem.avoid is not None:
        every = problem.dependence_rows(prepared, regression.kernel, q)
        avoided = measured_avoidance(every, turned.W, problem.dependence)
    advice = prediction_advice(choice.trials, first.rows, rows.seed, parts, solution.objective)
    attributes = {
        **solution_attributes(
            turned,
            prepared,
            sample.rows.X,
            components_advice=advice,
            solver="ascent",
            avoided=avoided,
            tolerance=ascent.limit,
            trials=choice.trials,
            other_maximum=choice.other_maximum,
            **report,
        ),
        "kernel_": regression.kernel.with_rows_mapped(prepared.lift_rows),
        "contributions_": parts,
        "setting_": choice.setting,
        "scales_": scales,
    }
    return Fitted(solution, attributes)


def _turned_scales(scales: Array, before: Array, after: Array) -> Array:
    """Return the scales (q, q) for another basis (d, q) of the span of W (d, q) before."""
    turn = after.T @ before
    return np.asarray(turn @ scales @ turn.T)
