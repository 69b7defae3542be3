"""Read the columns of a table in one form for each kind, count what they hold, and encode them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ism_dask.rows.raw import filled
from storage.errors import TableError
from storage.tables.schema import (
    BOOLEAN,
    CATEGORY,
    CLASSES,
    DATE,
    DROP,
    NUMBER,
    REFUSE,
    Column,
    TableOptions,
    TableScan,
    TableSchema,
)
from storage.tables.sources import Part

Array = NDArray[Any]
# Different values are counted up to this number; a label may have as many classes.
MAX_CLASSES = 1000
_FLOAT64 = pa.float64()
# Whole numbers from here on are not all floats.
_LARGEST = 2.0**53
# Types of Arrow that no encoding exists for, with their names for people.
_UNFIT: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_temporal, "dates or times"),
    (pa.types.is_nested, "lists or records"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_large_binary, "bytes"),
)
_TICKS_OF_A_DAY = {"D": 1.0, "s": 86400.0, "ms": 86400e3, "us": 86400e6, "ns": 86400e9}
# The most levels that an error lists.
_MOST_LEVELS = 5


def kind_of(column: pa.Field, *, dates: bool = False) -> str:
    """Return the kind of a column by its type; raise a TableError if there is none for it.

    `dates` is whether there is one for dates and times.
    """
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if dates and pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return DATE
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
    columns = []
    for name, kind in kinds.items():
        column = _READ[kind](batch.column(name))
        if kind == CATEGORY:
            try:
                column.validate(full=True)  # Parquet files may hold any bytes
            except pa.ArrowInvalid as error:
                raise TableError(
                    f"the column {name!r} has text that is not UTF-8 ({error})"
                ) from error
        columns.append(column)
    return pa.record_batch(columns, names=list(kinds))


def as_floats(values: pa.Array) -> NDArray[Any]:
    """Return numbers or booleans as float64, NaN where there is none."""
    return np.asarray(_as_float64(values).to_numpy(zero_copy_only=False))


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


def scan_part(part: Part, kinds: Mapping[str, str], options: TableOptions) -> TableScan:
    """Read columns of these kinds once, and return what they hold."""
    scan = empty_scan(kinds, options)
    apart = frozenset(options.apart)
    for batch in part.batches(list(kinds)):
        columns = used = read_columns(batch, kinds)
        if options.missing == DROP:
            used = columns.drop_null()
        with np.errstate(over="ignore", invalid="ignore"):  # sums with infinite numbers
            for known, column, values in zip(
                scan.columns.values(), columns.columns, used.columns, strict=True
            ):
                known.add(_count(known, column.null_count, values, known.name in apart))
        scan.rows += columns.num_rows
        scan.rows_stored += used.num_rows
    return scan


def _count(column: Column, missing: int, values: pa.Array, count: bool) -> Column:
    """Return what the values of a batch hold; `count` the different numbers, too, not only levels.

    `column` is the column of the rows before, whose name and kind are those of the result.
    """
    facts: dict[str, Any] = {"most": column.most, "missing": missing}
    if column.kind == CATEGORY:
        return Column(column.name, column.kind, **facts, **_counts(column, values))
    finite = as_floats(values)
    # What is known of a sum that is finite is known of each number: one pass is enough.
    total = finite.sum()
    if not np.isfinite(total):
        finite = finite[np.isfinite(finite)]
        facts["infinite"] = len(values) - len(finite) - values.null_count
        total = finite.sum()
    if len(finite):
        facts |= {"present": len(finite), "total": float(total)}
        facts |= {"low": float(finite.min()), "high": float(finite.max())}
    if count and len(finite):
        most = max(-facts["low"], facts["high"])
        facts["whole"] = bool(most < _LARGEST and (finite == np.rint(finite)).all())
        if facts["whole"]:
            facts |= _counts(column, as_texts(values))
    return Column(column.name, column.kind, **facts)


def _counts(column: Column, texts: pa.Array) -> dict[str, Any]:
    """Return the number of rows with each text, and whether the column may not have so many."""
    counts, most = pc.value_counts(texts.drop_null()), column.most
    return {
        "counts": {each["values"]: each["counts"] for each in counts[: most + 1].to_pylist()},
        "overflows": len(counts) > most,
    }


def _as_numbers(values: pa.Array) -> pa.Array:
    """Return numbers as float64, null where they are NaN."""
    numbers = _as_float64(values)
    return pc.if_else(pc.is_nan(numbers), None, numbers)


def _as_float64(values: pa.Array) -> pa.Array:
    # Unsafe: whole numbers beyond 2^53 are rounded. Casts take a while where batches are short.
    return values if values.type == _FLOAT64 else values.cast(_FLOAT64, safe=False)


def _as_days(values: pa.Array) -> pa.Array:
    """Return dates and times as days since 1970-01-01, times of the day as shares of a day."""
    kind = values.type
    if not pa.types.is_temporal(kind):  # read before, or without any value
        return _as_numbers(values)
    unit = getattr(kind, "unit", "ms" if pa.types.is_date64(kind) else "D")
    integers = pa.int32() if pa.types.is_date32(kind) or pa.types.is_time32(kind) else pa.int64()
    return pc.divide(_as_float64(values.cast(integers)), _TICKS_OF_A_DAY[unit])


_READ: Mapping[str, Callable[[pa.Array], pa.Array]] = {
    NUMBER: _as_numbers,
    DATE: _as_days,
    BOOLEAN: lambda values: values.cast(pa.bool_()),
    CATEGORY: as_texts,
}


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Rows of a table as numbers."""

    X: Array  # (n, d)
    labels: dict[str, Array]  # class codes, or float64 numbers (n,), by their keys in the data set
    passed: pa.RecordBatch  # the columns that are passed through, for the same rows
    read: int  # rows of the batch, those included that were left out, for they lack a value


@dataclass(eq=False)
class Problems:
    """The reasons why rows do not fit a schema, collected over batches for one error."""

    ignore_unseen: bool = False  # whether unseen levels are no problem: such rows have 0 for each
    unseen: dict[str, set[str]] = field(default_factory=dict)  # by column, what the schema lacks
    gaps: Counter[str] = field(default_factory=Counter)  # by column, rows without a value
    infinite: Counter[str] = field(default_factory=Counter)  # by column, rows with infinite ones

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

    `problems` collects what does not fit the schema, and the columns `passed` are passed through.
    `buffer` (m, d) is memory for X, if it has enough rows: fresh memory costs as much time as the
    encoding.
    """
    columns = read_columns(batch, schema.kinds)
    beside = batch.select(list(passed))
    if schema.options.missing == DROP and schema.kinds:
        # Levels and numbers of rows that lack a value do not count.
        complete = reduce(pc.and_, (column.is_valid() for column in columns.columns))
        columns, beside = columns.filter(complete), beside.filter(complete)
    if buffer is None or len(buffer) < columns.num_rows:
        buffer = np.empty((columns.num_rows, len(schema.encoded_names)), schema.dtype)
    X = buffer[: columns.num_rows]
    with np.errstate(over="ignore"):  # float32 cannot hold some numbers
        _encode_features(columns, schema, X.T, problems)
    labels = {
        label.key: _stored(label, columns.column(label.name), problems) for label in schema.labels
    }
    passed_columns = [without_dictionary(column) for column in beside.columns]
    return EncodedRows(X, labels, pa.record_batch(passed_columns, list(passed)), batch.num_rows)


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
            out[start:stop, gap] = np.nan
            out[start:stop] = filled(out[start:stop].T, np.array(feature.means)).T
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
