"""Growth: a fit begins on few rows and continues on more, with a width and ridge chosen anew.

The rows that join have not been seen by W, so that the errors of their regressions, each row
predicted by the others, choose the width and the ridge without favour.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from ism_dask._types import Array
from ism_dask.criteria.prediction import Block, RidgeRegression
from ism_dask.engines.blocks import BlocksInMemory
from ism_dask.rows.blocks import deal, rows_of_a_block
from ism_dask.selection.choices import Choice
from ism_dask.selection.rules import RULES
from ism_dask.selection.sample import Sample, Setting, climbed_grid
from ism_dask.selection.target import Target
from ism_dask.selection.training_rows import TrainingRows
from ism_dask.solvers.ascent import ascend_roughly
from ism_dask.solvers.lbfgs import Curvature


def grown(
    rows: TrainingRows, target: Target, sample: Sample, choice: Choice, curvature: Curvature
) -> Choice:
    """Return the choice with the W and setting for all rows, after stages with fewer of them.

    Each stage begins with the curvature of the one before, and leaves its own.
    """
    stages = rows.stages(target.keys)
    if not stages:
        return choice
    W, setting, seen = choice.W, choice.setting, stages[0]
    for stage in [*stages[1:], rows.counting]:
        joined = rows.some(target.keys, np.setdiff1d(stage, seen), 4 * RULES.first_rows)
        unseen = rows.block(target, joined)
        setting = setting_by_unseen(sample, unseen, W, setting)
        if len(stage) < len(rows.counting):
            blocks = rows.dealt(target, stage, rows_of_a_block(len(rows.counting)))
            evaluate = partial(blocks.explained, for_steps(rows, sample.at(setting)))
            guess, steps, limit = sample.precondition, RULES.stage_steps, sample.time_limit
            W, _ = ascend_roughly(evaluate, W, guess, steps, curvature, time_limit=limit)
        seen = stage
    return replace(choice, W=W, setting=setting)


def for_steps(rows: TrainingRows, regression: RidgeRegression) -> RidgeRegression:
    """Return the regression in the precision of the steps: single where rows are many."""
    return regression.in_single if rows.are_many else regression


def setting_by_unseen(sample: Sample, unseen: Block, W: Array, setting: Setting) -> Setting:
    """Return the width and ridge with which unseen rows predict each other best from X W."""
    few = min(unseen.n_rows, RULES.joining_rows)
    rows = unseen.part(deal(unseen.Y[:, 0], max(1, unseen.n_rows // few), sample.seed)[0])
    judges = BlocksInMemory.dealt(rows, rows.Y[:, 0], 0)
    widths = RULES.joining_widths if sample.width_is_free else (1.0,)
    grid = [[setting.times(width, ridge) for ridge in RULES.joining_ridges] for width in widths]

    def values(settings: list[Setting]) -> list[float]:
        return [-float(judges.leave_one_out(sample.at(each), W).mean()) for each in settings]

    return climbed_grid(grid, values, (widths.index(1.0), RULES.joining_ridges.index(1.0)))[0]
