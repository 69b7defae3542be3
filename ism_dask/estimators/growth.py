"""Growth of a fit: more and more rows, each time with a width and a ridge chosen anew.

The rows that join have not been seen by W: the errors with which the others predict them choose the
width and the ridge without favour, and tell whether a network has found a better W.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

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
from ism_dask.criteria.prediction import RowsInMemory
from ism_dask.estimators.training_rows import Target, TrainingRows
from ism_dask.rows.raw import LoadedShard, deal
from ism_dask.rows.shards import Shards, cut
from ism_dask.selection.choices import Choice
from ism_dask.selection.rules import RULES
from ism_dask.selection.sample import Sample, Setting
from ism_dask.selection.starts import NETWORK, network_directions
from ism_dask.solvers.ascent import Curvature, ascend_roughly
from ism_dask.threads import in_threads


def grown(
    rows: TrainingRows, target: Target, sample: Sample, choice: Choice, curvature: Curvature
) -> Choice:
    """Return the choice with the W and setting for all rows, after stages with fewer of them.

    Each stage begins with the curvature of the one before, and leaves its own.
    """
    stages = rows.stages(target.keys)
    for seen, stage in zip(stages, [*stages[1:], rows.counting], strict=True):
        if sample.time_limit.is_over:
            break
        joined = rows.some(target.keys, np.setdiff1d(stage, seen), RULES.judging_rows)
        judges = Judges.of_rows(rows, target, sample, joined)
        setting, loss = judges.best_setting(choice.W, choice.setting)
        choice = replace(choice, setting=setting, is_start=False)
        if rows.admits_network(seen, stage) and not sample.avoids:
            others = rows.some(target.keys, np.setdiff1d(rows.counting, joined), rows.network_rows)
            W = network_directions(rows.block(target, others), sample.q, rows.seed)
            setting, other_loss = judges.best_setting(W, choice.setting)
            if other_loss < loss:
                choice = Choice(W, setting, np.nan, NETWORK, trials=choice.trials)
                curvature.clear()
        if len(stage) < len(rows.counting):
            regression = landmark_regression(rows, target, sample, choice, stage)
            evaluate, limit = regression.explained, sample.time_limit
            steps, guess = RULES.stage_steps, sample.precondition
            W, _ = ascend_roughly(evaluate, choice.W, guess, steps, curvature, time_limit=limit)
            choice = replace(choice, W=W)
    return choice


def landmark_regression(
    rows: TrainingRows,
    target: Target,
    sample: Sample,
    choice: Choice,
    numbers: Array | None = None,
) -> LandmarkRegression:
    """Return the regression over all rows, or some (k,), with landmarks that suit the choice."""
    pool = rows.some(target.keys, rows.counting if numbers is None else numbers, RULES.pool_rows)
    X = rows.block(target, pool).X
    exact, rng = sample.regression(choice.setting), np.random.default_rng(rows.seed)
    chosen, _ = landmark_rows(exact.kernel, X @ choice.W, RULES.landmarks, RULES.left_out, rng)
    shards = rows.with_target(target) if numbers is None else _cut(rows.block(target, numbers))
    return LandmarkRegression(shards, X[chosen], exact.kernel, exact.ridge, exact.signs)


def _cut(block: RowsInMemory) -> Shards:
    """Return the rows of a block as shards."""
    return cut(block.X).with_rows(TARGET, block.target_and_weights)


@dataclass(frozen=True, eq=False)
class Judges:
    """Rows that W has not seen, and others that predict them, for the choice of a setting."""

    sample: Sample
    unseen: list[RowsInMemory]
    others: list[RowsInMemory]

    @classmethod
    def of_rows(cls, rows: TrainingRows, target: Target, sample: Sample, unseen: Array) -> Judges:
        """Return the judges of rows (k,) that W has not seen."""
        others = np.setdiff1d(rows.counting, unseen)
        others = rows.some(target.keys, others, RULES.predicting_rows)
        parts = []
        for numbers, count in ((unseen, RULES.judging_folds), (others, 2 * RULES.judging_folds)):
            dealt = deal(target.keys[numbers], count, rows.seed)
            parts.append([rows.block(target, numbers[part]) for part in dealt])
        return cls(sample, *parts)

    def best_setting(self, W: Array, near: Setting) -> tuple[Setting, float]:
        """Return the setting with which unseen rows are predicted best from X W, and their loss."""
        pieces = [_projected(each, W) for each in (*self.unseen, *self.others)]
        Z = np.concatenate([piece.X for piece in pieces])[: RULES.pool_rows]
        sums_by_width: dict[float, list[KernelSums]] = {}

        def sums_of(width: float) -> list[KernelSums]:
            kernel, rng = self.sample.base.kernel.widened(width), np.random.default_rng(0)
            V = Z[landmark_rows(kernel, Z, RULES.landmarks, RULES.left_out, rng)[0]]
            V = V.astype(np.float64)
            basis = orthonormal_basis(kernel, V, Z.dtype)
            arguments = kernel, np.eye(Z.shape[1]), V, basis
            calls = [partial(kernel_sums, piece, *arguments) for piece in pieces]
            return [KernelSums(*each) for each in in_threads(calls, len(Z))]

        def gain(setting: Setting) -> float:
            if setting.width not in sums_by_width:
                sums_by_width[setting.width] = sums_of(setting.width)
            return -self._loss(sums_by_width[setting.width], setting)

        def gains(settings: list[Setting]) -> list[float]:
            return [gain(each) for each in settings]

        widths, ridges = RULES.joining_widths, RULES.joining_ridges
        setting, value = self.sample.best_of_grid(gains, near, widths, ridges)
        return setting, -value

    def _loss(self, sums: list[KernelSums], setting: Setting) -> float:
        """Return the mean loss of the unseen rows, each predicted by all rows but its fold."""
        regression = self.sample.regression(setting)
        total = sums[0]
        for each in sums[1:]:
            total = total + each
        losses, size = 0.0, 0.0
        for fold in sums[: len(self.unseen)]:
            errors = fold.errors(total.without(fold).coefficients(regression.ridge))
            losses, size = losses + float(regression.sums(errors)[0]), size + fold.size
        return losses / size


def _projected(block: RowsInMemory, W: Array) -> LoadedShard:
    """Return the rows of a block times W as a shard, with their Y and weights."""
    Z = block.X @ W.astype(block.X.dtype, copy=False)
    return LoadedShard(0, Z, {TARGET: block.target_and_weights})
