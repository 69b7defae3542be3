"""Encode batches of a table as rows of numbers and as labels."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from storage.errors import TableError
from storage.tables.schema import CATEGORY, CLASSES, DROP, REFUSE, Feature, Label, TableSchema

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
        Class codes, or float64 numbers.
    left_out : (m,) array of bool
        Which rows of the batch were left out, for they lack a value.
    """

    X: Array
    labels: dict[str, Array]
    left_out: Array


@dataclass(eq=False)
class Problems:
    """What makes rows unfit for a schema, collected over batches, so that one error lists it all.

    Attributes
    ----------
    unseen : dict of str to (set of str)
        For each column, the levels or classes that the schema lacks.
    gaps, infinite : Counter
        For each column, the number of rows without a value, or with an infinite one.
    """

    unseen: dict[str, set[str]] = field(default_factory=dict)
    gaps: Counter[str] = field(default_factory=Counter)
    infinite: Counter[str] = field(default_factory=Counter)

    def check(self) -> None:
        """Raise a TableError that lists all problems, if there are any."""
        lines = [
            f"the column {name!r} has {', '.join(map(repr, sorted(levels)[:_MOST_LEVELS]))}"
            f"{', ...' if len(levels) > _MOST_LEVELS else ''}, which it did not have before"
            for name, levels in self.unseen.items()
        ]
        lines += [f"{name!r} has no value in {rows:,} rows" for name, rows in self.gaps.items()]
        lines += [f"{name!r} is infinite in {rows:,} rows" for name, rows in self.infinite.items()]
        if lines:
            raise TableError("; ".join(lines))


def encode_batch(
    batch: pa.RecordBatch,
    schema: TableSchema,
    problems: Problems | None = None,
    *,
    with_labels: bool = True,
) -> EncodedRows:
    """Return the rows of a batch, encoded by a schema.

    Parameters
    ----------
    batch : RecordBatch
        Its columns are read by name.
    schema : TableSchema
    problems : Problems, optional
        Collects what does not fit the schema. Default: it raises a TableError.
    with_labels : bool
        Whether to read the labels, too; rows to transform have none.
    """
    found = Problems() if problems is None else problems
    columns = np.empty((len(schema.encoded_names), batch.num_rows), schema.dtype)
    absent = _encode_features(batch, schema, columns, found)
    labels = schema.labels if with_labels else ()
    values = {label.name: _label_values(label, batch.column(label.name), found) for label in labels}
    for name, each in values.items():
        gap = np.isnan(each)
        absent |= gap
        if schema.missing != DROP and gap.any():
            found.gaps[name] += int(gap.sum())
    if problems is None:
        found.check()
    left_out = absent if schema.missing == DROP else np.zeros(len(absent), dtype=bool)
    stays = ~left_out
    rows = columns.T if stays.all() else columns.T[stays]
    stored = {label.name: _as_stored(label, values[label.name][stays]) for label in labels}
    return EncodedRows(np.ascontiguousarray(rows), stored, left_out)


def as_numbers(values: pa.Array) -> Array:
    """Return a column of numbers or booleans as float64, NaN where it has no value."""
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    return np.asarray(values.cast(pa.float64()).to_numpy(zero_copy_only=False))


def as_texts(values: pa.Array) -> pa.Array:
    """Return a column as strings; whole numbers have no decimals, so 3.0 is "3"."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_floating(values.type):
        whole = pc.if_else(pc.is_nan(values), None, values)
        values = whole.cast(pa.int64()) if _are_whole(whole) else whole
    return values.cast(pa.string())


def _are_whole(values: pa.Array) -> bool:
    return bool(pc.all(pc.equal(values, pc.round(values))).as_py() is not False)


def _encode_features(
    batch: pa.RecordBatch, schema: TableSchema, columns: Array, found: Problems
) -> Array:
    """Fill `columns` (d, rows) with the encoded features; return which rows lack a value."""
    gaps, stop = {}, 0
    for feature in schema.features:
        start, stop = stop, stop + len(feature.encoded_names)
        out = columns[start:stop]
        gap = _encode_feature(feature, batch.column(feature.name), out, found)
        gaps[feature.name] = gap
        if gap.any():
            out[:, gap] = np.asarray(feature.means or (0.0,))[:, None]
            if schema.missing == REFUSE:
                found.gaps[feature.name] += int(gap.sum())
    for row, feature in enumerate(schema.indicated, start=stop):
        columns[row] = gaps[feature.name]
    return np.asarray(np.any(list(gaps.values()), axis=0))


def _encode_feature(feature: Feature, values: pa.Array, out: Array, found: Problems) -> Array:
    """Write a feature into `out` (numbers, rows); return which rows have no value."""
    if feature.kind == CATEGORY:
        texts = as_texts(values)
        codes = _codes(feature.name, texts, feature.levels, found)
        out[...] = codes == np.arange(len(feature.levels))[:, None]
        return np.asarray(pc.is_null(texts))
    numbers = as_numbers(values)
    infinite = int(np.count_nonzero(np.isinf(numbers)))
    if infinite:
        found.infinite[feature.name] += infinite
    out[0] = numbers
    return np.isnan(numbers)


def _label_values(label: Label, values: pa.Array, found: Problems) -> Array:
    """Return the class codes or numbers of a label as float64, NaN where it has no value."""
    if label.kind != CLASSES:
        return as_numbers(values)
    return _codes(label.name, as_texts(values), label.classes, found)


def _codes(name: str, texts: pa.Array, levels: tuple[str, ...], found: Problems) -> Array:
    """Return the number of each text in `levels` as float64, NaN for other texts and for none."""
    indices = pc.index_in(texts, value_set=pa.array(levels, pa.string()))
    unseen = pc.and_(pc.is_null(indices), pc.is_valid(texts))
    if pc.any(unseen).as_py():
        found.unseen.setdefault(name, set()).update(texts.filter(unseen).unique().to_pylist())
    return np.asarray(indices.cast(pa.float64()).to_numpy(zero_copy_only=False))


def _as_stored(label: Label, values: Array) -> Array:
    """Return the values of a label as they are stored: codes in the smallest type, or float64."""
    if label.kind != CLASSES:
        return values
    codes = np.where(np.isnan(values), 0.0, values)  # such rows are among the problems
    return codes.astype(np.min_scalar_type(max(len(label.classes) - 1, 0)))
