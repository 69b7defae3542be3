"""SHA-256 digests of arrays, and of the values of a data set: equal values have equal digests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def chunk_digest(chunk: NDArray[Any]) -> bytes:
    """Return the SHA-256 of the rows of a chunk, shape (rows, d)."""
    return hashlib.sha256(_little_endian_bytes(chunk)).digest()


def chunked_digest(
    X: Any, chunk_rows: int, digests: Iterable[bytes], labels: Mapping[str, NDArray[Any]]
) -> str:
    """Return the SHA-256 of the digests of the chunks of X, in their order, and of its labels.

    It depends on the chunks, whose digests can be computed side by side and used again when rows
    are appended, and not on their compression. Of X, only `shape` and `dtype` are read.
    """
    rows, columns = X.shape
    header = f"X {X.dtype.newbyteorder('<').str} {columns} by {chunk_rows}\n"
    found = hashlib.sha256(header.encode())
    for each in digests:
        found.update(each)
    found.update(f"\nrows {rows}\n".encode())
    _add_arrays(found, labels)
    return found.hexdigest()


def arrays_digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the SHA-256 of arrays of any shape, and of their names."""
    found = hashlib.sha256()
    _add_arrays(found, arrays)
    return found.hexdigest()


def _add_arrays(found: Any, arrays: Mapping[str, NDArray[Any]]) -> None:
    for name, values in sorted(arrays.items()):
        header = f"array {name} {values.dtype.newbyteorder('<').str} {values.shape}\n"
        found.update(header.encode())
        found.update(_little_endian_bytes(values))


def _little_endian_bytes(values: NDArray[Any]) -> memoryview:
    """Return the values as C-ordered little-endian bytes, without a copy where possible."""
    dtype = values.dtype.newbyteorder("<")
    return np.ascontiguousarray(values, dtype=dtype).reshape(-1).data
