"""A fit by prediction: the rows, what they choose, the steps of W, and the fitted attributes."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask._validation import is_whole
from ism_dask.criteria.prediction import RidgeRegression, RowsInMemory
from ism_dask.estimators.dependence_problem import seed_of
from ism_dask.estimators.fitted import (
    Fitted,
    contributions,
    measured_avoidance,
    prediction_advice,
    rotated,
    solution_attributes,
)
from ism_dask.estimators.preparation import Prepared, Report
from ism_dask.estimators.problem import SupervisedProblem, limited
from ism_dask.gamma.row_values import repeated_rows
from ism_dask.kernels import Kernel, as_kernel
from ism_dask.linalg.subspaces import largest_eigenvalue_outside
from ism_dask.observe import current_fit, fit_watcher
from ism_dask.records.checkpoint import CheckpointedFit
from ism_dask.records.fit_report import DimensionTrial, FitReport
from ism_dask.records.iteration import Solution
from ism_dask.rows.blocks import fits_memory
from ism_dask.rows.execution import on_this_machine
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
from ism_dask.selection.target import LAW, MEAN, Target
from ism_dask.selection.training_rows import TrainingRows, grown, sizes_of_stages
from ism_dask.solvers import as_solver
from ism_dask.solvers.ascent import Curvature, ascend, no_curvature
from ism_dask.solvers.base import TimeLimit
from ism_dask.status import Status


def fit_prediction(problem: SupervisedProblem, report: Report) -> Fitted:
    """Return the fit whose X W predicts y best."""
    most, warm = problem.parameters.max_features, problem.earlier is not None
    # Small rows are here, and tasks of a cluster would take longer.
    with on_this_machine() if fits_memory(problem.X.shape) else nullcontext():
        task = PredictionTask.of(problem, report)
        if most is not None:
            task.prepared.check_varying(task.q)
        # Of many features, W may use those that explain most of y by themselves.
        if most is not None and not warm and task.prepared.has_many_features:
            task = _with_best_alone(task)
        # Rows that W has not seen choose how many features there are, what of y to predict, from
        # which start, and with which width and ridge; rows that join choose the last two anew.
        task, path = (task, ()) if warm else _with_dimension(task)
        name, choice = _earlier_choice(task) if warm else _choice(task)
        sample, curvature = task.sample(name), no_curvature()
        if not warm:
            choice = grown(task.rows, task.targets[name], sample, choice, curvature)
        # W climbs on all rows, and then once more with the features that matter alone.
        fit = _climbed(task, name, choice, curvature)
        full = fit.ascent.objective
        if most is not None:
            fit = _with_few_features(fit)
        return _fitted(fit, path, None if most is None else full)


@dataclass(frozen=True, eq=False)
class PredictionTask:
    """Prepared rows, what X W may have to predict of them, and the number of new features.

    The targets are "mean", "law" or both, of which the fit takes the better one. The steps on all
    rows are saved; what precedes them is repeated, to the same bits. Each sample is made once, and
    its evident choice, by number of new features and name of target.
    """

    problem: SupervisedProblem
    prepared: Prepared
    rows: TrainingRows
    targets: dict[str, Target]
    q: int
    report: Report | None = None
    saved_fit: CheckpointedFit | None = None
    time_limit: TimeLimit = field(default_factory=TimeLimit)
    samples: dict[tuple[int, str], Sample] = field(default_factory=dict)
    evident: dict[tuple[int, str], Choice] = field(default_factory=dict)

    @classmethod
    def of(cls, problem: SupervisedProblem, report: Report | None = None) -> PredictionTask:
        """Return the task of a problem; with a report, that of a fit, which saves its steps."""
        parameters = problem.parameters
        prepared = problem.prepared(as_kernel(parameters.kernel))
        saved_fit = None if report is None else current_fit()
        max_seconds = None if report is None else as_solver(parameters.solver).max_seconds
        seed = seed_of(parameters.random_state)
        return cls(
            problem,
            prepared,
            TrainingRows(prepared.shards, problem.weights, seed),
            problem.targets,
            problem.n_components(prepared),
            report,
            saved_fit,
            TimeLimit(max_seconds, saved_fit),
        )

    def with_features(self, chosen: Array) -> PredictionTask:
        """Return the task with the features alone for which `chosen` (d,) is true."""
        prepared = self.problem.prepared(as_kernel(self.problem.parameters.kernel), chosen)
        rows = replace(self.rows, shards=prepared.shards)
        return replace(self, prepared=prepared, rows=rows, samples={}, evident={})

    def sample(self, name: str) -> Sample:
        """Return the rows on which the fit makes its choices, with the target of this name."""
        if (key := (self.q, name)) not in self.samples:
            target, (first, X, weights, kernel) = self.targets[name], self._first
            self.samples[key] = Sample(
                RowsInMemory(X, target.Y[first], weights),
                target.keys[first],
                RidgeRegression(kernel, 1.0, target.signs),
                as_kernel(self.problem.parameters.kernel).width_is_free,
                min(self.q, self.prepared.n_varying),
                self.rows.seed,
                self.time_limit,
            )
        return self.samples[key]

    def choice_by_evidence(self, name: str) -> Choice:
        """Return the choice of the largest evidence for the target of this name."""
        if (key := (self.q, name)) not in self.evident:
            self.evident[key] = choose_by_evidence(self.sample(name))
        return self.evident[key]

    @cached_property
    def evident_target(self) -> str:
        """The name of the target to predict, of one or two."""
        if len(self.targets) == 1:
            return next(iter(self.targets))
        mean, law = map(self.choice_by_evidence, (MEAN, LAW))
        return LAW if law_is_better(self.sample(LAW), mean, law) else MEAN

    @cached_property
    def _first(self) -> tuple[Array, Array, Array | None, Kernel]:
        """The numbers (m,) of the rows of the choices, these, their weights, and their kernel."""
        first = self.rows.first(next(iter(self.targets.values())).keys)
        X, weights = self.prepared.shards.in_double().rows(first), self.rows.weights
        weights = None if weights is None else weights[first]
        counted = X if weights is None else X[repeated_rows(weights)]
        kernel = as_kernel(self.problem.parameters.kernel)
        kernel = kernel.resolve(counted, self.prepared.column_share(self.q))
        return first, X, None if weights is None else weights / weights.mean(), kernel


@dataclass(frozen=True, eq=False)
class PredictionFit:
    """The W that the steps of a task have come to, with all that was chosen for it."""

    task: PredictionTask
    target_name: str
    choice: Choice
    regression: RidgeRegression
    ascent: Solution

    @property
    def W(self) -> Array:
        """W (r + s, q), with directions in which the rows are constant if no others are left."""
        W = self.ascent.W
        return np.asarray(scipy.linalg.block_diag(W, np.eye(self.task.q - W.shape[1])))


def _with_best_alone(task: PredictionTask) -> PredictionTask:
    """Return the task with the features that explain most of y by themselves."""
    sample, features = task.sample(next(iter(task.targets))), task.prepared.features
    varying, rows = np.flatnonzero(task.prepared.affine.varying), sample.rows
    shares = marginal_shares(rows.X @ features[:, varying], sample.explained_columns, rows.weights)
    count = max(task.q + 1, rows.n_rows // RULES.rows_per_feature)
    best = varying[np.argsort(-shares, kind="stable")[:count]]
    return task.with_features(np.isin(np.arange(features.shape[1]), best))


def _with_dimension(task: PredictionTask) -> tuple[PredictionTask, tuple[DimensionTrial, ...]]:
    """Return the task with the number of new features that the rows ask for, if none is given."""
    parameters, problem = task.problem.parameters, task.problem
    given = parameters.n_components not in (None, "auto")
    few = task.rows.n_rows < RULES.fewest_rows
    if given or few or problem.usual_components > RULES.most_features:
        return task, ()
    most = limited(task.prepared.n_varying - 1, parameters.max_features)
    name = replace(task, q=min(2, most)).evident_target
    tasks = (replace(task, q=q) for q in range(1, min(most, RULES.most_features) + 1))
    q, trials = choose_dimension((t.sample(name), t.choice_by_evidence(name)) for t in tasks)
    return replace(task, q=q), trials


def _choice(task: PredictionTask) -> tuple[str, Choice]:
    """Return the name of the target to predict, and start, width, ridge and W on a sample."""
    watcher, count = fit_watcher(), len(task.targets)
    watcher.on_selection(0, count)
    name = task.evident_target
    watcher.on_selection(count - 1, count)
    choice = task.choice_by_evidence(name)
    if task.rows.n_rows >= RULES.fewest_rows:
        choice = choose(task.sample(name), choice)
    watcher.on_selection(count, count)
    return name, choice


def _earlier_choice(task: PredictionTask) -> tuple[str, Choice]:
    """Return the target, the width, the ridge and the W of the estimator's last fit.

    A start that no step had changed stays one: steps would lead to what unseen rows refuted.
    """
    fitted = task.problem.parameters
    if fitted.setting_ is None or fitted.report_.target not in task.targets:
        raise ValueError(
            "`warm_start` continues a fit of PredictiveIKDR to the same kind of y; "
            "set warm_start=False"
        )
    W, is_start = task.prepared.lower(fitted.components_), fitted.status_ is Status.START
    return fitted.report_.target, Choice(W, fitted.setting_, np.nan, "earlier fit", is_start)


def _climbed(
    task: PredictionTask, name: str, choice: Choice, curvature: Curvature
) -> PredictionFit:
    """Return the fit to all rows from the choice's W (r, q), which ends in double precision."""
    rows, target, sample = task.rows, task.targets[name], task.sample(name)
    stages, regression = rows.stages(target.keys), sample.regression(choice.setting)
    blocks, W, state = rows.all_blocks(target), choice.W, None
    fit = partial(PredictionFit, task, name, choice, regression)
    report = None if task.report is None else partial(task.report, task.prepared)
    if choice.is_start and not stages:
        ascent = ascend(partial(regression.explained, blocks), W, max_iter=0, on_iteration=report)
        return fit(replace(ascent.diagonalised(), status=Status.START))
    quick = rows.for_steps(regression)
    if stages and rows.are_in_ranges(target):
        # Rows out of memory: stages go on over more and more of the shards.
        for size in sizes_of_stages(RULES.growth * len(stages[-1]), rows.n_rows):
            W, _ = sample.climbed(W, quick, RULES.stage_steps, blocks.first(size), curvature)
    for each in dict.fromkeys([quick, regression]):
        ascent = ascend(
            partial(each.explained, blocks),
            W,
            sample.precondition,
            max_iter=as_solver(task.problem.parameters.solver).max_iter,
            time_limit=task.time_limit,
            state=state,
            saved_fit=task.saved_fit,
            on_iteration=report,
            curvature=curvature,
        ).diagonalised()
        W, state, curvature = ascent.W, ascent.state, no_curvature()
    return fit(ascent)


