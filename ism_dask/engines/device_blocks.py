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
from ism_dask.linalg.arrays import in_library_of, in_type, namespace, on_host
from ism_dask.linalg.subspaces import tangent
from ism_dask.rows.blocks import RANGE_ROWS
from ism_dask.rows.devices import Device, is_out_of_memory
from ism_dask.rows.shards import Shards
from ism_dask.thread_pool import prefetched

# The share of the free memory of a device that rows may take for good, and that of the rest which
# a batch may take for its matrices. Batches beyond these bytes are no faster.
_ROWS_SHARE, _BATCH_SHARE, _BATCH_BYTES = 0.6, 0.5, 4 * 2**30
# How many matrices (m, m) of a batch exist at a time, and copies of its rows (m, d), all double.
_SQUARES, _COPIES = 7, 3
# The batch below which rows do not stay on a device that has no memory for it.
_SMALL_BATCH = 64 * 2**20


@dataclass(frozen=True)
class MemoryPlan:
    """Whether all rows stay on a device, and the bytes that a batch may take in addition."""

    resident: bool
    batch_bytes: float

    @classmethod
    def for_rows(cls, row_bytes: int, free_bytes: int) -> MemoryPlan:
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


@dataclass(eq=False)
class DeviceMatrix:
    """X of all rows (n, d), which is on the device from its first use on.

    Attributes
    ----------
    device : Device
    n_columns : int
    n_bytes : int
        What it takes there.
    load : callable
        Returns X on the device.
    read : callable
        Returns rows with numbers (k, m), in any order, as an array (k, m, d) of NumPy.
    """

    device: Device
    n_columns: int
    n_bytes: int
    load: Callable[[], Any]
    read: Callable[[Array], Array]

    @classmethod
    def from_array(cls, device: Device, X: Array) -> DeviceMatrix:
        """Return X (n, d) in memory for a device."""
        return cls(device, X.shape[1], X.nbytes, partial(device.put, X), X.__getitem__)

    @classmethod
    def from_shards(cls, device: Device, shards: Shards) -> DeviceMatrix:
        """Return the rows of shards, which are standardised on the device if they stay there."""
        d = shards.n_columns
        size = shards.n_rows * d * shards.dtype.itemsize
        return cls(device, d, size, partial(_loaded, device, shards), partial(_read, shards))

    @cached_property
    def whole(self) -> Any:
        """All rows, on the device."""
        return self.load()

    @property
    def is_loaded(self) -> bool:
        """Whether all rows are on the device."""
        return "whole" in vars(self)

    def forget(self) -> None:
        """Let no rows stay on the device."""
        vars(self).pop("whole", None)

    def here(self, numbers: Array) -> Array:
        """Return rows with numbers (k, m) as an array of NumPy, from where they are."""
        if self.is_loaded:
            return on_host(selected(self.whole, self.device.put(numbers)))
        return self.read(numbers)


@dataclass(eq=False)
class DeviceRows:
    """The rows of a device with their target.

    Attributes
    ----------
    matrix : DeviceMatrix
    Y : (n, r) array of NumPy
    weights : (n,) array of NumPy, or None
    """

    matrix: DeviceMatrix
    Y: Array
    weights: Array | None = None

    @classmethod
    def from_block(cls, device: Device, rows: Block) -> DeviceRows:
        """Return rows in memory for a device."""
        return cls(DeviceMatrix.from_array(device, rows.X), rows.Y, rows.weights)

    @property
    def device(self) -> Device:
        """The device."""
        return self.matrix.device

    @property
    def n_bytes(self) -> int:
        """What the rows take on the device in addition to those that are there."""
        return self.Y.nbytes + (0 if self.matrix.is_loaded else self.matrix.n_bytes)

    def here(self, numbers: Array) -> Block:
        """Return rows with numbers (k, m) as a block of arrays (k, m, ...) of NumPy."""
        weights = None if self.weights is None else self.weights[numbers]
        return Block(self.matrix.here(numbers), self.Y[numbers], weights)

    def sent(self, numbers: Array) -> Block:
        """Return rows with numbers (k, m) that do not stay on the device as a block there."""
        block, put = self.here(numbers), self.device.put
        weights = None if block.weights is None else put(block.weights)
        return Block(put(block.X), put(block.Y), weights)

    def resident(self, numbers: Array) -> Block:
        """Return rows with numbers (k, m) as a block, from those that stay on the device."""
        places = self.device.put(numbers)
        target = self._target
        weights = None if target[1] is None else selected(target[1], places)
        return Block(selected(self.matrix.whole, places), selected(target[0], places), weights)

    @cached_property
    def _target(self) -> tuple[Any, Any]:
        put = self.device.put
        return put(self.Y), None if self.weights is None else put(self.weights)


def selected(array: Any, places: Any) -> Any:
    """Return the entries of an array (n, ...) in places (k, m) as an array (k, m, ...)."""
    xp = namespace(array)
    rows = xp.take(array, xp.reshape(places, (-1,)), axis=0)
    return xp.reshape(rows, (*places.shape, *array.shape[1:]))


def _loaded(device: Device, shards: Shards) -> Any:
    """Return the rows of shards on a device, where they come as they are stored."""
    xp, shape = device.xp, (shards.n_rows, shards.n_columns)
    X = xp.empty(shape, dtype=getattr(xp, shards.dtype.name), device=device.device)
    for places, stored in shards.stored():
        known = stored.dtype.name in device.type_names and stored.dtype.isnative
        rows = device.put(stored if known else stored.astype(np.float64))
        affine = shards.affine
        rows = in_type(rows, shards.dtype) if affine is None else affine.apply(rows, shards.dtype)
        X[places, ...] = rows
    return X


def _read(shards: Shards, numbers: Array) -> Array:
    rows, places = np.unique(numbers, return_inverse=True)
    return np.asarray(shards.rows(rows)[places.reshape(numbers.shape)])


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
        return MemoryPlan.for_rows(self.rows.n_bytes, self.rows.device.free_bytes)

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
        return prefetched([partial(self.rows.sent, each) for each in self._numbers])


def _sums_of_batch(regression: RidgeRegression, W: Array, batch: Block) -> tuple[Any, ...]:
    """Return the sums over the blocks of a batch: J, Phi W, its squared tangent, and the sizes."""
    value, xp = regression.explained(batch, W), namespace(batch.X)
    turned = tangent(in_library_of(W, batch.X), value.product)
    sizes = xp.zeros_like(value.objective) + batch.size
    return (
        xp.sum(sizes * value.objective),
        xp.sum(sizes[:, None, None] * value.product, axis=0),
        xp.sum(sizes * xp.sum(turned**2, axis=(-2, -1))),
        xp.sum(sizes),
    )
