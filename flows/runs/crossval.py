"""Stratified cross-validation of W, without Prefect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC

from flows.compute.session import joined_cluster
from flows.errors import SettingsError
from flows.interface.progress import ProgressShare
from flows.runs.data import Array, LabelledDataset, ensure_stored, fit, label_of, read_rows
from flows.runs.resumable import ResumableRun, fit_on_cluster, resumable_run
from flows.runs.saving import figures, versions
from flows.settings.runs import CrossvalSettings
from storage import RESULTS, Dataset, save_results

KIND = "crossval"
# Fields of a `FoldResult` that are averaged over the folds.
MEASURES = ("accuracy", "cost", "seconds", "iterations")
# Share of a fold's progress that is reached when W is fitted, and when the classifier is trained.
_FIT, _TRAINED = 0.7, 0.95


@dataclass(frozen=True, eq=False)
class FoldPlan:
    """The training rows and the held-out rows of a fold.

    Attributes
    ----------
    number : int
        Counted from 1.
    train, test : arrays of int
        Row numbers, ascending.
    """

    number: int
    train: Array
    test: Array


@dataclass(frozen=True)
class FoldResult:
    """The accuracy on one fold, and how its fit of W ended.

    Attributes
    ----------
    fold : int
        Counted from 1.
    accuracy : float
        Share of the held-out rows whose class the classifier predicts correctly.
    cost : float
        `-J(W)` on the training rows.
    seconds : float
        Time for the fit of W alone.
    iterations : int
    converged : bool
    status : str
        How the iterations ended.
    residual : float
        First-order residual of W under the true kernel, 0 at a stationary point.
    residual_rows : int
        Number of rows on which the residual was measured, out of all training rows.
    engine : str
    engine_error : float
        Error bound: relative error of the cost that the engine may make; may be infinite.
    engine_note : str
        Why the fit switched to this engine from another, if it did.
    """

    fold: int
    accuracy: float
    cost: float
    seconds: float
    iterations: int
    converged: bool
    status: str
    residual: float
    residual_rows: int
    engine: str
    engine_error: float
    engine_note: str


@dataclass(frozen=True)
class Summary:
    """Mean and population standard deviation of each measure over the folds that ran."""

    mean: dict[str, float]
    sd: dict[str, float]

    @classmethod
    def of(cls, results: Sequence[FoldResult]) -> Summary:
        """Return mean and standard deviation of the results."""
        values = {name: [getattr(result, name) for result in results] for name in MEASURES}
        return cls(
            {name: float(np.mean(column)) for name, column in values.items()},
            {name: float(np.std(column)) for name, column in values.items()},
        )


def plan_folds(labelled: LabelledDataset, folds: int, seed: int) -> list[FoldPlan]:
    """Split the rows at random into folds, each with the same share of every class."""
    smallest = int(labelled.class_sizes.min())
    if smallest < folds:
        raise SettingsError(
            f"`folds` is {folds}, but the smallest class of {labelled.data.name} has "
            f"{smallest} rows and each fold needs one; expected at most {smallest}"
        )
    splitter = StratifiedKFold(folds, shuffle=True, random_state=seed)
    splits = splitter.split(np.empty((len(labelled.y), 0)), labelled.y)
    return [FoldPlan(number, *parts) for number, parts in enumerate(splits, start=1)]


def run_fold(
    labelled: LabelledDataset,
    plan: FoldPlan,
    settings: CrossvalSettings,
    part: ProgressShare,
) -> FoldResult:
    """Fit W, then the classifier, to the training rows, and score both on the held-out rows.

    The classifier gets X W without further scaling: W has orthonormal columns on standardised
    features, so the new features have comparable scales, and the differences that remain are the
    weights that W gives them.
    """
    rows, y = labelled.data.X, labelled.y
    train = read_rows(rows, settings, plan.train)
    fitted = fit(settings, train, y[plan.train], part.until(_FIT))
    model = fitted.model
    with part.lasting(_FIT, "training the classifier"):
        classifier = SVC(kernel="rbf").fit(model.transform(train), y[plan.train])
    with part.lasting(_TRAINED, "judging the held-out rows"):
        held_out = model.transform(read_rows(rows, settings, plan.test))
        accuracy = float(classifier.score(held_out, y[plan.test]))
    return FoldResult(
        fold=plan.number,
        accuracy=accuracy,
        cost=-float(model.objective_),
        **fitted.account,
    )


@dataclass(frozen=True, eq=False)
class Crossval:
    """A cross-validation that runs: its data set is opened, and its folds are dealt, once.

    Attributes
    ----------
    settings : CrossvalSettings
    labelled : LabelledDataset
    plans : list of FoldPlan
    run : ResumableRun
    """

    settings: CrossvalSettings
    labelled: LabelledDataset
    plans: list[FoldPlan]
    run: ResumableRun

    def fold(self, number: int) -> FoldResult:
        """Compute a fold, counted from 1, or load its saved result; report progress."""
        settings, count = self.settings, len(self.settings.numbers)
        title = f"fold {number} of {settings.folds}"
        part = ProgressShare((number - 1) / count, number / count, title)
        part.report(0.0)
        fold = partial(run_fold, self.labelled, self.plans[number - 1], settings, part)

        def work() -> dict[str, Any]:
            return asdict(fit_on_cluster(settings, self.run, fold, fold=number))

        result = FoldResult(**self.run.piece("fold", number, work))
        part.report(1.0, f"accuracy {result.accuracy:.3f}")
        return result

    def summarise(self, results: Sequence[FoldResult]) -> dict[str, Any]:
        """Save the results of all folds as a run, and return its summary as plain JSON."""
        self.run.lease.check()
        summary = {
            **self.labelled.facts(self.settings),
            "folds": self.settings.folds,
            "results": [asdict(result) for result in results],
            **asdict(Summary.of(results)),
        }
        path = save_results(
            self.run.run,
            KIND,
            config=self.settings.to_json(),
            metrics=figures(summary),
            versions=versions(),
        )
        return {"command": KIND, "run": self.run.run, "path": str(path), **summary}


_CURRENT: ContextVar[Crossval | None] = ContextVar("crossval", default=None)


@contextmanager
def resumable_crossval(settings: CrossvalSettings, data: Dataset) -> Iterator[Crossval]:
    """Make the folds in the block one resumable run: folds with saved results are not repeated."""
    labelled = label_of(data, settings)
    # Before the lease: too many folds should fail the run before its first fold.
    plans = plan_folds(labelled, settings.folds, settings.seed)
    name = settings.run or f"{labelled.default_name(settings)}-crossval"
    # Earlier results under a default name are replaced without `--force`.
    replaceable = RESULTS if settings.run is None else ""
    with resumable_run(name, KIND, settings, labelled.identity, replaceable) as run:
        crossval = Crossval(settings, labelled, plans, run)
        token = _CURRENT.set(crossval)
        try:
            yield crossval
        finally:
            _CURRENT.reset(token)


def current_crossval() -> Crossval:
    """Return the `Crossval` of the block around; raise LookupError outside of one."""
    crossval = _CURRENT.get()
    if crossval is None:
        raise LookupError("a fold was requested outside of a cross-validation")
    return crossval


def crossval_plain(settings: CrossvalSettings) -> dict[str, Any]:
    """Run the whole command `crossval` without Prefect, ingestion included."""
    data = ensure_stored(settings.dataset, settings.split)
    with resumable_crossval(settings, data) as crossval:
        with joined_cluster(settings.scheduler):
            results = [crossval.fold(number) for number in settings.numbers]
        return crossval.summarise(results)
