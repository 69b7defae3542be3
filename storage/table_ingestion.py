"""Ingest a table of any origin as a data set of the home."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from storage.atomic import workspace
from storage.dataset import Dataset, DatasetInfo, dataset_path, is_complete, open_dataset
from storage.errors import StorageError, TableError
from storage.paths import safe_name
from storage.table_writing import write_table
from storage.tables.files import SourceFile, have_versions, table_name
from storage.tables.planning import EarlierFiles, TablePlan, plan_table
from storage.tables.schema import CLASSES, TableOptions, TableSchema, label_key
from storage.tables.side_by_side import OnRows
from storage.tables.sources import Table

# The share of the progress that the scan takes.
_SCANNED = 0.4

Progress = Callable[[float, str], None]


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

    If the data set has the first files of the table already, only the others are read.
    `on_schema`, if given, is called after the scan, before anything is stored.
    """
    stored = None if force else _find_stored(name, options, table.versions())
    if stored is not None:
        return stored
    grown = _find_grown(name, options, table)
    target = dataset_path(name)
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
            earlier=None if grown is None else grown[1],
            executor=executor,
        )
        on_schema(plan.schema)
        # Another process may have stored it during the scan.
        stored = None if force else _find_stored(name, options, plan.files)
        earlier = grown[0] if grown is not None and plan.keeps_earlier else None
        return stored or _store_table(plan, name, earlier, progress, executor)


def _scan_progress(progress: Progress) -> OnRows:
    """Return what reports a scan as the first part of an ingestion."""
    # The number of rows is not known before the scan has ended.
    return lambda rows: progress(_SCANNED * rows / (rows + 10**6), f"scan, {rows:,} rows")


def _find_grown(
    name: str, options: TableOptions, table: Table
) -> tuple[Dataset, EarlierFiles] | None:
    """Return the data set `name` if it has the first files of a table, but not all, None otherwise.

    These files have to be in the versions in which they were stored.
    """
    data, files = _open_complete(name), table.versions()
    if data is None or not data.info.table:
        return None
    record = data.info.table
    count = len(record["files"])
    if not 0 < count < len(files) or not is_made_alike(data, options, files[:count]):
        return None
    return data, EarlierFiles(TableSchema.from_json(record["schema"]), count)


def _store_table(
    plan: TablePlan,
    name: str,
    earlier: Dataset | None,
    progress: Progress,
    executor: Executor | None,
) -> Dataset:
    """Write a scanned table as the data set `name`, whole or not at all, and return it opened."""
    rows, weights = sum(plan.rows), plan.schema.options.weights

    def on_rows(done: int) -> None:
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
    write_table(dataset_path(name), info, plan, earlier=earlier, executor=executor, on_rows=on_rows)
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
