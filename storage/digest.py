"""SHA-256 digests of files, and of the values of a data set independent of their storage."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file, read in pieces."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


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
        self._hash.update(f"\nrows {self._rows}\n".encode())
        for name in sorted(labels):
            codes = labels[name]
            self._hash.update(f"label {name} {_little_endian(codes).str} {len(codes)}\n".encode())
            self._hash.update(_little_endian_bytes(codes))
        return self._hash.hexdigest()


def content_digest(X: NDArray[Any], labels: Mapping[str, NDArray[Any]]) -> str:
    """Return the digest of X, shape (n, d), and labels, each of shape (n,)."""
    digest = ContentDigest()
    digest.add(X)
    return digest.finish(labels)


def _little_endian(values: NDArray[Any]) -> np.dtype[Any]:
    """Return the little-endian dtype, so that every machine hashes the same bytes."""
    return values.dtype.newbyteorder("<")


def _little_endian_bytes(values: NDArray[Any]) -> memoryview:
    """Return the values as C-ordered little-endian bytes, without a copy where possible."""
    return np.ascontiguousarray(values, dtype=_little_endian(values)).reshape(-1).data
