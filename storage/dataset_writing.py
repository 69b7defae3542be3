"""Write a data set to Zarr from a stream of row blocks.

No more than a chunk is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from storage.dataset import FORMAT_VERSION, DatasetInfo, check_labels
from storage.errors import StorageError
from storage.store import chunk_digest, chunked_digest, commit_group, create_array, put_array

CHUNK_BYTES = 2**22

Block = NDArray[Any]


def write_dataset(
    target: Path,
    info: DatasetInfo,
    row_blocks: Iterable[Block],
    labels: Mapping[str, NDArray[Any]] | None = None,
    *,
    chunk_rows: int | None = None,
    on_rows: Callable[[int], None] = lambda _: None,
) -> None:
    """Write a data set to the folder `target` atomically.

    Parameters
    ----------
    target : Path
        Folder to create or replace.
    info : DatasetInfo
        Names and origin.
    row_blocks : iterable of ndarray of shape (any, d)
        Finite numbers of one dtype; blocks may have any number of rows.
    labels : mapping of name to ndarray of shape (n,), optional
        Integer codes or numbers. The mapping is read only after the last block, so the generator
        that makes the blocks may fill it meanwhile.
    chunk_rows : int, optional
        Rows per chunk; default the power of two that makes chunks of 2 to 4 MiB.
    on_rows : callable, optional
        Called with the number of rows written so far.
    """

    def fill(group: zarr.Group) -> str:
        blocks = _checked(row_blocks)
        block = next(blocks, np.empty((0, 1)))
        rows = chunk_rows or default_chunk_rows(block.shape[1], block.dtype)
        chunks = rechunk(chain([block], blocks), rows)
        first = next(chunks, None)  # it is full or the only one, so small sets need no padding
        if first is None:
            raise StorageError("`row_blocks` held no rows; expected at least one.")
        X = create_array(group, "X", (0, first.shape[1]), first.shape, first.dtype)
        digests = []
        for chunk in chain([first], chunks):
            X.append(chunk)
            digests.append(chunk_digest(chunk))
            on_rows(X.shape[0])
        check_labels(info, labels or {}, *X.shape)
        put_labels(group, labels or {})
        return chunked_digest(X, X.chunks[0], digests, labels or {})

    commit_group(target, FORMAT_VERSION, asdict(info), fill)


def put_labels(group: zarr.Group, labels: Mapping[str, NDArray[Any]]) -> None:
    """Write the labels of a data set."""
    folder = group.create_group("labels")
    for name, codes in labels.items():
        put_array(folder, name, codes)


def rechunk(blocks: Iterable[Block], rows: int, first: int | None = None) -> Iterator[Block]:
    """Yield the same rows in blocks of `rows`; the last may be shorter.

    `first`, if given, is the number of rows of the first block.
    """
    pending: list[Block] = []
    pending_rows, wanted = 0, first or rows
    for block in blocks:
        start = 0
        while pending_rows + len(block) - start >= wanted:
            stop = start + wanted - pending_rows
            yield np.concatenate([*pending, block[start:stop]])
            pending, pending_rows, start, wanted = [], 0, stop, rows
        if start < len(block):
            pending.append(block[start:].copy())  # the generator may reuse its buffer
            pending_rows += len(block) - start
    if pending_rows:
        yield np.concatenate(pending)


def default_chunk_rows(columns: int, dtype: np.dtype[Any]) -> int:
    """Return the largest power of two of rows that fit `CHUNK_BYTES`."""
    fit: int = CHUNK_BYTES // (columns * dtype.itemsize)
    return int(2 ** max(0, fit.bit_length() - 1))


def _checked(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield blocks in native byte order; raise StorageError for one that cannot be stored."""
    first: Block | None = None
    for each in blocks:
        block = np.asarray(each)
        if block.ndim != 2 or block.shape[1] == 0 or block.dtype.kind not in "uif":
            raise StorageError(
                f"`row_blocks` gave shape {block.shape} of {block.dtype}; expected two dimensions "
                "of integers or floats with at least one column."
            )
        if not np.isfinite(block).all():
            raise StorageError("`row_blocks` holds NaN or infinity; drop or fill these rows first.")
        block = block.astype(block.dtype.newbyteorder("="), copy=False)
        first = block if first is None else first
        if block.shape[1] != first.shape[1] or block.dtype != first.dtype:
            raise StorageError(
                f"`row_blocks` gave {block.shape[1]} columns of {block.dtype} after "
                f"{first.shape[1]} of {first.dtype}; expected all blocks alike."
            )
        yield block
