"""How the columns of a table are read, in words and in cells of a table for people."""

from __future__ import annotations

import re
from itertools import groupby

from flows.reports.blocks import Block, Fact, Summary, Table, say
from flows.results.runs import IngestResult
from ism_dask.gamma.targets import MAX_WHOLE_CLASSES
from ism_dask.words import byte_size, count_noun, shortened
from storage.tables.schema import (
    BOOLEAN,
    CATEGORY,
    CLASSES,
    DROP,
    NUMBER,
    WEIGHTS,
    Column,
    TableSchema,
)

# Names of columns that are often a label, and those that number the rows.
_LABELS = ("class", "diagnosis", "label", "outcome", "response", "target", "y")
_ID = re.compile(r"(.*[^A-Za-z])?(id|ID|Id|key|uuid)|.*[a-z](ID|Id)")
# A column of fewer rows tells nothing by its numbers.
_FEW_ROWS = 10
# Columns of the description of a schema.
SCHEMA_COLUMNS = ("column", "missing", "read as")
# So many neighbours that are read alike share a row.
_SEVERAL = 10
# The most names that a cell lists.
_MOST_NAMES = 6


def describe_schema(schema: TableSchema) -> str:
    """Return the rows, labels and size of a table in words, one line each."""
    left_out = f", {schema.rows_left_out:,} of them left out" if schema.rows_left_out else ""
    columns, numbers = len(schema.features), count_noun(len(schema.encoded_names), "number")
    lines = [
        f"{count_noun(schema.rows, 'row')}{left_out}; {count_noun(columns, 'column')} "
        f"become{'s' * (columns == 1)} {numbers}, {byte_size(schema.bytes)}",
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
    """Return a row of cells (`SCHEMA_COLUMNS`) for each feature of a table.

    Neighbours that are read alike share one.
    """
    rows = []
    alike = groupby(
        schema.features,
        lambda each: (f"{each.missing:,}", _encoding_words(each, schema.options.missing)),
    )
    for (missing, words), group in alike:
        names = [shortened(feature.name) for feature in group]
        if len(names) < _SEVERAL:
            rows += [[name, missing, words] for name in names]
        else:
            kind, *more = words.split(";")
            several = ";".join([f"{len(names):,} {kind}s", *more])
            rows.append([f"{names[0]} to {names[-1]}", missing, several])
    return rows


def ingest_summary(result: IngestResult) -> Summary:
    """Return the summary of a data set that was read: its labels and how its columns were read."""
    labels = tuple((name, str(classes or "numbers")) for name, classes in result.labels.items())
    tables = [Table("Labels.", ("label", "classes"), labels, left=2)]
    warnings: list[str] = []
    if result.schema is not None:
        schema = TableSchema.from_json(result.schema)
        cells = tuple(map(tuple, schema_cells(schema)))
        tables.append(Table("How columns were read.", SCHEMA_COLUMNS, cells))
        warnings = hints(schema)
    named = " and ".join(
        f"{each} ({kind if kind == 'numbers' else f'{kind} classes'})" for each, kind in labels
    )
    stored = f"Stored in {result.path}, with the hash {result.data_hash}."
    return Summary(
        run=f"{result.dataset} ({result.split})",
        kind=result.command,
        subject=stored if result.path else "A dry run: nothing was stored.",
        finding=f"{result.rows:,} rows were read with {count_noun(result.columns, 'column')} of "
        f"numbers and {f'the label {named}' if named else 'no label'}",
        facts=(Fact("Rows", f"{result.rows:,}", warnings=tuple(warnings)),),
        blocks=(Block("Columns", tables=tuple(tables)),),
    )


def hints(schema: TableSchema) -> list[str]:
    """Return a hint for columns that look like numbers of rows, and for a label that lacks."""
    hints = []
    if ids := [repr(each.name) for each in schema.features if _looks_like_id(each)]:
        hints.append(say("columns.ids", ids=", ".join(ids), s="s" * (len(ids) == 1)))
    if not schema.explained:
        few = range(2, MAX_WHOLE_CLASSES + 1)  # levels that classes may have
        likely = [
            each.name
            for each in schema.features
            if each.name.casefold() in _LABELS or each.kind == BOOLEAN or len(each.levels) in few
        ]
        column = f", and {likely[-1]!r} looks like one" if likely else ""
        hints.append(say("columns.no_label", likely=column))
    return hints


def _looks_like_id(column: Column) -> bool:
    """Return whether a column has a number for each row: by its name, or as it counts the rows."""
    if column.kind != NUMBER or column.missing or column.present < _FEW_ROWS:
        return False
    steps, middle = column.present - 1, (column.low + column.high) / 2
    counts_rows = column.high - column.low == steps and column.total == column.present * middle
    return counts_rows or (
        column.high - column.low > steps and _ID.fullmatch(column.name) is not None
    )


def _encoding_words(feature: Column, missing: str) -> str:
    """Return how a feature is read."""
    words = feature.kind
    if feature.kind == CATEGORY:
        words = f"{count_noun(len(feature.levels), 'column')}: {_listed(feature.encoded_names)}"
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
