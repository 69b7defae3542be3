"""How a fit by the prediction criterion is computed, from prepared rows to W."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Self

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask.criteria.curvature import Tangents
from ism_dask.criteria.prediction import Block, Explained, RidgeRegression
from ism_dask.engines.blocks import (
    BlocksInMemory,
    BlocksOfShards,
    RegressionBlocks,
    dealt_ranges,
    dealt_rows,
)
from ism_dask.engines.device_blocks import BlocksOnDevice, BlocksOnWorkers
from ism_dask.engines.device_rows import DeviceMatrix, DeviceRows
from ism_dask.estimators.fit_rows import seed_of
from ism_dask.estimators.pose import (
    PREDICTION,
    SupervisedProblem,
    solver_for,
)
from ism_dask.estimators.prediction_target import prediction_targets
from ism_dask.estimators.preparation import Prepared, Report
from ism_dask.gamma.weighted import repeated_rows
from ism_dask.kernels import Kernel, as_kernel
from ism_dask.linalg.eigen import largest_eigenvalue_outside
from ism_dask.observe.fit_events import fit_watcher
from ism_dask.records.checkpoint import CheckpointedFit
from ism_dask.records.iteration import Solution, State
from ism_dask.records.measured import DimensionTrial
from ism_dask.rows.blocks import (
    MANY_ROWS,
    MEMORY_NUMBERS,
    deal,
    fits_memory,
    is_balanced,
    rows_of_a_block,
)
from ism_dask.rows.shards import Shards
from ism_dask.selection.dimension import choose_dimension
from ism_dask.selection.growth import (
    FACTOR,
    FIRST_ROWS,
    judged_by_unseen,
    sizes_of_stages,
    stages,
)
from ism_dask.selection.regularisation import Choice, choose, choose_by_evidence
from ism_dask.selection.sample import Sample, Setting
from ism_dask.selection.support import best_alone, number_that_remains
from ism_dask.selection.target import LAW, MEAN, Target, law_is_better
from ism_dask.solvers.ascent import AscentResult, ascend, ascend_roughly
from ism_dask.solvers.lbfgs import Curvature, Precondition, no_curvature
from ism_dask.status import Status

# Fewer rows cannot be split into rows that fit W and rows that judge it.
FEWEST_ROWS = 20
# The most steps on the rows of an earlier stage of growth, and the most numbers of its rows if the
# process of the fit has them in memory.
_STAGE_STEPS, _STAGE_NUMBERS = 40, 32_000_000


@dataclass(frozen=True, eq=False)
class FittedPrediction:
    """The W that the steps of a fit have come to.

    Attributes
    ----------
    solution : Solution
    ascent : AscentResult
    choice : Choice
        The W from which the last steps began, with the width and the ridge.
    target_name : str
        "mean" or "law".
    regression : RidgeRegression
        With the kernel and the ridge.
    sample : Sample
    """

    solution: Solution
    ascent: AscentResult
    choice: Choice
    target_name: str
    regression: RidgeRegression
    sample: Sample


@dataclass(frozen=True, eq=False)
class Regressed:
    """A regression of some rows, as a function of W."""

    blocks: RegressionBlocks
    regression: RidgeRegression

    def curvature(self, tangents: Tangents) -> tuple[Array, Array]:
        """Return the second derivative (p, p) of 1 - J, and the covariance (p, p) of its slope."""
        return self.blocks.curvature(self.regression, tangents)

    def product(self, W: Array) -> Explained:
        """Return J and Phi W (d, q)."""
        return self.blocks.explained(self.regression, W)

    value = product


@dataclass(frozen=True, eq=False)
class PredictionFit:
    """A fit of W by the prediction criterion to prepared rows.

    Attributes
    ----------
    problem : SupervisedProblem
    prepared : Prepared
    targets : dict of str to Target
        The target "mean", or "law", or both, of which the fit takes the better one.
    q : int
    seed : int
    report : callable
        Called with the prepared rows and the `State` after each step on all rows.
    saved_fit : CheckpointedFit
        Saves the steps on all rows; what precedes them is repeated, to the same bits.
    """

    problem: SupervisedProblem
    prepared: Prepared
    targets: dict[str, Target]
    q: int
    seed: int
    report: Report | None = None
    saved_fit: CheckpointedFit = field(default_factory=CheckpointedFit)

    @classmethod
    def of(
        cls, problem: SupervisedProblem, prepared: Prepared, q: int, report: Report | None = None
    ) -> Self:
        """Return the fit of W (d, q) to the prepared rows of a problem."""
        seed = seed_of(problem.parameters.random_state)
        return cls(problem, prepared, prediction_targets(problem), q, seed, report)

    @classmethod
    def of_fitted(cls, problem: SupervisedProblem) -> Self:
        """Return a fit with the features and the q of the problem's estimator, which is fitted."""
        fitted = problem.parameters
        support = None if fitted.max_features is None else fitted.get_support()
        prepared = problem.prepared(as_kernel(fitted.kernel), support)
        return cls.of(problem, prepared, len(fitted.components_))

    def run(self) -> FittedPrediction:
        """Return the fit from the best of the candidate starts."""
        name, choice = self._chosen_target()
        fit_watcher().on_selection(len(self.targets), len(self.targets))
        target, sample = self.targets[name], self.sample(self.targets[name])
        curvature = no_curvature()
        choice = self._grown(target, sample, choice, curvature)
        return self._finished(name, sample, choice, curvature)

    def continued(self) -> FittedPrediction:
        """Return the fit that continues at the components of the estimator's last fit."""
        fitted = self.problem.parameters
        if fitted.setting_ is None or fitted.target_ not in self.targets:
            raise ValueError(
                "`warm_start` continues a fit of PredictiveIKDR to the same kind of y; "
                "set warm_start=False"
            )
        if fitted.status_ is Status.START:  # steps from it would lead to what unseen rows refuted
            return self.run()
        start = self.prepared.lower(fitted.components_)
        return self.run_from(start, fitted.setting_, fitted.target_)

    def run_from(self, W: Array, setting: Setting, name: str) -> FittedPrediction:
        """Return the fit from a W (r, q) of an earlier fit, with its setting and target."""
        sample = self.sample(self.targets[name])
        choice = Choice(W, setting, np.nan, "earlier fit")
        return self._finished(name, sample, choice, no_curvature())

    def regressed(self, setting: Setting, name: str, deal: int = 0) -> Regressed:
        """Return the regression of the target `name` with a setting, on all rows.

        `deal` is 0 for the deal of the rows into blocks that the fit has; others are as random.
        """
        target = self.targets[name]
        blocks = replace(self, seed=self.seed + deal)._all_blocks(target)
        return Regressed(blocks, self.sample(target).at(setting))

    def with_dimension(self, most: int) -> tuple[PredictionFit, tuple[DimensionTrial, ...]]:
        """Return the fit with the number of new features, up to `most`, that the rows ask for."""
        name = next(iter(self.targets))
        if len(self.targets) > 1:
            two = replace(self, q=min(2, most))
            name, _ = two._evident_target()

        def sample_of(q: int) -> Sample:
            each = replace(self, q=q)
            return each.sample(self.targets[name])

        q, trials = choose_dimension(sample_of, most)
        return replace(self, q=q), trials

    def with_best_alone(self) -> PredictionFit:
        """Return the fit to the features that explain most of y by themselves."""
        sample = self.sample(next(iter(self.targets.values())))
        space = self.prepared.feature_space
        rows = sample.rows
        order = best_alone(rows.X, sample.explained_columns, space, rows.weights)
        some = np.zeros(len(space.varying), dtype=bool)
        some[order[: number_that_remains(rows.n_rows, self.q + 1)]] = True
        kernel = as_kernel(self.problem.parameters.kernel)
        return replace(self, prepared=self.problem.prepared(kernel, some))

    def _evident_target(self) -> tuple[str, dict[str, Choice]]:
        """Return the name of the target to predict, and the choices by evidence for each."""
        samples = {name: self.sample(target) for name, target in self.targets.items()}
        choices = {name: choose_by_evidence(sample) for name, sample in samples.items()}
        return (LAW if law_is_better(samples[LAW], choices) else MEAN), choices

    def _chosen_target(self) -> tuple[str, Choice]:
        """Return the name of the target to predict, and the choices on a sample for it."""
        names = list(self.targets)
        fit_watcher().on_selection(0, len(names))
        name, by_evidence = self._evident_target() if len(names) > 1 else (names[0], {})
        fit_watcher().on_selection(len(names) - 1, len(names))
        sample, choice = self.sample(self.targets[name]), by_evidence.get(name)
        if self.n_rows >= FEWEST_ROWS:
            return name, choose(sample, choice)
        return name, choose_by_evidence(sample) if choice is None else choice

    def _grown(
        self, target: Target, sample: Sample, choice: Choice, curvature: Curvature
    ) -> Choice:
        """Return the choice with the W and setting for all rows, after stages with fewer of them.

        Each stage begins with the curvature of the one before.
        """
        W, setting = choice.W, choice.setting
        seen = self._first
        for rows in [*self._stages[1:], self._counting] if self._stages else []:
            joined = np.setdiff1d(rows, seen)
            unseen = self._block(target, _some(target.keys[joined], joined, self.seed))
            setting = judged_by_unseen(sample, unseen, W, setting, self.problem.device)
            if len(rows) < len(self._counting):
                blocks = self._dealt(target, rows, rows_of_a_block(len(self._counting)))
                evaluate = partial(blocks.explained, self._for_steps(sample.at(setting)))
                W, _ = ascend_roughly(evaluate, W, sample.precondition, _STAGE_STEPS, curvature)
            seen = rows
        return replace(choice, W=W, setting=setting)

    def _finished(
        self, name: str, sample: Sample, choice: Choice, curvature: Curvature
    ) -> FittedPrediction:
        """Return the fit to all rows from the choice's W (r, q)."""
        target = self.targets[name]
        regression = sample.at(choice.setting)
        blocks = self._all_blocks(target)
        if choice.is_start and not self._stages:
            evaluate = partial(blocks.explained, regression)
            ascent = ascend(evaluate, choice.W, max_iter=0, on_iteration=self._on_iteration)
            ascent = replace(ascent, status=Status.START)
        else:
            W = choice.W
            if self._is_in_ranges(target):
                W = self._over_first_shards(blocks, regression, W, sample.precondition, curvature)
            ascent = self._ascent(blocks, regression, W, sample.precondition, curvature)
        solution = self._solution(ascent, sample, regression)
        solution = replace(solution, engine_note=blocks.place or self._why_here)
        return FittedPrediction(solution, ascent, choice, name, regression, sample)

    def _over_first_shards(
        self,
        blocks: RegressionBlocks,
        regression: RidgeRegression,
        W: Array,
        precondition: Precondition,
        curvature: Curvature,
    ) -> Array:
        """Return W (r, q) after stages of growth over more and more of the shards."""
        sizes = sizes_of_stages(FACTOR * len(self._stages[-1]), self.n_rows) if self._stages else []
        for size in sizes:
            evaluate = partial(blocks.first(size).explained, self._for_steps(regression))
            W, _ = ascend_roughly(evaluate, W, precondition, _STAGE_STEPS, curvature)
        return W

    def _ascent(
        self,
        blocks: RegressionBlocks,
        regression: RidgeRegression,
        W: Array,
        precondition: Precondition,
        curvature: Curvature,
    ) -> AscentResult:
        """Return the ascent over all rows from W (r, q), which ends in double precision."""
        solver = solver_for(PREDICTION, self.problem.parameters.solver)

        def climbed(
            regression: RidgeRegression, W: Array, state: State | None, curvature: Curvature
        ) -> AscentResult:
            saved, save = self.saved_fit.next_run()
            if saved is not None:
                W, state = saved.current.W, saved
                curvature.clear()
                curvature.extend(saved.curvature)

            def note(state: State) -> None:
                save(state)
                if self._on_iteration is not None:
                    self._on_iteration(state)

            return ascend(
                partial(blocks.explained, regression),
                W,
                precondition,
                max_iter=solver.max_iter,
                max_seconds=solver.max_seconds,
                state=state,
                on_iteration=note,
                curvature=curvature,
            )

        quick = self._for_steps(regression)
        ascent = climbed(quick, W, None, curvature)
        if quick is regression:
            return ascent
        return climbed(regression, ascent.W, ascent.state, no_curvature())

    def _for_steps(self, regression: RidgeRegression) -> RidgeRegression:
        """Return the regression in the precision of the steps: single where rows are many."""
        many = len(self._counting) >= MANY_ROWS and self.weights is None
        return regression.in_single if many else regression

    def _solution(
        self, ascent: AscentResult, sample: Sample, regression: RidgeRegression
    ) -> Solution:
        """Return the solution, with the eigengap of Phi on the sample.

        If the rows vary in fewer than q directions, W has some in which they are constant.
        """
        W, value = ascent.W, ascent.value
        phi = regression.phi(sample.blocks.blocks[0], W)
        inside = float(np.linalg.eigvalsh(W.T @ phi @ W)[0])
        more = self.q - W.shape[1]
        outside = largest_eigenvalue_outside(phi, W)
        if self.prepared.n_constant > more:
            outside = max(outside, 0.0)  # Phi is 0 along directions in which the rows are constant
        return Solution(
            W=scipy.linalg.block_diag(W, np.eye(more)),
            eigenvalues=np.pad(ascent.eigenvalues, (0, more)),
            eigengap=inside - outside,
            objective=value.objective,
            error=0.0,
            product=np.pad(value.product, [(0, more), (0, more)]),
            n_iter=ascent.state.iteration,
            status=ascent.status,
            history=ascent.state.history,
            residual=ascent.residual,
            residual_rows=self.n_rows,
            in_double=True,
            engine="blocks",
        )

    @property
    def _why_here(self) -> str:
        """Why the processor computes though workers have the device that was named."""
        workers = self.problem.workers
        return "" if workers is None else f"on the processor: {workers.title} has no part in it"

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self.prepared.shards.n_rows

    @property
    def weights(self) -> Array | None:
        """The weights (n,) of the rows, if they do not count alike."""
        return self.problem.weights

    @property
    def _on_iteration(self) -> Callable[[State], None] | None:
        return None if self.report is None else partial(self.report, self.prepared)

    @cached_property
    def _counting(self) -> Array:
        """The numbers (k,) of the rows that count; those in memory all do."""
        weights = self.weights
        return np.arange(self.n_rows) if weights is None else np.flatnonzero(weights)

    @cached_property
    def _stages(self) -> list[Array]:
        """The rows of the stages of growth; none if all rows fit into the first."""
        keys = next(iter(self.targets.values())).keys[self._counting]
        most = max(FIRST_ROWS, _STAGE_NUMBERS // self.prepared.shards.n_columns)
        return [self._counting[rows] for rows in stages(keys, self.seed, most)]

    @cached_property
    def _first(self) -> Array:
        """The rows on which the fit makes its choices."""
        if self._stages:
            return self._stages[0]
        keys = next(iter(self.targets.values())).keys[self._counting]
        return _some(keys, self._counting, self.seed, FIRST_ROWS * 2)

    @cached_property
    def _first_rows(self) -> Array:
        return self.prepared.shards.in_double().rows(self._first)

    @cached_property
    def _resolved(self) -> Kernel:
        rows, weights = self._first_rows, self.weights
        if weights is not None:
            rows = rows[repeated_rows(weights[self._first])]
        kernel = as_kernel(self.problem.parameters.kernel)
        return kernel.resolve(rows, self.prepared.column_share(self.q))

    def sample(self, target: Target) -> Sample:
        """Return the rows on which the fit makes its choices, with a target."""
        weights = None if self.weights is None else self.weights[self._first]
        weights = None if weights is None else weights / weights.mean()
        part = target.part(self._first)
        rows = Block(self._first_rows, part.Y, weights)
        regression = RidgeRegression(self._resolved, 1.0, target.signs)
        width_is_free = as_kernel(self.problem.parameters.kernel).width_is_free
        q = min(self.q, self.prepared.n_varying)
        return Sample(rows, part.keys, regression, width_is_free, q, self.seed)

    @property
    def _fits_memory(self) -> bool:
        return fits_memory((self.n_rows, self._shards.n_columns))

    @cached_property
    def _in_memory(self) -> Array:
        """All rows (n, r), which fit into memory."""
        return self._shards.rows(np.arange(self.n_rows))

    @cached_property
    def _on_device(self) -> DeviceMatrix | None:
        """All rows for the device, if this process computes on one."""
        device = self.problem.device
        return None if device is None else DeviceMatrix.of_shards(device, self._shards)

    @property
    def _shards(self) -> Shards:
        """The rows; few of them are in double precision, whatever their type."""
        shards = self.prepared.shards
        return shards if self.n_rows >= MANY_ROWS else shards.in_double()

    def _block(self, target: Target, rows: Array) -> Block:
        """Return some of the rows (k,), in ascending order, as one block."""
        if self._on_device is not None:
            X = self._on_device.here(rows)
        elif not self._fits_memory:
            X = self._shards.rows(rows)
        else:  # all rows need no copy
            X = self._in_memory if len(rows) == self.n_rows else self._in_memory[rows]
        return Block(X, target.Y[rows], None if self.weights is None else self.weights[rows])

    def _dealt(
        self, target: Target, rows: Array, block_rows: int | None = None
    ) -> RegressionBlocks:
        """Return some of the rows (k,), in ascending order, in blocks here or on the device."""
        keys, matrix = target.keys[rows], self._on_device
        if matrix is None:
            return BlocksInMemory.dealt(self._block(target, rows), keys, self.seed, block_rows)
        parts = dealt_rows(keys, self.seed, block_rows)
        if self._fits_memory or is_balanced(target.keys):
            all_rows = DeviceRows(matrix, target.Y, self.weights)
            return BlocksOnDevice(all_rows, [rows[part] for part in parts])
        # Of large rows that are sorted by y, the fit uses no others.
        return BlocksOnDevice(DeviceRows.of(matrix.device, self._block(target, rows)), parts)

    def _all_blocks(self, target: Target) -> RegressionBlocks:
        """Return all rows in blocks."""
        shards, matrix, workers = self._shards, self._on_device, self.problem.workers
        if not self._is_in_ranges(target):
            # If sorted by y, shards have one class each: a random part of the rows serves better.
            most = MEMORY_NUMBERS // shards.n_columns
            rows = _some(target.keys[self._counting], self._counting, self.seed, most)
            return self._dealt(target, rows)
        if matrix is None or workers is not None:
            blocks = BlocksOfShards.of(shards, target.Y, self.weights, self.seed)
            return blocks if workers is None else BlocksOnWorkers.of_shards(blocks, workers)
        size = rows_of_a_block(self.n_rows)
        parts = dealt_ranges(target.Y[:, 0], self.weights, self.seed, size)
        return BlocksOnDevice(DeviceRows(matrix, target.Y, self.weights), [*parts])

    def _is_in_ranges(self, target: Target) -> bool:
        """Return whether blocks are dealt within ranges of rows, since these are not in memory."""
        return not self._fits_memory and is_balanced(target.keys)


def _some(keys: Array, rows: Array, seed: int, most: int = 4 * FIRST_ROWS) -> Array:
    """Return at most about `most` of the rows (k,), dealt by their keys (k,)."""
    return rows[deal(keys, -(-len(rows) // most), seed)[0]]
