"""Ingest a table of any origin as a data set of the home."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from storage.atomic import remove_leftovers, workspace
from storage.dataset import Dataset, dataset_path, is_complete, open_dataset
from storage.dataset_info import DatasetInfo
from storage.errors import StorageError, TableError
from storage.paths import safe_name
from storage.table_writing import has_chunks_to_link, write_table
from storage.tables.files import SourceFile, have_versions, table_name
from storage.tables.formats import open_table, text_types
from storage.tables.planning import EarlierFiles, TablePlan, plan_table
from storage.tables.schema import CLASSES, TableOptions, TableSchema, label_key
from storage.tables.side_by_side import OnRows
from storage.tables.sources import Table

# The share of the progress that the scan takes.
_SCANNED = 0.4

Progress = Callable[[float, str], None]


def ingest_table(
    source: Any,
    name: str | None = None,
    *,
    force: bool = False,
    progress: Progress | None = None,
    executor: Executor | None = None,
    **options: Any,
) -> Dataset:
    """Store a table as a data set, encoded as numbers, and return it opened.

    Numbers stay as they are, booleans become 0 and 1, and strings one column per level, called
    `region=north`. Dates, free text, infinite values and, unless `missing` says otherwise, gaps
    are errors that name the column.

    Parameters
    ----------
    source : path, address, glob, sequence of these, frame or array
        CSV, TSV (also gzipped), Parquet, Feather, Arrow, NPY, NPZ, Zarr or HDF5; an address is one
        that fsspec reads; a frame is of pandas, polars, Dask, xarray, pyarrow or NumPy.
    name : str, optional
        Name of the data set. Default: that of the file or folder.
    force : bool
        Replace a data set of that name that was stored from something else.
    progress : callable, optional
        Called with the share that is done, from 0 to 1, and with a text.
    executor : concurrent.futures.Executor, optional
        Where files, and groups of rows of Parquet files, are read side by side, such as
        `client.get_executor()` of a Dask client. Its processes need the same files and home.
        Default: threads of this process.
    **options
        How to read the table: the attributes of `TableOptions`, such as `label`.

    Returns
    -------
    Dataset
        Its `info.table` has the schema, and the files with their versions.

    Raises
    ------
    TableError
        If the table cannot be read or encoded; the message names the file or column.
    """
    chosen = TableOptions(**options)
    return store_unless_stored(
        open_for(source, chosen),
        dataset_name(source, name),
        chosen,
        force=force,
        progress=progress,
        executor=executor,
    )


def open_for(source: Any, options: TableOptions) -> Table:
    """Open a table; columns to pass through are read as texts, so that they stay as they are."""
    return open_table(source, text_types({}, options.keep))


def preview_table(
    table: Table, options: TableOptions, progress: Progress | None = None
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
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Dataset:
    """Return the data set `name` of a table, which is scanned and stored if need be.

    If the data set has the first files of the table already, only the others are read.
    `on_schema`, if given, is called after the scan, before anything is stored.
    """
    stored = None if force else _find_stored(name, options, table.versions())
    if stored is not None:
        return stored
    grown = _find_grown(name, options, table)
    earlier = None if grown is None else _earlier_files(grown)
    target = dataset_path(safe_name(name))
    if table.files is None:
        executor = None  # its rows are in the memory of this process
    # The processes of an executor may be unable to read a copy.
    copies = table.is_slow and executor is None
    with workspace(target) if copies else nullcontext() as work:
        plan = plan_table(
            table,
            options,
            _scan_progress(progress),
            folder=None if work is None else work.folder,
            earlier=earlier,
            executor=executor,
        )
        on_schema(plan.schema)
        # Another process may have stored it during the scan.
        stored = None if force else _find_stored(name, options, plan.files)
        kept = grown if plan.keeps_earlier else None
        return stored or _store_table(plan, name, kept, progress, executor)


def _scan_progress(progress: Progress | None) -> OnRows:
    """Return what reports a scan as the first part of an ingestion."""
    if progress is None:
        return lambda _: None
    # The number of rows is not known before the scan has ended.
    return lambda rows: progress(_SCANNED * rows / (rows + 10**6), f"scan, {rows:,} rows")


def _find_grown(name: str, options: TableOptions, table: Table) -> Dataset | None:
    """Return the data set `name` if it has the first files of a table, but not all, None otherwise.

    These files have to be in the versions in which they were stored.
    """
    data, files = _open_complete(name), table.versions()
    if data is None or not data.info.table or not has_chunks_to_link(data):
        return None
    count = len(data.info.table["files"])
    grew = 0 < count < len(files) and is_made_alike(data, options, files[:count])
    return data if grew else None


def _earlier_files(data: Dataset) -> EarlierFiles:
    """Return the schema of a data set that was made from files, and their number."""
    record = data.info.table or {}
    return EarlierFiles(TableSchema.from_json(record["schema"]), len(record["files"]))


def _store_table(
    plan: TablePlan,
    name: str,
    earlier: Dataset | None,
    progress: Progress | None,
    executor: Executor | None,
) -> Dataset:
    """Write a scanned table as the data set `name`, whole or not at all, and return it opened."""
    target = dataset_path(safe_name(name))
    remove_leftovers(target.parent)
    rows, weights = sum(plan.rows), plan.schema.options.weights

    def on_rows(done: int) -> None:
        if progress is not None:
            progress(_SCANNED + (1 - _SCANNED) * done / rows, f"store, {done:,} of {rows:,} rows")

    info = DatasetInfo(
        name=name,
        source=plan.table.description,
        feature_names=plan.schema.encoded_names,
        class_names={
            label.key: label.levels for label in plan.schema.labels if label.role == CLASSES
        },
        default_label=plan.schema.explained[0].key if plan.schema.explained else None,
        table={
            "schema": plan.schema.to_json(),
            "files": [file.to_json() for file in plan.files],
            "weights": label_key(weights) if weights else None,
        },
    )
    write_table(target, info, plan, earlier=earlier, executor=executor, on_rows=on_rows)
    return open_dataset(name)


def dataset_name(source: Any, name: str | None = None) -> str:
    """Return the name of the data set of a table; raise an error if it has none."""
    if name is None and not isinstance(source, str | Path):
        raise TableError("a table in memory has no name; give it one with `name`")
    if name is None and not table_name(source):
        raise TableError(f"{source} gives no name for the data set; give it one with `name`")
    return safe_name(table_name(source) if name is None else name)


def find_made_from(name: str, files: Sequence[SourceFile]) -> Dataset | None:
    """Return the data set `name` if it was made from these files, with whatever options."""
    data = _open_complete(name)
    return data if data is not None and _is_made_from(data, files) else None


def _find_stored(name: str, options: TableOptions, files: Sequence[SourceFile]) -> Dataset | None:
    """Return the data set `name` if it was made alike from the same files, None if there is none.

    Raise a StorageError if it was made otherwise.
    """
    data = _open_complete(name)
    if data is None or is_made_alike(data, options, files):
        return data
    raise StorageError(
        f"a data set {name!r} is stored already, from {data.info.source or 'another source'} as "
        "it was then; replace it with --force (force=True), or choose another name"
    )


def is_made_alike(data: Dataset, options: TableOptions, files: Sequence[SourceFile]) -> bool:
    """Return whether a data set was made from these files, with these options."""
    schema = (data.info.table or {}).get("schema", {})
    # As JSON, which is stored, has them.
    wanted = json.loads(json.dumps(asdict(options)))
    return schema.get("options") == wanted and _is_made_from(data, files)


def _open_complete(name: str) -> Dataset | None:
    return open_dataset(name) if is_complete(dataset_path(name)) else None


def _is_made_from(data: Dataset, files: Sequence[SourceFile]) -> bool:
    """Return whether a data set was made from these files, in these versions."""
    stored = (data.info.table or {}).get("files")
    return have_versions(files) and stored == [file.to_json() for file in files]
