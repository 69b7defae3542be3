"""Base classes of results: how they are written as JSON and read back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from types import NoneType
from typing import Any, ClassVar, Self, get_args, get_origin, get_type_hints

# Entries of a result that are not among the metrics of its saved run: they have records of their
# own there, or follow from what is saved.
_NOT_METRICS = ("command", "run", "path", "settings", "loadings", "pictures", "flow_run")
# Metadata of a field that holds a record, whose entries stand directly in the JSON object of the
# owner.
INLINE = {"inline": True}
# Metadata of a field that is not written while it is None.
OPTIONAL = {"optional": True}


@dataclass(frozen=True, kw_only=True)
class JsonRecord:
    """A dataclass that is written as a JSON object, with its fields as entries in their order.

    A field may hold plain values, records, tuples of either, or None.
    """

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain JSON, but for NaN and infinity."""
        entries: dict[str, Any] = {}
        for each in fields(self):
            value = _plain(getattr(self, each.name))
            if value is None and each.metadata == OPTIONAL:
                continue
            entries |= value if each.metadata == INLINE else {each.name: value}
        return entries

    @classmethod
    def from_json(cls, entries: Mapping[str, Any]) -> Self:
        """Return the record that `to_json` wrote; entries without a field are ignored.

        Raises
        ------
        TypeError
            If an entry without a default is missing, or has another structure.
        """
        values, kinds = {}, cls._types()
        for each in fields(cls):
            kind = kinds[each.name]
            if each.metadata == INLINE:
                values[each.name] = kind.from_json(entries)
            elif each.name in entries:
                values[each.name] = _restored(entries[each.name], kind)
        return cls(**values)

    @classmethod
    @cache
    def _types(cls) -> dict[str, Any]:
        """Return the types of the fields, which annotations hold as text."""
        return get_type_hints(cls)


def _plain(value: Any) -> Any:
    if isinstance(value, JsonRecord):
        return value.to_json()
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return value


def _restored(value: Any, kind: Any) -> Any:
    """Return a value of JSON as its type in the dataclass."""
    if isinstance(kind, type) and issubclass(kind, JsonRecord):
        return kind.from_json(value)
    inner = get_args(kind)
    if get_origin(kind) is tuple:
        return tuple(_restored(each, inner[0]) for each in value)
    if NoneType in inner:  # such as `Spread | None`
        return None if value is None else _restored(value, inner[0])
    return value


@dataclass(frozen=True, kw_only=True)
class FlowResult(JsonRecord):
    """The result of a flow.

    Attributes
    ----------
    command : str
        The command that runs the flow.
    flow_run : Mapping or None
        Id and page of the flow run; None without Prefect.
    """

    command: ClassVar[str]
    flow_run: Mapping[str, str | None] | None = None

    @property
    def line(self) -> str:
        """The result in one line; empty if `reports.summary` puts results of this kind in words."""
        return ""

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON, but for NaN and infinity: the output of `--json`."""
        entries = super().to_json()
        flow_run = entries.pop("flow_run")
        last = {} if flow_run is None else {"flow_run": flow_run}
        return {"command": self.command, **entries, **last}


@dataclass(frozen=True, kw_only=True)
class IngestResult(FlowResult):
    """A stored data set.

    Attributes
    ----------
    dataset, split : str
    rows, columns : int
    labels : Mapping of str to int
        Number of class names of each label; 0 for numbers.
    data_hash, path : str
        Empty after a dry run, which stores nothing.
    schema : Mapping, optional
        How the columns were read, if the data set was made from a table.
    """

    command: ClassVar[str] = "ingest"
    dataset: str
    split: str
    rows: int
    columns: int
    labels: Mapping[str, int]
    data_hash: str = ""
    path: str = ""
    schema: Mapping[str, Any] | None = None

    @property
    def line(self) -> str:
        """The data set with its size and where it is."""
        where = self.path or "nowhere, in a dry run"
        return f"{self.dataset}: {self.rows:,} rows, {self.columns:,} columns, stored at {where}"


@dataclass(frozen=True, kw_only=True)
class RunResult(FlowResult):
    """The result of a flow that saves a run.

    Attributes
    ----------
    run : str
        Its name.
    path : str
        The folder of its model or results; empty until it is saved.
    host : str or None
        The machine that computed it. None for tables.
    page : str or None
        The address of its flow run in the Prefect UI; None without Prefect.
    """

    run: str
    path: str = ""
    host: str | None = field(default=None, metadata=OPTIONAL)
    page: str | None = field(default=None, metadata=OPTIONAL)

    @property
    def failure(self) -> str:
        """Why the command fails although it has saved a run; empty if it does not."""
        return ""

    @property
    def metrics(self) -> dict[str, Any]:
        """The entries that are saved as the metrics of the run."""
        return {key: value for key, value in self.to_json().items() if key not in _NOT_METRICS}
