"""A fit by prediction: the rows, what they choose, the steps of W, and the fitted attributes."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask._validation import is_whole, seed_of
from ism_dask.estimators.fitted import (
    contributions,
    measured_avoidance,
    prediction_advice,
    rotated,
    solution_attributes,
)
from ism_dask.estimators.growth import climbed, grown, network_start
from ism_dask.estimators.problem import SupervisedProblem, limited
from ism_dask.estimators.training_rows import LAW, MEAN, Target, TrainingRows
from ism_dask.kernels import as_kernel
from ism_dask.linalg.eigen import largest_eigenvalue_outside
from ism_dask.observe import current_fit, fit_watcher
from ism_dask.records.fit_report import DimensionTrial
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
from ism_dask.selection.trials import few_features, marginal_shares
from ism_dask.solvers import as_solver
from ism_dask.solvers.ascent import ascend, diagonalised
from ism_dask.solvers.base import TimeLimit
from ism_dask.status import Status, avoidance_advice
from ism_dask.threads import beside

# `max_features` if unseen rows choose whether there are few.
AUTO: Any = "auto"


def fit_prediction(problem: SupervisedProblem) -> dict[str, Any]:
    """Return the fitted attributes of the W for which X W predicts y best."""
    solver, saved_fit = as_solver(problem.parameters.solver), current_fit()
    time_limit, is_new = TimeLimit(solver.max_seconds, saved_fit), problem.earlier is None
    climb = partial(_last_steps, max_iter=solver.max_iter, saved_fit=saved_fit)
    # Tasks of a cluster would take longer for few rows.
    with on_this_machine(problem.X.shape[0] < MANY_ROWS):
        rows, q = _first_rows(problem, time_limit)
        # The evidence of a sample chooses dimension, start, width and ridge. Rows that W has not
        # seen make this choice more cautious; rows that join choose the last three anew.
        target, choice = (_new_choice if is_new else _earlier_choice)(problem, rows, q)
        # W climbs on all rows, and then once more with the features that matter alone.
        ascent, choice = climb(rows, target, choice)
        first, objective = rows, ascent.objective
        if choice.is_few:
            rows, choice = _with_few_features(problem, rows, target, choice)
            ascent, choice = climb(rows, target, choice)
        return _attributes(problem, rows, target, choice, ascent, before=(first, objective))


def training_rows(problem: SupervisedProblem) -> TrainingRows:
    """Return the prepared rows of a problem, with all features."""
    kernel, seed = as_kernel(problem.parameters.kernel), seed_of(problem.parameters.random_state)
    with on_this_machine(fits_memory(problem.X.shape)):
        prepared, targets = problem.prepared(kernel), problem.targets
        return TrainingRows(prepared, targets, problem.weights, kernel, seed, groups=problem.groups)


def with_features(problem: SupervisedProblem, rows: TrainingRows, chosen: Array) -> TrainingRows:
    """Return the rows of a problem with the features alone for which `chosen` (d,) is true."""
    with on_this_machine(fits_memory(problem.X.shape)):
        return replace(rows, prepared=problem.prepared(rows.kernel, chosen))


def _first_rows(problem: SupervisedProblem, time_limit: TimeLimit) -> tuple[TrainingRows, int]:
    """Return the rows of the choices, and the given or the usual number of new features."""
    rows = replace(training_rows(problem), time_limit=time_limit)
    prepared, most = rows.prepared, problem.parameters.max_features
    q = problem.n_components(prepared)
    prepared.check_varying(q)
    varying = np.flatnonzero(prepared.affine.varying)
    # With many features for the rows, a fit to all would explain y by almost any direction.
    are_many = len(varying) * RULES.many_features_rows > rows.n_rows
    if are_many and most not in (None, AUTO) and problem.earlier is None:
        # W may use those that explain most of y by themselves.
        sample, features = rows.sample(rows.first_target, q), prepared.features
        columns, weights = sample.rows.X @ features[:, varying], sample.rows.weights
        shares = marginal_shares(columns, sample.explained_columns, weights)
        count = max(q + 1, sample.rows.n_rows // RULES.rows_per_feature)
        best = varying[np.argsort(-shares, kind="stable")[:count]]
        rows = with_features(problem, rows, np.isin(np.arange(features.shape[1]), best))
    return rows, q


def _new_choice(problem: SupervisedProblem, rows: TrainingRows, q: int) -> tuple[Target, Choice]:
    """Return the target and the choice of W: what a sample chooses, then rows that join.

    If no number of new features is given, it is the one that the rows ask for, up to six; there are
    trials of each. `q` is the given or the usual one.
    """

    @cache
    def evident(target: Target, q: int) -> Choice:
        return choose_by_evidence(rows.sample(target, q))

    def evident_target(q: int) -> Target:
        if len(rows.targets) == 1:
            return rows.first_target
        mean, law = rows.targets[MEAN], rows.targets[LAW]
        return law if law_is_better(evident(mean, q), evident(law, q)) else mean

    path: tuple[DimensionTrial, ...] = ()
    given, most = problem.parameters.n_components, problem.parameters.max_features
    few = rows.n_rows < RULES.fewest_rows
    if given in (None, "auto") and not few and problem.usual_components <= RULES.most_features:
        largest = limited(rows.prepared.n_varying - 1, most)
        target = evident_target(min(2, largest))
        numbers = range(1, min(largest, RULES.most_features) + 1)
        q, path = choose_dimension(evident(target, k) for k in numbers)
    watcher, count, steps = fit_watcher(), len(rows.targets), rows.selection_steps
    watcher.on_selection(0, steps)
    target = evident_target(q)
    watcher.on_selection(count - 1, steps)
    # A network learns beside the choices, most of which one thread makes; with a time limit, later.
    learn, limit = partial(network_start, rows, target, q), rows.time_limit.max_seconds
    is_late = limit is not None or rows.n_rows < RULES.network_rows  # few rows have none
    with nullcontext(learn) if is_late else beside(learn) as network:
        choice = replace(evident(target, q), dimensions=path)
        if not few and rows.n_rows < RULES.network_rows:  # else rows that join will judge
            choice = _judged(problem, rows, choice)
        watcher.on_selection(count, steps)
        if most not in (None, AUTO):
            choice = replace(choice, is_few=True)
        return target, choice if rows.are_one_block else grown(rows, target, choice, network)


def _judged(problem: SupervisedProblem, rows: TrainingRows, choice: Choice) -> Choice:
    """Return the choice after trials of unseen rows."""
    most, q = problem.parameters.max_features, choice.sample.q
    n_weights = (int(rows.prepared.affine.varying.sum()) - q) * q
    tries_few = most == AUTO and rows.are_one_block and n_weights <= RULES.tried_weights
    tries_scales = most in (None, AUTO) and rows.are_one_block and q > 1
    return choose(
        choice,
        rows.prepared.features if tries_few else None,
        tries_scales=tries_scales and rows.kernel.width_is_free,
    )


def _earlier_choice(
    problem: SupervisedProblem, rows: TrainingRows, q: int
) -> tuple[Target, Choice]:
    """Return the target, and the W of q new features with its setting, of the last fit.

    If the last fit kept its start, W stays there: steps did not improve the prediction of unseen
    rows. If these had chosen few features, W is first restricted to them, and then climbs.
    """
    fitted = problem.parameters
    if fitted.report_.target not in rows.targets:
        raise ValueError(
            "`warm_start` continues a fit of PredictiveIKDR to the same kind of y; "
            "set warm_start=False"
        )
    target, W = rows.targets[fitted.report_.target], rows.prepared.lower(fitted.components_)
    most, used = fitted.max_features, np.asarray(fitted.components_.any(axis=0))
    is_few = not used[rows.prepared.affine.varying].all() if most == AUTO else most is not None
    is_start = fitted.status_ is Status.START or (is_few and most == AUTO)
    sample = rows.sample(target, q)
    choice = Choice(sample, W, fitted.setting_, np.nan, "earlier fit", is_start, is_few)
    return target, replace(choice, scales=fitted.scales_ if rows.are_one_block else None)


def _last_steps(
    rows: TrainingRows, target: Target, choice: Choice, **options: Any
) -> tuple[Solution, Choice]:
    """Return the ascent over all rows from the choice's W (r, q), and the choice with its W.

    Its steps are saved; what precedes them is repeated, to the same bits. `options` are those of
    `ascend`.
    """
    options["on_iteration"] = fit_watcher().on_iteration
    if choice.is_start:
        options["max_iter"] = 0
    if rows.are_one_block:
        evaluate = partial(choice.regression.explained, rows.block(target, rows.counting))
        options |= {"time_limit": rows.time_limit}
        ascent = ascend(evaluate, choice.W, choice.sample.precondition, **options)
        report = replace(ascent.report, engine="exact", residual_rows=rows.n_rows)
        ascent = replace(ascent, report=report)
    else:
        ascent = climbed(rows, target, choice, **options)
    turned = diagonalised(ascent)
    scales = _turned_scales(choice.scales, ascent.W, turned.W)
    choice = replace(choice, W=turned.W, scales=scales)
    return replace(turned, status=Status.START) if choice.is_start else turned, choice


def _with_few_features(
    problem: SupervisedProblem, rows: TrainingRows, target: Target, choice: Choice
) -> tuple[TrainingRows, Choice]:
    """Return the rows with few features alone, and the choice with the W (r, q) of these."""
    most, prepared, sample = problem.parameters.max_features, rows.prepared, choice.sample
    weights, size = prepared.lift(choice.W.T).T, int(most) if is_whole(most) else None
    features, regression = prepared.features, sample.regression(choice.setting)
    if most == AUTO and problem.earlier is not None:
        chosen = np.asarray(problem.earlier.any(axis=0))
        few = np.where(chosen[:, None], weights, 0.0)
    else:
        with on_this_machine():
            chosen, few = few_features(sample.rows, regression, features, weights, size)
    rows = with_features(problem, rows, chosen)
    # The evidence was that with all features.
    W, sample = rows.prepared.orthonormal(few.T), rows.sample(target, sample.q)
    return rows, replace(choice, sample=sample, W=W, evidence=np.nan, is_start=False)


def _attributes(
    problem: SupervisedProblem,
    rows: TrainingRows,
    target: Target,
    choice: Choice,
    ascent: Solution,
    *,
    before: tuple[TrainingRows, float],
) -> dict[str, Any]:
    """Return the fitted attributes of an ascent, with the eigengap of Phi on the sample.

    `before` are the rows, and J, before W had few features.
    """
    first, objective = before
    prepared, sample, W, regression = rows.prepared, choice.sample, ascent.W, choice.regression
    phi = regression.phi(sample.rows, W)
    outside = largest_eigenvalue_outside(phi, W)
    if prepared.n_constant:
        outside = max(outside, 0.0)  # Phi is 0 along directions in which the rows are constant
    eigengap = float(np.linalg.eigvalsh(W.T @ phi @ W)[0]) - outside
    solution = replace(ascent, eigengap=eigengap)
    turned = rotated(solution, prepared, problem.parameters.rotation)
    scales = _turned_scales(choice.scales, W, turned.W)
    evaluate = partial(replace(regression, scales=scales).explained, sample.rows)
    parts = contributions(evaluate, turned.W, solution.objective)
    avoided = None
    if problem.avoid is not None:
        # W tells a little of anything in the rows that it is fitted to: unseen rows may be clear.
        is_clear = any(each.explained > RULES.clear * each.error for each in choice.trials)
        if solution.objective <= 0.0 and not is_clear:
            raise ValueError(avoidance_advice(solution.objective, problem.parameters.avoid_weight))
        every = problem.dependence_rows(prepared, regression.kernel, W.shape[1])
        avoided = measured_avoidance(every, turned.W, problem.dependence)
    tried = first.sample(target, W.shape[1]).rows
    advice = prediction_advice(choice.trials, tried, rows.seed, parts, solution.objective)
    # All features may have been chosen; with a limit, the first rows may have had few already.
    chosen, earlier = (each.prepared.affine.varying for each in (rows, first))
    is_few = first.prepared.varying_only or not np.array_equal(chosen, earlier)
    return {
        **solution_attributes(
            turned,
            prepared,
            tried.X,
            first.prepared,
            components_advice=advice,
            solver="ascent",
            avoided=avoided,
            trials=choice.trials,
            dimensions=choice.dimensions,
            other_maximum=choice.other_maximum,
            target=target.name,
            full_objective=objective if choice.is_few and is_few else None,
        ),
        "kernel_": regression.kernel.with_rows_mapped(prepared.lift_rows),
        "contributions_": parts,
        "setting_": choice.setting,
        "scales_": scales,
    }


def _turned_scales(scales: Array | None, before: Array, after: Array) -> Array | None:
    """Return the scales (q, q), if any, for another basis (d, q) of the span of W (d, q) before."""
    if scales is None:
        return None
    turn = after.T @ before
    return np.asarray(turn @ scales @ turn.T)
