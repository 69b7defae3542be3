"""How a fit by the prediction criterion is computed, from prepared rows to W."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask.criteria.prediction import Block, Explained, RidgeRegression
from ism_dask.engines.blocks import BlocksInMemory, BlocksOfShards, RegressionBlocks
from ism_dask.estimators.preparation import Prepared
from ism_dask.gamma.weighted import repeated_rows
from ism_dask.kernels import Kernel
from ism_dask.linalg.eigen import largest_eigenvalue_outside
from ism_dask.observe.fit_events import fit_watcher
from ism_dask.records.dimension_trial import DimensionTrial
from ism_dask.records.iteration import Solution, State
from ism_dask.rows.blocks import MEMORY_BYTES, deal, is_balanced
from ism_dask.rows.execution import on_this_machine
from ism_dask.selection.dimension import choose_dimension
from ism_dask.selection.folds import Trial
from ism_dask.selection.growth import FIRST_ROWS, judged_by_unseen, stages
from ism_dask.selection.regularisation import Choice, choose, choose_by_evidence
from ism_dask.selection.sample import Sample, Setting
from ism_dask.selection.target import LAW, MEAN, Target, law_is_better
from ism_dask.solvers.ascent import AscentResult, ascend, ascend_roughly
from ism_dask.solvers.support_selection import FeatureSpace, Support, stable_support
from ism_dask.status import Status

# Fewer rows cannot be split into rows that fit W and rows that judge it.
FEWEST_ROWS = 20
# The most steps on the rows of an earlier stage of growth.
_STAGE_STEPS = 15
# A new feature adds nothing if J without it is larger than this share of J.
_NOTHING = 0.999
# What the best of many trials explains is clear from this many standard errors on.
_CLEAR = 2.0


@dataclass(frozen=True, eq=False)
class FittedPrediction:
    """A fit by the prediction criterion.

    Attributes
    ----------
    solution : Solution
    regression : RidgeRegression
        The regression of the fit, with its kernel and ridge.
    setting : Setting
        Its width, as a multiple of the kernel's own, and its ridge.
    trials : tuple of Trial
    target_name : str
        "mean" or "law".
    limit : float
        The residual at which W counts as stationary.
    slope_noise : float
        The standard error of the slope between blocks, as a share of Phi W; 0 if unknown.
    sample : Sample
    """

    solution: Solution
    regression: RidgeRegression
    setting: Setting
    trials: tuple[Trial, ...]
    target_name: str
    limit: float
    slope_noise: float
    sample: Sample

    def support(self, space: FeatureSpace, weights: Array, most: int | str) -> Support:
        """Return the features that half-samples choose, starting at weights (d, q)."""
        rows = RegressedRows(self.sample, self.regression)
        with on_this_machine():
            size = None if isinstance(most, str) else most
            return stable_support(rows, space, weights, size, self.sample.seed)

    def contributions(self, W: Array) -> tuple[Array, Array]:
        """Return J of each column of W alone, and by how much J falls without it, (q,) each."""
        evaluate = partial(self.sample.blocks.explained, self.regression)
        W = W[: self.sample.rows.X.shape[1]]
        whole = evaluate(W).objective
        scale = self.solution.objective / whole if whole else 0.0
        q = W.shape[1]
        alone = np.array([evaluate(W[:, [k]]).objective for k in range(q)])
        if q == 1:
            return scale * alone, np.array([self.solution.objective])
        without = np.array([evaluate(np.delete(W, k, axis=1)).objective for k in range(q)])
        return scale * alone, self.solution.objective - scale * without


@dataclass(frozen=True, eq=False)
class RegressedRows:
    """The rows of a sample, any of which a regression can be fitted to."""

    sample: Sample
    regression: RidgeRegression

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self.sample.rows.n_rows

    @property
    def q(self) -> int:
        """The number of new features."""
        return self.sample.q

    def engine(self, rows: Array) -> Regressed:
        """Return the regression of some rows (k,)."""
        return Regressed(self.sample.part(rows).blocks, self.regression)


@dataclass(frozen=True, eq=False)
class Regressed:
    """A regression of some rows, as a function of W."""

    blocks: BlocksInMemory
    regression: RidgeRegression

    def product(self, W: Array) -> Explained:
        """Return J and Phi W (d, q)."""
        return self.blocks.explained(self.regression, W)

    value = product


@dataclass(frozen=True, eq=False)
class PredictionFit:
    """A fit of W by the prediction criterion to prepared rows.

    Attributes
    ----------
    prepared : Prepared
    kernel : Kernel
        As the user gave it; its own width is computed from a sample of the rows.
    width_is_free : bool
        Whether the width may be chosen.
    targets : dict of str to Target
        The target "mean", or "law", or both, of which the fit takes the better one.
    weights : (n,) array or None
    q : int
    seed : int
    max_seconds : float or None
    on_iteration : callable
        Called with the `State` after each step on all rows.
    """

    prepared: Prepared
    kernel: Kernel
    targets: dict[str, Target]
    weights: Array | None
    q: int
    seed: int
    max_iter: int
    max_seconds: float | None = None
    on_iteration: Callable[[State], None] | None = None

    def run(self) -> FittedPrediction:
        """Return the fit from the best of the candidate starts."""
        name, choice = self._chosen_target()
        fit_watcher().on_selection(len(self.targets), len(self.targets))
        target, sample = self.targets[name], self._sample(self.targets[name])
        W, setting = self._grown(target, sample, choice)
        return self._finished(name, sample, choice, W, setting)

    def run_from(self, W: Array, setting: Setting, name: str) -> FittedPrediction:
        """Return the fit from a W (r, q) of an earlier fit, with its setting and target."""
        sample = self._sample(self.targets[name])
        choice = Choice(W, setting, np.nan, "earlier fit")
        return self._finished(name, sample, choice, W, setting)

    def with_dimension(self, most: int) -> tuple[PredictionFit, tuple[DimensionTrial, ...]]:
        """Return the fit with the number of new features, up to `most`, that the rows ask for."""
        name = next(iter(self.targets))
        if len(self.targets) > 1:
            two = replace(self, q=min(2, most))
            name, _ = two._evident_target()

        def sample_of(q: int) -> Sample:
            each = replace(self, q=q)
            return each._sample(self.targets[name])

        q, trials = choose_dimension(sample_of, most)
        return replace(self, q=q), trials

    def _evident_target(self) -> tuple[str, dict[str, Choice]]:
        """Return the name of the target to predict, and the choices by evidence for each."""
        samples = {name: self._sample(target) for name, target in self.targets.items()}
        choices = {name: choose_by_evidence(sample) for name, sample in samples.items()}
        return (LAW if law_is_better(samples[LAW], choices) else MEAN), choices

    def _chosen_target(self) -> tuple[str, Choice]:
        """Return the name of the target to predict, and the choices on a sample for it."""
        names = list(self.targets)
        fit_watcher().on_selection(0, len(names))
        name, by_evidence = self._evident_target() if len(names) > 1 else (names[0], {})
        fit_watcher().on_selection(len(names) - 1, len(names))
        sample, choice = self._sample(self.targets[name]), by_evidence.get(name)
        if self.n_rows >= FEWEST_ROWS:
            return name, choose(sample, choice)
        return name, choose_by_evidence(sample) if choice is None else choice

    def _grown(self, target: Target, sample: Sample, choice: Choice) -> tuple[Array, Setting]:
        """Return W and the setting for all rows, after the stages with fewer of them."""
        W, setting = choice.W, choice.setting
        seen = self._first
        for rows in [*self._stages[1:], np.arange(self.n_rows)] if self._stages else []:
            joined = np.setdiff1d(rows, seen)
            unseen = self._block(target, _some(target.keys[joined], joined, self.seed))
            setting = judged_by_unseen(sample, unseen, W, setting)
            if len(rows) < self.n_rows:
                block = self._block(target, rows)
                blocks = BlocksInMemory.dealt(block, target.keys[rows], self.seed)
                evaluate = partial(blocks.explained, sample.at(setting))
                W, _ = ascend_roughly(evaluate, W, sample.precondition, _STAGE_STEPS)
            seen = rows
        return W, setting

    def _finished(
        self, name: str, sample: Sample, choice: Choice, W: Array, setting: Setting
    ) -> FittedPrediction:
        """Return the fit to all rows from W (r, q)."""
        target = self.targets[name]
        regression = replace(sample.at(setting), signs=target.signs)
        blocks = self._all_blocks(target)
        keeps_start = choice.is_start and not self._stages
        ascent = ascend(
            partial(blocks.explained, regression),
            W,
            sample.precondition,
            max_iter=0 if keeps_start else self.max_iter,
            max_seconds=self.max_seconds,
            on_iteration=self.on_iteration,
        )
        if keeps_start:
            ascent = replace(ascent, status=Status.START)
        solution = self._solution(ascent, sample, regression)
        size = float(np.linalg.norm(ascent.value.product))
        noise = ascent.value.noise / size if size else 0.0
        return FittedPrediction(
            self._padded(solution),
            regression,
            setting,
            choice.trials,
            name,
            ascent.limit,
            noise,
            sample,
        )

    def _padded(self, solution: Solution) -> Solution:
        """Return the solution with directions in which the rows are constant, up to q columns."""
        more = self.q - solution.W.shape[1]
        if more <= 0:
            return solution
        return replace(
            solution,
            W=scipy.linalg.block_diag(solution.W, np.eye(more)),
            eigenvalues=np.pad(solution.eigenvalues, (0, more)),
            product=np.pad(solution.product, [(0, more), (0, more)]),
        )

    def _solution(
        self, ascent: AscentResult, sample: Sample, regression: RidgeRegression
    ) -> Solution:
        """Return the solution, with the eigengap of Phi on the sample."""
        W = ascent.W
        phi = regression.phi(sample.blocks.blocks[0], W)
        inside = float(np.linalg.eigvalsh(W.T @ phi @ W)[0])
        return Solution(
            W=W,
            eigenvalues=ascent.eigenvalues,
            eigengap=inside - largest_eigenvalue_outside(phi, W),
            objective=ascent.value.objective,
            error=0.0,
            product=ascent.value.product,
            n_iter=ascent.state.iteration,
            status=ascent.status,
            history=ascent.state.history,
            residual=ascent.residual,
            residual_rows=self.n_rows,
            in_double=True,
        )

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self.prepared.shards.n_rows

    @property
    def _columns(self) -> int:
        """The number of columns of W in directions in which the rows vary."""
        return min(self.q, self.prepared.n_varying)

    @cached_property
    def _stages(self) -> list[Array]:
        """The rows of the stages of growth; none if all rows fit into the first."""
        return stages(next(iter(self.targets.values())).keys, self.seed)

    @cached_property
    def _first(self) -> Array:
        """The rows on which the fit makes its choices."""
        if self._stages:
            return self._stages[0]
        keys = next(iter(self.targets.values())).keys
        return _some(keys, np.arange(self.n_rows), self.seed, FIRST_ROWS * 2)

    @cached_property
    def _first_rows(self) -> Array:
        return self.prepared.shards.in_double().rows(self._first)

    @cached_property
    def _resolved(self) -> Kernel:
        rows, weights = self._first_rows, self.weights
        if weights is not None:
            rows = rows[repeated_rows(weights[self._first])]
        return self.kernel.resolve(rows, self.prepared.column_share(self.q))

    def _sample(self, target: Target) -> Sample:
        """Return the rows on which the fit makes its choices, with a target."""
        weights = None if self.weights is None else self.weights[self._first]
        part = target.part(self._first)
        rows = Block(self._first_rows, part.Y, weights)
        regression = RidgeRegression(self._resolved, 1.0, target.signs)
        return Sample(
            rows, part.keys, regression, self.kernel.width_is_free, self._columns, self.seed
        )

    @cached_property
    def _in_memory(self) -> Array | None:
        """All rows (n, r), if they are small enough to be in memory."""
        shards = self.prepared.shards
        if shards.n_rows * shards.n_columns * shards.dtype.itemsize > MEMORY_BYTES:
            return None
        return shards.rows(np.arange(shards.n_rows))

    def _block(self, target: Target, rows: Array) -> Block:
        """Return some of the rows (k,), in ascending order, as one block."""
        X = self._in_memory
        X = self.prepared.shards.rows(rows) if X is None else X[rows]
        return Block(X, target.Y[rows], None if self.weights is None else self.weights[rows])

    def _all_blocks(self, target: Target) -> RegressionBlocks:
        """Return all rows in blocks."""
        shards = self.prepared.shards
        if self._in_memory is None and is_balanced(target.keys, shards.bounds):
            return BlocksOfShards.of(shards, target.Y, self.weights, self.seed)
        # Rows sorted by y have shards of one class each: a random part of the rows serves better.
        most = MEMORY_BYTES // (shards.n_columns * shards.dtype.itemsize)
        rows = _some(target.keys, np.arange(self.n_rows), self.seed, most)
        return BlocksInMemory.dealt(self._block(target, rows), target.keys[rows], self.seed)


def features_advice(trials: Sequence[Trial], lost: Array, objective: float) -> str:
    """Return advice if y or some of the new features seem to explain nothing; else no text."""
    if trials and trials[0].explained <= _CLEAR * trials[0].error:
        share = f"{trials[0].explained:.3f} +- {trials[0].error:.3f}"
        return (
            f"unseen rows are hardly predicted better than by their mean (share of y explained: "
            f"{share}): y may not depend on X at all. `ism_dask.dependence_test(X, y)` has the "
            "p-value"
        )
    useless = np.flatnonzero(objective - lost > _NOTHING * objective) + 1
    if not len(useless) or len(lost) == 1:
        return ""
    which = ", ".join(map(str, useless))
    return (
        f"J is as large without new feature {which}: it explains nothing of y that the others "
        f"do not. Take fewer `n_components`"
    )


def _some(keys: Array, rows: Array, seed: int, most: int = 4 * FIRST_ROWS) -> Array:
    """Return at most about `most` of the rows (k,), dealt by their keys (k,)."""
    return rows[deal(keys, -(-len(rows) // most), seed)[0]]
