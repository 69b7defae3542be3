"""The encoding of a table: which columns are features, labels, or neither, and how each is read."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any
from unicodedata import normalize

from storage.errors import StorageError, TableError
from storage.records import restored

NUMBER, BOOLEAN, CATEGORY, DATE = KINDS = ("number", "boolean", "category", "date")
AUTO, CLASSES, NUMBERS = LABEL_KINDS = ("auto", "classes", "numbers")
# What other columns serve as. The weights of rows are stored like a label.
FEATURE, WEIGHTS = "feature", "weights"
REFUSE, DROP, MEAN, INDICATOR = MISSING = ("refuse", "drop", "mean", "indicator")


# A number as people write it: with marks between thousands, a decimal comma or a unit.
_WRITTEN = re.compile(r"[-+]?[$€£¥]?(\d{1,3}([\s.,']\d{3})+|\d+)([.,]\d+)?\s?[%$€£¥]?")


@dataclass(frozen=True)
class TableOptions:
    """How to read a table."""

    label: tuple[str, ...] = ()  # the columns to be explained; the first is the default
    drop: tuple[str, ...] = ()  # columns that are no features
    keep: tuple[str, ...] = ()  # columns that are no features, but that `transform` passes through
    columns: tuple[str, ...] = ()  # patterns of the columns to use, such as `x_*`; none: all
    # Where a value is missing: an error, leave the row out, fill in the mean of the column, or
    # that and add a column that marks the gaps.
    missing: str = REFUSE
    target: str = AUTO  # what the first label is; auto: up to 20 whole numbers are classes
    max_levels: int = 50  # most levels of a category
    weights: str | None = None  # column with the weights of rows: one of weight 2 counts as two
    dates: bool = False  # whether dates are read, as days since 1970-01-01
    # How text files are written; None: as they look.
    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        for name in ("label", "drop", "keep", "columns"):
            given = getattr(self, name)
            names = (given,) if isinstance(given, str) else tuple(given)
            object.__setattr__(self, name, names)
        for name, choices in (("missing", MISSING), ("target", LABEL_KINDS)):
            given = getattr(self, name)
            if given not in choices:
                raise TableError(
                    f"`{name}` is {given!r}; expected one of {', '.join(choices)}", name
                )
        if self.max_levels < 2:
            raise TableError(f"`max_levels` is {self.max_levels}; expected 2 or more", "max_levels")
        if self.weights in self.label:
            raise TableError(
                f"`weights` is {self.weights!r}, which is the label; name another", "weights"
            )
        self._check_text()

    def _check_text(self) -> None:
        """Raise a TableError if no text file could be written in this way."""
        delimiter = {"tab": "\t", "\\t": "\t"}.get(self.delimiter or "", self.delimiter)
        object.__setattr__(self, "delimiter", delimiter)
        if delimiter is not None and (len(delimiter) != 1 or delimiter == self.decimal):
            raise TableError(
                f"`delimiter` is {delimiter!r}; expected one character, or tab, that is not the "
                "mark of decimals",
                "delimiter",
            )
        if self.decimal not in (None, ".", ","):
            raise TableError(f"`decimal` is {self.decimal!r}; expected '.' or ','", "decimal")
        try:
            codecs.lookup(self.encoding or "utf-8")
        except LookupError as error:
            raise TableError(
                f"`encoding` is {self.encoding!r}; expected one such as utf-8, cp1252 or utf-16",
                "encoding",
            ) from error

    @property
    def apart(self) -> tuple[str, ...]:
        """The columns that are stored beside the features: labels, then weights."""
        return self.label if self.weights is None else (*self.label, self.weights)


@dataclass
class Column:
    """A column of the table: what a scan has counted of it, and what it serves as.

    `missing` counts rows without a value; the other numbers are of rows with one.
    """

    name: str
    kind: str  # NUMBER, DATE, BOOLEAN (0, 1) or CATEGORY (one number for each level, 0 or 1)
    role: str = FEATURE  # or of a label: CLASSES, NUMBERS or WEIGHTS
    most: int = 0  # the most different values to count
    missing: int = 0
    infinite: int = 0  # rows with an infinite number
    present: int = 0  # rows with a finite number, of which `total` is the sum
    total: float = 0.0
    low: float = 0.0
    high: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)  # rows with each level or class
    overflows: bool = False  # whether there are more different values than were counted
    whole: bool = True  # whether all numbers are whole, where different ones were counted

    @property
    def key(self) -> str:
        """The name of a label in the data set."""
        return label_key(self.name)

    @cached_property
    def levels(self) -> tuple[str, ...]:
        """The levels of a category, or the classes of a label in the order of their codes."""
        return tuple(sorted(self.counts, key=int if self.kind == NUMBER else str))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of rows of each level or class."""
        return tuple(self.counts[level] for level in self.levels)

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """The names of the numbers of a feature: its own, or `name=level` for each level."""
        if self.kind == CATEGORY:
            return tuple(f"{self.name}={level}" for level in self.levels)
        return (self.name,)

    @property
    def means(self) -> tuple[float, ...]:
        """The mean of each of these numbers over the rows that have a value."""
        if self.kind == CATEGORY:
            rows = sum(self.sizes)
            return tuple(size / rows for size in self.sizes)
        return (self.total / max(self.present, 1),)

    @property
    def is_constant(self) -> bool:
        """Whether all values are the same."""
        if self.kind == CATEGORY:
            return not self.overflows and len(self.counts) <= 1
        return self.low == self.high

    def add(self, other: Column) -> None:
        """Add the rows of another column, which has the same name and kind."""
        self.__dict__.pop("levels", None)  # there may be more of them
        if other.present:
            self.low = min(self.low, other.low) if self.present else other.low
            self.high = max(self.high, other.high) if self.present else other.high
        self.missing += other.missing
        self.infinite += other.infinite
        self.present += other.present
        self.total += other.total
        self.whole = self.whole and other.whole
        for value, rows in other.counts.items():
            self.counts[value] = self.counts.get(value, 0) + rows
        self.overflows = self.overflows or other.overflows or len(self.counts) > self.most
        if self.overflows:
            self.counts = dict(islice(self.counts.items(), self.most + 1))


