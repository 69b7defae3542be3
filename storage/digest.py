"""SHA-256 digests of files, and of the values of a data set independent of their storage."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file, read in pieces."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


class Rows(Protocol):
    """Rows that are in memory or on disk."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, d)."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers."""


class ContentDigest:
    """SHA-256 of X and its labels: equal values and dtypes have equal digests.

    It depends neither on the compression nor on the chunks, so it identifies the data.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._rows = 0

    def add(self, block: NDArray[Any]) -> None:
        """Add the next rows, shape (rows, d)."""
        if self._rows == 0:
            self._hash.update(f"X {_little_endian(block).str} {block.shape[1]}\n".encode())
        self._rows += len(block)
        self._hash.update(_little_endian_bytes(block))

    def finish(self, labels: Mapping[str, NDArray[Any]]) -> str:
        """Return the digest of all added rows and of the labels, each of shape (n,)."""
        _add_labels(self._hash, self._rows, labels)
        return self._hash.hexdigest()


def chunk_digest(chunk: NDArray[Any]) -> bytes:
    """Return the SHA-256 of the rows of a chunk, shape (rows, d)."""
    return hashlib.sha256(_little_endian_bytes(chunk)).digest()


def chunked_digest(
    X: Rows, chunk_rows: int, digests: Iterable[bytes], labels: Mapping[str, NDArray[Any]]
) -> str:
    """Return the SHA-256 of the digests of the chunks of X, in their order, and of its labels.

    Unlike `ContentDigest` it depends on the chunks, whose digests can be computed side by side and
    kept when rows are appended.
    """
    rows, columns = X.shape
    header = f"X {_little_endian_type(X.dtype).str} {columns} by {chunk_rows}\n"
    found = hashlib.sha256(header.encode())
    for each in digests:
        found.update(each)
    _add_labels(found, rows, labels)
    return found.hexdigest()


def content_digest(X: NDArray[Any], labels: Mapping[str, NDArray[Any]]) -> str:
    """Return the digest of X, shape (n, d), and labels, each of shape (n,)."""
    digest = ContentDigest()
    digest.add(X)
    return digest.finish(labels)


def _add_labels(found: Any, rows: int, labels: Mapping[str, NDArray[Any]]) -> None:
    """Add the number of rows and the labels to a hash."""
    found.update(f"\nrows {rows}\n".encode())
    for name in sorted(labels):
        codes = labels[name]
        found.update(f"label {name} {_little_endian(codes).str} {len(codes)}\n".encode())
        found.update(_little_endian_bytes(codes))


def _little_endian(values: NDArray[Any]) -> np.dtype[Any]:
    """Return the little-endian dtype, so that every machine hashes the same bytes."""
    return _little_endian_type(values.dtype)


def _little_endian_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("<")


def _little_endian_bytes(values: NDArray[Any]) -> memoryview:
    """Return the values as C-ordered little-endian bytes, without a copy where possible."""
    return np.ascontiguousarray(values, dtype=_little_endian(values)).reshape(-1).data
