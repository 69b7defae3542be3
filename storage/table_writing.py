"""Write the rows of a scanned table to Zarr: its pieces side by side, onto what was there.

A thread or process writes the whole chunks of its piece. The rows at the ends of the pieces, which
share chunks with those of the neighbours, come back to be joined.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from storage.dataset import Dataset
from storage.dataset_info import FORMAT_VERSION, DatasetInfo, check_labels
from storage.dataset_writing import default_chunk_rows, put_labels, rechunk
from storage.digest import chunk_digest, chunked_digest
from storage.errors import StorageError, TableError
from storage.manifest import FileEntry, synced_entry
from storage.store import commit_group, create_array, folder_of, open_checked, put_array
from storage.tables.encoding import encode_batch
from storage.tables.planning import TablePlan
from storage.tables.schema import TableSchema
from storage.tables.side_by_side import map_in_order, threads_of_this_process
from storage.tables.sources import TableSource

Array = NDArray[Any]
OnRows = Callable[[int], None]


@dataclass(frozen=True)
class Chunk:
    """What is known of a chunk that was written and synced to the disk.

    Attributes
    ----------
    digest : bytes
        Of its rows.
    file : FileEntry
        Of its file.
    """

    digest: bytes
    file: FileEntry


@dataclass(frozen=True, eq=False)
class Job:
    """A piece of a table to be written.

    Attributes
    ----------
    folder : Path
        The folder of the group.
    source : TableSource
    schema : TableSchema
    start, rows : int
        The number of its first row among all, and how many there are to be.
    """

    folder: Path
    source: TableSource
    schema: TableSchema
    start: int
    rows: int


@dataclass(frozen=True, eq=False)
class Piece:
    """A piece of a table that was written.

    Attributes
    ----------
    chunks : dict of int to Chunk
        The whole chunks, by number.
    ends : list of (int, array)
        The rows (m, d) before and after them, with the number of the first one.
    labels : dict of str to (rows,) array
    rows : int
    """

    chunks: dict[int, Chunk] = field(default_factory=dict)
    ends: list[tuple[int, Array]] = field(default_factory=list)
    labels: dict[str, Array] = field(default_factory=dict)
    rows: int = 0


def has_chunks_to_link(data: Dataset) -> bool:
    """Return whether `write_table` wrote a data set, and its chunks have the names of today."""
    return _chunk_file(0) in data.X.files


@dataclass(frozen=True, eq=False)
class EarlierRows:
    """The rows of a stored table, onto which others are written.

    Attributes
    ----------
    data : Dataset
    chunk_rows : int
        Of all rows together.
    links : dict of str to FileEntry
        The files of its whole chunks, which are linked, not copied, and their entries in the
        manifest.
    digests : list of bytes
        Of these chunks.
    """

    data: Dataset
    chunk_rows: int
    links: dict[str, FileEntry]
    digests: list[bytes]

    @classmethod
    def of(cls, data: Dataset, more: int) -> EarlierRows:
        """Return the rows of a data set that `write_table` wrote, onto which `more` come."""
        stored = open_checked(data.path, FORMAT_VERSION)
        if stored.manifest.data_hash != data.data_hash:
            raise StorageError(
                f"another process has replaced {data.info.name!r} while new rows were read for it; "
                "ingest again"
            )
        X = data.X
        chunk_rows = _chunk_rows(len(X) + more, X.shape[1], X.dtype)
        # A short table is one short chunk.
        whole = len(X) // chunk_rows if X.chunk_rows == chunk_rows else 0
        digests = [bytes(each) for each in stored.array("chunk_digests")[:whole]]
        links = {name: stored.manifest.files[name] for name in map(_chunk_file, range(whole))}
        return cls(data, chunk_rows, links, digests)

    def link(self, folder: Path) -> None:
        """Link its whole chunks into another group."""
        for name in self.links:
            os.link(self.data.path / name, folder / name)

    def rest(self) -> Piece:
        """Return the rows after the whole chunks, and the labels of all rows."""
        X, step = self.data.X, self.chunk_rows
        schema = TableSchema.from_json((self.data.info.table or {})["schema"])
        labels = {label.name: self.data.labels[label.key] for label in schema.labels}
        starts = range(len(self.links) * step, len(X), step)
        ends = [(start, X.read(start, min(start + step, len(X)))) for start in starts]
        return Piece(ends=ends, labels=labels, rows=len(X))


def write_table(
    target: Path,
    info: DatasetInfo,
    plan: TablePlan,
    *,
    earlier: EarlierRows | None = None,
    executor: Executor | None = None,
    on_rows: OnRows | None = None,
) -> None:
    """Write a scanned table as a data set to the folder `target` atomically.

    Parameters
    ----------
    target : Path
        Folder to create or replace.
    info : DatasetInfo
    plan : TablePlan
    earlier : EarlierRows, optional
        Rows that come before those of the plan.
    executor : Executor, optional
        Where the pieces of the plan are encoded and written. Default: in threads of this process.
    on_rows : callable, optional
        Called with the number of rows of the plan that are written.
    """
    known = {} if earlier is None else dict(earlier.links)

    def fill(group: zarr.Group) -> str:
        X = _create_rows(group, plan, earlier)
        chunks, labels = _write_rows(X, folder_of(group), plan, earlier, executor, on_rows)
        plan.check_unchanged()
        check_labels(info, labels, *X.shape)
        known.update({_chunk_file(number): chunk.file for number, chunk in chunks.items()})
        written = [chunks[number] for number in sorted(chunks)]
        return _finish(group, X, written, labels, earlier)

    commit_group(target, FORMAT_VERSION, asdict(info), fill, known)


def _create_rows(
    group: zarr.Group, plan: TablePlan, earlier: EarlierRows | None
) -> zarr.Array[Any]:
    """Create X for all rows; the whole chunks of the earlier ones are linked into it."""
    n, d = sum(plan.rows), len(plan.schema.encoded_names)
    if earlier is not None:
        n += len(earlier.data.X)
    dtype = np.dtype(plan.schema.dtype)
    X = create_array(group, "X", (n, d), (_chunk_rows(n, d, dtype), d), dtype, separator=".")
    if earlier is not None:
        earlier.link(folder_of(group))
    return X


def _chunk_file(number: int) -> str:
    """Return the name of the file of a chunk of X in its group."""
    return f"X/c.{number}.0"


def _chunk_rows(n: int, d: int, dtype: np.dtype[Any]) -> int:
    return min(n, default_chunk_rows(d, dtype))


def _write_rows(  # noqa: PLR0917
    X: zarr.Array[Any],
    folder: Path,
    plan: TablePlan,
    earlier: EarlierRows | None,
    executor: Executor | None,
    on_rows: OnRows | None,
) -> tuple[dict[int, Chunk], dict[str, Array]]:
    """Write the rows of a plan; return the chunks that were written, by number, and all labels."""
    first = 0 if earlier is None else len(earlier.data.X)
    starts = first + np.cumsum([0, *plan.rows[:-1]])
    jobs = [
        Job(folder, source, plan.schema, int(start), rows)
        for source, start, rows in zip(plan.pieces, starts, plan.rows, strict=True)
    ]
    chunks: dict[int, Chunk] = {}
    labels: list[dict[str, Array]] = []

    def ends() -> Iterator[tuple[int, Array]]:
        """Yield the ends of the pieces as these are written."""
        if earlier is not None:
            rest = earlier.rest()
            labels.append(rest.labels)
            yield from rest.ends
        for piece in _written(jobs, executor, on_rows):
            chunks.update(piece.chunks)
            labels.append(piece.labels)
            yield from piece.ends

    chunk_rows, joined = X.chunks[0], {}
    with ThreadPoolExecutor(1, thread_name_prefix="sync") as disk:
        for number, parts in groupby(ends(), key=lambda end: end[0] // chunk_rows):
            rows = np.concatenate([rows for _, rows in parts])
            joined[number] = _write_chunk(X, folder, number * chunk_rows, rows, disk)
        chunks.update({number: synced() for number, synced in joined.items()})
    return chunks, _joined_labels(plan.schema, labels)


def _written(jobs: list[Job], executor: Executor | None, on_rows: OnRows | None) -> Iterator[Piece]:
    """Yield the pieces that jobs have written, in their order."""
    report = on_rows or (lambda _: None)
    if len(jobs) == 1:
        yield write_piece(jobs[0], report)
        return
    done = 0
    with threads_of_this_process() if executor is None else nullcontext(executor) as workers:
        for piece in map_in_order(workers, write_piece, jobs):
            done += piece.rows
            report(done)
            yield piece


def write_piece(job: Job, on_rows: OnRows = lambda _: None) -> Piece:
    """Encode the rows of a piece of a table, and write its whole chunks.

    `on_rows` is called with the number of rows so far.
    """
    X = zarr.open_array(job.folder, path="X", mode="r+", zarr_format=3)
    chunk_rows = X.chunks[0]
    labels: dict[str, list[Array]] = {label.name: [] for label in job.schema.labels}
    piece, row, whole = Piece(rows=job.rows), job.start, {}
    with ThreadPoolExecutor(1, thread_name_prefix="sync") as disk:
        for rows in rechunk(_encoded(job, labels), chunk_rows, chunk_rows - row % chunk_rows):
            if row + len(rows) > job.start + job.rows:
                raise _changed(job)
            if len(rows) == chunk_rows and row % chunk_rows == 0:
                whole[row // chunk_rows] = _write_chunk(X, job.folder, row, rows, disk)
            else:
                piece.ends.append((row, rows.copy()))  # the memory is used again
            row += len(rows)
            on_rows(row - job.start)
        piece.chunks.update({number: synced() for number, synced in whole.items()})
    if row != job.start + job.rows:
        raise _changed(job)
    if job.rows:
        piece.labels.update({name: np.concatenate(parts) for name, parts in labels.items()})
    return piece


def _encoded(job: Job, labels: dict[str, list[Array]]) -> Iterator[Array]:
    """Yield the encoded rows of a piece in blocks, and add their labels to `labels`."""
    buffer: Array | None = None
    for batch in job.source.batches(job.schema.columns):
        encoded = encode_batch(batch, job.schema, buffer=buffer)
        if buffer is None or len(buffer) < len(encoded.X):
            buffer = encoded.X
        for name, values in encoded.labels.items():
            labels[name].append(values)
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


def _joined_labels(schema: TableSchema, parts: list[dict[str, Array]]) -> dict[str, Array]:
    """Return the labels of all pieces together, by their names in the data set."""
    return {
        label.key: np.concatenate([part[label.name] for part in parts if part])
        for label in schema.labels
    }


def _finish(
    group: zarr.Group,
    X: zarr.Array[Any],
    chunks: list[Chunk],
    labels: Mapping[str, Array],
    earlier: EarlierRows | None,
) -> str:
    """Write labels, and what a later ingestion goes on from; return the digest."""
    put_labels(group, labels)
    digests = [*(earlier.digests if earlier else []), *(each.digest for each in chunks)]
    put_array(group, "chunk_digests", np.array([list(each) for each in digests], dtype=np.uint8))
    return chunked_digest(X, X.chunks[0], digests, labels)


def _changed(job: Job) -> TableError:
    return TableError(f"{job.source.description} changed while it was read; ingest it again")
