"""Sources of rows: data sets that any process can read."""

from __future__ import annotations

from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np

from ism_dask._types import Array


@runtime_checkable
class RowSource(Protocol):
    """Rows that any process can read by itself, such as an opened data set."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    chunk_rows: int

    def read(self, start: int, stop: int) -> Array:
        """Return rows `start` to `stop` as a (stop - start, d) array."""


def is_row_source(X: Any) -> TypeGuard[RowSource]:
    """Return whether X is a `RowSource`; an array is not, and none of its attributes is read."""
    return not isinstance(X, np.ndarray) and isinstance(X, RowSource)
