"""Stratified cross-validation of W beside other features."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from flows.compute import joined_cluster
from flows.errors import SettingsError
from flows.progress.watching import ProgressShare, progress_log, progress_note, run_step
from flows.results.runs import CrossvalMeasures, CrossvalResult, FoldMeasures, FoldResult
from flows.runs.data import (
    Array,
    LabelledDataset,
    label_of,
    read_rows,
    rows_at,
    side_labels,
    store_for_run,
)
from flows.runs.fitting import described_run, ending_of, fit, saved_record, selection_of
from flows.runs.resumable import ResumableRun, fit_on_cluster, resumable_run
from flows.settings.runs import BOTH, CrossvalSettings
from storage import save_results

KIND = CrossvalResult.command
# Share of a fold's progress that is reached when W is fitted, and when the classifier is trained.
_FIT, _TRAINED = 0.7, 0.95
# With more classes, a table of all pairs of them is not readable.
_CLASSES = 30
# A baseline is left out if it takes more multiplications than this, some seconds of work.
_MOST_WORK = 5e9


@dataclass(frozen=True, eq=False)
class FoldPlan:
    """The numbers of the training rows and of the held-out rows of a fold, both ascending.

    Folds are counted from 1.
    """

    number: int
    train: Array
    test: Array

    def title(self, settings: CrossvalSettings) -> str:
        """Return the name of the fold in reports of progress."""
        return f"fold {self.number} of {settings.folds}"


def plan_folds(
    labelled: LabelledDataset, folds: int, seed: int, groups: Array | None = None
) -> list[FoldPlan]:
    """Split the rows at random into folds, each with the same share of every class.

    Rows of one of the `groups` (n,) are in one fold.
    """
    smallest = int(labelled.class_sizes.min())
    if smallest < folds:
        expected = f"at most {smallest}" if smallest > 1 else "two rows of each class, or more"
        raise SettingsError(
            f"`folds` is {folds} and each fold needs a row of every class, but the smallest of "
            f"{labelled.data.name} has {smallest}; expected {expected}",
            "folds",
        )
    if groups is not None and len(np.unique(groups)) < folds:
        raise SettingsError(
            f"`folds` is {folds}, but there are {len(np.unique(groups))} groups; expected one for "
            "each fold or more",
            "folds",
        )
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    splitter = kind(folds, shuffle=True, random_state=seed)
    splits = splitter.split(np.empty((len(labelled.y), 0)), labelled.y, groups)
    plans = [FoldPlan(number, *parts) for number, parts in enumerate(splits, start=1)]
    if groups is not None and any(np.ptp(labelled.y[each.train]) == 0 for each in plans):
        raise SettingsError(
            "`groups` leaves a fold one class alone to train on; name another label", "groups"
        )
    for each in plans:
        if lacks := labelled.names_of(np.setdiff1d(labelled.y, labelled.y[each.train])):
            progress_note(
                f"fold {each.number} has no row of the class {' or '.join(lacks)} to train on, for "
                "all are of groups that it holds out: no prediction of these rows can be right"
            )
    return plans


def run_fold(
    labelled: LabelledDataset,
    X: Any,
    plan: FoldPlan,
    settings: CrossvalSettings,
    part: ProgressShare,
) -> FoldResult:
    """Fit W by one criterion, then the classifier, to the training rows; score the held-out rows.

    `X` (n, d) are the rows of all folds, in memory or on disk. The classifier gets X W without
    further scaling: W has orthonormal columns on standardised features, so the new features have
    comparable scales, and the differences that remain are the weights that W gives them.
    """
    y, weights = labelled.y, labelled.data.weights
    train, known = rows_at(X, plan.train), y[plan.train]
    sides = {name: each[plan.train] for name, each in side_labels(settings, labelled).items()}
    weights = None if weights is None else weights[plan.train]
    fitted = fit(settings, train, known, part.until(_FIT), weights=weights, sides=sides)
    model = fitted.model
    with part.lasting(_FIT, "training the classifier"):
        trained = classifier().fit(model.transform(train), known)
    with part.lasting(_TRAINED, "judging the held-out rows"):
        held_out, truth = rows_at(X, plan.test), y[plan.test]
        predicted = trained.predict(model.transform(held_out))
        q, classes = len(model.components_), np.unique(y)
        counts = confusion_matrix(truth, predicted, labels=classes)
        return FoldResult(
            fold=plan.number,
            accuracy=float(np.mean(predicted == truth)),
            cost=-float(model.objective_),
            selection=selection_of(model),
            baselines=baseline_accuracies(train, known, held_out, truth, q),
            confusion=None if len(classes) > _CLASSES else tuple(map(tuple, counts.tolist())),
            **vars(ending_of(fitted)),
        )


def classifier() -> SVC:
    """Return the classifier that judges all features."""
    return SVC(kernel="rbf")


def baseline_accuracies(
    train: Array, y: Array, held_out: Array, truth: Array, q: int
) -> dict[str, float]:
    """Return the share of held-out rows (m, d) classified correctly, by baseline of q features.

    Baselines that would take too long are left out, LDA if there are no more rows than classes, and
    all of those that need the rows in memory if the rows are read from disk.
    """
    (n, d), (classes, sizes) = train.shape, np.unique(y, return_counts=True)
    in_memory = isinstance(train, np.ndarray) and isinstance(held_out, np.ndarray)
    lda = LinearDiscriminantAnalysis(n_components=min(q, len(classes) - 1))
    # The features of each, and the number of multiplications of its fit.
    baselines: dict[str, tuple[list[BaseEstimator], float]] = {
        "PCA": ([PCA(min(q, n), random_state=0)], float(n) * d**2),
        "LDA": ([lda], float(n) * d**2 if n > len(classes) else np.inf),
        "all features": ([], float(n) ** 2 * d),
    }
    accuracies = {}
    for name, (features, work) in baselines.items():
        if in_memory and work <= _MOST_WORK:
            model = make_pipeline(StandardScaler(), *features, classifier())
            with warnings.catch_warnings():
                # LDA warns of columns that depend on others, which do not hinder it.
                warnings.simplefilter("ignore", UserWarning)
                accuracies[name] = float(model.fit(train, y).score(held_out, truth))
    accuracies["chance"] = float(np.mean(truth == classes[sizes.argmax()]))
    return accuracies


def average(results: Sequence[FoldResult]) -> CrossvalMeasures:
    """Return the results with mean and population standard deviation of their measures."""
    folds = [vars(result.measures) for result in results]
    mean, sd = (
        FoldMeasures(**{name: float(reduce([each[name] for each in folds])) for name in folds[0]})
        for reduce in (np.mean, np.std)
    )
    return CrossvalMeasures(results=tuple(results), mean=mean, sd=sd)


def compute_fold(
    settings: CrossvalSettings, labelled: LabelledDataset, run: ResumableRun, X: Any, plan: FoldPlan
) -> dict[str, FoldResult]:
    """Compute a fold by each criterion, or load its saved results; report progress."""
    criteria, count = settings.criteria, settings.first or settings.folds
    whole = ProgressShare((plan.number - 1) / count, plan.number / count, plan.title(settings))
    results = {}
    for criterion, share in zip(criteria, whole.cut([1.0] * len(criteria)), strict=True):
        one, part, piece = settings, share, dict[str, Any](fold=plan.number)
        if settings.criterion == BOTH:
            one, piece["by"] = replace(settings, criterion=criterion), criterion
            part = share.named(f"{share.name} by {criterion}")
        part.report(0.0)
        key = "-".join(("fold", *map(str, piece.values())))
        saved = run.find(key)
        if saved is None:
            work = partial(run_fold, labelled, X, plan, one, part)
            result = fit_on_cluster(one, run, work, **piece)
            run.save(key, result.to_json())
        else:
            result = FoldResult.from_json(saved)
        accuracy = f"accuracy {result.accuracy:.3f}"
        progress_log(part.named_line(accuracy))
        part.report(1.0, accuracy)
        results[criterion] = result
    return results


def save_crossval(
    settings: CrossvalSettings,
    labelled: LabelledDataset,
    run: ResumableRun,
    folds: Sequence[Mapping[str, FoldResult]],
) -> CrossvalResult:
    """Average the results of all folds, and save them as a run."""
    measures = [average([fold[criterion] for fold in folds]) for criterion in settings.criteria]
    q = labelled.count_components(settings)
    result = CrossvalResult(
        label=labelled.label,
        folds=settings.folds,
        class_names=labelled.names_of(np.unique(labelled.y)),
        published=measures[0] if settings.criterion == BOTH else None,
        **vars(measures[-1]),
        **vars(described_run(run.run, settings, labelled.data, q)),
    )
    save_results(run.run, KIND, **saved_record(settings, result), check=run.lease.check)
    return result


def run_crossval(settings: CrossvalSettings) -> CrossvalResult:
    """Cross-validate W by the accuracy of an RBF support vector machine on X W.

    The folds run one after the other, because each uses all cores, or the whole Dask cluster. Those
    with saved results are not repeated.
    """
    settings, data = run_step(f"ingest {settings.dataset}", store_for_run, settings)
    labelled = label_of(data, settings)
    groups = side_labels(settings, labelled).get("groups")
    plans = run_step("deal folds", plan_folds, labelled, settings.folds, settings.seed, groups)
    plans = plans[: settings.first]
    if settings.criterion == BOTH:
        # Prediction alone would choose its number of features; two rows of a table have the same.
        settings = replace(settings, n_components=labelled.count_components(settings))
    name = settings.run or f"{labelled.default_name(settings)}-crossval"
    # Earlier results under a default name are replaced without `--force`.
    facts = {**labelled.facts(settings), "replaces": KIND if settings.run is None else ""}
    with resumable_run(name, KIND, settings, **facts) as run:
        this = (settings, labelled, run)
        with joined_cluster(settings.scheduler):
            fold = partial(compute_fold, *this, read_rows(data.X, settings))
            results = [run_step(plan.title(settings), fold, plan) for plan in plans]
        return run_step("aggregate", save_crossval, *this, results)
