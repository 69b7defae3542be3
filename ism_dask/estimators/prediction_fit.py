"""A fit by prediction: the rows, what they choose, the steps of W, and the fitted attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask._validation import is_whole
from ism_dask.criteria.curvature import Tangents, turn_covariance
from ism_dask.criteria.prediction import Block, Explained, RidgeRegression
from ism_dask.engines.blocks import RegressionBlocks
from ism_dask.estimators.dependence_problem import seed_of
from ism_dask.estimators.fitted import (
    Fitted,
    contributions,
    measured_avoidance,
    rotated,
    solution_attributes,
)
from ism_dask.estimators.preparation import Prepared, Report
from ism_dask.estimators.problem import SupervisedProblem, limited
from ism_dask.gamma.independence import dependence_test
from ism_dask.gamma.row_values import repeated_rows
from ism_dask.kernels import Kernel, as_kernel
from ism_dask.linalg.eigen import largest_eigenvalue_outside
from ism_dask.observe import fit_watcher
from ism_dask.records.certificate import Certificate
from ism_dask.records.checkpoint import CheckpointedFit, current_fit
from ism_dask.records.fit_report import DimensionTrial
from ism_dask.records.iteration import Solution, State
from ism_dask.rows.blocks import fits_memory
from ism_dask.rows.execution import on_this_machine
from ism_dask.selection.choices import (
    Choice,
    choose,
    choose_by_evidence,
    choose_dimension,
    law_is_better,
)
from ism_dask.selection.folds import Trial
from ism_dask.selection.growth import for_steps, grown
from ism_dask.selection.rules import RULES
from ism_dask.selection.sample import Sample, Setting
from ism_dask.selection.support import SupportSearch, best_alone, number_that_remains
from ism_dask.selection.target import LAW, MEAN, Target
from ism_dask.selection.training_rows import TrainingRows, sizes_of_stages
from ism_dask.solvers import as_solver
from ism_dask.solvers.ascent import AscentResult, ascend, ascend_roughly, residual_limit
from ism_dask.solvers.certificates import certify
from ism_dask.solvers.driver import TimeLimit
from ism_dask.solvers.lbfgs import Curvature, no_curvature
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
        curvature, sample = no_curvature(), task.sample(name)
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

    Attributes
    ----------
    targets : dict of str to Target
        The target "mean", or "law", or both, of which the fit takes the better one.
    saved_fit : CheckpointedFit
        Saves the steps on all rows; what precedes them is repeated, to the same bits.
    samples : dict
        The samples by number of new features and name of target, each made once.
    """

    problem: SupervisedProblem
    prepared: Prepared
    rows: TrainingRows
    targets: dict[str, Target]
    q: int
    report: Report | None = None
    saved_fit: CheckpointedFit = field(default_factory=CheckpointedFit)
    time_limit: TimeLimit = field(default_factory=TimeLimit)
    samples: dict[tuple[int, str], Sample] = field(default_factory=dict)
    evident: dict[tuple[int, str], Choice] = field(default_factory=dict)

    @classmethod
    def of(cls, problem: SupervisedProblem, report: Report | None = None) -> PredictionTask:
        """Return the task of a problem; with a report, that of a fit, which saves its steps."""
        parameters = problem.parameters
        prepared = problem.prepared(as_kernel(parameters.kernel))
        seed = seed_of(parameters.random_state)
        saved_fit = CheckpointedFit() if report is None else current_fit()
        max_seconds = None if report is None else as_solver(parameters.solver).max_seconds
        return cls(
            problem,
            prepared,
            TrainingRows(prepared.shards, problem.weights, seed),
            problem.targets,
            problem.n_components(prepared),
            report,
            saved_fit,
            TimeLimit(max_seconds, saved_fit.earlier_seconds),
        )

    def with_features(self, chosen: Array) -> PredictionTask:
        """Return the task with the features alone for which `chosen` (d,) is true."""
        prepared = self.problem.prepared(as_kernel(self.problem.parameters.kernel), chosen)
        rows = replace(self.rows, shards=prepared.shards)
        return replace(self, prepared=prepared, rows=rows, samples={}, evident={})

    def sample(self, name: str) -> Sample:
        """Return the rows on which the fit makes its choices, with the target of this name."""
        if (key := (self.q, name)) not in self.samples:
            target, weights = self.targets[name], self.rows.weights
            weights = None if weights is None else weights[self._first]
            weights = None if weights is None else weights / weights.mean()
            part = target.part(self._first)
            rows = Block(self._first_rows, part.Y, weights)
            self.samples[key] = Sample(
                rows,
                part.keys,
                RidgeRegression(self._kernel, 1.0, target.signs),
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
    def _first(self) -> Array:
        return self.rows.first(next(iter(self.targets.values())).keys)

    @cached_property
    def _first_rows(self) -> Array:
        return self.prepared.shards.in_double().rows(self._first)

    @cached_property
    def _kernel(self) -> Kernel:
        """The kernel with the numbers that the rows give it."""
        rows, weights = self._first_rows, self.rows.weights
        if weights is not None:
            rows = rows[repeated_rows(weights[self._first])]
        kernel = as_kernel(self.problem.parameters.kernel)
        return kernel.resolve(rows, self.prepared.column_share(self.q))


@dataclass(frozen=True, eq=False)
class PredictionFit:
    """The W that the steps of a task have come to, with all that was chosen for it."""

    task: PredictionTask
    target_name: str
    choice: Choice
    regression: RidgeRegression
    blocks: RegressionBlocks
    ascent: AscentResult


def _with_best_alone(task: PredictionTask) -> PredictionTask:
    """Return the task with the features that explain most of y by themselves."""
    sample, space = task.sample(next(iter(task.targets))), task.prepared.feature_space
    order = best_alone(sample.rows.X, sample.explained_columns, space, sample.rows.weights)
    some = np.zeros(len(space.varying), dtype=bool)
    some[order[: number_that_remains(sample.rows.n_rows, task.q + 1)]] = True
    return task.with_features(some)


def _with_dimension(task: PredictionTask) -> tuple[PredictionTask, tuple[DimensionTrial, ...]]:
    """Return the task with the number of new features that the rows ask for, if none is given."""
    parameters, problem = task.problem.parameters, task.problem
    given = parameters.n_components not in (None, "auto")
    few = task.rows.n_rows < RULES.fewest_rows
    if given or few or problem.usual_components > RULES.most_features:
        return task, ()
    most = limited(task.prepared.n_varying - 1, parameters.max_features)
    name = next(iter(task.targets))
    if len(task.targets) > 1:
        name = _evident_target(replace(task, q=min(2, most)))

    def trial(q: int) -> tuple[Sample, Choice]:
        each = replace(task, q=q)
        return each.sample(name), each.choice_by_evidence(name)

    q, trials = choose_dimension(trial, most)
    return replace(task, q=q), trials


def _evident_target(task: PredictionTask) -> str:
    """Return the name of the target to predict, of two."""
    choices = {name: task.choice_by_evidence(name) for name in task.targets}
    return LAW if law_is_better(task.sample(LAW), choices) else MEAN


def _choice(task: PredictionTask) -> tuple[str, Choice]:
    """Return the name of the target to predict, and start, width, ridge and W on a sample."""
    watcher, names = fit_watcher(), list(task.targets)
    watcher.on_selection(0, len(names))
    name = _evident_target(task) if len(names) > 1 else names[0]
    watcher.on_selection(len(names) - 1, len(names))
    choice = task.choice_by_evidence(name)
    if task.rows.n_rows >= RULES.fewest_rows:
        choice = choose(task.sample(name), choice)
    watcher.on_selection(len(names), len(names))
    return name, choice


def _earlier_choice(task: PredictionTask) -> tuple[str, Choice]:
    """Return the target, the width, the ridge and the W of the estimator's last fit.

    A start that no step had changed stays one: steps from it would lead to what unseen rows
    refuted.
    """
    fitted = task.problem.parameters
    if fitted.setting_ is None or fitted.report_.target not in task.targets:
        raise ValueError(
            "`warm_start` continues a fit of PredictiveIKDR to the same kind of y; "
            "set warm_start=False"
        )
    W = task.prepared.lower(fitted.components_)
    is_start = fitted.status_ is Status.START
    return fitted.report_.target, Choice(W, fitted.setting_, np.nan, "earlier fit", is_start)


def _climbed(
    task: PredictionTask, name: str, choice: Choice, curvature: Curvature
) -> PredictionFit:
    """Return the fit to all rows from the choice's W (r, q), which ends in double precision."""
    rows, target, sample = task.rows, task.targets[name], task.sample(name)
    stages, regression = rows.stages(target.keys), sample.at(choice.setting)
    blocks = rows.all_blocks(target)
    fit = partial(PredictionFit, task, name, choice, regression, blocks)
    if choice.is_start and not stages:
        report = None if task.report is None else partial(task.report, task.prepared)
        evaluate = partial(blocks.explained, regression)
        ascent = ascend(evaluate, choice.W, max_iter=0, on_iteration=report)
        return fit(replace(ascent, status=Status.START))
    W, quick = choice.W, for_steps(rows, regression)
    if stages and rows.are_in_ranges(target):
        # Rows out of memory: stages go on over more and more of the shards.
        for size in sizes_of_stages(RULES.growth * len(stages[-1]), rows.n_rows):
            evaluate = partial(blocks.first(size).explained, quick)
            guess, steps, limit = sample.precondition, RULES.stage_steps, task.time_limit
            W, _ = ascend_roughly(evaluate, W, guess, steps, curvature, time_limit=limit)
    ascent = _ascent(task, partial(blocks.explained, quick), sample, W, None, curvature)
    if quick is not regression:
        evaluate = partial(blocks.explained, regression)
        ascent = _ascent(task, evaluate, sample, ascent.W, ascent.state, no_curvature())
    return fit(ascent)


def _ascent(  # noqa: PLR0917
    task: PredictionTask,
    evaluate: Callable[[Array], Explained],
    sample: Sample,
    W: Array,
    state: State | None,
    curvature: Curvature,
) -> AscentResult:
    """Return an ascent over all rows from W (r, q), or from where an interrupted fit had come."""
    solver = as_solver(task.problem.parameters.solver)
    saved, save = task.saved_fit.next_run()

    def note(state: State) -> None:
        save(state)
        if task.report is not None:
            task.report(task.prepared, state)

    return ascend(
        evaluate,
        W,
        sample.precondition,
        max_iter=solver.max_iter,
        time_limit=task.time_limit,
        state=state,
        saved=saved,
        on_iteration=note,
        curvature=curvature,
    )


def _with_few_features(fit: PredictionFit) -> PredictionFit:
    """Return the fit to few features alone, which begins at the W of a fit to all of them."""
    task, most, choice = fit.task, fit.task.problem.parameters.max_features, fit.choice
    sample, size = task.sample(fit.target_name), int(most) if is_whole(most) else None
    space = task.prepared.feature_space
    search = SupportSearch(sample.blocks, fit.regression, space, task.problem.X.shape[1])
    with on_this_machine():
        support = search.support(task.prepared.lift(_padded_W(fit).T).T, size)
    task = task.with_features(support.chosen)
    W = task.prepared.orthonormal(support.weights.T)
    # The trials were judged on unseen rows with all features.
    few = Choice(W, choice.setting, np.nan, choice.start, trials=choice.trials)
    return _climbed(task, fit.target_name, few, no_curvature())


def _padded_W(fit: PredictionFit) -> Array:
    """Return W (r + s, q), with directions in which the rows are constant if no others are left."""
    W = fit.ascent.W
    return np.asarray(scipy.linalg.block_diag(W, np.eye(fit.task.q - W.shape[1])))


def _solution(fit: PredictionFit) -> Solution:
    """Return the solution, with the eigengap of Phi on the sample."""
    task, ascent = fit.task, fit.ascent
    W, more = ascent.W, task.q - ascent.W.shape[1]
    phi = fit.regression.phi(task.sample(fit.target_name).blocks.blocks[0], W)
    inside = float(np.linalg.eigvalsh(W.T @ phi @ W)[0])
    outside = largest_eigenvalue_outside(phi, W)
    if task.prepared.n_constant > more:
        outside = max(outside, 0.0)  # Phi is 0 along directions in which the rows are constant
    return Solution(
        W=_padded_W(fit),
        eigenvalues=np.pad(ascent.eigenvalues, (0, more)),
        eigengap=inside - outside,
        objective=ascent.objective,
        error=0.0,
        product=np.pad(ascent.product, [(0, more), (0, more)]),
        status=ascent.status,
        history=ascent.state.history,
        residual=ascent.residual,
        residual_rows=task.rows.n_rows,
        engine="blocks",
    )


def _fitted(
    fit: PredictionFit, path: tuple[DimensionTrial, ...], full_objective: float | None
) -> Fitted:
    """Return the solution of a fit and the fitted attributes."""
    task, solution, choice = fit.task, _solution(fit), fit.choice
    prepared, problem, sample = task.prepared, task.problem, task.sample(fit.target_name)
    turned = rotated(solution, prepared, problem.parameters.rotation)
    evaluate = partial(sample.blocks.explained, fit.regression)
    parts = contributions(evaluate, turned.W[: prepared.n_varying], solution.objective)
    avoided = None
    if problem.avoid is not None:
        rows = problem.dependence_rows(prepared, fit.regression.kernel, task.q)
        avoided = measured_avoidance(rows, turned.W, problem.dependence)
    seed, objective = task.rows.seed, solution.objective
    attributes = {
        **solution_attributes(
            turned,
            prepared,
            sample.rows.X,
            components_advice=_advice(choice.trials, sample.rows, seed, parts.lost, objective),
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
        "selection_": choice.trials,
        "dimension_path_": path,
    }
    return Fitted(solution, attributes)


def _advice(trials: Sequence[Trial], rows: Block, seed: int, lost: Array, objective: float) -> str:
    """Return advice if y or some of the new features seem to explain nothing; else no text."""
    if trials and trials[0].explained <= RULES.clear * trials[0].error:
        share = f"{trials[0].explained:.3f} +- {trials[0].error:.3f}"
        advice = (
            f"unseen rows are hardly predicted better than by their mean (share of y explained: "
            f"{share}): y may not depend on X at all"
        )
        if rows.weights is not None and np.ptp(rows.weights):  # the test counts all rows alike
            return advice
        test = dependence_test(rows.X, rows.Y, target="linear", n_permutations=0, random_state=seed)
        return (
            f"{advice}. A test of independence on {rows.n_rows} rows has the p-value "
            f"{test.pvalue:.2g} (`ism_dask.dependence_test`)"
        )
    useless = np.flatnonzero(objective - lost > RULES.nothing * objective) + 1
    if not len(useless) or len(lost) == 1:
        return ""
    return (
        f"J is as large without new feature {', '.join(map(str, useless))}: it explains nothing of "
        "y that the others do not. Take fewer `n_components`"
    )


@dataclass(frozen=True, eq=False)
class FittedMaximum:
    """The W of a fitted estimator on the rows of its fit, and how J changes around it.

    Attributes
    ----------
    tangents : Tangents
        At W.
    """

    task: PredictionTask
    tangents: Tangents

    @classmethod
    def of(cls, problem: SupervisedProblem) -> FittedMaximum:
        """Return the W of the problem's estimator; raise a ValueError if it is too large."""
        fitted = problem.parameters
        task = PredictionTask.of(problem)
        if fitted.max_features is not None:
            task = task.with_features(fitted.get_support())
        task = replace(task, q=len(fitted.components_))
        task.prepared.check_varying(task.q)
        size = (task.prepared.n_varying - task.q) * task.q
        if size > RULES.most_weights:
            raise ValueError(
                f"W has {size:,} free weights, and the curvature of J a square matrix of this "
                f"size; it is computed for up to {RULES.most_weights:,}. Fit with `max_features`"
            )
        return cls(task, Tangents.at_weights(task.prepared.lower(fitted.components_)))

    @cached_property
    def _hessian(self) -> Array:
        """The second derivative (p, p) of 1 - J over all rows."""
        return self._blocks().curvature(self._regression, self.tangents)[0]

    def turn_covariance(self) -> Array:
        """Return the covariance (p, p) of the turns of W from one sample of rows to another.

        Some rows are enough for the curvature of J and the spread of its slope, so that it takes
        no longer with more rows.
        """
        blocks, per_weight = self._blocks(), RULES.curvature_rows_per_weight
        some = blocks.first(max(RULES.curvature_rows, per_weight * self.tangents.size))
        hessian, slopes = some.curvature(self._regression, self.tangents)
        # The slope of all rows varies less than that of some.
        return turn_covariance(hessian, slopes * (some.n_rows / blocks.n_rows))

    @cached_property
    def certificate(self) -> Certificate:
        """Whether W is proved to be a local maximum."""
        prepared = self.task.prepared
        value = self._blocks().explained(self._regression, self.tangents.W)
        return certify(
            self.tangents,
            value,
            lambda: self._hessian,
            prepared.shards.n_rows,
            limit=residual_limit(value),
            has_constant=prepared.n_constant > 0,
        )

    @property
    def deal_error(self) -> float:
        """The distance by which another deal of the rows into blocks would move W.

        It is that of one other deal, to second order; NaN unless W is proved to be a maximum.
        """
        if not self.certificate.is_certified:
            return float("nan")
        change = 2.0 * self.tangents.basis.T @ (self._product(deal=1) - self._product())
        turn = np.linalg.solve(self._hessian, change.ravel())
        return float(np.linalg.norm(turn) / np.sqrt(self.task.q))

    @cached_property
    def _regression(self) -> RidgeRegression:
        fitted = self.task.problem.parameters
        setting: Setting | None = fitted.setting_
        assert setting is not None  # every fit by prediction has one
        return self.task.sample(fitted.report_.target).at(setting)

    def _blocks(self, deal: int = 0) -> RegressionBlocks:
        """Return all rows in blocks, for 0 in those of the fit, else as another deal has them."""
        rows = replace(self.task.rows, seed=self.task.rows.seed + deal)
        return rows.all_blocks(self.task.targets[self.task.problem.parameters.report_.target])

    def _product(self, deal: int = 0) -> Array:
        """Return Phi W (r, q)."""
        return self._blocks(deal).explained(self._regression, self.tangents.W).product
