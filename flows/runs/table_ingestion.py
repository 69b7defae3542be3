"""Ingest a table as a data set, without Prefect."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from functools import partial

from flows.builtin.catalogue import DATASETS
from flows.compute import joined_cluster
from flows.errors import SettingsError
from flows.progress.watching import progress_note, report_progress
from flows.results.runs import IngestResult
from flows.runs.columns_read import describe_schema, hints
from flows.settings.base import IngestSettings
from flows.settings.choices import table_options
from storage import Dataset, DatasetNotFound, StorageError, TableError, open_dataset
from storage.errors import did_you_mean
from storage.table_ingestion import dataset_name, find_made_from, preview_table, store_unless_stored
from storage.tables.formats import open_table
from storage.tables.schema import CLASSES, TableOptions, TableSchema
from storage.tables.sources import Table


def ingest_table(settings: IngestSettings) -> IngestResult:
    """Store a table as a data set, unless it is stored already.

    With `dry_run` the result says how it would be stored.
    """
    options = table_options(settings)
    table, name = open_table(settings.dataset, options), _free_name(settings.dataset, settings.name)
    if settings.dry_run:
        schema = preview_table(table, options, report_progress)
        _show(table, schema)
        return _result(name, schema)
    data = _store(table, name, options, force=settings.force, scheduler=settings.scheduler)
    return _result(name, stored_schema(data), data)


def ingest_changed(settings: IngestSettings, replaces: str) -> Dataset:
    """Store a table in the place of what was stored from it before, unless it is the same.

    The data set `replaces` is of an earlier ingestion; others stay, unless they have a file of it.
    """
    options = table_options(settings)
    table, name = open_table(settings.dataset, options), _free_name(settings.dataset, settings.name)
    if (stored := find_made_from(name, files := table.versions(), options)) is not None:
        return stored
    force = settings.force or name == replaces
    with suppress(DatasetNotFound):
        made = (open_dataset(name).info.table or {}).get("files", ())
        force |= not {each["path"] for each in made}.isdisjoint(each.path for each in files)
    return _store(table, name, options, force=force, scheduler=settings.scheduler)


def store_labelled(
    source: str, labels: tuple[str, ...], target: str, *, needs_label: bool
) -> Dataset:
    """Store the table at a path with labels, unless it is stored already, and return it opened.

    A data set that was made from the same files with other options serves if it has the labels.
    `target` says what labels of numbers are, as in `ingest_table`. A table that `needs_label` is
    not stored without one.
    """
    table = open_table(source)
    options = TableOptions(label=labels, target=target)
    try:
        name = _free_name(source)
        data = find_made_from(name, table.versions())
        if data is not None and {*labels} <= {each.name for each in stored_schema(data).explained}:
            return data
        columns = ", ".join(table.schema.names[:8])
        if needs_label and not labels:
            raise SettingsError(
                f"`label` is not given; name the column of {source} to explain: {columns}", "label"
            )
        for each in labels:  # before what is stored with other labels is said to be in the way
            if each not in table.schema.names:
                hint = did_you_mean(each, table.schema.names)
                raise SettingsError(
                    f"there is no column {each!r}; {hint}{source} has the columns {columns}"
                )
        return _store(table, name, options)
    except StorageError as error:
        raise TableError(
            f"{error}. `ism-dask ingest {source}` has options for that, such as --force, --name, "
            "--drop, --keep and --missing; a run then takes the name of the data set"
        ) from error


def stored_schema(data: Dataset) -> TableSchema:
    """Return the schema of a data set that was made from a table."""
    if data.info.table is None:
        raise ValueError(f"{data.name} was not made from a table")
    return TableSchema.from_json(data.info.table["schema"])


def _free_name(source: str, name: str | None = None) -> str:
    """Return the name of the data set of a table; raise TableError for that of a built-in one."""
    chosen = dataset_name(source, name)
    if chosen in DATASETS:
        raise TableError(
            f"{chosen!r} is the name of a built-in data set; give another `name`", "name"
        )
    return chosen


def _store(
    table: Table,
    name: str,
    options: TableOptions,
    *,
    force: bool = False,
    scheduler: str | None = None,
) -> Dataset:
    with joined_cluster(scheduler) as session, session.watched() if session else nullcontext():
        return store_unless_stored(
            table,
            name,
            options,
            force=force,
            on_schema=partial(_show, table),
            progress=report_progress,
            executor=session.client.get_executor(pure=False) if session else None,
        )


def _show(table: Table, schema: TableSchema) -> None:
    """Note how a table is read, and what the user may have overlooked."""
    notes = [f"the files are unusual: {table.note}"] if table.note else []
    for note in (*notes, describe_schema(schema), *hints(schema)):
        progress_note(note)


def _result(name: str, schema: TableSchema, data: Dataset | None = None) -> IngestResult:
    return IngestResult(
        dataset=name,
        split="all",
        rows=schema.rows - schema.rows_left_out,
        columns=len(schema.encoded_names),
        labels={
            label.key: len(label.levels) if label.role == CLASSES else 0
            for label in schema.explained
        },
        data_hash=data.data_hash if data else "",
        path=str(data.path) if data else "",
        schema=schema.to_json(),
    )
