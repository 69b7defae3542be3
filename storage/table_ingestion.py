"""Ingest a table of any origin as a data set of the home."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from storage.atomic import remove_leftovers, workspace
from storage.dataset import Dataset, dataset_path, is_complete, open_dataset
from storage.dataset_info import DatasetInfo
from storage.errors import StorageError, TableError
from storage.paths import safe_name
from storage.table_writing import EarlierRows, has_chunks_to_link, write_table
from storage.tables.files import SourceFile, have_versions, table_name
from storage.tables.formats import open_table, text_types
from storage.tables.frames import FrameSource
from storage.tables.planning import EarlierScan, TablePlan, keeps_encoding, plan_table
from storage.tables.scan import TableScan, kind_of
from storage.tables.schema import (
    AUTO,
    CLASSES,
    REFUSE,
    TableOptions,
    TableSchema,
    label_key,
)
from storage.tables.sources import ArraySource, FileSource, TableSource

# The share of the progress that the scan takes.
_SCANNED = 0.4

Progress = Callable[[float, str], None]


def ingest_table(
    source: Any,
    name: str | None = None,
    *,
    label: str | Sequence[str] = (),
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    columns: str | Sequence[str] = (),
    missing: str = REFUSE,
    target: str = AUTO,
    max_levels: int = 50,
    weights: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
    executor: Executor | None = None,
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
    label : str or sequence of str
        The column or columns to be explained; the first is the default.
    drop, keep : sequence of str
        Columns that are no features; `transform` passes those to `keep` through.
    columns : str or sequence of str
        Patterns of the columns to use, such as `x_*`. Default: all.
    missing : {"refuse", "drop", "mean", "indicator"}
        What to do where a value is missing: raise an error, leave the row out, fill in the mean
        of the column, or that and add a column that marks the gaps.
    target : {"auto", "classes", "numbers"}
        What labels of numbers are. "auto": up to 20 different whole numbers are classes.
    max_levels : int
        Most levels of a category.
    weights : str, optional
        The column with the weights of rows, numbers from 0 up: `fit` counts a row of weight 2 as
        two equal rows.
    force : bool
        Replace a data set of that name that was stored from something else.
    progress : callable, optional
        Called with the share that is done, from 0 to 1, and with a text.
    executor : concurrent.futures.Executor, optional
        Where files, and groups of rows of Parquet files, are read side by side, such as
        `client.get_executor()` of a Dask client. Its processes need the same files and home.
        Default: threads of this process.

    Returns
    -------
    Dataset
        Its `info.table` has the schema, and the files with their versions.

    Raises
    ------
    TableError
        If the table cannot be read or encoded; the message names the file or column.
    """
    options = TableOptions(
        labels=_as_tuple(label),
        drop=_as_tuple(drop),
        keep=_as_tuple(keep),
        columns=_as_tuple(columns),
        missing=missing,
        target=target,
        max_levels=max_levels,
        weights=weights,
    )
    table = open_for(source, options)
    return store_unless_stored(
        table,
        dataset_name(source, name),
        options,
        force=force,
        progress=progress,
        executor=executor,
    )


def open_for(source: Any, options: TableOptions) -> TableSource:
    """Open a table; columns to pass through are read as texts, so that they stay as they are."""
    return open_table(source, text_types({}, options.keep))


def preview_table(
    table: TableSource, options: TableOptions, progress: Progress | None = None
) -> TableSchema:
    """Scan a table, and return how it would be stored."""
    return plan_table(table, options, _scan_progress(progress)).schema


