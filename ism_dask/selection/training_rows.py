"""The rows of a prediction: in memory or in shards, taken in samples, stages and blocks.

A fit begins on few rows and grows: it continues on more, with a width and ridge chosen anew. The
rows that join have not been seen by W, so that the errors of their regressions, each row predicted
by the others, choose the width and the ridge without favour.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ism_dask._types import Array
from ism_dask.criteria.prediction import RegressionRows, RidgeRegression, RowsInMemory
from ism_dask.engines.blocks import BlocksOfShards
from ism_dask.rows.blocks import (
    MANY_ROWS,
    MEMORY_NUMBERS,
    deal,
    fits_memory,
    is_balanced,
    rows_of_a_block,
)
from ism_dask.rows.shards import Shards
from ism_dask.selection.choices import Choice
from ism_dask.selection.rules import RULES
from ism_dask.selection.sample import Sample, Setting
from ism_dask.selection.target import Target
from ism_dask.solvers.ascent import Curvature


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """The standardised rows (n, r) of a fit, dealt by a seed into samples, stages and blocks."""

    shards: Shards
    weights: Array | None
    seed: int

    @property
    def n_rows(self) -> int:
        """The number of rows, n."""
        return self.shards.n_rows

    @cached_property
    def counting(self) -> Array:
        """The numbers (k,) of the rows that count; those in memory all do."""
        return np.arange(self.n_rows) if self.weights is None else np.flatnonzero(self.weights)

    def for_steps(self, regression: RidgeRegression) -> RidgeRegression:
        """Return the regression in the precision of the steps: single where rows are many."""
        many = len(self.counting) >= MANY_ROWS and self.weights is None
        return regression.in_single if many else regression

    def stages(self, keys: Array) -> list[Array]:
        """Return the row numbers of the stages of growth; none if all rows fit into the first.

        Each stage has the rows of the one before. `keys` (n,) deal the rows.
        """
        counting, keys = self.counting, keys[self.counting]
        most = max(RULES.first_rows, RULES.stage_numbers // self.shards.n_columns)
        sizes = [each for each in sizes_of_stages(RULES.first_rows, len(keys)) if each <= most]
        if not sizes:
            return []
        order = np.concatenate(deal(keys, len(keys) // RULES.hand_rows, self.seed))
        return [counting[np.sort(order[:size])] for size in sizes]

    def first(self, keys: Array) -> Array:
        """Return the numbers (m,) of the rows on which the fit makes its choices."""
        stages = self.stages(keys)
        return stages[0] if stages else self.some(keys, self.counting, 2 * RULES.first_rows)

    def some(self, keys: Array, rows: Array, most: int) -> Array:
        """Return about `most` of the rows (k,) at most, dealt by the keys (n,) of all rows."""
        return rows[deal(keys[rows], -(-len(rows) // most), self.seed)[0]]

    def block(self, target: Target, rows: Array) -> RowsInMemory:
        """Return some of the rows (k,), in ascending order, as one block."""
        if not self._fit_memory:
            X = self._precise.rows(rows)
        else:  # all rows need no copy
            X = self._in_memory if len(rows) == self.n_rows else self._in_memory[rows]
        return RowsInMemory(X, target.Y[rows], None if self.weights is None else self.weights[rows])

    def dealt(self, target: Target, rows: Array, block_rows: int | None = None) -> RowsInMemory:
        """Return some of the rows (k,), in ascending order, in blocks."""
        return self.block(target, rows).dealt(target.keys[rows], self.seed, block_rows)

    def all_blocks(self, target: Target) -> RegressionRows:
        """Return all rows in blocks."""
        if self.are_in_ranges(target):
            return BlocksOfShards.dealt_within(self._precise, target.Y, self.weights, self.seed)
        # If sorted by y, shards have one class each: a random part of the rows serves better.
        most = MEMORY_NUMBERS // self.shards.n_columns
        return self.dealt(target, self.some(target.keys, self.counting, most))

    def are_in_ranges(self, target: Target) -> bool:
        """Return whether blocks are dealt within ranges of rows, since these are not in memory."""
        return not self._fit_memory and is_balanced(target.keys)

    @property
    def _fit_memory(self) -> bool:
        return fits_memory((self.n_rows, self.shards.n_columns))

    @property
    def _precise(self) -> Shards:
        """The rows; few of them are in double precision, whatever their type."""
        return self.shards if self.n_rows >= MANY_ROWS else self.shards.in_double()

    @cached_property
    def _in_memory(self) -> Array:
        return self._precise.rows(np.arange(self.n_rows))


def sizes_of_stages(first: int, n_rows: int) -> list[int]:
    """Return the sizes of the stages before one of all rows: the first, and four times as many."""
    sizes = []
    while first * RULES.least_growth <= n_rows:
        sizes.append(first)
        first *= RULES.growth
    return sizes


def grown(
    rows: TrainingRows, target: Target, sample: Sample, choice: Choice, curvature: Curvature
) -> Choice:
    """Return the choice with the W and setting for all rows, after stages with fewer of them.

    Each stage begins with the curvature of the one before, and leaves its own.
    """
    stages, W, setting = rows.stages(target.keys), choice.W, choice.setting
    if not stages:
        return choice
    seen = stages[0]
    for stage in [*stages[1:], rows.counting]:
        joined = rows.some(target.keys, np.setdiff1d(stage, seen), 4 * RULES.first_rows)
        setting = setting_by_unseen(sample, rows.block(target, joined), W, setting)
        if len(stage) < len(rows.counting):
            blocks = rows.dealt(target, stage, rows_of_a_block(len(rows.counting)))
            regression = rows.for_steps(sample.regression(setting))
            W, _ = sample.climbed(W, regression, RULES.stage_steps, blocks, curvature)
        seen = stage
    return replace(choice, W=W, setting=setting)


def setting_by_unseen(sample: Sample, unseen: RowsInMemory, W: Array, setting: Setting) -> Setting:
    """Return the width and ridge with which unseen rows predict each other best from X W."""
    few = min(unseen.n_rows, RULES.joining_rows)
    rows = unseen.part(deal(unseen.Y[:, 0], max(1, unseen.n_rows // few), sample.seed)[0])
    judges = rows.dealt(rows.Y[:, 0], 0)

    def values(settings: list[Setting]) -> list[float]:
        regressions = map(sample.regression, settings)
        return [-float(each.leave_one_out(judges, W).mean()) for each in regressions]

    widths, ridges = RULES.joining_widths, RULES.joining_ridges
    return sample.best_of_grid(values, setting, widths, ridges)[0]