@dataclass
class TableScan:
    """The columns and rows of a table, or of a piece of it, as a scan has counted them."""

    columns: dict[str, Column]
    rows: int = 0
    rows_stored: int = 0  # those that are not left out because they lack a value

    def add(self, other: TableScan) -> None:
        """Add the rows of another scan, which has the same columns."""
        for name, column in other.columns.items():
            self.columns[name].add(column)
        self.rows += other.rows
        self.rows_stored += other.rows_stored


@dataclass(frozen=True)
class TableSchema:
    """How the rows of a table become rows of numbers, as decided when it was ingested."""

    options: TableOptions
    features: tuple[Column, ...]  # in the order of the table
    labels: tuple[Column, ...] = ()  # the first is the default; the weights of rows come last
    dropped: tuple[str, ...] = ()  # columns that are not used
    rows: int = 0  # of the table, those included that `missing="drop"` leaves out
    rows_left_out: int = 0
    dtype: str = "float64"  # of the encoded rows: float32 if no column needs more digits

    def __post_init__(self) -> None:
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"`dtype` is {self.dtype!r}; expected float32 or float64")
        if others := {*self.kinds.values()}.difference(KINDS):
            raise ValueError(f"a column is of the kind {others.pop()!r}; expected one of {KINDS}")

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """The names of the columns of the encoded rows; indicators of gaps come last."""
        names = [name for feature in self.features for name in feature.encoded_names]
        return (*names, *(f"{feature.name} is missing" for feature in self.indicated))

    @property
    def indicated(self) -> tuple[Column, ...]:
        """The features with an indicator of their gaps."""
        if self.options.missing != INDICATOR:
            return ()
        return tuple(feature for feature in self.features if feature.missing)

    @property
    def constant(self) -> tuple[str, ...]:
        """The features that have one value only."""
        return tuple(feature.name for feature in self.features if feature.is_constant)

    @property
    def explained(self) -> tuple[Column, ...]:
        """The labels without the weights of rows."""
        return tuple(label for label in self.labels if label.role != WEIGHTS)

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of each column that is read."""
        return {column.name: column.kind for column in (*self.features, *self.labels)}

    @property
    def rows_stored(self) -> int:
        """The number of rows that are not left out."""
        return self.rows - self.rows_left_out

    @property
    def bytes(self) -> int:
        """The size of the encoded rows, uncompressed."""
        cells = self.rows_stored * len(self.encoded_names)
        return cells * (4 if self.dtype == "float32" else 8)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> TableSchema:
        """Return the schema that `to_json` wrote; raise StorageError for another record."""
        try:
            schema: TableSchema = restored(cls, record)
        except (TypeError, ValueError) as error:
            raise StorageError(
                f"the schema of the table is of another version ({error}); ingest it again"
            ) from error
        return schema


def label_key(name: str) -> str:
    """Return the name that a label has in its data set, where it names a folder.

    Characters other than letters, of any alphabet, and digits become "_".
    """
    return re.sub(r"[^\w-]", "_", normalize("NFC", name)).encode()[:128].decode(errors="ignore")


def check_encoded_names(schema: TableSchema) -> None:
    """Raise a TableError if two encoded columns have one name."""
    keys = [label.key for label in schema.labels]
    for names, words in ((schema.encoded_names, "columns"), (keys, "labels")):
        for name, count in Counter(names).items():
            if count > 1:
                raise TableError(
                    f"two {words} would be called {name!r} after encoding; rename one, or drop it"
                )


def is_number(text: str, *, written: bool = False) -> bool:
    """Return whether a text is a number, or one as people have `written` it, such as 1,234 €."""
    try:
        float(text)
    except ValueError:
        return written and _WRITTEN.fullmatch(text) is not None
    return True