def _with_few_features(fit: PredictionFit) -> PredictionFit:
    """Return the fit to few features alone, which begins at the W of a fit to all of them."""
    task, choice, most = fit.task, fit.choice, fit.task.problem.parameters.max_features
    blocks, size = task.sample(fit.target_name).blocks, int(most) if is_whole(most) else None
    weights, features = task.prepared.lift(fit.W.T).T, task.prepared.features
    with on_this_machine():
        chosen, few = few_features(blocks, fit.regression, features, weights, size)
    task = task.with_features(chosen)
    # The trials were judged on unseen rows with all features.
    W, trials = task.prepared.orthonormal(few.T), choice.trials
    begin = Choice(W, choice.setting, np.nan, choice.start, trials=trials)
    return _climbed(task, fit.target_name, begin, no_curvature())


def _solution(fit: PredictionFit) -> Solution:
    """Return the solution, with the eigengap of Phi on the sample."""
    task, ascent = fit.task, fit.ascent
    W, more = ascent.W, task.q - ascent.W.shape[1]
    phi = fit.regression.phi(task.sample(fit.target_name).blocks.blocks[0], W)
    inside = float(np.linalg.eigvalsh(W.T @ phi @ W)[0])
    outside = largest_eigenvalue_outside(phi, W)
    if task.prepared.n_constant > more:
        outside = max(outside, 0.0)  # Phi is 0 along directions in which the rows are constant
    values = np.pad(ascent.eigenvalues, (0, more))
    return replace(
        ascent,
        state=replace(ascent.state, W=fit.W, eigenvalues=values),
        product=np.pad(ascent.product, [(0, more), (0, more)]),
        eigengap=inside - outside,
        report=FitReport(engine="blocks", residual_rows=task.rows.n_rows),
    )


