"""Stratified cross-validation of W, without Prefect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import StratifiedKFold

from flows.compute.session import joined_cluster
from flows.errors import SettingsError
from flows.progress.watching import ProgressShare, progress_log
from flows.results.runs import CrossvalResult, FoldMeasures, FoldResult
from flows.runs.baselines import baseline_accuracies, classifier
from flows.runs.data import (
    Array,
    LabelledDataset,
    label_of,
    read_rows,
    side_labels,
    store_for_run,
)
from flows.runs.fitting import fit
from flows.runs.resumable import ResumableRun, fit_on_cluster, resumable_run
from flows.runs.saving import computed_facts, saved_record
from flows.settings.runs import CrossvalSettings
from storage import Dataset, save_results

KIND = CrossvalResult.command
# Share of a fold's progress that is reached when W is fitted, and when the classifier is trained.
_FIT, _TRAINED = 0.7, 0.95
# With more classes, a table of all pairs of them is not readable.
_CLASSES = 30


@dataclass(frozen=True, eq=False)
class FoldPlan:
    """The numbers of the training rows and of the held-out rows of a fold, both ascending.

    Folds are counted from 1.
    """

    number: int
    train: Array
    test: Array


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
    labelled: LabelledDataset, plan: FoldPlan, settings: CrossvalSettings, part: ProgressShare
) -> FoldResult:
    """Fit W, then the classifier, to the training rows, and score both on the held-out rows.

    The classifier gets X W without further scaling: W has orthonormal columns on standardised
    features, so the new features have comparable scales, and the differences that remain are the
    weights that W gives them.
    """
    rows, y, weights = labelled.data.X, labelled.y, labelled.data.weights
    train, known = read_rows(rows, settings, plan.train), y[plan.train]
    sides = {name: each[plan.train] for name, each in side_labels(settings, labelled).items()}
    weights = None if weights is None else weights[plan.train]
    fitted = fit(settings, train, known, part.until(_FIT), weights=weights, sides=sides)
    model = fitted.model
    with part.lasting(_FIT, "training the classifier"):
        trained = classifier().fit(model.transform(train), known)
    with part.lasting(_TRAINED, "judging the held-out rows"):
        held_out, truth = read_rows(rows, settings, plan.test), y[plan.test]
        predicted = trained.predict(model.transform(held_out))
        q, classes = len(model.components_), np.unique(y)
        counts = confusion_matrix(truth, predicted, labels=classes)
        return FoldResult(
            fold=plan.number,
            accuracy=float(np.mean(predicted == truth)),
            cost=-float(model.objective_),
            ending=fitted.ending,
            selection=fitted.selection,
            baselines=baseline_accuracies(train, known, held_out, truth, q, but=settings.criterion),
            confusion=None if len(classes) > _CLASSES else tuple(map(tuple, counts.tolist())),
        )


def average(results: Sequence[FoldResult]) -> tuple[FoldMeasures, FoldMeasures]:
    """Return mean and population standard deviation of the measures over folds."""
    folds = [vars(result.measures) for result in results]
    mean, sd = (
        FoldMeasures(**{name: float(reduce([each[name] for each in folds])) for name in folds[0]})
        for reduce in (np.mean, np.std)
    )
    return mean, sd


class Crossval:
    """A cross-validation that runs: its data set is opened, and its folds are dealt, once."""

    # No dataclass: Prefect looks into the fields of those that its tasks are given.
    def __init__(
        self,
        settings: CrossvalSettings,
        labelled: LabelledDataset,
        plans: Sequence[FoldPlan],
        run: ResumableRun,
    ) -> None:
        self.settings, self.labelled, self.plans, self.run = settings, labelled, plans, run

    def fold(self, number: int) -> FoldResult:
        """Compute a fold, counted from 1, or load its saved result; report progress."""
        settings, count = self.settings, len(self.settings.fold_numbers)
        title = f"fold {number} of {settings.folds}"
        part = ProgressShare((number - 1) / count, number / count, title)
        part.report(0.0)
        plan = self.plans[number - 1]
        fold = partial(run_fold, self.labelled, plan, settings, part)

        def work() -> dict[str, Any]:
            rows = len(plan.train)
            return fit_on_cluster(settings, self.run, fold, rows, fold=number).to_json()

        result = FoldResult.from_json(self.run.compute_or_restore("fold", number, work))
        accuracy = f"accuracy {result.accuracy:.3f}"
        progress_log(part.named_line(accuracy))
        part.report(1.0, accuracy)
        return result

    def save(self, results: Sequence[FoldResult]) -> CrossvalResult:
        """Average the results of all folds, and save them as a run."""
        self.run.lease.check()
        settings, labelled = self.settings, self.labelled
        mean, sd = average(results)
        names, codes = labelled.class_names, np.unique(labelled.y)
        result = CrossvalResult(
            run=self.run.run,
            label=labelled.label,
            kernel=settings.kernel,
            n_components=labelled.count_components(settings),
            folds=settings.folds,
            results=tuple(results),
            mean=mean,
            sd=sd,
            class_names=tuple(str(code) if names is None else names[code] for code in codes),
            **computed_facts(settings, labelled.data),
        )
        path = save_results(self.run.run, KIND, **saved_record(settings, result))
        return replace(result, path=str(path))


def run_name(settings: CrossvalSettings, labelled: LabelledDataset) -> str:
    """Return the name of the saved run."""
    return settings.run or f"{labelled.default_name(settings)}-crossval"


@contextmanager
def resumable_crossval(settings: CrossvalSettings, data: Dataset) -> Iterator[Crossval]:
    """Make the folds in the block one resumable run: folds with saved results are not repeated."""
    labelled = label_of(data, settings)
    # Before the lease: too many folds should fail the run before its first fold.
    plans = plan_folds(labelled, settings.folds, settings.seed)
    name = run_name(settings, labelled)
    # Earlier results under a default name are replaced without `--force`.
    replaceable = KIND if settings.run is None else ""
    with resumable_run(name, KIND, settings, labelled.identity, replaceable) as run:
        progress_log(labelled.describe(settings))
        yield Crossval(settings, labelled, plans, run)


def crossval_plain(settings: CrossvalSettings) -> CrossvalResult:
    """Run the whole command `crossval` without Prefect, ingestion included."""
    settings, data = store_for_run(settings)
    with resumable_crossval(settings, data) as crossval:
        with joined_cluster(settings.scheduler):
            results = [crossval.fold(number) for number in settings.fold_numbers]
        return crossval.save(results)
