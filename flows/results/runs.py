"""Results of flows, which pydantic writes as JSON and reads back; that of a refresh has a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from ism_dask.records.fit_report import Avoidance, DimensionTrial
from ism_dask.records.iteration import Round
from ism_dask.words import count_noun
from storage import Dataset, Model

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
        rows, columns = count_noun(self.rows, "row"), count_noun(self.columns, "column")
        return f"{self.dataset}{split}: {rows}, {columns}, {where}"


@dataclass(frozen=True, kw_only=True)
class RunResult(FlowResult):
    """The result of a flow that saves a run, with new features of the rows of a data set."""

    run: str  # its name
    path: str = ""  # the folder of its model or results; empty until it is saved
    host: str | None = None  # the machine that computed it
    # The address of its flow run in the Prefect UI; None without Prefect.
    page: str | None = None
    dataset: str
    split: str = ""
    rows: int
    columns: int
    kernel: str
    n_components: int | None  # new features, q
    data_hash: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the run, in plain JSON

    @property
    def metrics(self) -> dict[str, Any]:
        """The entries that are saved as the metrics of the run."""
        return {key: value for key, value in self.to_json().items() if key not in _NOT_METRICS}


@dataclass(frozen=True, kw_only=True)
class FitEnding(JsonRecord):
    """How a fit of W ended, and how accurate W is."""

    seconds: float  # for the fit of W alone
    iterations: int
    solver: str
    converged: bool
    status: str  # how the iterations ended: a value of `ism_dask.status.Status`
    residual: float  # first-order, under the true kernel; 0 at a stationary point
    residual_rows: int  # on which it was measured, out of all rows of the fit
    engine: str
    engine_error: float  # bound of the relative error of the objective; may be infinite
    engine_note: str  # why the fit switched to this engine, if it did
    tolerance: float  # the limit at which the iterations were to end
    measure: str  # what it limits: "residual", or "change" of the eigenvalues
    # Sine of the angle by which the last iteration turned W; None without iterations.
    angle: float | None = None


@dataclass(frozen=True, kw_only=True)
class Loading(JsonRecord):
    """The weight of an original (standardised) feature in a new one."""

    feature: str
    weight: float


@dataclass(frozen=True, kw_only=True)
class Contribution(JsonRecord):
    """J of one new feature alone, and by how much J falls without it, as shares of J."""

    alone: float
    lost: float


@dataclass(frozen=True, kw_only=True)
class FewColumns(JsonRecord):
    """The columns that W uses if it was limited to few, and J relative to W of all columns."""

    used: int
    share_of_objective: float


@dataclass(frozen=True, kw_only=True)
class SettingTried(JsonRecord):
    """A start with a width and a ridge, judged by unseen rows: see `Trial` of ism_dask."""

    start: str
    width: float | None
    ridge: float | None
    explained: float
    error: float


@dataclass(frozen=True, kw_only=True)
class Selection(JsonRecord):
    """What a fit by prediction chose."""

    width: float  # of the kernel, as a multiple of its own
    ridge: float  # of the regression, as a share of the mean kernel of a row with itself
    target: str  # what is predicted of numbers: their "mean", or their "law", by functions of them
    scales: tuple[tuple[float, ...], ...] | None = None  # own scales A of the new features, if any
    tried: tuple[SettingTried, ...] = ()  # best first; empty for a fit that continues another
    other_maximum: float = 0.0  # sine of the angle to features that are as good; 0 without any


def column_names(named: Model | Dataset, d: int) -> tuple[str, ...]:
    """Return the names of d columns: their own, else pixels by row and column, else numbers."""
    if named.feature_names:
        return tuple(named.feature_names)
    if named.image_shape is not None:
        width = named.image_shape[1]
        return tuple(f"pixel_{j // width}_{j % width}" for j in range(d))
    return tuple(f"feature_{j}" for j in range(d))


def largest(
    named: Model | Dataset, values: NDArray[Any], count: int | None = None
) -> list[tuple[str, float]]:
    """Return the largest of the values (d,) of columns, or all, largest first, with their names."""
    names, order = column_names(named, len(values)), np.argsort(-np.abs(values), kind="stable")
    return [(names[j], float(values[j])) for j in order[:count]]


@dataclass(frozen=True, kw_only=True)
class ColumnOfRow(JsonRecord):
    """The value of an original feature in a row, and what it adds to each new feature."""

    feature: str
    value: float
    added: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class ExplainedRow(JsonRecord):
    """Why a row has its new features: they are the sums of what the columns add."""

    row: int  # its number in the data set, from 0
    new_features: tuple[float, ...]
    n_columns: int  # of the data set
    columns: tuple[ColumnOfRow, ...]  # all or some, the one that adds most first


@dataclass(frozen=True, kw_only=True)
class FittedW(FitEnding):
    """The report of a run on its W, fitted to labels or clusters."""

    # The kernel with the parameters that were computed from the data, such as sigma.
    fitted_kernel: Mapping[str, Any] = field(default_factory=dict)
    objective: float  # J: the share of the label that is explained, or HSIC
    selection: Selection | None = None  # None for HSIC
    eigenvalues: tuple[float, ...] = ()  # one for each new feature, in decreasing order
    eigengap: float
    components_advice: str  # against the number of new features, or empty
    loadings: tuple[tuple[Loading, ...], ...] = ()  # of each new feature, largest weight first
    # One for each new feature; None for clusters.
    contributions: tuple[Contribution, ...] | None = None
    # None if W may use all columns.
    few_columns: FewColumns | None = None
    # The numbers of new features that the fit tried, from 1 up.
    dimensions: tuple[DimensionTrial, ...] = ()
    # What remains of the dependence on a label to avoid, if there is one.
    avoided: Avoidance | None = None
    # Of the rows in the saved sample: the nearest to the mean of the new features, the farthest.
    explained: tuple[ExplainedRow, ...] = ()

    @property
    def predicts(self) -> bool:
        """Whether W maximises the share of the label that is explained, and not HSIC."""
        return self.selection is not None


@dataclass(frozen=True, kw_only=True)
class ShareInterval(JsonRecord):
    """The share of an original feature in the space of the new ones, with its 90% interval.

    The p-value is that of the hypothesis that y does not depend on it, adjusted for all features.
    """

    feature: str
    share: float
    low: float
    high: float
    pvalue: float


@dataclass(frozen=True, kw_only=True)
class Certainty(JsonRecord):
    """How sure W is: see `ism_dask.Intervals`."""

    # The 90% intervals of the distance from the true subspace, for columns in their own units and
    # in units of their standard deviation.
    distance_interval: tuple[float, ...]
    standardized_interval: tuple[float, ...]
    stability: tuple[float, ...]  # of each new feature, as is the retention
    retention: tuple[float, ...]
    separated: int  # features that stand clear of all others: those with the largest shares
    shares: tuple[ShareInterval, ...]  # the largest ones, largest first
    doubts: tuple[str, ...] = ()  # why the intervals may be too short


@dataclass(frozen=True, kw_only=True)
class FitResult(RunResult, FittedW):
    """The result of `fit`: one W, fitted to all rows."""

    command: ClassVar[str] = "fit"
    label: str = ""
    # How sure W is; None if W is no maximum of the prediction of y, or has too many weights or
    # too few rows.
    certainty: Certainty | None = None


@dataclass(frozen=True, kw_only=True)
class SeparatingColumn(JsonRecord):
    """The share of the variance of an original feature that lies between the clusters."""

    feature: str
    share: float
    column: str = ""  # that of texts whose level the feature is


@dataclass(frozen=True, kw_only=True)
class ClusterResult(RunResult, FittedW):
    """The result of `cluster`: clusters, and the W in which they show."""

    command: ClassVar[str] = "cluster"
    n_components: int
    paradigm: str
    n_clusters: int
    nmi: Mapping[str, float]  # agreement of the clusters with each known label
    sizes: tuple[int, ...]  # rows of each cluster
    separating: tuple[SeparatingColumn, ...] = ()  # those with the largest shares, largest first
    rounds: tuple[Round, ...]  # an embedding for the last W, and a W for this embedding


@dataclass(frozen=True, kw_only=True)
class FoldMeasures(JsonRecord):
    """The measurements on a fold, or its mean or standard deviation over folds."""

    accuracy: float  # share of the held-out rows whose class the classifier predicts correctly
    cost: float  # -J(W) on the training rows
    seconds: float  # for the fit of W alone
    iterations: float  # a whole number on a fold


@dataclass(frozen=True, kw_only=True)
class FoldResult(FitEnding):
    """The accuracy on one fold, and how its fit of W ended."""

    fold: int  # from 1
    accuracy: float
    cost: float
    selection: Selection | None = None  # None for HSIC
    baselines: Mapping[str, float]  # accuracy of other features, but for those of too much work
    # The number of held-out rows by true and by predicted class; None for too many classes.
    confusion: tuple[tuple[int, ...], ...] | None = None

    @property
    def measures(self) -> FoldMeasures:
        """The measures that are averaged over the folds."""
        return FoldMeasures.from_json(vars(self))


@dataclass(frozen=True, kw_only=True)
class CrossvalMeasures(JsonRecord):
    """What a cross-validation measured of the fits by one criterion."""

    results: tuple[FoldResult, ...]  # of the folds that ran
    mean: FoldMeasures
    sd: FoldMeasures  # of the population

    @property
    def predicts(self) -> bool:
        """Whether W maximises the share of the label that is explained, and not HSIC."""
        return any(each.selection is not None for each in self.results)


@dataclass(frozen=True, kw_only=True)
class CrossvalResult(RunResult, CrossvalMeasures):
    """The result of `crossval`."""

    command: ClassVar[str] = "crossval"
    label: str = ""
    folds: int  # into which the rows were dealt; not all of them need have run
    class_names: tuple[str, ...]  # in the order of the confusions
    # With criterion "both", the fits by dependence: those of the other fields are by prediction.
    published: CrossvalMeasures | None = None

    @property
    def methods(self) -> Mapping[str, CrossvalResult]:
        """The result of each criterion by itself, by the name of the method in reports."""
        alone = replace(self, published=None)
        by_name = {"prediction" if self.predicts else "ISM": alone}
        if self.published is None:
            return by_name
        return {"ISM": replace(alone, **vars(self.published)), **by_name}
