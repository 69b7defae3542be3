"""Ingest a table of any origin as a data set of the home.

Pieces of the table are read, encoded and written side by side. A thread or process writes the whole
chunks of its piece. The rows at the ends of the pieces, which share chunks with those of the
neighbours, come back to be joined.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.storage import LocalStore

from storage.atomic import workspace
from storage.dataset import (
    FORMAT_VERSION,
    Dataset,
    DatasetInfo,
    check_labels,
    dataset_path,
    is_complete,
    open_dataset,
)
from storage.dataset_writing import default_chunk_rows, put_labels, rechunk
from storage.errors import StorageError, TableError, UnsafeName
from storage.paths import safe_name
from storage.store import chunk_digest, chunked_digest, commit_group, create_array
from storage.tables.encoding import Problems, encode_batch
from storage.tables.files import SourceFile, has_table_suffix, have_versions, table_name
from storage.tables.planning import Job, TablePlan, plan_table
from storage.tables.schema import CLASSES, TableOptions, TableSchema, label_key
from storage.tables.sources import OnRows, Part, Table, work_on_rows

# The share of the progress that the scan takes.
_SCANNED = 0.4

Array = NDArray[Any]
Progress = Callable[[float, str], None]


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows that were written."""

    rows: int
    digests: dict[int, bytes] = field(default_factory=dict)  # of the whole chunks, by number
    # The rows (m, d) before and after them, with the number of the first one.
    ends: list[tuple[int, Array]] = field(default_factory=list)
    labels: dict[str, Array] = field(default_factory=dict)  # by their keys in the data set


def preview_table(
    table: Table, options: TableOptions, progress: Progress = lambda *_: None
) -> TableSchema:
    """Scan a table, and return how it would be stored."""
    return plan_table(table, options, _scan_progress(progress)).schema


def store_unless_stored(
    table: Table,
    name: str,
    options: TableOptions,
    *,
    force: bool = False,
    on_schema: Callable[[TableSchema], None] = lambda _: None,
    progress: Progress = lambda *_: None,
    executor: Executor | None = None,
) -> Dataset:
    """Return the data set `name` of a table, which is scanned and stored if need be.

    `on_schema`, if given, is called after the scan, before anything is stored.
    """
    stored = None if force else _find_stored(name, options, table.versions())
    if stored is not None:
        return stored
    if table.files is None:
        executor = None  # its rows are in the memory of this process
    # The processes of an executor may be unable to read a copy.
    copies = table.is_slow and executor is None
    with workspace(dataset_path(name)) if copies else nullcontext() as work:
        plan = plan_table(
            table,
            options,
            _scan_progress(progress),
            folder=None if work is None else work.folder,
            executor=executor,
        )
        on_schema(plan.schema)
        # Another process may have stored it during the scan.
        stored = None if force else _find_stored(name, options, plan.files)
        return stored or _store_table(plan, name, progress, executor)


def _scan_progress(progress: Progress) -> OnRows:
    """Return what reports a scan as the first part of an ingestion."""
    # The number of rows is not known before the scan has ended.
    return lambda rows: progress(_SCANNED * rows / (rows + 10**6), f"scan, {rows:,} rows")


def dataset_name(source: Any, name: str | None = None) -> str:
    """Return the name of the data set of a table; raise an error if it has none."""
    if name is None and not isinstance(source, str | Path):
        raise TableError("a table in memory has no name; give it one with `name`", "name")
    if name is not None:
        if has_table_suffix(safe_name(name)):
            what = f"`name` is {name!r}, which commands would take for a path"
            raise UnsafeName(f"{what}; expected a name without such an ending", "name")
        return name
    try:
        return safe_name(table_name(source))
    except UnsafeName as error:
        what = f"{source} gives no name for the data set, which takes the characters A-Z a-z 0-9"
        raise TableError(f"{what} . _ -; give it one with `name`", "name") from error


def find_made_from(
    name: str, files: Sequence[SourceFile], options: TableOptions | None = None
) -> Dataset | None:
    """Return the data set `name` if it was made from these files, in these versions, None if not.

    `options`, if given, are those that it has to be made with.
    """
    data = _open_complete(name)
    return data if data is not None and _is_made_from(data, files, options) else None


def _find_stored(name: str, options: TableOptions, files: Sequence[SourceFile]) -> Dataset | None:
    """Return the data set `name` if it was made alike from the same files, None if there is none.

    Raise a StorageError if it was made otherwise.
    """
    data = _open_complete(name)
    if data is None or _is_made_from(data, files, options):
        return data
    how = "with other options" if _is_made_from(data, files, None) else "as it was then"
    raise StorageError(
        f"a data set {name!r} is stored already, from {data.info.source or 'another source'} "
        f"{how}; replace it with --force (force=True), or choose another name"
    )


