"""Standardise rows and project them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ism_dask._types import Array

# Rows that are projected at a time.
_ROWS_AT_ONCE = 8192


_NARROW = (np.float32, np.uint8, np.int8, np.uint16, np.int16)
# Means beyond this many deviations are subtracted in double precision: in single precision they
# would take the digits of the rows along.
_FAR = 64.0


@dataclass(frozen=True)
class Standardisation:
    """What turns raw rows into the rows that the mathematics sees: `(x - mean) / scale`.

    Attributes
    ----------
    mean, scale : (d,) arrays
    kept : (d,) boolean array
        The columns that vary; the others are left out.
    """

    mean: Array
    scale: Array
    kept: Array

    def apply(self, raw: Array, dtype: np.dtype[Any]) -> Array:
        """Return the (b, kept) rows in `dtype`."""
        # Not raw[:, kept]: that lies column by column, and rows of it are slow to pick.
        rows = raw if self.kept.all() else np.take(raw, np.flatnonzero(self.kept), axis=1)
        rows = rows.astype(self._working(dtype), order="C")
        rows -= self._mean.astype(rows.dtype)
        rows /= self._scale.astype(rows.dtype)
        return rows.astype(dtype, copy=False)

    def _working(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the precision to compute in, where `dtype` is asked for."""
        return dtype if self._near else np.dtype(np.float64)

    @cached_property
    def _mean(self) -> Array:
        return self.mean[self.kept]

    @cached_property
    def _scale(self) -> Array:
        return self.scale[self.kept]

    @cached_property
    def _near(self) -> bool:
        """Whether single precision holds the scales, and means that are not far from 0."""
        limits = np.finfo(np.float32)
        scale = self._scale
        held = ((scale > limits.tiny) & (scale < limits.max)).all()
        return bool(held and (np.abs(self._mean) <= _FAR * scale).all())


def tile_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the precision of tiles: float32 for what float32 holds exactly, else float64."""
    return np.dtype(np.float32 if np.dtype(dtype) in _NARROW else np.float64)


def project(X: Array, mean: Array, scale: Array, components: Array) -> Array:
    """Return `(X - mean) / scale` times `components^T`: (n, q) for X (n, d) and (q, d).

    It is computed in double precision; rows in single precision give results in single.
    """
    Z = np.empty((len(X), len(components)), np.float32 if X.dtype == np.float32 else np.float64)
    weights = (components / scale).T
    for start in range(0, len(X), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        # The mean goes first: subtracted from the product it would take the digits along.
        Z[rows] = (X[rows] - mean) @ weights
    return Z
