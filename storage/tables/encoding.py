"""Encode batches of a table as rows of numbers and as labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from storage.errors import TableError
from storage.tables.schema import CATEGORY, CLASSES, DROP, REFUSE, Feature, Label, TableSchema

Array = NDArray[Any]


class _Quiet(TypedDict):
    over: Literal["ignore"]
    invalid: Literal["ignore"]


# The gaps of a column without any, as one row that stands for all.
NO_GAPS: NDArray[np.bool_] = np.zeros(1, dtype=bool)
# What NumPy ignores while sums tell which columns have gaps, and numbers may not fit float32.
QUIET: _Quiet = {"over": "ignore", "invalid": "ignore"}
# Whole numbers from here on are not all floats.
_LARGEST = 2.0**53
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
    """The reasons why rows do not fit a schema, collected over batches for one error.

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

    def merge(self, other: Problems) -> None:
        """Add the problems of later rows."""
        for name, levels in other.unseen.items():
            self.unseen.setdefault(name, set()).update(levels)
        self.gaps.update(other.gaps)
        self.infinite.update(other.infinite)

    def listed(self) -> list[str]:
        """Return a clause for each problem."""
        clauses = [
            f"the column {name!r} has {', '.join(map(repr, sorted(levels)[:_MOST_LEVELS]))}"
            f"{', ...' if len(levels) > _MOST_LEVELS else ''}, which it did not have before"
            for name, levels in self.unseen.items()
        ]
        clauses += [f"{name!r} has no value in {rows:,} rows" for name, rows in self.gaps.items()]
        clauses += [
            f"{name!r} is infinite or too large in {rows:,} rows"
            for name, rows in self.infinite.items()
        ]
        return clauses

    def check(self, source: str = "") -> None:
        """Raise a TableError that lists all problems of the table `source`, if there are any."""
        if clauses := self.listed():
            raise TableError(f"{source}: " * bool(source) + "; ".join(clauses))


