"""Write the rows of a scanned table to Zarr: its pieces side by side, onto what was there.

A thread or process writes the whole chunks of its piece. The rows at the ends of the pieces, which
share chunks with those of the neighbours, come back to be joined.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import zarr
from numpy.typing import NDArray

from storage.dataset import FORMAT_VERSION, Dataset, DatasetInfo, check_labels
from storage.dataset_writing import default_chunk_rows, put_labels, rechunk
from storage.digest import chunk_digest, chunked_digest
from storage.errors import StorageError, TableError
from storage.manifest import FileEntry, synced_entry
from storage.store import commit_group, create_array, folder_of, open_checked, put_array
from storage.tables.encoding import Problems, encode_batch
from storage.tables.planning import TablePlan
from storage.tables.schema import TableSchema
from storage.tables.side_by_side import OnRows, work_on_rows
from storage.tables.sources import Part

Array = NDArray[Any]


class Chunk(NamedTuple):
    """The digest of the rows of a chunk, and the entry of its file, which is on the disk."""

    digest: bytes
    file: FileEntry


class Job(NamedTuple):
    """A part of a table to be written, the number of its first row among all, and of its rows."""

    part: Part
    start: int
    rows: int


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows that were written.

    Attributes
    ----------
    rows : int
    chunks : dict of int to Chunk
        The whole chunks, by number.
    ends : list of (int, array)
        The rows (m, d) before and after them, with the number of the first one.
    labels : dict of str to (rows,) array
        By their keys in the data set.
    """

    rows: int
    chunks: dict[int, Chunk] = field(default_factory=dict)
    ends: list[tuple[int, Array]] = field(default_factory=list)
    labels: dict[str, Array] = field(default_factory=dict)


def write_table(
    target: Path,
    info: DatasetInfo,
    plan: TablePlan,
    *,
    earlier: Dataset | None,
    executor: Executor | None,
    on_rows: OnRows,
) -> None:
    """Write a scanned table as a data set to the folder `target` atomically.

    Parameters
    ----------
    target : Path
        Folder to create or replace.
    info : DatasetInfo
    plan : TablePlan
    earlier : Dataset or None
        Rows that come before those of the plan, as `write_table` wrote them: whole chunks are
        linked, not copied.
    executor : Executor or None
        Where the pieces of the plan are encoded and written. None: in threads of this process.
    on_rows : callable
        Called with the number of rows of the plan that are written.
    """
    known: dict[str, FileEntry] = {}
    d, dtype = len(plan.schema.encoded_names), np.dtype(plan.schema.dtype)
    first = 0 if earlier is None else len(earlier.X)
    n = first + sum(plan.rows)
    chunk_rows = min(n, default_chunk_rows(d, dtype))

    def fill(group: zarr.Group) -> str:
        folder = folder_of(group)
        X = create_array(group, "X", (n, d), (chunk_rows, d), dtype, separator=".")
        before = [] if earlier is None else [_linked(earlier, folder, chunk_rows)]
        starts = first + np.cumsum([0, *plan.rows[:-1]])
        jobs = [Job(*each) for each in zip(plan.pieces, map(int, starts), plan.rows, strict=True)]
        work = partial(write_piece, folder=folder, schema=plan.schema)
        chunks, labels = _joined(
            X, folder, chain(before, work_on_rows(work, jobs, executor, on_rows))
        )
        if plan.table.versions() != plan.files:
            raise _changed(plan.table.description)
        check_labels(info, labels, *X.shape)
        known.update({_chunk_file(number): chunk.file for number, chunk in chunks.items()})
        put_labels(group, labels)
        # A later ingestion goes on from these.
        digests = [chunks[number].digest for number in sorted(chunks)]
        listed = np.array([list(each) for each in digests], dtype=np.uint8)
        put_array(group, "chunk_digests", listed)
        return chunked_digest(X, chunk_rows, digests, labels)

    commit_group(target, FORMAT_VERSION, asdict(info), fill, known)


