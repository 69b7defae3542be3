"""Encode batches of a table as rows of numbers and as labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from storage.errors import TableError
from storage.tables.schema import CATEGORY, CLASSES, DROP, REFUSE, Feature, Label, TableSchema

Array = NDArray[Any]


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


def encode_batch(batch: pa.RecordBatch, schema: TableSchema, *, labels: bool = True) -> EncodedRows:
    """Return the rows of a batch, encoded by a schema.

    Parameters
    ----------
    batch : RecordBatch
        Its columns are read by name.
    schema : TableSchema
    labels : bool
        Whether to read the labels, too; rows to transform have none.

    Raises
    ------
    TableError
        If there is a level that the schema lacks, an infinite value, or a gap that it refuses.
    """
    columns = np.empty((len(schema.encoded_names), batch.num_rows), schema.dtype)
    gaps = _encode_features(batch, schema, columns)
    values = {
        label.name: encode_label(label, batch.column(label.name))
        for label in (schema.labels if labels else ())
    }
    without_label = np.zeros(batch.num_rows, dtype=bool)
    for name, each in values.items():
        without_label |= np.isnan(each)
        if schema.missing != DROP and without_label.any():
            raise _gap_error(name, without_label, "labels cannot be filled")
    left_out = np.zeros(batch.num_rows, dtype=bool)
    if schema.missing == DROP:
        left_out = without_label | np.any(list(gaps.values()), axis=0)
    stays = ~left_out
    rows = columns.T if stays.all() else columns.T[stays]
    codes = {
        label.name: _as_stored(label, values[label.name][stays])
        for label in schema.labels
        if labels
    }
    return EncodedRows(np.ascontiguousarray(rows), codes, left_out)


def encode_label(label: Label, values: pa.Array) -> Array:
    """Return the class codes or numbers of a label as float64, NaN where it has no value."""
    if label.kind != CLASSES:
        return as_numbers(values)
    return _codes(label.name, as_texts(values), label.classes, "class")


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
    batch: pa.RecordBatch, schema: TableSchema, columns: Array
) -> dict[str, Array]:
    """Fill `columns` (d, rows) with the encoded features; return where each has no value."""
    gaps, stop = {}, 0
    for feature in schema.features:
        start, stop = stop, stop + len(feature.encoded_names)
        out = columns[start:stop]
        gap = _encode_feature(feature, batch.column(feature.name), out)
        if gap.any():
            if schema.missing == REFUSE:
                raise _gap_error(feature.name, gap, "give missing='drop', 'mean' or 'indicator'")
            out[:, gap] = np.asarray(feature.means or (0.0,))[:, None]
        gaps[feature.name] = gap
    for row, feature in enumerate(schema.indicated, start=stop):
        columns[row] = gaps[feature.name]
    return gaps


def _encode_feature(feature: Feature, values: pa.Array, out: Array) -> Array:
    """Write a feature into `out` (numbers, rows); return which rows have no value."""
    if feature.kind == CATEGORY:
        codes = _codes(feature.name, as_texts(values), feature.levels, "level")
        out[...] = codes == np.arange(len(feature.levels))[:, None]
        return np.isnan(codes)
    numbers = as_numbers(values)
    gap = np.isnan(numbers)
    if np.isinf(numbers).any():
        raise TableError(
            f"the column {feature.name!r} has an infinite value; expected finite numbers. Correct "
            "it, or drop the column"
        )
    out[0] = numbers
    return gap


def _codes(name: str, texts: pa.Array, levels: tuple[str, ...], word: str) -> Array:
    """Return the number of each text in `levels` as float64, NaN where there is no text."""
    indices = pc.index_in(texts, value_set=pa.array(levels, pa.string()))
    unseen = pc.and_(pc.is_null(indices), pc.is_valid(texts))
    if pc.any(unseen).as_py():
        first = texts.filter(unseen)[0].as_py()
        raise TableError(
            f"the column {name!r} has the {word} {first!r}, which it did not have before; expected "
            f"one of {len(levels)}, such as {levels[0]!r}"
        )
    return np.asarray(indices.cast(pa.float64()).to_numpy(zero_copy_only=False))


def _as_stored(label: Label, values: Array) -> Array:
    """Return the values of a label as they are stored: codes in the smallest type, or float64."""
    if label.kind != CLASSES:
        return values
    return values.astype(np.min_scalar_type(max(len(label.classes) - 1, 0)))


def _gap_error(name: str, gap: Array, advice: str) -> TableError:
    return TableError(
        f"the column {name!r} has no value in {np.count_nonzero(gap):,} rows of a batch; {advice}"
    )