def _is_made_from(data: Dataset, files: Sequence[SourceFile], options: TableOptions | None) -> bool:
    table = data.info.table or {}
    if not have_versions(files) or table.get("files") != list(map(asdict, files)):
        return False
    # As JSON, which is stored, has them.
    return options is None or table["schema"]["options"] == json.loads(json.dumps(asdict(options)))


def _open_complete(name: str) -> Dataset | None:
    return open_dataset(name) if is_complete(dataset_path(name)) else None


def _store_table(
    plan: TablePlan, name: str, progress: Progress, executor: Executor | None
) -> Dataset:
    """Write a scanned table as the data set `name`, whole or not at all, and return it opened."""
    table, schema = plan.table, plan.schema
    n, d = schema.rows_stored, len(schema.encoded_names)
    weights, dtype = schema.options.weights, np.dtype(schema.dtype)
    chunk_rows = min(n, default_chunk_rows(d, dtype))
    info = DatasetInfo(
        name=name,
        source=table.description,
        feature_names=schema.encoded_names,
        class_names={label.key: label.levels for label in schema.labels if label.role == CLASSES},
        default_label=schema.explained[0].key if schema.explained else None,
        table={
            "schema": schema.to_json(),
            "files": [asdict(file) for file in plan.files],
            "weights": label_key(weights) if weights else None,
        },
    )

    def on_rows(done: int) -> None:
        progress(_SCANNED + (1 - _SCANNED) * done / n, f"store, {done:,} of {n:,} rows")

    def fill(group: zarr.Group) -> str:
        X = create_array(group, "X", (n, d), (chunk_rows, d), dtype)
        folder = cast("LocalStore", group.store).root
        work = partial(write_piece, folder=folder, schema=schema)
        digests, labels = _joined(X, work_on_rows(work, plan.jobs, executor, on_rows))
        if table.versions() != plan.files:
            raise _changed(table.description)
        check_labels(info, labels, *X.shape)
        put_labels(group, labels)
        return chunked_digest(X, chunk_rows, digests, labels)

    commit_group(dataset_path(name), FORMAT_VERSION, asdict(info), fill)
    return open_dataset(name)


def write_piece(job: Job, folder: Path, schema: TableSchema) -> Piece:
    """Encode the rows of a piece of a table, and write its whole chunks into the group `folder`."""
    X = zarr.open_array(folder, path="X", mode="r+", zarr_format=3)
    chunk_rows = X.chunks[0]
    labels: dict[str, list[Array]] = {label.key: [] for label in schema.labels}
    piece, row = Piece(job.rows), job.start
    blocks = _encoded(job.part, schema, labels)
    for rows in rechunk(blocks, chunk_rows, chunk_rows - row % chunk_rows):
        if row + len(rows) > job.start + job.rows:
            raise _changed(job.part.description)
        if len(rows) == chunk_rows and row % chunk_rows == 0:
            X[row : row + chunk_rows] = rows
            piece.digests[row // chunk_rows] = chunk_digest(rows)
        else:
            piece.ends.append((row, rows.copy()))  # the memory is used again
        row += len(rows)
    if row != job.start + job.rows:
        raise _changed(job.part.description)
    if job.rows:
        piece.labels.update({key: np.concatenate(parts) for key, parts in labels.items()})
    return piece


def _joined(X: zarr.Array[Any], pieces: Iterable[Piece]) -> tuple[list[bytes], dict[str, Array]]:
    """Write the ends of pieces as they come; return the digests of all chunks, and all labels."""
    digests: dict[int, bytes] = {}
    labels: dict[str, list[Array]] = {}

    def ends() -> Iterator[tuple[int, Array]]:
        for piece in pieces:
            digests.update(piece.digests)
            for key, values in piece.labels.items():
                labels.setdefault(key, []).append(values)
            yield from piece.ends

    chunk_rows = X.chunks[0]
    for number, parts in groupby(ends(), key=lambda end: end[0] // chunk_rows):
        rows = np.concatenate([rows for _, rows in parts])
        X[number * chunk_rows : number * chunk_rows + len(rows)] = rows
        digests[number] = chunk_digest(rows)
    whole = {key: np.concatenate(parts) for key, parts in labels.items()}
    return [digests[number] for number in sorted(digests)], whole


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


def _changed(description: str) -> TableError:
    return TableError(f"{description} changed while it was read; ingest it again")
