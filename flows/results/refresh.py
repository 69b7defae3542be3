"""Results of refreshes, which fit a table again and compare the new W with the published one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from flows.results.base import FlowResult, JsonRecord

# How a refresh ends: the source is as it was; the new run is published; it is not.
UNCHANGED, PUBLISHED, SUSPICIOUS = "unchanged", "published", "suspicious"


@dataclass(frozen=True, kw_only=True)
class MovedWeight(JsonRecord):
    """A weight that differs between the published W and the new one."""

    feature: int
    column: str
    before: float
    after: float


@dataclass(frozen=True, kw_only=True)
class FeatureDrift(JsonRecord):
    """How far the new rows are from those that the published W was fitted to, in one feature.

    Attributes
    ----------
    feature : int
    share_outside : float
        Share of rows outside the range of the earlier rows.
    mean_shift : float
        In units of the deviation among the earlier rows.
    """

    feature: int
    share_outside: float
    mean_shift: float


@dataclass(frozen=True, kw_only=True)
class ColumnDrift(JsonRecord):
    """How far a column is from where it was.

    Attributes
    ----------
    column : str
    mean_shift : float
        In units of the deviation that it had.
    deviation_ratio : float
        The deviation that it has over the one that it had.
    """

    column: str
    mean_shift: float
    deviation_ratio: float


@dataclass(frozen=True, kw_only=True)
class Comparison(JsonRecord):
    """A new W beside the published one.

    Attributes
    ----------
    published : str
        The run that was published.
    turn : float
        Sine of the largest angle between the two subspaces.
    objective_ratio : float
        How strongly the new features depend on the label, as a multiple of how strongly the
        published ones do, on the same rows of the new data.
    moved : tuple of MovedWeight
        The weights that moved most, largest change first.
    drift : tuple of FeatureDrift
    columns : tuple of ColumnDrift
        The columns whose means moved most, the largest move first.
    added, dropped : tuple of str
        Columns that only the new data have, and that they no longer have.
    """

    published: str
    turn: float
    objective_ratio: float
    moved: tuple[MovedWeight, ...] = ()
    drift: tuple[FeatureDrift, ...] = ()
    columns: tuple[ColumnDrift, ...] = ()
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RefreshResult(FlowResult):
    """The result of a refresh.

    Attributes
    ----------
    name : str
        The published run, which the refresh replaces or leaves as it is.
    state : str
        `UNCHANGED`, `PUBLISHED` or `SUSPICIOUS`.
    run : str
        The new run; the last one if nothing has changed.
    time : str
        When it ended, in UTC (ISO 8601).
    reasons : tuple of str
        Why it is suspicious.
    rows : int
    objective, seconds : float
    iterations : int
    components : tuple of tuple of float
        The components (q, d) of the new run, for the history.
    columns : tuple of str
    comparison : Comparison, optional
        None for the first run.
    files : tuple of Mapping
        The files that were read, with their versions.
    settings : Mapping
        Those of table and fit, to see whether they have changed.
    model_hash : str
        Digest of the saved model.
    written : tuple of str
        Outputs of the run file.
    dataset : str
        Folder name of the data set that it was fitted to.
    pruned : bool
        Whether the files of the run have been removed; the record stays.
    """

    command: ClassVar[str] = "refresh"
    name: str
    state: str
    run: str
    time: str = ""
    reasons: tuple[str, ...] = ()
    rows: int = 0
    objective: float = 0.0
    seconds: float = 0.0
    iterations: int = 0
    components: tuple[tuple[float, ...], ...] = ()
    columns: tuple[str, ...] = ()
    comparison: Comparison | None = None
    files: tuple[Mapping[str, Any], ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    model_hash: str = ""
    written: tuple[str, ...] = ()
    dataset: str = ""
    pruned: bool = False

    @property
    def line(self) -> str:
        """The published run, what became of it, and why the new run is suspicious if it is."""
        return "; ".join((f"{self.name}: {self.state}, run {self.run}", *self.reasons))