def _fitted(
    fit: PredictionFit, path: tuple[DimensionTrial, ...], full_objective: float | None
) -> Fitted:
    """Return the solution of a fit and the fitted attributes."""
    task, solution, choice = fit.task, _solution(fit), fit.choice
    prepared, problem, sample = task.prepared, task.problem, task.sample(fit.target_name)
    turned = rotated(solution, prepared, problem.parameters.rotation)
    evaluate = partial(fit.regression.explained, sample.blocks)
    parts = contributions(evaluate, turned.W[: prepared.n_varying], solution.objective)
    avoided = None
    if problem.avoid is not None:
        rows = problem.dependence_rows(prepared, fit.regression.kernel, task.q)
        avoided = measured_avoidance(rows, turned.W, problem.dependence)
    trials, seed = choice.trials, task.rows.seed
    advice = prediction_advice(trials, sample.rows, seed, parts, solution.objective)
    attributes = {
        **solution_attributes(
            turned,
            prepared,
            sample.rows.X,
            components_advice=advice,
            solver="ascent",
            target_remainder=problem.dependence.remainder,
            avoided=avoided,
            target=fit.target_name,
            other_maximum=choice.other_maximum,
            full_objective=full_objective,
        ),
        "kernel_": fit.regression.kernel.with_rows_mapped(prepared.lift_rows),
        "tolerance_": fit.ascent.limit,
        "contributions_": parts,
        "setting_": choice.setting,
        "selection_": trials,
        "dimension_path_": path,
    }
    return Fitted(solution, attributes)
