"""Base classes of results: how they are written as JSON and read back, by pydantic."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Self

from pydantic import TypeAdapter

# Entries of a result that are not among the metrics of its saved run: they have records of their
# own there, or follow from what is saved.
_NOT_METRICS = ("command", "run", "path", "settings", "flow_run")
_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


@dataclass(frozen=True, kw_only=True)
class JsonRecord:
    """A dataclass that is written as a JSON object, with its fields as entries in their order."""

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain JSON, but for NaN and infinity."""
        # Pydantic's own JSON would have null for NaN and infinity.
        entries: dict[str, Any] = json.loads(json.dumps(_adapter(type(self)).dump_python(self)))
        return entries

    @classmethod
    def from_json(cls, entries: Mapping[str, Any]) -> Self:
        """Return the record that `to_json` wrote; entries without a field are ignored.

        Raises
        ------
        ValueError
            If an entry without a default is missing, or has another type.
        """
        record: Self = _adapter(cls).validate_python(entries)
        return record


@dataclass(frozen=True, kw_only=True)
class FlowResult(JsonRecord):
    """The result of a flow."""

    command: ClassVar[str]  # that runs the flow
    # Id and page of the flow run; None without Prefect.
    flow_run: Mapping[str, str | None] | None = None

    @property
    def line(self) -> str:
        """The result in one line; empty if `reports.summary` puts results of this kind in words."""
        return ""

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON, but for NaN and infinity: the output of `--json`."""
        return {"command": self.command, **super().to_json()}


@dataclass(frozen=True, kw_only=True)
class IngestResult(FlowResult):
    """A stored data set."""

    command: ClassVar[str] = "ingest"
    dataset: str
    split: str
    rows: int
    columns: int
    labels: Mapping[str, int]  # the number of class names of each label; 0 for numbers
    data_hash: str = ""  # empty after a dry run, which stores nothing, as is the path
    path: str = ""
    # How the columns were read, if the data set was made from a table.
    schema: Mapping[str, Any] | None = None

    @property
    def line(self) -> str:
        """The data set with its size and where it is."""
        split = "" if self.split in ("", "all") else f" ({self.split})"
        where = f"stored at {self.path}" if self.path else "not stored: a dry run"
        return f"{self.dataset}{split}: {self.rows:,} rows, {self.columns:,} columns, {where}"


@dataclass(frozen=True, kw_only=True)
class RunResult(FlowResult):
    """The result of a flow that saves a run."""

    run: str  # its name
    path: str = ""  # the folder of its model or results; empty until it is saved
    host: str | None = None  # the machine that computed it
    # The address of its flow run in the Prefect UI; None without Prefect.
    page: str | None = None

    @property
    def metrics(self) -> dict[str, Any]:
        """The entries that are saved as the metrics of the run."""
        return {key: value for key, value in self.to_json().items() if key not in _NOT_METRICS}
