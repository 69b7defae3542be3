"""Encode rows that a model has not seen, by the schema of the table that it was fitted to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from storage.errors import TableError
from storage.tables.encoding import EncodedRows, Problems, encode_batch, kind_of
from storage.tables.formats import open_table
from storage.tables.schema import CATEGORY, DATE, TableSchema
from storage.tables.sources import Part, Table


def encode_new_rows(
    part: Part | Table, schema: TableSchema, problems: Problems, passed: Sequence[str] = ()
) -> Iterator[EncodedRows]:
    """Yield the rows of a table in batches, one or more, encoded; its columns have any order.

    `check_columns` has accepted them. `problems` collects the reasons why rows do not fit, and the
    columns `passed` are passed through.
    """
    features = [feature.name for feature in schema.features]
    columns = list(dict.fromkeys([*features, *passed]))
    fields = pa.schema([part.schema.field(name) for name in columns])
    batches = part.batches(columns)
    first = next(batches, pa.RecordBatch.from_pylist([], schema=fields))
    for batch in chain([first], batches):
        yield encode_batch(batch, replace(schema, labels=()), problems, passed=passed)


def open_new_rows(source: Any, schema: TableSchema) -> Table:
    """Open a table with new rows; the columns of text files have the types of the schema."""
    kinds = {feature.name: feature.kind for feature in schema.features}
    return open_table(source, schema.options, kinds)


def encode_frame(frame: Any, schema: TableSchema) -> NDArray[Any]:
    """Return the rows of a frame (n, d), encoded; labels in it are ignored.

    Raise a TableError that lists all columns that lack, are unknown or have another type, and all
    unseen levels, gaps and infinite values.
    """
    table, problems = open_new_rows(frame, schema), Problems()
    check_columns(table, schema)
    batches = list(encode_new_rows(table, schema, problems))
    problems.check(table.description)
    left_out = sum(rows.read - len(rows.X) for rows in batches)
    if left_out:
        raise TableError(
            f"{left_out:,} rows lack a value, and such rows were left out of the fit; leave them "
            "out here, too"
        )
    return np.concatenate([rows.X for rows in batches])


def check_columns(
    table: Table, schema: TableSchema, *, ignore_unseen: bool = False
) -> tuple[str, ...]:
    """Return the columns to pass through that the table has; raise an error if it is unfit.

    The error lists all columns that are missing, unknown or of another type, and what is wrong with
    the values of the others. With `ignore_unseen`, unseen levels are not wrong.
    """
    names = table.schema.names
    kinds = {feature.name: feature.kind for feature in schema.features}
    labels = [label.name for label in schema.labels]
    known, given = {*kinds, *labels, *schema.options.keep, *schema.dropped}, frozenset(names)
    other_type = [
        name
        for name, kind in kinds.items()
        if name in given and not _fits(table.schema.field(name), kind)
    ]
    problems = [
        *_listed("lacks", [name for name in kinds if name not in given]),
        *_listed("has the unknown columns", [name for name in names if name not in known]),
        *(
            f"has {table.schema.field(name).type} in {name!r}, which was a {kinds[name]}"
            for name in other_type
        ),
    ]
    if problems:
        values = _unfit_values(table, schema, given.difference(other_type), ignore_unseen)
        raise TableError(
            f"{table.description} is not like the table that the model was fitted to: it "
            f"{'; '.join(['; it '.join(problems), *values])}"
        )
    return tuple(name for name in schema.options.keep if name in given)


def ignored_columns(table: Table, schema: TableSchema) -> list[str]:
    """Return the columns of a table that were known to the fit, but are no features: labels too."""
    used = {*(feature.name for feature in schema.features), *schema.options.keep}
    others = {*(label.name for label in schema.labels), *schema.dropped} - used
    return [name for name in table.schema.names if name in others]


def _unfit_values(
    table: Table, schema: TableSchema, names: Collection[str], ignore_unseen: bool
) -> list[str]:
    """Return what is wrong with the values of some columns of a table, a clause for each reason."""
    features = tuple(feature for feature in schema.features if feature.name in names)
    problems = Problems(ignore_unseen)
    try:
        for _ in encode_new_rows(table, replace(schema, features=features), problems):
            pass
    except TableError as error:
        return [str(error)]
    return problems.listed()


def _fits(column: pa.Field, kind: str) -> bool:
    """Return whether the values of a column can be encoded as a feature of this kind."""
    if pa.types.is_null(column.type):
        return True
    try:
        given = kind_of(column, dates=kind == DATE)
    except TableError:
        return False
    # Levels that are whole numbers, such as "3", may come as numbers.
    return kind in (given, CATEGORY)


def _listed(words: str, names: Sequence[str]) -> list[str]:
    return [f"{words} {', '.join(map(repr, names))}"] if names else []
