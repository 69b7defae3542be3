"""Encode rows that a model has not seen, by the schema of the table that it was fitted to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from storage.errors import TableError
from storage.tables.columns import kind_of, without_dictionary
from storage.tables.encoding import Problems, encode_batch
from storage.tables.formats import open_table, text_types
from storage.tables.schema import CATEGORY, TableSchema
from storage.tables.sources import Part, Table


@dataclass(frozen=True, eq=False)
class NewRows:
    """A batch of new rows.

    Attributes
    ----------
    X : (m, d) array
        The encoded rows.
    passed : RecordBatch, optional
        The columns that are passed through, for the same rows, if there are any.
    left_out : (rows of the batch,) array of bool
        The rows that were left out, for they lack a value.
    """

    X: NDArray[Any]
    passed: pa.RecordBatch | None
    left_out: NDArray[Any]


def encode_new_rows(
    source: Part,
    schema: TableSchema,
    *,
    ignore_unseen: bool = False,
    problems: Problems | None = None,
) -> Iterator[NewRows]:
    """Yield the rows of a table in batches, one or more, encoded; its columns have any order.

    Parameters
    ----------
    source : Part
    schema : TableSchema
    ignore_unseen : bool
        Whether rows with a level that the schema lacks have 0 for each of its levels.
    problems : Problems, optional
        Collects the reasons why rows do not fit. Default: they raise an error after the last batch.

    Raises
    ------
    TableError
        Before the first batch, if columns lack, are unknown or have another type; after the last,
        if there were unseen levels, gaps or infinite values. Both list all of them.
    """
    passed = check_columns(source, schema, ignore_unseen=ignore_unseen)
    features = [feature.name for feature in schema.features]
    collected = Problems() if problems is None else problems
    for batch in _one_or_more(source, list(dict.fromkeys([*features, *passed]))):
        encoded = encode_batch(batch, schema, collected, with_labels=False)
        columns = [without_dictionary(batch.column(name)) for name in passed]
        beside = None
        if passed:
            beside = pa.record_batch(columns, names=passed).filter(pa.array(~encoded.left_out))
        yield NewRows(encoded.X, beside, encoded.left_out)
    if ignore_unseen:
        collected.unseen.clear()
    if problems is None:
        collected.check(source.description)


def open_new_rows(source: Any, schema: TableSchema) -> Table:
    """Open a table with new rows; the columns of text files have the types of the schema."""
    kinds = {feature.name: feature.kind for feature in schema.features}
    return open_table(source, text_types(kinds, schema.options.keep))


def encode_frame(frame: Any, schema: TableSchema) -> NDArray[Any]:
    """Return the rows of a frame (n, d), encoded; labels in it are ignored."""
    batches = list(encode_new_rows(open_new_rows(frame, schema), schema))
    left_out = sum(int(np.count_nonzero(rows.left_out)) for rows in batches)
    if left_out:
        raise TableError(
            f"{left_out:,} rows lack a value, and such rows were left out of the fit; leave them "
            "out here, too"
        )
    return np.concatenate([rows.X for rows in batches])


def check_columns(source: Part, schema: TableSchema, *, ignore_unseen: bool = False) -> list[str]:
    """Return the columns to pass through that the table has; raise an error if it is unfit.

    The error lists all columns that are missing, unknown or of another type, and what is wrong with
    the values of the others.
    """
    names = source.schema.names
    kinds = {feature.name: feature.kind for feature in schema.features}
    labels = [label.name for label in schema.labels]
    known, given = {*kinds, *labels, *schema.options.keep, *schema.dropped}, frozenset(names)
    other_type = [
        name
        for name, kind in kinds.items()
        if name in given and not _fits(source.schema.field(name), kind)
    ]
    problems = [
        *_listed("lacks", [name for name in kinds if name not in given]),
        *_listed("has the unknown columns", [name for name in names if name not in known]),
        *(
            f"has {source.schema.field(name).type} in {name!r}, which was a {kinds[name]}"
            for name in other_type
        ),
    ]
    if problems:
        values = _unfit_values(source, schema, given.difference(other_type), ignore_unseen)
        raise TableError(
            f"{source.description} is not like the table that the model was fitted to: it "
            f"{'; '.join(['; it '.join(problems), *values])}"
        )
    return [name for name in schema.options.keep if name in names]


def _unfit_values(
    source: Part, schema: TableSchema, names: Collection[str], ignore_unseen: bool
) -> list[str]:
    """Return what is wrong with the values of some columns of a table, a clause for each reason."""
    features = tuple(feature for feature in schema.features if feature.name in names)
    if not features:
        return []
    collected, part = Problems(), replace(schema, features=features)
    try:
        for batch in _one_or_more(source, [feature.name for feature in features]):
            encode_batch(batch, part, collected, with_labels=False)
    except TableError as error:
        return [str(error)]
    if ignore_unseen:
        collected.unseen.clear()
    return collected.listed()


def ignored_columns(source: Part, schema: TableSchema) -> list[str]:
    """Return the columns of a table that were known to the fit, but are no features: labels too."""
    used = {*(feature.name for feature in schema.features), *schema.options.keep}
    others = {*(label.name for label in schema.labels), *schema.dropped} - used
    return [name for name in source.schema.names if name in others]


def _one_or_more(source: Part, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a table, or an empty one if it has none."""
    batches = source.batches(columns)
    fields = pa.schema([source.schema.field(name) for name in columns])
    yield next(batches, pa.record_batch([pa.nulls(0, each.type) for each in fields], fields))
    yield from batches


def _fits(column: pa.Field, kind: str) -> bool:
    """Return whether the values of a column can be encoded as a feature of this kind."""
    if pa.types.is_null(column.type):
        return True
    try:
        given = kind_of(column)
    except TableError:
        return False
    # Levels that are whole numbers, such as "3", may come as numbers.
    return kind in (given, CATEGORY)


def _listed(words: str, names: Sequence[str]) -> list[str]:
    return [f"{words} {', '.join(map(repr, names))}"] if names else []
