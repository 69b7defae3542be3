"""Rows for the blocks of a device: all of them stay there if they fit, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask.criteria.prediction import Block
from ism_dask.linalg.arrays import in_type, namespace, on_host
from ism_dask.rows.devices import Device
from ism_dask.rows.shards import Shards


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
    def of(cls, device: Device, X: Array) -> DeviceMatrix:
        """Return X (n, d) in memory for a device."""
        return cls(device, X.shape[1], X.nbytes, partial(device.put, X), X.__getitem__)

    @classmethod
    def of_shards(cls, device: Device, shards: Shards) -> DeviceMatrix:
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
            return on_host(taken(self.whole, self.device.put(numbers)))
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
    def of(cls, device: Device, rows: Block) -> DeviceRows:
        """Return rows in memory for a device."""
        return cls(DeviceMatrix.of(device, rows.X), rows.Y, rows.weights)

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
        weights = None if target[1] is None else taken(target[1], places)
        return Block(taken(self.matrix.whole, places), taken(target[0], places), weights)

    @cached_property
    def _target(self) -> tuple[Any, Any]:
        put = self.device.put
        return put(self.Y), None if self.weights is None else put(self.weights)


def taken(array: Any, places: Any) -> Any:
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
