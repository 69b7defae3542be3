"""Results of the flows that fit W: fit, cluster and crossval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flows.results.base import INLINE, OPTIONAL, JsonRecord, RunResult

# A result lists this many weights of each new feature.
_TOP_LOADINGS = 5


@dataclass(frozen=True, kw_only=True)
class CertificateRecord(JsonRecord):
    """Whether W is proved to be a maximum of J, as `ism_dask.Certificate` has it.

    Attributes
    ----------
    is_certified, is_global : bool
    reason : str
        What is known and why, in one sentence.
    largest_eigenvalue : float or None
        That of the scaled Hessian of J; None if it was not measured.
    distance : float or None
        A bound on the sine of the largest angle between W and the maximum, if there is a bound.
    """

    is_certified: bool
    is_global: bool
    reason: str
    largest_eigenvalue: float | None = None
    distance: float | None = None


@dataclass(frozen=True, kw_only=True)
class FitEnding(JsonRecord):
    """How a fit of W ended, and how accurate W is.

    Attributes
    ----------
    seconds : float
        Time for the fit of W alone.
    iterations : int
    solver : str
    converged : bool
    status : str
        How the iterations ended: a value of `ism_dask.status.Status`.
    residual : float
        First-order residual of W under the true kernel, 0 at a stationary point.
    residual_rows : int
        Number of rows on which the residual was measured, out of all rows of the fit.
    engine : str
    engine_error : float
        Error bound: relative error of the objective that the engine may make; may be infinite.
    engine_note : str
        Why the fit switched to this engine from another, if it did.
    tolerance : float
        The limit at which the iterations were to end.
    measure : str
        What it limits: "residual", or "change" of the eigenvalues.
    angle : float or None
        Sine of the angle by which the last iteration turned W; None without iterations.
    certificate : CertificateRecord
        Whether W is proved to be a maximum.
    """

    seconds: float
    iterations: int
    solver: str
    converged: bool
    status: str
    residual: float
    residual_rows: int
    engine: str
    engine_error: float
    engine_note: str
    tolerance: float
    measure: str
    angle: float | None = field(default=None, metadata=OPTIONAL)
    certificate: CertificateRecord


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
class DimensionTried(JsonRecord):
    """What one number of new features explains: see `DimensionTrial` of ism_dask."""

    q: int
    explained: float
    gain: float
    needed_gain: float


@dataclass(frozen=True, kw_only=True)
class SettingTried(JsonRecord):
    """A start with a width and a ridge, judged by unseen rows: see `Trial` of ism_dask."""

    start: str
    width: float | None
    ridge: float | None
    explained: float


@dataclass(frozen=True, kw_only=True)
class Selection(JsonRecord):
    """What a fit by prediction chose.

    Attributes
    ----------
    width : float
        The width of the kernel, as a multiple of its own.
    ridge : float
        The ridge of the regression, as a share of the mean kernel of a row with itself.
    target : str
        What is predicted of numbers: their "mean", or their "law", by functions of them.
    tried : tuple of SettingTried
        The best trials, best first; empty for a fit that continues an earlier one.
    other_maximum : float
        The sine of the angle to other features that are as good; 0 if there are none.
    """

    width: float
    ridge: float
    target: str
    tried: tuple[SettingTried, ...] = ()
    other_maximum: float = 0.0


def column_names(
    names: Sequence[str] | None, image_shape: Sequence[int] | None, d: int
) -> tuple[str, ...]:
    """Return the names of d columns: their own, else pixels by row and column, else numbers."""
    if names:
        return tuple(names)
    if image_shape is not None:
        width = image_shape[1]
        return tuple(f"pixel_{j // width}_{j % width}" for j in range(d))
    return tuple(f"feature_{j}" for j in range(d))


def top_loadings(
    components: NDArray[Any], names: tuple[str, ...]
) -> tuple[tuple[Loading, ...], ...]:
    """Return the largest weights of each row of `components` (q, d), largest first."""
    orders = np.argsort(-np.abs(components), axis=1, kind="stable")[:, :_TOP_LOADINGS]
    return tuple(
        tuple(Loading(feature=names[j], weight=float(row[j])) for j in order)
        for row, order in zip(components, orders, strict=True)
    )


@dataclass(frozen=True, kw_only=True)
class Avoided(JsonRecord):
    """How strongly the features depend on a label to avoid: correlations, 0 if independent.

    Attributes
    ----------
    features, new_features : float
        Of all features, and of the new ones.
    n_rows : int
        Number of rows of the fit that they were measured on.
    """

    features: float
    new_features: float
    n_rows: int


@dataclass(frozen=True, kw_only=True)
class FittedW(JsonRecord):
    """The report of a run on its W, fitted to labels or clusters.

    Attributes
    ----------
    fitted_kernel : Mapping
        The kernel with the parameters that were computed from the data, such as sigma.
    objective : float
        J: the share of the label that is explained, or HSIC, as the criterion has it.
    selection : Selection or None
        What the fit chose; None if it maximised HSIC.
    eigenvalues : tuple of float
        One for each new feature, in decreasing order.
    eigengap : float
    components_advice : str
        Advice against the number of new features, or empty.
    ending : FitEnding
    loadings : tuple of tuple of Loading
        For each new feature its largest weights, largest first.
    contributions : tuple of Contribution or None
        One for each new feature. None for clusters.
    few_columns : FewColumns or None
        None if W may use all columns.
    dimensions : tuple of DimensionTried or None
        The numbers of new features that the fit tried, from 1 up; None if it tried none.
    avoided : Avoided or None
        What is left of the dependence on a label to avoid, if there is one.
    """

    fitted_kernel: Mapping[str, Any] = field(default_factory=dict)
    objective: float
    selection: Selection | None = field(default=None, metadata=OPTIONAL)
    eigenvalues: tuple[float, ...] = ()
    eigengap: float
    components_advice: str
    ending: FitEnding = field(metadata=INLINE)
    loadings: tuple[tuple[Loading, ...], ...] = ()
    contributions: tuple[Contribution, ...] | None = field(default=None, metadata=OPTIONAL)
    few_columns: FewColumns | None = field(default=None, metadata=OPTIONAL)
    dimensions: tuple[DimensionTried, ...] | None = field(default=None, metadata=OPTIONAL)
    avoided: Avoided | None = field(default=None, metadata=OPTIONAL)

    @property
    def predicts(self) -> bool:
        """Whether W maximises the share of the label that is explained, and not HSIC."""
        return self.selection is not None


@dataclass(frozen=True, kw_only=True)
class LabelledResult(RunResult):
    """The result of a run that fits W to a label.

    Attributes
    ----------
    dataset, split, label : str
    rows, columns : int
    kernel : str
    n_components : int
        Number of new features, q.
    data_hash : str
    settings : Mapping
        The settings of the run in JSON.
    """

    dataset: str
    split: str = ""
    label: str = ""
    rows: int
    columns: int
    kernel: str
    n_components: int | None
    data_hash: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ShareInterval(JsonRecord):
    """The share of an original feature in the space of the new ones, with its 90% interval."""

    feature: str
    share: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Certainty(JsonRecord):
    """How sure W is: see `ism_dask.Intervals`.

    Attributes
    ----------
    refits, converged : int
        The number of refits, and of those that converged; 0 if the intervals come from the
        curvature of J.
    distance_interval, standardized_interval : tuple of two floats
        The 90% intervals of the distance from the true subspace, for columns in their own units
        and in units of their standard deviation.
    stability, retention : tuple of float
        One for each new feature.
    separated : int
        How many features stand clear of all others: those with the largest shares.
    shares : tuple of ShareInterval
        The largest shares, largest first.
    """

    refits: int
    converged: int
    distance_interval: tuple[float, ...]
    standardized_interval: tuple[float, ...]
    stability: tuple[float, ...]
    retention: tuple[float, ...]
    separated: int
    shares: tuple[ShareInterval, ...]


@dataclass(frozen=True, kw_only=True)
class FitResult(LabelledResult):
    """The result of `fit`: one W, fitted to all rows.

    Attributes
    ----------
    fitted : FittedW
    certainty : Certainty or None
        How sure W is; None without `--bootstrap` if W is no maximum of the prediction of y, or
        has too many weights.
    """

    command: ClassVar[str] = "fit"
    fitted: FittedW = field(metadata=INLINE)
    certainty: Certainty | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, kw_only=True)
class Round(JsonRecord):
    """One round of a clustering: an embedding for the last W, and a W for this embedding."""

    objective: float
    affinity: float
    change: float
    turn: float
    iterations: int
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ClusterResult(RunResult):
    """The result of `cluster`: clusters, and the W that they show in.

    Attributes
    ----------
    dataset, split, kernel, paradigm, data_hash : str
    rows, columns, n_clusters, n_components : int
    nmi : Mapping of str to float
        Agreement of the clusters with each known label.
    sizes : tuple of int
        Number of rows of each cluster.
    rounds : tuple of Round
    settings : Mapping
        The settings of the run in JSON.
    fitted : FittedW
    pictures : Mapping of str to str
        Path of each picture that is stored with the model.
    """

    command: ClassVar[str] = "cluster"
    dataset: str
    split: str = ""
    rows: int
    columns: int
    kernel: str
    paradigm: str
    n_clusters: int
    n_components: int
    data_hash: str = ""
    nmi: Mapping[str, float]
    sizes: tuple[int, ...]
    rounds: tuple[Round, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    fitted: FittedW = field(metadata=INLINE)
    pictures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FoldMeasures(JsonRecord):
    """The measurements on a fold, or its mean or standard deviation over folds.

    Attributes
    ----------
    accuracy : float
        Share of the held-out rows whose class the classifier predicts correctly.
    cost : float
        `-J(W)` on the training rows.
    seconds : float
        Time for the fit of W alone.
    iterations : float
        A whole number on a fold.
    """

    accuracy: float
    cost: float
    seconds: float
    iterations: float

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of the measures, in their order."""
        return tuple(each.name for each in fields(cls))


