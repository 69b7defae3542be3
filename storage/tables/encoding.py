"""Encode batches of a table as rows of numbers and as labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from storage.errors import TableError
from storage.tables.columns import (
    as_floats,
    as_texts,
    incomplete_rows,
    read_columns,
    without_dictionary,
)
from storage.tables.schema import CATEGORY, CLASSES, DROP, REFUSE, Column, TableSchema

Array = NDArray[Any]
# The most levels that an error lists.
_MOST_LEVELS = 5


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Rows of a table as numbers.

    Attributes
    ----------
    X : (n, d) array
    labels : dict of str to (n,) array
        Class codes, or float64 numbers, by their keys in the data set.
    passed : RecordBatch
        The columns that are passed through, for the same rows.
    left_out : (m,) array of bool
        Which rows of the batch were left out, for they lack a value.
    """

    X: Array
    labels: dict[str, Array]
    passed: pa.RecordBatch
    left_out: Array


@dataclass(eq=False)
class Problems:
    """The reasons why rows do not fit a schema, collected over batches for one error.

    Attributes
    ----------
    ignore_unseen : bool
        Whether a level that the schema lacks is no problem: its row has 0 for each level.
    unseen : dict of str to (set of str)
        For each column, the levels or classes that the schema lacks.
    gaps, infinite : Counter
        For each column, the number of rows without a value, or with an infinite one.
    """

    ignore_unseen: bool = False
    unseen: dict[str, set[str]] = field(default_factory=dict)
    gaps: Counter[str] = field(default_factory=Counter)
    infinite: Counter[str] = field(default_factory=Counter)

    def merge(self, other: Problems) -> None:
        """Add the problems of later rows."""
        for name, levels in other.unseen.items():
            self.unseen.setdefault(name, set()).update(levels)
        self.gaps.update(other.gaps)
        self.infinite.update(other.infinite)

    def listed(self) -> list[str]:
        """Return a clause for each problem."""
        unseen = {} if self.ignore_unseen else self.unseen
        return [
            *(
                f"the column {name!r} has {', '.join(map(repr, sorted(levels)[:_MOST_LEVELS]))}"
                f"{', ...' if len(levels) > _MOST_LEVELS else ''}, which it did not have before"
                for name, levels in unseen.items()
            ),
            *(f"{name!r} has no value in {rows:,} rows" for name, rows in self.gaps.items()),
            *(
                f"{name!r} is infinite or too large in {rows:,} rows"
                for name, rows in self.infinite.items()
            ),
        ]

    def check(self, source: str) -> None:
        """Raise a TableError that lists all problems of the table `source`, if there are any."""
        if clauses := self.listed():
            raise TableError(f"{source}: {'; '.join(clauses)}")


def encode_batch(
    batch: pa.RecordBatch,
    schema: TableSchema,
    problems: Problems,
    *,
    passed: Sequence[str] = (),
    buffer: Array | None = None,
) -> EncodedRows:
    """Return the rows of a batch, encoded by a schema.

    Parameters
    ----------
    batch : RecordBatch
        Its columns are read by name.
    schema : TableSchema
    problems : Problems
        Collects what does not fit the schema.
    passed : sequence of str
        Columns that are passed through.
    buffer : (m, d) array, optional
        Memory for X, if it has enough rows: fresh memory costs as much time as the encoding.
    """
    columns = read_columns(batch, schema.kinds)
    beside = batch.select(list(passed))
    left_out = np.zeros(batch.num_rows, dtype=bool)
    if schema.options.missing == DROP:
        left_out = incomplete_rows(columns)
    if left_out.any():
        # Levels and numbers of such rows do not count.
        columns, beside = (each.filter(pa.array(~left_out)) for each in (columns, beside))
    if buffer is None or len(buffer) < columns.num_rows:
        buffer = np.empty((columns.num_rows, len(schema.encoded_names)), schema.dtype)
    X = buffer[: columns.num_rows]
    with np.errstate(over="ignore"):  # float32 cannot hold some numbers
        _encode_features(columns, schema, X.T, problems)
    labels = {
        label.key: _stored(label, columns.column(label.name), problems) for label in schema.labels
    }
    passed_columns = [without_dictionary(column) for column in beside.columns]
    return EncodedRows(X, labels, pa.record_batch(passed_columns, list(passed)), left_out)


def _encode_features(
    columns: pa.RecordBatch, schema: TableSchema, out: Array, problems: Problems
) -> None:
    """Fill `out` (d, rows) with the encoded features."""
    stop = 0
    for feature in schema.features:
        values = columns.column(feature.name)
        start, stop = stop, stop + (len(feature.levels) if feature.kind == CATEGORY else 1)
        if feature.kind == CATEGORY:
            codes = _codes(feature, values, problems)
            out[start:stop] = codes == np.arange(len(feature.levels))[:, None]
        else:
            numbers = out[start] = as_floats(values)
            if too_large := np.count_nonzero(np.abs(numbers) > np.finfo(schema.dtype).max):
                problems.infinite[feature.name] += int(too_large)
        if values.null_count:
            gap = values.is_null().to_numpy(zero_copy_only=False)
            out[start:stop, gap] = np.asarray(feature.means)[:, None]
            if schema.options.missing == REFUSE:
                problems.gaps[feature.name] += values.null_count
    for row, feature in enumerate(schema.indicated, start=stop):
        out[row] = columns.column(feature.name).is_null().to_numpy(zero_copy_only=False)


def _codes(column: Column, values: pa.Array, problems: Problems) -> NDArray[np.int32]:
    """Return the number of each value among the levels of a column, -1 for others and for none."""
    texts = values if column.kind == CATEGORY else as_texts(values)
    indices = pc.index_in(texts, value_set=pa.array(column.levels, pa.string()))
    if indices.null_count > texts.null_count:
        unseen = texts.filter(pc.and_(pc.is_null(indices), pc.is_valid(texts)))
        problems.unseen.setdefault(column.name, set()).update(unseen.unique().to_pylist())
    return np.asarray(indices.fill_null(-1))


def _stored(label: Column, values: pa.Array, problems: Problems) -> Array:
    """Return a label as it is stored: codes of classes in the smallest type, or float64."""
    if values.null_count:
        problems.gaps[label.name] += values.null_count
    if label.role != CLASSES:
        return as_floats(values)
    codes = _codes(label, values, problems)
    return codes.astype(np.min_scalar_type(max(len(label.levels) - 1, 0)))
