"""Results of refreshes, which fit a table again and compare the new W with the published one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from flows.results.runs import FlowResult, JsonRecord

# How a refresh ends: the source is as it was; the new run is published; it is not.
UNCHANGED, PUBLISHED, SUSPICIOUS = "unchanged", "published", "suspicious"
# What else a history holds: a refresh that failed; an earlier run that was published again.
FAILED, ROLLED_BACK = "failed", "rolled back"


@dataclass(frozen=True, kw_only=True)
class MovedWeight(JsonRecord):
    """A weight that differs between the published W and the new one."""

    feature: int
    column: str
    before: float
    after: float


@dataclass(frozen=True, kw_only=True)
class LimitCheck(JsonRecord):
    """What a limit of the table [refresh] says of a new run."""

    limit: str  # the key of the limit
    value: float
    bound: float
    exceeded: bool
    words: str  # the value in words

    @classmethod
    def of(cls, limit: str, value: float, words: str, limits: Any) -> LimitCheck:
        """Return the check of a value against its limit, a field of `limits`."""
        bound = float(getattr(limits, limit))
        exceeded = value < bound if limit.startswith("min_") else value > bound
        return cls(limit=limit, value=value, bound=bound, exceeded=exceeded, words=words)

    @property
    def reason(self) -> str:
        """Why the run is suspicious by this limit."""
        side = "at least" if self.limit.startswith("min_") else "at most"
        return f"{self.limit}: {self.words}, expected {side} {self.bound:g}"


@dataclass(frozen=True, kw_only=True)
class Comparison(JsonRecord):
    """A new W beside the published one."""

    published: str  # the run that was published
    # Sine of the angle between the new features and a published one, of the same rows; each counts
    # by what J loses without it.
    turn: float
    # The share of the label that the new features of a sample of the new rows explain: what the
    # neighbours of a row predict of it, beyond chance.
    explained: float
    explained_before: float  # that of the published features of the published run's rows
    # `explained` over that of the published features of the new rows; 1 if they explain nothing.
    gain: float
    checks: tuple[LimitCheck, ...] = ()
    moved: tuple[MovedWeight, ...] = ()  # the weights that moved most, largest change first
    added: tuple[str, ...] = ()  # columns that only the new data have
    dropped: tuple[str, ...] = ()  # columns that they no longer have

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the new run should not be published unseen."""
        spoke = tuple(each.reason for each in self.checks if each.exceeded)
        named = (("lack", self.dropped), ("have new", self.added))
        return spoke + tuple(
            f"the data {words} columns: {', '.join(names[:8])}" for words, names in named if names
        )


@dataclass(frozen=True, kw_only=True)
class RefreshResult(FlowResult):
    """The result of a refresh, or another event in the history of a published run."""

    command: ClassVar[str] = "refresh"
    name: str  # the published run, which a refresh replaces or leaves as it is
    state: str  # one of those above
    run: str = ""  # the new run; the last one if nothing has changed; empty if there is none
    time: str = ""  # when it ended, in UTC (ISO 8601)
    by: str = ""  # who or what began it
    times: int = 1  # how often it ended so in a row, without a new run
    file: str = ""  # the run file
    reasons: tuple[str, ...] = ()  # why it is suspicious, has failed, or left something as it was
    rows: int = 0
    equal_rows: float = 0.0  # the share of them that equal an earlier one
    objective: float = 0.0
    seconds: float = 0.0
    iterations: int = 0
    comparison: Comparison | None = None  # None for the first run
    source: str = ""  # digest of the rows, and of how their columns were read
    settings: Mapping[str, Any] = field(default_factory=dict)  # all that decide the result
    model_hash: str = ""  # digest of the saved model
    written: tuple[str, ...] = ()  # outputs of the run file
    projected: str = ""  # digest of the rows that they project, and how; empty if they are stale
    dataset: str = ""  # folder name of the data set that the run was fitted to
    pruned: bool = False  # whether the files of the run have been removed; the record stays

    def __post_init__(self) -> None:
        if self.time and datetime.fromisoformat(self.time).tzinfo is None:
            raise ValueError(f"`time` is {self.time!r}, without a time zone")

    @property
    def line(self) -> str:
        """The published run, what became of it, and why the new run is suspicious if it is."""
        return "; ".join((f"{self.name}: {self.state}, run {self.run}", *self.reasons))

    @property
    def made_run(self) -> bool:
        """Whether the run of the record was made by it."""
        return self.state in (PUBLISHED, SUSPICIOUS)

    def repeats(self, other: RefreshResult) -> bool:
        """Return whether a record says the same as an earlier one, and of the same run."""
        says, said = ((each.state, each.run, each.reasons) for each in (self, other))
        return says == said and self.state != ROLLED_BACK