def store_unless_stored(
    table: TableSource,
    name: str,
    options: TableOptions,
    *,
    force: bool = False,
    on_schema: Callable[[TableSchema], None] | None = None,
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
    new = table if grown is None else grown.new
    target = dataset_path(safe_name(name))
    if isinstance(table, FrameSource):
        executor = None  # its rows are in the memory of this process
    # The processes of an executor may be unable to read a copy.
    copies = new.is_slow and executor is None
    with workspace(target) if copies else nullcontext() as work:
        plan = plan_table(
            table,
            options,
            _scan_progress(progress),
            source=new,
            folder=None if work is None else work.folder,
            earlier=None if grown is None else grown.scan,
            executor=executor,
        )
        if on_schema is not None:
            on_schema(plan.schema)
        # Another process may have stored it during the scan.
        stored = None if force else _find_stored(name, options, plan.files)
        return stored or _store_table(plan, name, grown, progress, executor)


def _scan_progress(progress: Progress | None) -> Callable[[int], None] | None:
    """Return what reports a scan as the first part of an ingestion."""
    if progress is None:
        return None
    # The number of rows is not known before the scan has ended.
    return lambda rows: progress(_SCANNED * rows / (rows + 10**6), f"scan, {rows:,} rows")


@dataclass(frozen=True, eq=False)
class _Grown:
    """A table that has more files than when it was stored.

    Attributes
    ----------
    data : Dataset
        As it is stored.
    scan : EarlierScan
        Of the files that it had then.
    new : TableSource
        The other files.
    """

    data: Dataset
    scan: EarlierScan
    new: TableSource


def _find_grown(name: str, options: TableOptions, table: TableSource) -> _Grown | None:
    """Return how a table has grown since it was stored as the data set `name`, None if otherwise.

    It has if its first files are those that were stored, in the same versions.
    """
    data = _open_complete(name)
    record = None if data is None else data.info.table
    if data is None or not record or "scan" not in record or not has_chunks_to_link(data):
        return None
    if not isinstance(table, FileSource | ArraySource):
        return None
    files = table.versions()
    count = len(record["files"])
    if not 0 < count < len(files) or not is_made_alike(data, options, files[:count]):
        return None
    earlier = EarlierScan(
        table.between(0, count),
        TableScan.from_json(record["scan"]),
        TableSchema.from_json(record["schema"]),
    )
    same_kinds = all(
        column.name in table.schema.names
        and kind_of(table.schema.field(column.name)) == column.kind
        for column in earlier.scan.columns.values()
    )
    return _Grown(data, earlier, table.between(count, len(files))) if same_kinds else None


def _store_table(
    plan: TablePlan,
    name: str,
    grown: _Grown | None,
    progress: Progress | None,
    executor: Executor | None,
) -> Dataset:
    """Write a scanned table as the data set `name`, whole or not at all, and return it opened."""
    target = dataset_path(safe_name(name))
    remove_leftovers(target.parent)
    rows = sum(plan.rows)

    def on_rows(done: int) -> None:
        if progress is not None:
            progress(_SCANNED + (1 - _SCANNED) * done / rows, f"store, {done:,} of {rows:,} rows")

    info = DatasetInfo(
        name=name,
        source=plan.table.description,
        feature_names=plan.schema.encoded_names,
        class_names={
            label.key: label.classes for label in plan.schema.labels if label.kind == CLASSES
        },
        default_label=plan.schema.explained[0].key if plan.schema.explained else None,
        table={
            "schema": plan.schema.to_json(),
            "options": _as_json(plan.options),
            "files": [file.to_json() for file in plan.files],
            "scan": plan.scan.to_json(),
            "weights": label_key(plan.options.weights) if plan.options.weights else None,
        },
    )
    stays = grown is not None and keeps_encoding(grown.scan.schema, plan.schema)
    earlier = EarlierRows.of(grown.data, rows) if grown is not None and stays else None
    write_table(target, info, plan, earlier=earlier, executor=executor, on_rows=on_rows)
    return open_dataset(name)


def dataset_name(source: Any, name: str | None = None) -> str:
    """Return the name of the data set of a table; raise an error if it has none."""
    if name is None and not isinstance(source, str | Path):
        raise TableError("a table in memory has no name; give it one with `name`")
    if name is None and not table_name(source):
        raise TableError(f"{source} gives no name for the data set; give it one with `name`")
    return safe_name(table_name(source) if name is None else name)


def _as_tuple(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _as_json(options: TableOptions) -> dict[str, Any]:
    values = asdict(options)
    if options.weights is None:
        del values["weights"]  # as in data sets that were stored before there were weights
    return {key: list(each) if isinstance(each, tuple) else each for key, each in values.items()}


def find_made_from(name: str, files: Sequence[SourceFile]) -> Dataset | None:
    """Return the data set `name` if it was made from these files, with whatever options."""
    data = _open_complete(name)
    return data if data is not None and _has_origin(data, {}, files) else None


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
    return _has_origin(data, {"options": _as_json(options)}, files)


def _open_complete(name: str) -> Dataset | None:
    return open_dataset(name) if is_complete(dataset_path(name)) else None


def _has_origin(data: Dataset, expected: dict[str, Any], files: Sequence[SourceFile]) -> bool:
    """Return whether a data set was made from these files, and has the expected record."""
    record = data.info.table or {}
    expected = {**expected, "files": [file.to_json() for file in files]}
    return have_versions(files) and all(record.get(key) == expected[key] for key in expected)
