"""Apply a standardisation to rows, and project rows; `column_statistics` estimates it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask.rows.source import is_sparse

# Rows that are projected at a time.
_ROWS_AT_ONCE = 8192
# Types whose values float32 holds exactly.
_EXACT_IN_SINGLE = (np.float32, np.uint8, np.int8, np.uint16, np.int16)
# Means beyond this many deviations are subtracted in double precision: in single precision the
# digits of the rows would cancel.
_MAX_MEAN = 64.0


@dataclass(frozen=True)
class Standardisation:
    """The map from raw rows to the standardised rows of the solver: `(x - mean) / scale`.

    Attributes
    ----------
    mean, scale : (d,) arrays
    varying : (d,) boolean array
        The columns that vary; the others are left out.
    indicators : (d,) boolean array or None
        The columns of which all values are 0 or 1; None if that is not known.
    basis : (varying, r) array or None
        Orthonormal directions; the rows become their coordinates in them.
    """

    mean: Array
    scale: Array
    varying: Array
    indicators: Array | None = None
    basis: Array | None = None

    @property
    def n_columns(self) -> int:
        """Number of columns of the standardised rows."""
        return int(self.varying.sum()) if self.basis is None else self.basis.shape[1]

    def apply(self, raw: Any, dtype: np.dtype[Any]) -> Any:
        """Return the (b, varying) or (b, r) rows in `dtype`, where the raw are."""
        if not self.varying.all():
            # Not raw[:, varying]: that is stored column by column, and its rows are slow to select.
            raw = np.take(raw, np.flatnonzero(self.varying), axis=1)
        precision = dtype if self._fits_single else np.dtype(np.float64)
        rows = raw.astype(precision, order="C")
        rows -= self._mean.astype(precision)
        rows /= self._scale.astype(precision)
        if self.basis is not None:
            rows = rows @ self.basis.astype(precision)
        return rows.astype(dtype, copy=False)

    @cached_property
    def _mean(self) -> Array:
        return self.mean[self.varying]

    @cached_property
    def _scale(self) -> Array:
        return self.scale[self.varying]

    @cached_property
    def _fits_single(self) -> bool:
        """Whether single precision can represent the scales, and the means are not far from 0."""
        limits = np.finfo(np.float32)
        scale = self._scale
        scale_in_range = ((scale > limits.tiny) & (scale < limits.max)).all()
        return bool(scale_in_range and (np.abs(self._mean) <= _MAX_MEAN * scale).all())


def tile_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the precision of tiles: float32 for types that it holds exactly, else float64."""
    return np.dtype(np.float32 if np.dtype(dtype) in _EXACT_IN_SINGLE else np.float64)


def project(X: Any, mean: Array, scale: Array, components: Array) -> Array:
    """Return `(X - mean) / scale` times `components^T`: (n, q) for X (n, d) and components (q, d).

    It is computed in double precision; rows in single precision give results in single precision.
    """
    weights, dtype = (components / scale).T, np.float32 if X.dtype == np.float32 else np.float64
    if is_sparse(X):
        return np.asarray(X @ weights - mean @ weights).astype(dtype)
    Z = np.empty((X.shape[0], len(components)), dtype=dtype)
    for start in range(0, len(X), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        # The mean is subtracted first: subtracted from the product, it would cancel the digits.
        Z[rows] = (X[rows] - mean) @ weights
    return Z