@dataclass(frozen=True, kw_only=True)
class FoldResult(JsonRecord):
    """The accuracy on one fold, and how its fit of W ended.

    Attributes
    ----------
    fold : int
        Counted from 1.
    accuracy : float
        Share of the held-out rows whose class the classifier predicts correctly.
    cost : float
        `-J(W)` on the training rows.
    ending : FitEnding
    selection : Selection or None
        What the fit chose; None if it maximised HSIC.
    baselines : Mapping of str to float
        The accuracy of other features, but for those whose work was too much.
    confusion : tuple of tuple of int, or None
        The number of held-out rows by true and by predicted class. None if there are too many
        classes.
    """

    fold: int
    accuracy: float
    cost: float
    ending: FitEnding = field(metadata=INLINE)
    selection: Selection | None = field(default=None, metadata=OPTIONAL)
    baselines: Mapping[str, float]
    confusion: tuple[tuple[int, ...], ...] | None = field(default=None, metadata=OPTIONAL)

    @property
    def measures(self) -> FoldMeasures:
        """The measures that are averaged over the folds."""
        return FoldMeasures(
            accuracy=self.accuracy,
            cost=self.cost,
            seconds=self.ending.seconds,
            iterations=self.ending.iterations,
        )


@dataclass(frozen=True, kw_only=True)
class CrossvalResult(LabelledResult):
    """The result of `crossval`.

    Attributes
    ----------
    folds : int
        Number of folds that the rows were dealt into; not all of them need have run.
    results : tuple of FoldResult
        The folds that ran.
    mean, sd : FoldMeasures
        Mean and population standard deviation over them.
    class_names : tuple of str
        The names of the classes, in the order of the confusions.
    """

    command: ClassVar[str] = "crossval"
    folds: int
    results: tuple[FoldResult, ...]
    mean: FoldMeasures
    sd: FoldMeasures
    class_names: tuple[str, ...]

    @property
    def predicts(self) -> bool:
        """Whether W maximises the share of the label that is explained, and not HSIC."""
        return any(each.selection is not None for each in self.results)
