"""Blocks of regressions on a device, such as a GPU, which takes many blocks at a time.

Blocks are taken from the rows that stay on the device; rows that do not fit there stream to it in
every pass, each batch while the one before is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask.criteria.prediction import Block, RidgeRegression
from ism_dask.engines.blocks import (
    Arrays,
    RegressionBlocks,
    Sums,
    added,
)
from ism_dask.engines.device_rows import DeviceRows
from ism_dask.linalg.arrays import beside, namespace, on_host
from ism_dask.linalg.subspaces import tangent
from ism_dask.rows.blocks import RANGE_ROWS
from ism_dask.rows.devices import is_out_of_memory
from ism_dask.rows.execution import ahead

# The share of the free memory of a device that rows may take for good, and that of the rest which
# a batch may take for its matrices. Batches beyond these bytes are no faster.
_ROWS_SHARE, _BATCH_SHARE, _BATCH_BYTES = 0.6, 0.5, 4 * 2**30
# How many matrices (m, m) of a batch exist at a time, and copies of its rows (m, d), all double.
_SQUARES, _COPIES = 7, 3
# The batch below which rows do not stay on a device that has no memory for it.
_SMALL_BATCH = 64 * 2**20


@dataclass(frozen=True)
class MemoryPlan:
    """What a device holds at a time.

    Attributes
    ----------
    resident : bool
        Whether all rows stay on the device.
    batch_bytes : float
        The bytes that a batch may take beside the rows.
    """

    resident: bool
    batch_bytes: float

    @classmethod
    def of(cls, row_bytes: int, free_bytes: int) -> MemoryPlan:
        """Return the plan for all rows, which take this number of bytes."""
        resident = row_bytes <= _ROWS_SHARE * free_bytes
        left = free_bytes - resident * row_bytes
        return cls(resident, min(_BATCH_SHARE * left, _BATCH_BYTES))

    def smaller(self, *, loaded: bool) -> MemoryPlan:
        """Return the plan with batches of half the size; rows that could be `loaded` stay."""
        size = self.batch_bytes / 2
        return MemoryPlan(loaded and size >= _SMALL_BATCH, size)

    def most_blocks(self, m: int, d: int) -> int:
        """Return the most blocks of m rows with d columns in a batch, one at least."""
        return max(1, int(self.batch_bytes // block_bytes(m, d)))


def block_bytes(m: int, d: int) -> int:
    """Return the bytes that a block of m rows with d columns takes beside them."""
    return 8 * m * (_SQUARES * m + _COPIES * d)


@dataclass(eq=False)
class BlocksOnDevice(RegressionBlocks):
    """Blocks that a device computes in batches of equal ones.

    Attributes
    ----------
    rows : DeviceRows
    dealt : list of (m,) arrays
        The numbers of the rows of each block.
    """

    rows: DeviceRows
    dealt: Sequence[Array]

    @property
    def place(self) -> str:
        """The device in words."""
        return f"on {self.rows.device.title}"

    @property
    def n_rows(self) -> int:
        """The number of rows of all blocks."""
        return sum(map(len, self.dealt))

    def first(self, n_rows: int) -> BlocksOnDevice:
        """Return the blocks of the first ranges of rows that have this number of rows or more."""
        stop = -(-n_rows // RANGE_ROWS) * RANGE_ROWS
        return replace(self, dealt=[each for each in self.dealt if each[0] < stop])

    def _summed(self, function: Callable[[Block], Arrays]) -> Arrays:
        """Return the sums of a function of the blocks, computed here in arrays of NumPy."""
        return added([function(self.rows.here(each)) for each in self.dealt])

    def leave_one_out(self, regression: RidgeRegression, W: Array) -> Array:
        """Return the squared error (n,) with which the rows of its block predict each row.

        It is multiplied by the weight of the row. The rows are in the order of the batches.
        """
        errors = [regression.leave_one_out(each, W) for each in self._batches()]
        return np.concatenate([on_host(each).ravel() for each in errors])

    def _sums(self, regression: RidgeRegression, W: Array) -> Sums:
        """Return the sums over all blocks; these alone come here from the device."""
        while True:
            try:
                sums = added([_sums_of_batch(regression, W, each) for each in self._batches()])
                break
            except Exception as error:
                is_least = not self._plan.resident and max(map(len, self._numbers)) == 1
                if is_least or not is_out_of_memory(error):
                    raise
            self._plan = self._plan.smaller(loaded=self.rows.matrix.is_loaded)
            self.__dict__.pop("_numbers", None)  # follows from the plan
        objective, product, squares, size = map(on_host, sums)
        return objective, product, squares, size, np.array(float(len(self.dealt)))

    @cached_property
    def _plan(self) -> MemoryPlan:
        return MemoryPlan.of(self.rows.n_bytes, self.rows.device.free_bytes)

    @cached_property
    def _numbers(self) -> list[Array]:
        """The numbers (k, m) of the rows of each batch, whose blocks have the same size."""
        batches: list[Array] = []
        for m in sorted({len(each) for each in self.dealt}):
            blocks = np.stack([each for each in self.dealt if len(each) == m])
            most = self._plan.most_blocks(m, self.rows.matrix.n_columns)
            batches += np.array_split(blocks, -(-len(blocks) // most))
        return batches

    def _batches(self) -> Iterator[Block]:
        """Return all blocks on the device, in batches."""
        if self._plan.resident:
            return map(self.rows.resident, self._numbers)
        self.rows.matrix.forget()
        return ahead([partial(self.rows.sent, each) for each in self._numbers])


def _sums_of_batch(regression: RidgeRegression, W: Array, batch: Block) -> tuple[Any, ...]:
    """Return the sums over the blocks of a batch: J, Phi W, its squared tangent, and the sizes."""
    value, xp = regression.explained(batch, W), namespace(batch.X)
    turned = tangent(beside(W, batch.X), value.product)
    sizes = xp.zeros_like(value.objective) + batch.size
    return (
        xp.sum(sizes * value.objective),
        xp.sum(sizes[:, None, None] * value.product, axis=0),
        xp.sum(sizes * xp.sum(turned**2, axis=(-2, -1))),
        xp.sum(sizes),
    )
