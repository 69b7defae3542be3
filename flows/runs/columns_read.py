"""How the columns of a table are read, in words and in cells of a table for people."""

from __future__ import annotations

from flows.reports.blocks import Block, Summary, Table
from flows.results.base import IngestResult
from flows.text import byte_size, shortened
from storage.tables.schema import CATEGORY, CLASSES, DROP, WEIGHTS, Column, TableSchema

# Columns of the description of a schema.
SCHEMA_COLUMNS = ("column", "missing", "read as")
# The most names that a cell lists.
_MOST_NAMES = 6


def describe_schema(schema: TableSchema) -> str:
    """Return the rows, labels and size of a table in words, one line each."""
    left_out = f", {schema.rows_left_out:,} of them left out" if schema.rows_left_out else ""
    lines = [
        f"{schema.rows:,} rows{left_out}; {len(schema.features):,} columns become "
        f"{len(schema.encoded_names):,} numbers, {byte_size(schema.bytes)}",
        *(_label_words(label) for label in schema.labels),
    ]
    lists = {
        "passed through": schema.options.keep,
        "not used": schema.dropped,
        "constant": schema.constant,
    }
    lines += [f"{words}: {_listed(names)}" for words, names in lists.items() if names]
    return "\n".join(lines)


def schema_cells(schema: TableSchema) -> list[list[str]]:
    """Return a row of cells (`SCHEMA_COLUMNS`) for each feature of a table."""
    return [
        [
            shortened(feature.name),
            f"{feature.missing:,}",
            _encoding_words(feature, schema.options.missing),
        ]
        for feature in schema.features
    ]


def ingest_summary(result: IngestResult) -> Summary:
    """Return the summary of a data set that was read: its labels and how its columns were read."""
    labels = tuple((name, str(classes or "numbers")) for name, classes in result.labels.items())
    tables = [Table("Labels.", ("label", "classes"), labels, left=2)]
    if result.schema is not None:
        cells = schema_cells(TableSchema.from_json(result.schema))
        tables.append(Table("How columns were read.", SCHEMA_COLUMNS, tuple(map(tuple, cells))))
    stored = f"Stored in {result.path}, with the hash {result.data_hash}."
    return Summary(
        run=f"{result.dataset} ({result.split})",
        kind=result.command,
        subject=f"{result.rows:,} rows, {result.columns:,} columns.",
        facts=(),
        blocks=(
            Block(
                "Columns",
                about=stored if result.path else "A dry run: nothing was stored.",
                tables=tuple(tables),
            ),
        ),
    )


def _encoding_words(feature: Column, missing: str) -> str:
    words = feature.kind
    if feature.kind == CATEGORY:
        words = f"{len(feature.levels)} columns: {_listed(feature.encoded_names)}"
    if not feature.missing:
        return words
    return f"{words}; rows without it are left out" if missing == DROP else f"{words}; gaps filled"


def _label_words(label: Column) -> str:
    if label.role == WEIGHTS:
        return f"weights of rows: {label.name}"
    if label.role != CLASSES:
        return f"label {label.name}: numbers"
    sizes = [f"{name} ({size:,})" for name, size in zip(label.levels, label.sizes, strict=True)]
    return f"label {label.name}: {len(sizes)} classes, {_listed(sizes)}"


def _listed(names: tuple[str, ...] | list[str]) -> str:
    rest = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")
