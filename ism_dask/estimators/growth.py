"""Growth of a fit: more and more rows, each time with a width and a ridge chosen anew.

The rows that join have not been seen by W: the errors with which the others predict them choose the
width and the ridge without favour, and tell whether another W, such as a network's, is better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial, reduce
from itertools import pairwise
from operator import add
from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask.criteria.landmark_regression import (
    TARGET,
    KernelSums,
    LandmarkRegression,
    kernel_sums,
    landmark_rows,
    orthonormal_basis,
)
from ism_dask.criteria.prediction import RidgeRegression, RowsInMemory
from ism_dask.estimators.training_rows import Target, TrainingRows
from ism_dask.kernels import Kernel
from ism_dask.linalg.eigen import inverse_covariance
from ism_dask.observe import fit_watcher
from ism_dask.records.fit_report import Trial
from ism_dask.records.iteration import Solution
from ism_dask.rows.execution import on_this_machine
from ism_dask.rows.raw import MANY_ROWS, MEMORY_NUMBERS, LoadedShard
from ism_dask.rows.shards import cut
from ism_dask.selection.choices import Choice
from ism_dask.selection.rules import RULES
from ism_dask.selection.sample import Sample, Setting
from ism_dask.selection.starts import LINEAR, NETWORK, network_directions
from ism_dask.selection.trials import setting_of, taken_first
from ism_dask.solvers.ascent import ascend
from ism_dask.threads import in_threads


def network_start(rows: TrainingRows, target: Target, q: int) -> Array | None:
    """Return the start (d, q) by a network, of rows that do not judge it; None if none tries it."""
    judging = next((joined for _, joined, tries in _stages(rows, target) if tries), None)
    if judging is None or target.signs is not None:
        return None
    others = rows.of_other_groups(rows.counting, judging)
    most = min(RULES.most_network_rows, MEMORY_NUMBERS // rows.prepared.n_varying)
    learned = rows.block(target, rows.some(target.keys, others, most))
    return network_directions(learned, q, rows.seed)


def grown(
    rows: TrainingRows, target: Target, choice: Choice, network: Callable[[], Array | None]
) -> Choice:
    """Return the choice with the W and setting for all rows, after stages with fewer of them.

    `network` returns the start by a network, if there is one.
    """
    sample, watcher, steps = choice.sample, fit_watcher(), rows.selection_steps
    stages = enumerate(_stages(rows, target), len(rows.targets) + 1)
    for number, (stage, joined, tries_network) in stages:
        if sample.time_limit.is_over:
            break
        is_last = len(stage) == len(rows.counting)
        if len(joined) < RULES.fewest_rows:  # no group is new
            continue
        most = RULES.landmarks if is_last else RULES.few_landmarks
        judges = Judges(rows, target, sample, joined, most)
        candidates = {choice.start: choice.W}
        if not choice.trials and not sample.avoids:
            candidates.setdefault(LINEAR, sample.starts[LINEAR])
        if tries_network and (found := network()) is not None:
            candidates[NETWORK] = found
        near = choice.setting
        calls = [partial(judges.trial, name, W, near) for name, W in candidates.items()]
        trials = in_threads(calls, len(stage))
        best = max(trials, key=lambda trial: trial.explained)
        choice = replace(
            choice,
            W=candidates[best.start],
            setting=setting_of(best) or choice.setting,
            start=best.start,
            is_start=False,
            trials=taken_first(best, (*choice.trials, *trials)),
        )
        for step, most in _parts(len(stage), is_last):
            climb = partial(climbed, numbers=None if is_last else stage, step=step, most=most)
            choice = replace(choice, W=climb(rows, target, choice, max_iter=RULES.stage_steps).W)
        watcher.on_selection(number, steps)
    return choice


def _stages(rows: TrainingRows, target: Target) -> Iterator[tuple[Array, Array, bool]]:
    """Yield the rows of each stage (k,), those that judge it (j,), and if it tries a network."""
    for seen, stage in pairwise([*rows.stages(target.keys), rows.counting]):
        joined = rows.of_other_groups(stage, seen)
        if len(joined) > RULES.judging_rows:
            joined = rows.some(target.keys, joined, RULES.judging_rows)
        yield stage, joined, len(seen) < RULES.network_rows <= len(stage)


def _parts(n: int, is_last: bool) -> tuple[tuple[int, int], ...]:
    """Return the strides of shards, and the most landmarks, of the climbs before the last steps."""
    if is_last and n < MANY_ROWS:
        return ()
    return RULES.parts if n >= RULES.rows_in_parts else ((1, RULES.few_landmarks),)


def climbed(
    rows: TrainingRows,
    target: Target,
    choice: Choice,
    *,
    numbers: Array | None = None,
    step: int = 1,
    most: int = RULES.landmarks,
    **options: Any,
) -> Solution:
    """Return the ascent from the choice's W by the regression over all rows, or some (k,).

    It has `most` landmarks or fewer, which suit the choice, and every `step`-th shard with such
    rows. `options` are those of `ascend`.
    """
    every = rows.counting if numbers is None else numbers
    pool = rows.block(target, rows.some(target.keys, every, RULES.pool_rows))
    exact, W = choice.regression, choice.W
    X, (d, q) = pool.X.astype(np.float64), W.shape
    is_few = len(every) < MANY_ROWS
    # Tasks of a cluster would take longer for few rows.
    with on_this_machine(is_few):
        regression = landmark_regression(
            rows, target, exact, W, most=most, pool=pool, numbers=numbers
        )
        if step > 1:
            regression = replace(regression, shards=regression.shards.every(step, every))
        n = len(every) // step
        ascent = ascend(
            regression.explained,
            W,
            inverse_covariance(X, of_more=True),
            time_limit=rows.time_limit,
            least_gain=0.0 if is_few else RULES.noise_gain * (d - q) / min(n, RULES.noise_rows),
            **options,
        )
    # J of the exact regression is larger by this at most, since it has the larger kernel matrix.
    missed = (1.0 - ascent.objective) * min(1.0, regression.left_out(X, ascent.W) / exact.ridge)
    known = not choice.sample.avoids and ascent.objective > 0.0
    error = missed / ascent.objective if known else np.inf
    report = replace(ascent.report, residual_rows=n, engine="landmarks", engine_error=error)
    return replace(ascent, report=report)


def landmark_regression(
    rows: TrainingRows,
    target: Target,
    exact: RidgeRegression,
    W: Array,
    *,
    most: int = RULES.landmarks,
    pool: RowsInMemory | None = None,
    numbers: Array | None = None,
) -> LandmarkRegression:
    """Return an exact regression with landmarks that suit W, over all rows or some (k,).

    The landmarks are rows of a `pool`, by default one of all rows.
    """
    if pool is None:
        pool = rows.block(target, rows.some(target.keys, rows.counting, RULES.pool_rows))
    left_out = max(RULES.left_out, RULES.left_out_of_ridge * exact.ridge)
    rng = np.random.default_rng(rows.seed)
    chosen, _ = landmark_rows(exact.kernel, pool.X @ W, most, left_out, rng)
    if numbers is None:
        shards = rows.with_target(target)
    else:
        some = rows.block(target, numbers)
        shards = cut(some.X).with_rows(TARGET, some.target_and_weights)
    return LandmarkRegression(shards, pool.X[chosen], exact.kernel, exact.ridge, exact.signs)


class Judges:
    """Rows (k,) that W has not seen, in folds, and other rows, which help to predict them.

    The regressions that judge have `most` landmarks or fewer.
    """

    def __init__(
        self, rows: TrainingRows, target: Target, sample: Sample, unseen: Array, most: int
    ) -> None:
        self.sample, self.most = sample, most
        others = rows.of_other_groups(rows.counting, unseen)
        others = rows.some(target.keys, others, RULES.predicting_rows)
        self.unseen = rows.blocks(target, unseen, RULES.judging_folds)
        self.others = rows.blocks(target, others, 2 * RULES.judging_folds)

    def trial(self, name: str, W: Array, near: Setting) -> Trial:
        """Return the trial of a W with the setting by which the unseen rows are predicted best."""
        pieces = []
        for block in (*self.unseen, *self.others):
            Z = block.X @ W.astype(block.X.dtype, copy=False)
            pieces.append(LoadedShard(0, Z, {TARGET: block.target_and_weights}))
        n, by_width = sum(len(piece.X) for piece in pieces), dict[float, _Regressions]()

        def gains(settings: list[Setting]) -> list[float]:
            new = {each.width: each for each in settings if each.width not in by_width}
            kernels = [self.sample.regression(each).kernel for each in new.values()]
            calls = [partial(_Regressions, k, pieces, self.most) for k in kernels]
            made = in_threads(calls, n)
            by_width.update(zip(new, made, strict=True))
            losses = [partial(self._loss, by_width[each.width], each) for each in settings]
            return [-loss for loss in in_threads(losses, n)]

        grid, least = (RULES.joining_widths, RULES.joining_ridges), RULES.joining_least_ridge
        setting, _ = self.sample.best_of_grid(gains, near, *grid, least_ridge=least)
        base, ridge = self.sample.base, self.sample.regression(setting).ridge
        predicted = by_width[setting.width].predicted(pieces[: len(self.unseen)], ridge)
        losses, squares = (
            np.concatenate([fold.weighted(base.sums(each)[0]) for fold, each in columns])
            for columns in (
                [(fold, (fold.Y - Y) ** 2) for fold, Y in zip(self.unseen, predicted, strict=True)],
                [(fold, fold.Y**2) for fold in self.unseen],
            )
        )
        shares = (squares - losses) / squares.mean()
        error = float(shares.std() / np.sqrt(len(shares)))
        return Trial(name, setting.width, setting.ridge, float(shares.mean()), error, losses)

    def _loss(self, regressions: _Regressions, setting: Setting) -> float:
        """Return the loss of the unseen rows, each predicted by all rows but its fold.

        A width for which there are too few landmarks has a larger loss than any other.
        """
        ridge, folds = self.sample.regression(setting).ridge, regressions.sums[: len(self.unseen)]
        others = [regressions.coefficients(number, ridge) for number in range(len(folds))]
        errors = [fold.errors(each) for fold, each in zip(folds, others, strict=True)]
        is_refused = self.sample.width_is_free and regressions.left_out > RULES.most_left_out
        more = (1.0 + regressions.left_out) * regressions.total.squares.sum() if is_refused else 0.0
        return float(self.sample.base.sums(np.sum(errors, axis=0))[0] + more)


class _Regressions:
    """The regressions with one kernel on pieces of projected rows, with landmarks among them."""

    def __init__(self, kernel: Kernel, pieces: list[LoadedShard], most: int) -> None:
        Z = np.concatenate([piece.X for piece in pieces])[: RULES.pool_rows]
        rng = np.random.default_rng(0)
        chosen, self.left_out = landmark_rows(kernel, Z, most, RULES.left_out, rng)
        self.kernel, self.V = kernel, Z[chosen].astype(np.float64)
        self.basis = orthonormal_basis(kernel, self.V, Z.dtype)
        arguments = kernel, np.eye(Z.shape[1]), self.V, self.basis
        calls = [partial(kernel_sums, piece, *arguments) for piece in pieces]
        self.sums = in_threads(calls, sum(len(piece.X) for piece in pieces))

    @cached_property
    def total(self) -> KernelSums:
        """The sums over all pieces."""
        return KernelSums(*(reduce(add, each) for each in zip(*self.sums, strict=True)))

    def coefficients(self, left_out: int, ridge: float) -> Array:
        """Return the coefficients (m, r) of the regression without a piece."""
        return self.total.without(self.sums[left_out]).coefficients(ridge)

    def predicted(self, pieces: list[LoadedShard], ridge: float) -> list[Array]:
        """Return what the others predict of the first pieces (b, r)."""
        return [
            self.kernel.matrix(piece.X, self.V.astype(piece.X.dtype), resolved=False)
            @ (self.basis @ self.coefficients(number, ridge))
            for number, piece in enumerate(pieces)
        ]
