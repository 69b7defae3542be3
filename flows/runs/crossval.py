"""Stratified cross-validation of W; knows nothing of Prefect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC

from flows.compute.session import joined_cluster
from flows.errors import SettingsError
from flows.interface.progress import ProgressShare
from flows.runs.data import Array, Labelled, ensure_stored, fit, open_labelled, read_rows
from flows.runs.resumable import current_resumable_run, fit_on_cluster, resumable_run
from flows.runs.saving import figures, versions
from flows.settings.runs import CrossvalSettings
from storage import RESULTS, save_results

KIND = "crossval"
# What is averaged over the folds.
MEASURES = ("accuracy", "cost", "seconds", "iterations")
# How much of a fold is done when W is fitted, and when the classifier is.
_FIT, _TRAINED = 0.7, 0.95


@dataclass(frozen=True, eq=False)
class FoldPlan:
    """Which rows a fold is fitted to and which it is judged on.

    Attributes
    ----------
    number : int
        From 1.
    train, test : arrays of int
        Row numbers, rising.
    """

    number: int
    train: Array
    test: Array


@dataclass(frozen=True)
class FoldResult:
    """What a fold gave.

    Attributes
    ----------
    fold : int
        From 1.
    accuracy : float
        Share of the held-out rows whose class was told right.
    cost : float
        `-J(W)` on the training rows.
    seconds : float
        For the fit of W alone.
    iterations : int
    converged : bool
    status : str
        How the iterations ended.
    residual : float
        How far W is from a stationary point under the true kernel.
    residual_rows : int
        On how many rows that was measured, against all training rows.
    engine : str
    engine_error : float
        A bound on the relative error of the cost that the engine makes; may be infinite.
    engine_note : str
        Why another engine was left, if one was.
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
    """Mean and population standard deviation over the folds that ran, by measure."""

    mean: dict[str, float]
    sd: dict[str, float]

    @classmethod
    def of(cls, results: Sequence[FoldResult]) -> Summary:
        """Average the results."""
        values = {name: [getattr(result, name) for result in results] for name in MEASURES}
        return cls(
            {name: float(np.mean(column)) for name, column in values.items()},
            {name: float(np.std(column)) for name, column in values.items()},
        )


def plan_folds(labelled: Labelled, folds: int, seed: int) -> list[FoldPlan]:
    """Deal the rows into folds that have the classes in the same shares."""
    smallest = int(labelled.class_sizes.min())
    if smallest < folds:
        raise SettingsError(
            f"`folds` is {folds}, but the smallest class of {labelled.data.name} has "
            f"{smallest} rows and each fold needs one; expected at most {smallest}"
        )
    dealer = StratifiedKFold(folds, shuffle=True, random_state=seed)
    dealt = dealer.split(np.empty((len(labelled.y), 0)), labelled.y)
    return [FoldPlan(number, *parts) for number, parts in enumerate(dealt, start=1)]


@contextmanager
def resumable_crossval(settings: CrossvalSettings) -> Iterator[None]:
    """Let the folds of the block and their summary be a run: those that are known stay so."""
    labelled = open_labelled(settings)
    run = _name(settings, labelled)
    plan_folds(labelled, settings.folds, settings.seed)  # an error where there are too many
    with resumable_run(run, KIND, settings, labelled.identity, _replaced(settings)):
        yield


def run_fold(
    labelled: Labelled,
    plan: FoldPlan,
    settings: CrossvalSettings,
    part: ProgressShare,
) -> FoldResult:
    """Fit W, then the classifier, to the training rows, and judge both on the held-out ones.

    The classifier sees X W as it is: W has orthonormal columns on standardised features, so the
    new ones have comparable scales, and how they differ is what W says of their worth.
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


def cross_fold(settings: CrossvalSettings, number: int) -> FoldResult:
    """Run one fold of the run that is under way, telling the watchers how far it is."""
    labelled, this = open_labelled(settings), current_resumable_run()
    plan = plan_folds(labelled, settings.folds, settings.seed)[number - 1]
    count = len(settings.numbers)
    part = ProgressShare((number - 1) / count, number / count, f"fold {number} of {settings.folds}")
    part.report(0.0)

    fold = partial(run_fold, labelled, plan, settings, part)

    def work() -> dict[str, Any]:
        return asdict(fit_on_cluster(settings, this, fold, fold=number))

    result = FoldResult(**this.piece("fold", number, work))
    part.report(1.0, f"accuracy {result.accuracy:.3f}")
    return result


def summarise(settings: CrossvalSettings, results: Sequence[FoldResult]) -> dict[str, Any]:
    """Keep what the run found, and return it as plain JSON."""
    labelled = open_labelled(settings)
    run = _name(settings, labelled)
    current_resumable_run().hold.check()
    found = {
        **labelled.facts(settings),
        "folds": settings.folds,
        "results": [asdict(result) for result in results],
        **asdict(Summary.of(results)),
    }
    path = save_results(
        run, KIND, config=settings.to_json(), metrics=figures(found), versions=versions()
    )
    return {"command": KIND, "run": run, "path": str(path), **found}


def crossval_plain(settings: CrossvalSettings) -> dict[str, Any]:
    """Run the whole cross-validation without Prefect."""
    ensure_stored(settings.dataset, settings.split)
    with resumable_crossval(settings):
        with joined_cluster(settings.scheduler):
            results = [cross_fold(settings, number) for number in settings.numbers]
        return summarise(settings, results)


def _name(settings: CrossvalSettings, labelled: Labelled) -> str:
    return settings.run or f"{labelled.default_name(settings)}-crossval"


def _replaced(settings: CrossvalSettings) -> str:
    """Return what a run may replace unasked: results whose name nobody chose."""
    return RESULTS if settings.run is None else ""