def encode_batch(
    batch: pa.RecordBatch,
    schema: TableSchema,
    problems: Problems | None = None,
    *,
    with_labels: bool = True,
    buffer: Array | None = None,
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
    buffer : (m, d) array, optional
        Memory for X, if it has enough rows: fresh memory costs as much time as the encoding.
    """
    collected = Problems() if problems is None else problems
    labels = schema.labels if with_labels else ()
    left_out = np.zeros(batch.num_rows, dtype=bool)
    if schema.missing == DROP:
        read = [*(each.name for each in schema.features), *(each.name for each in labels)]
        with np.errstate(**QUIET):
            left_out |= any_of(missing_rows(batch.column(name)) for name in read)
        # Levels and numbers of such rows do not count.
        batch = batch.filter(pa.array(~left_out))
    if buffer is None or len(buffer) < batch.num_rows:
        buffer = np.empty((batch.num_rows, len(schema.encoded_names)), schema.dtype)
    X = buffer[: batch.num_rows]
    with np.errstate(**QUIET):
        _encode_features(batch, schema, X.T, collected)
    values = {
        label.name: _label_values(label, batch.column(label.name), collected) for label in labels
    }
    for name, each in values.items():
        if np.isnan(each).any():
            collected.gaps[name] += int(np.isnan(each).sum())
    if problems is None:
        collected.check()
    stored = {label.name: _as_stored(label, values[label.name]) for label in labels}
    return EncodedRows(X, stored, left_out)


def missing_rows(values: pa.Array) -> NDArray[np.bool_]:
    """Return which rows (m,) of a column have no value: null, NaN or an empty text.

    It is `NO_GAPS` if there are none, which is false in one row for all.
    """
    if not (pa.types.is_primitive(values.type) or pa.types.is_null(values.type)):
        values = as_texts(values)
    if not values.null_count and (
        not pa.types.is_floating(values.type) or are_finite(as_numbers(values))
    ):
        return NO_GAPS
    return np.asarray(pc.is_null(values, nan_is_null=True))


def any_of(gaps: Iterable[NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """Return which rows have a gap in one of the columns; `NO_GAPS` if none has."""
    present = [each for each in gaps if each is not NO_GAPS]
    return np.any(present, axis=0) if present else NO_GAPS


def as_numbers(values: pa.Array) -> Array:
    """Return a column of numbers or booleans as float64, NaN where it has no value."""
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    if not pa.types.is_float64(values.type):
        # Unsafe: whole numbers beyond 2^53 are rounded.
        values = values.cast(pa.float64(), safe=False)
    return np.asarray(values.to_numpy(zero_copy_only=False))


def as_texts(values: pa.Array) -> pa.Array:
    """Return a column as strings; an empty one is none, and whole numbers have no decimals."""
    values = without_dictionary(values)
    if pa.types.is_decimal(values.type) or pa.types.is_floating(values.type):
        numbers = pa.array(as_numbers(values), from_pandas=True)
        whole = pc.and_(pc.equal(numbers, pc.round(numbers)), pc.less(pc.abs(numbers), _LARGEST))
        as_integers = pc.if_else(whole, numbers, 0).cast(pa.int64())
        texts = pc.if_else(whole, as_integers.cast(pa.string()), numbers.cast(pa.string()))
    else:
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


def are_finite(numbers: Array) -> bool:
    """Return whether all numbers are known to be finite: if not, one may be NaN or infinite.

    One pass over the numbers tells, because the sum with a NaN or an infinity is not finite. The
    caller has NumPy ignore that (`QUIET`), once for many columns.
    """
    return bool(np.isfinite(numbers.sum(dtype=np.float64)))


def are_whole(numbers: Array) -> bool:
    """Return whether all numbers (m,), none missing, are whole, and small enough for int64."""
    return bool((numbers == np.rint(numbers)).all() and (np.abs(numbers) < _LARGEST).all())


def _encode_features(
    batch: pa.RecordBatch, schema: TableSchema, columns: Array, problems: Problems
) -> None:
    """Fill `columns` (d, rows) with the encoded features."""
    gaps, stop = {}, 0
    for feature in schema.features:
        start, stop = stop, stop + len(feature.encoded_names)
        out = columns[start:stop]
        gap = _encode_feature(feature, batch.column(feature.name), out, problems)
        gaps[feature.name] = gap
        if gap is not NO_GAPS and gap.any():
            out[:, gap] = np.asarray(feature.means or (0.0,))[:, None]
            if schema.missing == REFUSE:
                problems.gaps[feature.name] += int(gap.sum())
    for row, feature in enumerate(schema.indicated, start=stop):
        columns[row] = gaps[feature.name]


def _encode_feature(feature: Feature, values: pa.Array, out: Array, problems: Problems) -> Array:
    """Write a feature into `out` (numbers, rows); return which rows have no value."""
    if feature.kind == CATEGORY:
        texts = as_texts(values)
        codes = _codes(feature.name, texts, feature.levels, problems)
        out[...] = codes == np.arange(len(feature.levels))[:, None]
        return np.asarray(pc.is_null(texts)) if texts.null_count else NO_GAPS
    numbers = as_numbers(values)
    out[0] = numbers
    # Counted after the assignment: a number may be too large for float32.
    if are_finite(numbers if out.dtype == numbers.dtype else out[0]):
        return NO_GAPS
    infinite = int(np.count_nonzero(np.isinf(out[0])))
    if infinite:
        problems.infinite[feature.name] += infinite
    return np.isnan(numbers)


def _label_values(label: Label, values: pa.Array, problems: Problems) -> Array:
    """Return the class codes or numbers of a label as float64, NaN where it has no value."""
    if label.kind != CLASSES:
        return as_numbers(values)
    return _codes(label.name, as_texts(values), label.classes, problems)


def _codes(name: str, texts: pa.Array, levels: tuple[str, ...], problems: Problems) -> Array:
    """Return the number of each text in `levels` as float64, NaN for other texts and for none."""
    indices = pc.index_in(texts, value_set=pa.array(levels, pa.string()))
    unseen = pc.and_(pc.is_null(indices), pc.is_valid(texts))
    if pc.any(unseen).as_py():
        problems.unseen.setdefault(name, set()).update(texts.filter(unseen).unique().to_pylist())
    return np.asarray(indices.cast(pa.float64()).to_numpy(zero_copy_only=False))


def _as_stored(label: Label, values: Array) -> Array:
    """Return the values of a label as they are stored: codes in the smallest type, or float64."""
    if label.kind != CLASSES:
        return values
    codes = np.where(np.isnan(values), 0.0, values)  # such rows are among the problems
    return codes.astype(np.min_scalar_type(max(len(label.classes) - 1, 0)))