def write_piece(
    job: Job, folder: Path, schema: TableSchema, on_rows: OnRows = lambda _: None
) -> Piece:
    """Encode the rows of a piece of a table, and write its whole chunks into the group `folder`.

    `on_rows` is called with the number of rows so far.
    """
    X = zarr.open_array(folder, path="X", mode="r+", zarr_format=3)
    chunk_rows = X.chunks[0]
    labels: dict[str, list[Array]] = {label.key: [] for label in schema.labels}
    piece, row, whole = Piece(job.rows), job.start, {}
    with ThreadPoolExecutor(1, thread_name_prefix="sync") as disk:
        blocks = _encoded(job.part, schema, labels)
        for rows in rechunk(blocks, chunk_rows, chunk_rows - row % chunk_rows):
            if row + len(rows) > job.start + job.rows:
                raise _changed(job.part.description)
            if len(rows) == chunk_rows and row % chunk_rows == 0:
                whole[row // chunk_rows] = _write_chunk(X, folder, row, rows, disk)
            else:
                piece.ends.append((row, rows.copy()))  # the memory is used again
            row += len(rows)
            on_rows(row - job.start)
        piece.chunks.update({number: synced() for number, synced in whole.items()})
    if row != job.start + job.rows:
        raise _changed(job.part.description)
    if job.rows:
        piece.labels.update({key: np.concatenate(parts) for key, parts in labels.items()})
    return piece


def _chunk_file(number: int) -> str:
    """Return the name of the file of a chunk of X in its group."""
    return f"X/c.{number}.0"


def _linked(data: Dataset, folder: Path, chunk_rows: int) -> Piece:
    """Link the whole chunks of a data set into the group `folder`; return all its rows."""
    stored = open_checked(data.path, FORMAT_VERSION)
    if stored.manifest.data_hash != data.data_hash:
        raise StorageError(
            f"another process has replaced {data.info.name!r} while new rows were read for it; "
            "ingest again"
        )
    X = data.X
    # A short table is one short chunk.
    whole = len(X) // chunk_rows if X.chunk_rows == chunk_rows else 0
    chunks = {}
    for number, digest in enumerate(stored.array("chunk_digests")[:whole]):
        name = _chunk_file(number)
        os.link(data.path / name, folder / name)
        chunks[number] = Chunk(bytes(digest), stored.manifest.files[name])
    starts = range(whole * chunk_rows, len(X), chunk_rows)
    ends = [(start, X.read(start, min(start + chunk_rows, len(X)))) for start in starts]
    return Piece(len(X), chunks, ends, dict(data.labels))


def _joined(
    X: zarr.Array[Any], folder: Path, pieces: Iterable[Piece]
) -> tuple[dict[int, Chunk], dict[str, Array]]:
    """Write the ends of pieces as they come; return all chunks by number, and all labels."""
    chunks: dict[int, Chunk] = {}
    labels: dict[str, list[Array]] = {}

    def ends() -> Iterator[tuple[int, Array]]:
        for piece in pieces:
            chunks.update(piece.chunks)
            for key, values in piece.labels.items():
                labels.setdefault(key, []).append(values)
            yield from piece.ends

    chunk_rows, joined = X.chunks[0], {}
    with ThreadPoolExecutor(1, thread_name_prefix="sync") as disk:
        for number, parts in groupby(ends(), key=lambda end: end[0] // chunk_rows):
            rows = np.concatenate([rows for _, rows in parts])
            joined[number] = _write_chunk(X, folder, number * chunk_rows, rows, disk)
        chunks.update({number: synced() for number, synced in joined.items()})
    return chunks, {key: np.concatenate(parts) for key, parts in labels.items()}


def _encoded(part: Part, schema: TableSchema, labels: dict[str, list[Array]]) -> Iterator[Array]:
    """Yield the encoded rows of a part in blocks, and add their labels to `labels`."""
    buffer: Array | None = None
    problems = Problems()
    for batch in part.batches(list(schema.kinds)):
        encoded = encode_batch(batch, schema, problems, buffer=buffer)
        problems.check(part.description)
        if buffer is None or len(buffer) < len(encoded.X):
            buffer = encoded.X
        for key, values in encoded.labels.items():
            labels[key].append(values)
        yield encoded.X


def _write_chunk(
    X: zarr.Array[Any], folder: Path, start: int, rows: Array, disk: Executor
) -> Callable[[], Chunk]:
    """Write a chunk; return a function that waits until it is on the disk, and describes it.

    Meanwhile the processor has the next chunk to work on.
    """
    X[start : start + len(rows)] = rows
    file = disk.submit(synced_entry, folder / _chunk_file(start // X.chunks[0]))
    digest = chunk_digest(rows)
    return lambda: Chunk(digest, file.result())


def _changed(description: str) -> TableError:
    return TableError(f"{description} changed while it was read; ingest it again")
