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
from ism_dask.engines.blocks import (
    Arrays,
    BlocksOfShards,
    DealOfShards,
    RegressionBlocks,
    Sums,
    added,
    shard_sums,
    sums_of,
)
from ism_dask.engines.device_memory import MemoryPlan, WithinMemory
from ism_dask.linalg.arrays import beside, namespace, on_host
from ism_dask.linalg.subspaces import tangent
from ism_dask.rows.blocks import RANGE_ROWS
from ism_dask.rows.devices import Device, DevicesOfWorkers, device_here
from ism_dask.rows.tasks import LoadedShard


@dataclass(eq=False)
class BlocksOnDevice(WithinMemory, RegressionBlocks):
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

    _by_plan = ("_numbers",)

    @property
    def place(self) -> str:
        """The device in words."""
        return f"on {self.device.title}"

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
        batches = partial(self._sums_of_batches, regression, W)
        objective, product, squares, size = map(on_host, self._within_memory(batches))
        return objective, product, squares, size, np.array(float(len(self.dealt)))

    def _sums_of_batches(self, regression: RidgeRegression, W: Array) -> tuple[Any, ...]:
        return added([_sums_of_batch(regression, W, each) for each in self._batches()])

    def _is_least(self) -> bool:
        return max(map(len, self._numbers)) == 1

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


@dataclass(frozen=True, eq=False)
class BlocksOnWorkers(BlocksOfShards):
    """Blocks of shards that the workers of a cluster compute on devices of their own.

    A worker without a device of the name computes on its processor.

    Attributes
    ----------
    workers : DevicesOfWorkers
    """

    workers: DevicesOfWorkers

    @classmethod
    def of_shards(cls, blocks: BlocksOfShards, workers: DevicesOfWorkers) -> BlocksOnWorkers:
        """Return the same blocks for the devices of workers."""
        return cls(blocks.shards, blocks.dealt, workers)

    @property
    def place(self) -> str:
        """The device and the number of workers in words."""
        return f"on {self.workers.title}"

    def _sums(self, regression: RidgeRegression, W: Array) -> Sums:
        name, dealt = self.workers.name, self.dealt
        sums: Sums = self.shards.fold(_sums_of_shard, regression, W, dealt, name)
        return sums


def _sums_of_shard(
    shard: LoadedShard, regression: RidgeRegression, W: Array, dealt: DealOfShards, name: str
) -> Sums:
    rows, parts = dealt.blocks(shard)
    device, numbers = device_here(name), list(parts)
    if device is None or not numbers:
        return shard_sums(shard, partial(sums_of, regression, W), dealt)
    return BlocksOnDevice(device, rows.part, numbers)._sums(regression, W)


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
