"""`RawData`, which every loader returns, size-limited readers of untrusted raw files, errors."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storage.errors import StorageError

DATA_VARIABLE = "ISM_DASK_DATA"


class RawFileError(StorageError):
    """A raw file is missing, unreadable, truncated, hostile, or of another format or edition."""


class DownloadError(StorageError):
    """A raw file could not be downloaded from its public address."""


@dataclass(frozen=True, eq=False)
class RawData:
    """A data set as read from its raw files.

    Attributes
    ----------
    X : ndarray of shape (n, d)
        In the narrowest dtype that holds the raw values exactly.
    labels : Mapping[str, ndarray of shape (n,)]
        Integer codes from 0.
    class_names : Mapping[str, tuple of str]
        The name of each code.
    feature_names : tuple of str, optional
        One per column.
    image_shape : tuple of int, optional
        (height, width) if a row is a picture.
    """

    X: NDArray[Any]
    labels: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    feature_names: tuple[str, ...] | None = None
    image_shape: tuple[int, ...] | None = None


def read_bytes(path: Path, limit: int) -> bytes:
    """Return the content of a file; raise RawFileError if it has more than `limit` bytes."""
    try:
        with path.open("rb") as handle:
            return _at_most(handle.read(limit + 1), path, limit)
    except OSError as error:
        raise bad_file(path, f"cannot be read ({error.strerror or error})") from error


def gunzip(path: Path, limit: int) -> bytes:
    """Return the unpacked content of a gzip file; raise RawFileError beyond `limit` bytes."""
    try:
        with gzip.open(path, "rb") as handle:
            return _at_most(handle.read(limit + 1), path, limit)
    except (OSError, EOFError, zlib.error) as error:
        raise bad_file(path, f"is no whole gzip file ({error})") from error


def bad_file(path: Path, what: str) -> RawFileError:
    """Return the error that names a raw file and its defect `what`."""
    return RawFileError(f"{path} {what}. Remove it and fetch it again, or put a good copy there.")


def _at_most(data: bytes, path: Path, limit: int) -> bytes:
    """Return `data`; raise RawFileError if it is longer than the format allows."""
    if len(data) > limit:
        raise bad_file(path, f"holds more than {limit} bytes, the most expected")
    return data
