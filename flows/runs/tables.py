"""Ingest a table as a data set, and describe how its columns are read, without Prefect."""

from __future__ import annotations

from flows.interface.progress import progress_note, report_progress
from flows.results.base import IngestResult
from flows.settings.base import IngestSettings
from flows.text import byte_size
from storage import Dataset
from storage.table_ingestion import dataset_name, find_stored, scan_progress, store_table
from storage.tables.formats import open_table
from storage.tables.planning import TableOptions, plan_table
from storage.tables.schema import CATEGORY, CLASSES, DROP, Feature, Label, TableSchema

# Columns of the description of a schema.
SCHEMA_COLUMNS = ("column", "missing", "read as")
# The most names that a cell lists.
_MOST_NAMES = 6


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
    table = open_table(settings.dataset)
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


def stored_schema(data: Dataset) -> TableSchema:
    """Return the schema of a data set that was made from a table."""
    if data.info.table is None:
        raise ValueError(f"{data.name} was not made from a table")
    return TableSchema.from_json(data.info.table["schema"])


def describe_schema(schema: TableSchema) -> str:
    """Return the rows, labels and size of a table in words, one line each."""
    left_out = f", {schema.rows_left_out:,} of them left out" if schema.rows_left_out else ""
    lines = [
        f"{schema.rows:,} rows{left_out}; {len(schema.features):,} columns become "
        f"{len(schema.encoded_names):,} numbers, {byte_size(schema.bytes)}",
        *(f"label {_label_words(label)}" for label in schema.labels),
    ]
    lists = {
        "passed through": schema.passed,
        "not used": schema.dropped,
        "constant": schema.constant,
    }
    lines += [f"{words}: {_listed(names)}" for words, names in lists.items() if names]
    return "\n".join(lines)


def schema_cells(schema: TableSchema) -> list[list[str]]:
    """Return a row of cells (`SCHEMA_COLUMNS`) for each feature of a table."""
    return [
        [feature.name, f"{feature.missing:,}", _encoding_words(feature, schema.missing)]
        for feature in schema.features
    ]


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


def _encoding_words(feature: Feature, missing: str) -> str:
    words = feature.kind
    if feature.kind == CATEGORY:
        words = f"{len(feature.levels)} columns: {_listed(feature.encoded_names)}"
    if not feature.missing:
        return words
    return f"{words}; rows without it are left out" if missing == DROP else f"{words}; gaps filled"


def _label_words(label: Label) -> str:
    if label.kind != CLASSES:
        return f"{label.name}: numbers"
    sizes = [f"{name} ({size:,})" for name, size in zip(label.classes, label.sizes, strict=True)]
    return f"{label.name}: {len(sizes)} classes, {_listed(sizes)}"


def _listed(names: tuple[str, ...] | list[str]) -> str:
    rest = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")


def _names(text: str | None) -> tuple[str, ...]:
    """Return the names in a text that separates them by commas."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())
