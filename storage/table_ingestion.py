"""Ingest a table of any origin as a data set of the home."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from storage.atomic import remove_leftovers
from storage.catalogue import DATASETS
from storage.dataset import Dataset, dataset_path, is_complete, open_dataset
from storage.dataset_info import DatasetInfo
from storage.dataset_writing import write_dataset
from storage.errors import StorageError, TableError
from storage.paths import safe_name
from storage.tables.files import SourceFile, have_versions, table_name
from storage.tables.formats import open_table
from storage.tables.planning import TableOptions, TablePlan, plan_table
from storage.tables.schema import AUTO, CLASSES, REFUSE

# The share of the progress that the scan takes.
_SCANNED = 0.4

Progress = Callable[[float, str], None]


def scan_progress(progress: Progress | None) -> Callable[[int], None]:
    """Return the callback of a scan that reports its rows as a share of the whole ingestion."""

    def on_rows(rows: int) -> None:
        if progress is not None:
            # The number of rows is not known before the scan has ended.
            progress(_SCANNED * rows / (rows + 10**6), f"scan, {rows:,} rows")

    return on_rows


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
    force: bool = False,
    progress: Progress | None = None,
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
    force : bool
        Replace a data set of that name that was stored from something else.
    progress : callable, optional
        Called with the share that is done, from 0 to 1, and with a text.

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
    )
    name = dataset_name(source, name)
    table = open_table(source, options.text_types)
    stored = None if force else find_stored(name, options, table.versions())
    return stored or store_table(
        plan_table(table, options, scan_progress(progress)), name, force=force, progress=progress
    )


def store_table(
    plan: TablePlan, name: str, *, force: bool = False, progress: Progress | None = None
) -> Dataset:
    """Write a scanned table as the data set `name`, whole or not at all, and return it opened."""
    target = dataset_path(safe_name(name))
    remove_leftovers(target.parent)
    if not force:
        stored = find_stored(name, plan.options, plan.files)
        if stored is not None:
            return stored
    rows = plan.schema.rows - plan.schema.rows_left_out

    def on_rows(done: int) -> None:
        if progress is not None:
            progress(_SCANNED + (1 - _SCANNED) * done / rows, f"store, {done:,} of {rows:,} rows")

    labels: dict[str, NDArray[Any]] = {}
    info = DatasetInfo(
        name=name,
        source=plan.source.description,
        feature_names=plan.schema.encoded_names,
        class_names={
            label.key: label.classes for label in plan.schema.labels if label.kind == CLASSES
        },
        default_label=plan.schema.labels[0].key if plan.schema.labels else None,
        table={"schema": plan.schema.to_json(), **_origin(plan.options, plan.files)},
    )
    write_dataset(target, info, plan.blocks(labels), labels, on_rows=on_rows)
    return open_dataset(name)


def dataset_name(source: Any, name: str | None = None) -> str:
    """Return the name of the data set of a table; raise an error if it has none, or a taken one."""
    if name is None and not isinstance(source, str | Path):
        raise TableError("a table in memory has no name; give it one with `name`")
    chosen = safe_name(table_name(source) if name is None else name)
    if chosen in DATASETS:
        raise TableError(f"{chosen!r} is the name of a built-in data set; give another `name`")
    return chosen


def _as_tuple(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _origin(options: TableOptions, files: Sequence[SourceFile]) -> dict[str, Any]:
    """Return in plain JSON what a table was read from, and how."""
    values = asdict(options)
    lists = {key: list(value) for key, value in values.items() if isinstance(value, tuple)}
    return {"options": {**values, **lists}, "files": [file.to_json() for file in files]}


def find_made_from(name: str, files: Sequence[SourceFile]) -> Dataset | None:
    """Return the data set `name` if it was made from these files, in whatever way."""
    if not is_complete(dataset_path(name)):
        return None
    data = open_dataset(name)
    stored = (data.info.table or {}).get("files")
    return data if have_versions(files) and stored == [file.to_json() for file in files] else None


def find_stored(name: str, options: TableOptions, files: Sequence[SourceFile]) -> Dataset | None:
    """Return the data set `name` if it was made alike from the same files, None if there is none.

    Raise a StorageError if it was made otherwise.
    """
    if not is_complete(dataset_path(name)):
        return None
    data = open_dataset(name)
    origin = _origin(options, files)
    stored = data.info.table or {}
    if have_versions(files) and all(stored.get(key) == value for key, value in origin.items()):
        return data
    raise StorageError(
        f"a data set {name!r} is stored already, from {data.info.source or 'another source'} as "
        "it was then; replace it with --force (force=True), or choose another name"
    )
