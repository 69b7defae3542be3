"""Growth: a fit begins on few rows and continues on more, with a width and ridge chosen anew.

The rows that join have not been seen by W, so that the errors of their regressions, each row
predicted by the others, choose the width and the ridge without favour.
"""

from __future__ import annotations

import numpy as np

from ism_dask._types import Array
from ism_dask.criteria.prediction import Block
from ism_dask.engines.blocks import BlocksInMemory, dealt_rows
from ism_dask.engines.device_blocks import BlocksOnDevice
from ism_dask.engines.device_rows import DeviceRows
from ism_dask.rows.blocks import BLOCK_ROWS, deal
from ism_dask.rows.devices import Device
from ism_dask.selection.grid import climbed_grid
from ism_dask.selection.sample import Sample, Setting

# The most rows on which a fit makes its choices, and the factor by which rows grow.
FIRST_ROWS, FACTOR = 1000, 4
# The last stage has at least this many times the rows of the one before.
_LEAST_GROWTH = 1.25
# Rows are dealt into hands of this size, of which a stage has the first ones.
_HAND_ROWS = 100
# The most rows that judge widths and ridges, and the factors that they try.
_JUDGING_ROWS = 2 * BLOCK_ROWS
_WIDTH_FACTORS, _RIDGE_FACTORS = (0.35, 0.5, 0.7, 1.0, 1.4), (0.03, 0.1, 0.3, 1.0)


def sizes_of_stages(first: int, n_rows: int) -> list[int]:
    """Return the sizes of the stages before one of all rows: the first, and four times as many."""
    sizes = []
    while first * _LEAST_GROWTH <= n_rows:
        sizes.append(first)
        first *= FACTOR
    return sizes


def stages(keys: Array, seed: int, most: int) -> list[Array]:
    """Return the row numbers of each stage of at most about `most` rows, but one of all n rows.

    Each stage has the rows of the one before. `keys` (n,) deal the rows.
    """
    sizes = [size for size in sizes_of_stages(FIRST_ROWS, len(keys)) if size <= most]
    if not sizes:
        return []
    hands = deal(keys, len(keys) // _HAND_ROWS, seed)
    order = np.concatenate(hands)
    return [np.sort(order[:size]) for size in sizes]


def judged_by_unseen(
    sample: Sample, unseen: Block, W: Array, setting: Setting, device: Device | None = None
) -> Setting:
    """Return the width and ridge with which unseen rows predict each other best from X W."""
    keys = unseen.Y[:, 0]
    few = min(unseen.n_rows, _JUDGING_ROWS)
    hand = deal(keys, max(1, unseen.n_rows // few), sample.seed)[0]
    rows = unseen.part(hand)
    judges = (
        BlocksInMemory.dealt(rows, rows.Y[:, 0], 0)
        if device is None
        else BlocksOnDevice(DeviceRows.of(device, rows), dealt_rows(rows.Y[:, 0], 0))
    )
    widths = _WIDTH_FACTORS if sample.width_is_free else (1.0,)
    grid = [[setting.times(width, ridge) for ridge in _RIDGE_FACTORS] for width in widths]

    def values(settings: list[Setting]) -> list[float]:
        return [-float(judges.leave_one_out(sample.at(each), W).mean()) for each in settings]

    return climbed_grid(grid, values, (widths.index(1.0), _RIDGE_FACTORS.index(1.0)))[0]
