"""Scan the columns of a table: their kinds, ranges, levels and gaps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import TableError
from storage.tables.encoding import QUIET, any_of, are_whole, as_numbers, as_texts, missing_rows
from storage.tables.schema import BOOLEAN, CATEGORY, NUMBER
from storage.tables.sources import TableSource

# Different values are counted up to this number; a label may have as many classes.
MAX_CLASSES = 1000
# Types of Arrow that no encoding exists for, with their names for people.
_UNFIT: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_temporal, "dates or times"),
    (pa.types.is_nested, "lists or records"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_large_binary, "bytes"),
)


@dataclass
class ColumnScan:
    """The values of a column, as a scan has counted them.

    Attributes
    ----------
    name, kind : str
        The kind is `NUMBER`, `BOOLEAN` or `CATEGORY`.
    most : int
        The most different values to count.
    rows, missing, infinite, present : int
        Numbers of rows of the table, of those without a value, and of those with an infinite and
        with a finite number.
    total, low, high : float
        Sum and range of the numbers.
    counts : Counter
        Number of rows with each value; complete unless `overflows`.
    overflows : bool
        Whether there are more different values than were counted.
    whole : bool
        Whether all numbers are whole.
    """

    name: str
    kind: str
    most: int = MAX_CLASSES
    rows: int = 0
    missing: int = 0
    infinite: int = 0
    present: int = 0
    total: float = 0.0
    low: float = np.inf
    high: float = -np.inf
    counts: Counter[str] = field(default_factory=Counter)
    overflows: bool = False
    whole: bool = True

    @property
    def mean(self) -> float:
        """The mean of the numbers."""
        return self.total / self.present if self.present else 0.0

    @property
    def is_constant(self) -> bool:
        """Whether all values are the same."""
        if self.kind == CATEGORY:
            return not self.overflows and len(self.counts) <= 1
        return not self.low < self.high

    def add(self, values: pa.Array, *, count: bool) -> None:
        """Add the values of a batch; `count` the different numbers, too, not only levels."""
        if self.kind == CATEGORY or (self.kind == BOOLEAN and count):
            self._count(as_texts(values))
        if self.kind == CATEGORY:
            return
        finite, total = as_numbers(values), 0.0
        if len(finite):
            total = float(finite.sum())
        if not np.isfinite(total):
            present = finite[~np.isnan(finite)]
            finite = present[np.isfinite(present)]
            self.infinite += len(present) - len(finite)
            total = float(finite.sum())
        if not len(finite):
            return
        self.present += len(finite)
        self.total += total
        self.low = min(self.low, float(finite.min()))
        self.high = max(self.high, float(finite.max()))
        if count and self.kind == NUMBER:
            self.whole = self.whole and are_whole(finite)
            if self.whole:
                self._count(pa.array(finite.astype(np.int64)).cast(pa.string()))

    def merge(self, other: ColumnScan) -> ColumnScan:
        """Return the scan of the values of both."""
        counts = self.counts + other.counts
        return ColumnScan(
            self.name,
            self.kind,
            self.most,
            rows=self.rows + other.rows,
            missing=self.missing + other.missing,
            infinite=self.infinite + other.infinite,
            present=self.present + other.present,
            total=self.total + other.total,
            low=min(self.low, other.low),
            high=max(self.high, other.high),
            counts=counts,
            overflows=self.overflows or other.overflows or len(counts) > self.most,
            whole=self.whole and other.whole,
        )

    def _count(self, texts: pa.Array) -> None:
        if self.overflows:
            return
        for entry in pc.value_counts(texts):
            text = entry["values"].as_py()
            if text is not None:
                self.counts[text] += entry["counts"].as_py()
        self.overflows = len(self.counts) > self.most


@dataclass(frozen=True)
class TableScan:
    """The columns and rows of a table, as a scan has counted them.

    Attributes
    ----------
    columns : dict of str to ColumnScan
    rows, rows_with_gaps : int
        Numbers of rows, and of those that lack a value in any of the columns.
    narrow : bool
        Whether float32 holds all numbers as they are.
    """

    columns: dict[str, ColumnScan]
    rows: int
    rows_with_gaps: int
    narrow: bool

    def merge(self, other: TableScan) -> TableScan:
        """Return the scan of the rows of both, which have the same columns."""
        return TableScan(
            {name: column.merge(other.columns[name]) for name, column in self.columns.items()},
            self.rows + other.rows,
            self.rows_with_gaps + other.rows_with_gaps,
            self.narrow and other.narrow,
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON, without infinities."""
        columns = {}
        for name, column in self.columns.items():
            record = {**vars(column), "counts": dict(column.counts)}
            if not column.present:
                del record["low"], record["high"]
            columns[name] = record
        return {**vars(self), "columns": columns}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> TableScan:
        """Return the scan that `to_json` wrote."""
        columns = {
            name: ColumnScan(**{**column, "counts": Counter(column["counts"])})
            for name, column in record["columns"].items()
        }
        return cls(**{**record, "columns": columns})


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


def scan_table(
    source: TableSource,
    kinds: dict[str, str],
    labels: frozenset[str],
    on_rows: Callable[[int], None] | None = None,
    *,
    drops_gaps: bool = False,
    most: int = MAX_CLASSES,
) -> TableScan:
    """Read these columns of a table once, and return what they hold.

    Parameters
    ----------
    source : TableSource
    kinds : dict of str to str
        The kind of each column to scan.
    labels : frozenset of str
        Columns whose different numbers are counted.
    on_rows : callable, optional
        Called with the number of rows read so far.
    drops_gaps : bool
        Whether rows that lack a value do not count, but for the numbers of rows and gaps.
    most : int
        The most different values to count.
    """
    columns = {name: ColumnScan(name, kind, max(most, MAX_CLASSES)) for name, kind in kinds.items()}
    rows = rows_with_gaps = 0
    for batch in source.batches(list(columns)):
        with np.errstate(**QUIET):
            gaps = {name: missing_rows(batch.column(name)) for name in kinds}
            absent = any_of(gaps.values())
            used = batch.filter(pa.array(~absent)) if drops_gaps and absent.any() else batch
            for name, column in columns.items():
                column.rows += batch.num_rows
                column.missing += int(gaps[name].sum())
                column.add(used.column(name), count=name in labels)
        rows, rows_with_gaps = rows + batch.num_rows, rows_with_gaps + int(absent.sum())
        if on_rows is not None:
            on_rows(rows)
    types = [source.schema.field(name).type for name in columns if name not in labels]
    return TableScan(columns, rows, rows_with_gaps, all(map(_fits_float32, types)))


def _fits_float32(kind: pa.DataType) -> bool:
    if pa.types.is_integer(kind):
        return bool(kind.bit_width <= 16)
    return not (pa.types.is_float64(kind) or pa.types.is_decimal(kind))
