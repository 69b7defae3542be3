"""Blocks of regressions on a device, such as a GPU, which takes many blocks at a time.

Rows that fit on the device stay there; others stream to it in every pass, each batch while the one
before is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask.criteria.prediction import Block, RidgeRegression
from ism_dask.engines.blocks import Arrays, RegressionBlocks, Sums, added
from ism_dask.linalg.arrays import beside, namespace, on_host
from ism_dask.linalg.subspaces import tangent
from ism_dask.rows.blocks import RANGE_ROWS
from ism_dask.rows.devices import Device, is_out_of_memory

# The share of the free memory of a device that rows may take for good, and that of the rest which
# a batch may take for its matrices. Batches beyond these bytes are no faster.
_ROWS_SHARE, _BATCH_SHARE, _BATCH_BYTES = 0.6, 0.5, 4 * 2**30
# How many matrices (m, m) of a batch exist at a time, and copies of its rows (m, d), all double.
_SQUARES, _COPIES = 7, 2
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

    @classmethod
    def of_batch(cls, blocks: int, m: int, d: int) -> MemoryPlan:
        """Return the plan for rows that stay, with this number of blocks of m rows in a batch."""
        return cls(True, blocks * _block_bytes(m, d))

    def smaller(self, *, loaded: bool) -> MemoryPlan:
        """Return the plan with batches of half the size; rows that could be `loaded` stay."""
        size = self.batch_bytes / 2
        return MemoryPlan(loaded and size >= _SMALL_BATCH, size)

    def most_blocks(self, m: int, d: int) -> int:
        """Return the most blocks of m rows with d columns in a batch, one at least."""
        return max(1, int(self.batch_bytes // _block_bytes(m, d)))


def _block_bytes(m: int, d: int) -> int:
    """Return the bytes that a block of m rows with d columns takes beside them."""
    return 8 * m * (_SQUARES * m + _COPIES * d)


@dataclass(eq=False)
class BlocksOnDevice(RegressionBlocks):
    """Blocks that a device computes in batches of equal ones.

    Attributes
    ----------
    device : Device
    rows : callable
        Returns rows of numbers (k, m) as a block of arrays (k, m, ...) of NumPy.
    dealt : list of (m,) arrays
        The numbers of the rows of each block.
    """

    device: Device
    rows: Callable[[Array], Block]
    dealt: Sequence[Array]

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
        return added([function(self.rows(each)) for each in self.dealt])

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
                objective, product, squares, size = (on_host(each) for each in sums)
            except Exception as error:
                is_least = not self._plan.resident and max(map(len, self._numbers)) == 1
                if is_least or not is_out_of_memory(error):
                    raise
            else:
                return objective, product, squares, size, np.array(float(len(self.dealt)))
            self._plan = self._plan.smaller(loaded="_resident" in vars(self))
            for outdated in ("_numbers", "_resident"):
                self.__dict__.pop(outdated, None)

    @cached_property
    def _plan(self) -> MemoryPlan:
        row_bytes = self._row.X.nbytes + self._row.Y.nbytes
        return MemoryPlan.of(self.n_rows * row_bytes, self.device.free_bytes)

    @cached_property
    def _row(self) -> Block:
        return self.rows(self.dealt[0][:1])

    @cached_property
    def _numbers(self) -> list[Array]:
        """The numbers (k, m) of the rows of each batch, whose blocks have the same size."""
        batches: list[Array] = []
        for m in sorted({len(each) for each in self.dealt}):
            blocks = np.stack([each for each in self.dealt if len(each) == m])
            most = self._plan.most_blocks(m, self._row.X.shape[-1])
            batches += np.array_split(blocks, -(-len(blocks) // most))
        return batches

    def _batches(self) -> Iterator[Block]:
        """Return all blocks on the device, in batches."""
        return iter(self._resident) if self._plan.resident else self._streamed()

    @cached_property
    def _resident(self) -> list[Block]:
        return list(self._streamed())

    def _streamed(self) -> Iterator[Block]:
        """Yield batches; while one is computed, a thread brings the next one to the device."""
        with ThreadPoolExecutor(1) as pool:
            calls = [partial(copy_context().run, self._loaded, each) for each in self._numbers]
            coming = pool.submit(calls[0])
            for following in calls[1:]:
                here, coming = coming.result(), pool.submit(following)
                yield here
            yield coming.result()

    def _loaded(self, numbers: Array) -> Block:
        """Return the blocks of rows with numbers (k, m) on the device."""
        block, put = self.rows(numbers), self.device.put
        weights = None if block.weights is None else put(block.weights)
        return Block(put(block.X), put(block.Y), weights)


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
