"""Read the columns of a table in one form for each kind, and count what they hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from storage.errors import TableError
from storage.tables.schema import BOOLEAN, CATEGORY, DROP, NUMBER, Column, TableOptions, TableScan
from storage.tables.sources import Part

# Different values are counted up to this number; a label may have as many classes.
MAX_CLASSES = 1000
# Whole numbers from here on are not all floats.
_LARGEST = 2.0**53
# Types of Arrow that no encoding exists for, with their names for people.
_UNFIT: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_temporal, "dates or times"),
    (pa.types.is_nested, "lists or records"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_large_binary, "bytes"),
)


def kind_of(column: pa.Field) -> str:
    """Return the kind of a column by its type; raise a TableError if there is none for it."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if isinstance(kind, pa.BaseExtensionType):  # such as periods and intervals of pandas
        raise TableError(f"the column {column.name!r} holds values of the type {kind}")
    for is_unfit, words in _UNFIT:
        if is_unfit(kind):
            raise TableError(f"the column {column.name!r} holds {words} ({column.type})")
    if pa.types.is_dictionary(column.type):
        return CATEGORY
    if pa.types.is_boolean(kind):
        return BOOLEAN
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return NUMBER if numeric or pa.types.is_null(kind) else CATEGORY


def read_columns(batch: pa.RecordBatch, kinds: Mapping[str, str]) -> pa.RecordBatch:
    """Return columns of a batch as float64, booleans or strings, by their kinds; a gap is null.

    A value is missing if it is null, NaN or an empty text.
    """
    columns = [_READ[kind](batch.column(name)) for name, kind in kinds.items()]
    return pa.record_batch(columns, names=list(kinds))


def incomplete_rows(columns: pa.RecordBatch) -> NDArray[np.bool_]:
    """Return which rows lack a value in one of the columns, in the form of `read_columns`."""
    absent = np.zeros(columns.num_rows, dtype=bool)
    for column in columns.columns:
        if column.null_count:
            absent |= column.is_null().to_numpy(zero_copy_only=False)
    return absent


def as_floats(values: pa.Array) -> NDArray[Any]:
    """Return numbers or booleans as float64, NaN where there is none."""
    # Unsafe: whole numbers beyond 2^53 are rounded.
    numbers = values.cast(pa.float64(), safe=False)
    return np.asarray(numbers.to_numpy(zero_copy_only=False))


def as_texts(values: pa.Array) -> pa.Array:
    """Return a column as strings; an empty one is none, and whole numbers have no decimals."""
    values = without_dictionary(values)
    if pa.types.is_decimal(values.type) or pa.types.is_floating(values.type):
        numbers = _as_numbers(values)
        whole = pc.and_(pc.equal(numbers, pc.round(numbers)), pc.less(pc.abs(numbers), _LARGEST))
        as_integers = pc.if_else(whole, numbers, 0).cast(pa.int64())
        return pc.if_else(whole, as_integers.cast(pa.string()), numbers.cast(pa.string()))
    texts = values.cast(pa.string())
    return pc.if_else(pc.equal(texts, ""), None, texts)


def without_dictionary(values: pa.Array) -> pa.Array:
    """Return a column without a dictionary: batches may have different ones."""
    if not pa.types.is_dictionary(values.type):
        return values
    if pa.types.is_string_view(values.type.value_type):  # polars; pyarrow cannot decode it
        texts = values.dictionary.cast(pa.string())
        values = pa.DictionaryArray.from_arrays(values.indices, texts)
    return values.dictionary_decode()


def empty_scan(kinds: Mapping[str, str], options: TableOptions) -> TableScan:
    """Return the scan of no rows, with columns of these kinds."""
    most = max(options.max_levels, MAX_CLASSES)
    return TableScan({name: Column(name, kind, most=most) for name, kind in kinds.items()})


def scan_part(
    part: Part,
    kinds: Mapping[str, str],
    options: TableOptions,
    on_rows: Callable[[int], None] = lambda _: None,
) -> TableScan:
    """Read columns of these kinds once, and return what they hold.

    `on_rows` is called with the number of rows read so far.
    """
    scan = empty = empty_scan(kinds, options)
    for batch in part.batches(list(kinds)):
        columns = used = read_columns(batch, kinds)
        if options.missing == DROP and (absent := incomplete_rows(columns)).any():
            used = columns.filter(pa.array(~absent))
        counted = {
            name: _count(before, column.null_count, values, count=name in options.apart)
            for (name, before), column, values in zip(
                empty.columns.items(), columns.columns, used.columns, strict=True
            )
        }
        left_out = columns.num_rows - used.num_rows
        scan = scan.merge(TableScan(counted, columns.num_rows, left_out))
        on_rows(scan.rows)
    return scan


def _count(column: Column, missing: int, values: pa.Array, *, count: bool) -> Column:
    """Return what the values of a batch hold; `count` the different numbers, too, not only levels.

    `column` is the column before any rows.
    """
    if column.kind == CATEGORY:
        return replace(column, missing=missing, **_counts(values, column.most))
    numbers = as_floats(values)
    known = np.isfinite(numbers)
    finite = numbers if known.all() else numbers[known]
    infinite = len(numbers) - len(finite) - values.null_count
    column = replace(column, missing=missing, infinite=infinite, present=len(finite))
    if not len(finite):
        return column
    whole = count and bool(np.abs(finite).max() < _LARGEST and (finite == np.rint(finite)).all())
    if whole:
        column = replace(column, **_counts(as_texts(values), column.most))
    with np.errstate(over="ignore"):
        total = float(finite.sum())
    return replace(
        column, total=total, low=float(finite.min()), high=float(finite.max()), whole=whole
    )


def _counts(texts: pa.Array, most: int) -> dict[str, Any]:
    """Return the number of rows with each text, and whether there are more than `most` texts."""
    counts = pc.value_counts(texts.drop_null())
    some = counts[: most + 1].to_pylist()
    return {
        "counts": {each["values"]: each["counts"] for each in some},
        "overflows": len(counts) > most,
    }


def _as_numbers(values: pa.Array) -> pa.Array:
    """Return numbers as float64, null where they are NaN."""
    numbers = values.cast(pa.float64(), safe=False)
    floats = as_floats(numbers)
    if np.count_nonzero(np.isnan(floats)) == numbers.null_count:
        return numbers
    return pa.array(floats, from_pandas=True)


_READ: Mapping[str, Callable[[pa.Array], pa.Array]] = {
    NUMBER: _as_numbers,
    BOOLEAN: lambda values: values.cast(pa.bool_()),
    CATEGORY: as_texts,
}
