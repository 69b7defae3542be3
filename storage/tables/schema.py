"""The encoding of a table: which columns are features, labels, or neither, and how each is read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from storage.errors import StorageError, TableError

SCHEMA_VERSION = 1
NUMBER, BOOLEAN, CATEGORY = "number", "boolean", "category"
AUTO, CLASSES, NUMBERS = LABEL_KINDS = ("auto", "classes", "numbers")
# The kind of the column with the weights of rows, which is stored like a label.
WEIGHTS = "weights"
REFUSE, DROP, MEAN, INDICATOR = MISSING = ("refuse", "drop", "mean", "indicator")


@dataclass(frozen=True)
class TableOptions:
    """How to read a table; each value is described in `storage.ingest_table`."""

    labels: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    missing: str = REFUSE
    target: str = AUTO
    max_levels: int = 50
    weights: str | None = None

    def __post_init__(self) -> None:
        if self.missing not in MISSING:
            raise TableError(f"`missing` is {self.missing!r}; expected one of {', '.join(MISSING)}")
        if self.target not in LABEL_KINDS:
            raise TableError(
                f"`target` is {self.target!r}; expected one of {', '.join(LABEL_KINDS)}"
            )
        if self.max_levels < 2:
            raise TableError(f"`max_levels` is {self.max_levels}; expected 2 or more")
        if self.weights in self.labels:
            raise TableError(f"`weights` is {self.weights!r}, which is the label; name another")

    @property
    def apart(self) -> tuple[str, ...]:
        """The columns that are stored beside the features: labels, then weights."""
        return self.labels if self.weights is None else (*self.labels, self.weights)


@dataclass(frozen=True)
class Feature:
    """A column of the table that is encoded as one or several numbers per row.

    Attributes
    ----------
    name : str
    kind : str
        `NUMBER`, `BOOLEAN` (0 and 1) or `CATEGORY` (one number per level, 0 or 1).
    levels : tuple of str
        Of a category, sorted.
    missing : int
        Number of rows without a value when the table was ingested.
    means : tuple of float
        Mean of each of its numbers over the rows that have a value, which fill gaps if the table's
        policy says so.
    """

    name: str
    kind: str
    levels: tuple[str, ...] = ()
    missing: int = 0
    means: tuple[float, ...] = ()

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """The names of its numbers: its own, or `name=level` for each level."""
        if self.kind == CATEGORY:
            return tuple(f"{self.name}={level}" for level in self.levels)
        return (self.name,)


@dataclass(frozen=True)
class Label:
    """A column of the table to be explained, or with the weights of rows.

    Attributes
    ----------
    name : str
    kind : str
        `CLASSES`, `NUMBERS` or `WEIGHTS`.
    classes : tuple of str
        Their names in the order of their codes.
    sizes : tuple of int
        Number of rows of each class.
    """

    name: str
    kind: str
    classes: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()

    @property
    def key(self) -> str:
        """Its name in the data set."""
        return label_key(self.name)


@dataclass(frozen=True)
class TableSchema:
    """How the rows of a table become rows of numbers, as decided when it was ingested.

    Attributes
    ----------
    features : tuple of Feature
        In the order of the table.
    labels : tuple of Label
        The first is the default; the column with the weights of rows comes last.
    passed : tuple of str
        Columns that are no features, but that `transform` passes through.
    dropped : tuple of str
        Columns that are not used.
    missing : str
        What to do with rows or cells without a value, one of `MISSING`.
    constant : tuple of str
        Features that have one value only.
    rows : int
        Number of rows of the table, those included that `missing="drop"` leaves out.
    rows_left_out : int
    dtype : str
        Of the encoded rows: float32 if no column needs more digits, else float64.
    """

    features: tuple[Feature, ...]
    labels: tuple[Label, ...]
    passed: tuple[str, ...]
    dropped: tuple[str, ...]
    missing: str
    constant: tuple[str, ...]
    rows: int
    rows_left_out: int
    dtype: str

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """The names of the columns of the encoded rows; indicators of gaps come last."""
        names = [name for feature in self.features for name in feature.encoded_names]
        return (*names, *(f"{feature.name} is missing" for feature in self.indicated))

    @property
    def indicated(self) -> tuple[Feature, ...]:
        """The features with an indicator of their gaps."""
        if self.missing != INDICATOR:
            return ()
        return tuple(feature for feature in self.features if feature.missing)

    @property
    def explained(self) -> tuple[Label, ...]:
        """The labels without the weights of rows."""
        return tuple(label for label in self.labels if label.kind != WEIGHTS)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the table that are read."""
        read = [feature.name for feature in self.features] + [label.name for label in self.labels]
        return tuple(dict.fromkeys(read))

    @property
    def bytes(self) -> int:
        """The size of the encoded rows, uncompressed."""
        cells = (self.rows - self.rows_left_out) * len(self.encoded_names)
        return cells * (4 if self.dtype == "float32" else 8)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> TableSchema:
        """Return the schema that `to_json` wrote; raise StorageError for another version."""
        if record.get("schema_version") != SCHEMA_VERSION:
            raise StorageError(
                f"`schema_version` is {record.get('schema_version')!r}; this version reads "
                f"{SCHEMA_VERSION}. Upgrade the package, or ingest the table again."
            )
        values = {key: value for key, value in record.items() if key != "schema_version"}
        tuples = ("passed", "dropped", "constant")
        return cls(
            **{
                **values,
                **{name: tuple(values[name]) for name in tuples},
                "features": tuple(Feature(**_with_tuples(each)) for each in values["features"]),
                "labels": tuple(Label(**_with_tuples(each)) for each in values["labels"]),
            }
        )


def label_key(name: str) -> str:
    """Return the name that a label has in its data set, where it names a folder.

    Characters that names of folders should not have become "_".
    """
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:128]


def check_encoded_names(schema: TableSchema) -> None:
    """Raise a TableError if two encoded columns have one name."""
    keys = [label.key for label in schema.labels]
    for names, words in ((schema.encoded_names, "columns"), (keys, "labels")):
        repeated = _repeated(names)
        if repeated is not None:
            raise TableError(
                f"two {words} would be called {repeated!r} after encoding; rename one, or drop it"
            )


def with_levels(feature: Feature, counts: Mapping[str, int]) -> Feature:
    """Return a category with the levels that `counts` has, and their shares as its means."""
    levels = tuple(sorted(counts))
    total = sum(counts.values())
    return replace(feature, levels=levels, means=tuple(counts[each] / total for each in levels))


def is_number(text: str) -> bool:
    """Return whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _repeated(names: Sequence[str]) -> str | None:
    """Return the most frequent name if it occurs more than once."""
    name, count = Counter(names).most_common(1)[0] if names else ("", 0)
    return name if count > 1 else None


def _with_tuples(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(v) if isinstance(v, list) else v for key, v in record.items()}
