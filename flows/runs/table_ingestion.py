"""Ingest a table as a data set, without Prefect."""

from __future__ import annotations

from flows.interface.columns_read import describe_schema
from flows.interface.progress import progress_note, report_progress
from flows.results.base import IngestResult
from flows.settings.base import IngestSettings
from storage import Dataset
from storage.table_ingestion import (
    dataset_name,
    find_made_from,
    find_stored,
    scan_progress,
    store_table,
)
from storage.tables.formats import open_table
from storage.tables.planning import TableOptions, plan_table
from storage.tables.schema import TableSchema


def ingest_table(settings: IngestSettings) -> IngestResult:
    """Store a table as a data set, unless it is stored already.

    With `dry_run` the result says how it would be stored.
    """
    options = TableOptions(
        labels=_names(settings.label),
        drop=_names(settings.drop),
        keep=_names(settings.keep),
        columns=_names(settings.columns),
        missing=settings.missing,
        target=settings.target,
        max_levels=settings.max_levels,
    )
    name = dataset_name(settings.dataset, settings.name)
    table = open_table(settings.dataset, options.text_types)
    replaced = settings.force or settings.dry_run
    data = None if replaced else find_stored(name, options, table.versions())
    if data is not None:
        return _result(name, stored_schema(data), data)
    plan = plan_table(table, options, scan_progress(report_progress))
    progress_note(describe_schema(plan.schema))
    if settings.dry_run:
        return _result(name, plan.schema)
    data = store_table(plan, name, force=settings.force, progress=report_progress)
    return _result(name, plan.schema, data)


def store_labelled(source: str, label: str | None) -> Dataset:
    """Store the table at a path with a label, unless it is stored already, and return it opened.

    A data set that was made from the same files in another way serves if it has the label.
    """
    name = dataset_name(source)
    table, options = open_table(source), TableOptions(labels=() if label is None else (label,))
    data = find_made_from(name, table.versions())
    if data is not None:
        labels = [each.name for each in stored_schema(data).labels]
        if label is None or label in labels:
            return data
    plan = plan_table(table, options, scan_progress(report_progress))
    progress_note(describe_schema(plan.schema))
    return store_table(plan, name, progress=report_progress)


def stored_schema(data: Dataset) -> TableSchema:
    """Return the schema of a data set that was made from a table."""
    if data.info.table is None:
        raise ValueError(f"{data.name} was not made from a table")
    return TableSchema.from_json(data.info.table["schema"])


def _result(name: str, schema: TableSchema, data: Dataset | None = None) -> IngestResult:
    return IngestResult(
        dataset=name,
        split="all",
        rows=schema.rows - schema.rows_left_out,
        columns=len(schema.encoded_names),
        labels={label.key: len(label.classes) for label in schema.labels},
        data_hash=data.data_hash if data else "",
        path=str(data.path) if data else "",
        schema=schema.to_json(),
    )


def _names(text: str | None) -> tuple[str, ...]:
    """Return the names in a text that separates them by commas."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())
