"""Write a data set to Zarr from a stream of row blocks.

No more than a chunk is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from storage.dataset_info import DatasetInfo, check_labels
from storage.digest import ContentDigest
from storage.errors import StorageError
from storage.store import commit_group, create_array, put_array

CHUNK_BYTES = 2**22

Block = NDArray[Any]
RowCount = Callable[[int], None]


def write_dataset(
    target: Path,
    info: DatasetInfo,
    row_blocks: Iterable[Block],
    labels: Mapping[str, NDArray[Any]] | None = None,
    *,
    chunk_rows: int | None = None,
    on_rows: RowCount | None = None,
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
    label_values = {} if labels is None else labels

    def fill(group: zarr.Group) -> str:
        return _fill(group, info, _chunks(row_blocks, chunk_rows), label_values, on_rows)

    commit_group(target, info.to_json(), fill)


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
            yield _join([*pending, block[start:stop]])
            pending, pending_rows, start, wanted = [], 0, stop, rows
        if start < len(block):
            pending.append(block[start:].copy())  # the generator may reuse its buffer
            pending_rows += len(block) - start
    if pending_rows:
        yield _join(pending)


def _fill(
    group: zarr.Group,
    info: DatasetInfo,
    chunks: Iterator[Block],
    labels: Mapping[str, NDArray[Any]],
    on_rows: RowCount | None,
) -> str:
    """Write all arrays of a data set and return the digest of its values."""
    digest = ContentDigest()
    check_labels(info, labels, *_write_rows(group, chunks, digest, on_rows))
    folder = group.create_group("labels")
    for name, codes in labels.items():
        put_array(folder, name, codes)
    return digest.finish(labels)


def _write_rows(
    group: zarr.Group,
    chunks: Iterator[Block],
    digest: ContentDigest,
    on_rows: RowCount | None,
) -> tuple[int, ...]:
    """Write X chunk by chunk, add the chunks to the digest, and return the shape of X."""
    X: zarr.Array[Any] | None = None
    for chunk in chunks:
        if X is None:  # the first chunk is full or the only one, so small sets need no padding
            X = create_array(group, "X", (0, chunk.shape[1]), chunk.shape, chunk.dtype)
        X.append(chunk)
        digest.add(chunk)
        if on_rows is not None:
            on_rows(X.shape[0])
    if X is None:
        raise StorageError("`row_blocks` held no rows; expected at least one.")
    return X.shape


def _chunks(row_blocks: Iterable[Block], chunk_rows: int | None) -> Iterator[Block]:
    """Yield checked chunks of one dtype and width."""
    blocks = iter(row_blocks)
    first = next(blocks, None)
    if first is None:
        return
    first = _checked_block(np.asarray(first))
    checked = (
        _like_first(_checked_block(np.asarray(block)), first) for block in chain([first], blocks)
    )
    yield from rechunk(checked, chunk_rows or default_chunk_rows(first.shape[1], first.dtype))


def default_chunk_rows(columns: int, dtype: np.dtype[Any]) -> int:
    """Return the largest power of two of rows that fit `CHUNK_BYTES`."""
    fit: int = CHUNK_BYTES // (columns * dtype.itemsize)
    return int(2 ** max(0, fit.bit_length() - 1))


def _checked_block(block: Block) -> Block:
    """Return the block in native byte order; raise StorageError if it cannot be stored."""
    if block.ndim != 2 or block.shape[1] == 0 or block.dtype.kind not in "uif":
        raise StorageError(
            f"`row_blocks` gave shape {block.shape} of {block.dtype}; expected two dimensions of "
            "integers or floats with at least one column."
        )
    if not np.isfinite(block).all():
        raise StorageError("`row_blocks` holds NaN or infinity; drop or fill these rows first.")
    return block.astype(block.dtype.newbyteorder("="), copy=False)


def _like_first(block: Block, first: Block) -> Block:
    """Return the block; raise StorageError unless it has the width and dtype of the first."""
    if block.shape[1] != first.shape[1] or block.dtype != first.dtype:
        raise StorageError(
            f"`row_blocks` gave {block.shape[1]} columns of {block.dtype} after "
            f"{first.shape[1]} of {first.dtype}; expected all blocks alike."
        )
    return block


def _join(parts: list[Block]) -> Block:
    """Concatenate blocks; a single one is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
