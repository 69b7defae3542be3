"""A subset of the rows of a stored matrix, for folds of data too large for memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storage.dataset import ZarrRows

Array = NDArray[Any]


@dataclass(frozen=True)
class RowSubset:
    """A subset of the rows (n, d) of a stored matrix, which any process can read from disk.

    `bits` is a bit mask over these rows. It is this small because every Dask task contains it.
    """

    source: ZarrRows
    bits: bytes

    @classmethod
    def of(cls, source: ZarrRows, rows: Array) -> RowSubset:
        """Return the subset of the rows with the numbers `rows`, which ascend."""
        mask = np.zeros(len(source), dtype=bool)
        mask[rows] = True
        return cls(source, np.packbits(mask).tobytes())

    @property
    def rows(self) -> Array:
        """Numbers of the rows in the source, ascending."""
        return _row_numbers(self.bits)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows in the subset, and of columns."""
        return len(self.rows), self.source.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the stored matrix."""
        return self.source.dtype

    @property
    def chunk_rows(self) -> int:
        """Rows in a chunk of the stored matrix."""
        return self.source.chunk_rows

    def read(self, start: int, stop: int) -> Array:
        """Return the rows of the subset from `start` to `stop` (not included)."""
        rows = self.rows[start:stop]
        if len(rows) == 0:
            return self.source.read(0, 0)
        first, last = int(rows[0]), int(rows[-1])
        values: Array = self.source.read(first, last + 1)[rows - first]
        return values


@lru_cache(maxsize=4)
def _row_numbers(bits: bytes) -> Array:
    # Cached here, not in `RowSubset`: every Dask task would contain the numbers, too.
    return np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8)))
