"""Fit W to all rows of a data set and save the model as a run, without Prefect."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from flows.errors import SettingsError
from flows.interface.progress import ProgressShare, progress_log, report_progress
from flows.results.runs import (
    Avoided,
    Contribution,
    DimensionTried,
    FewColumns,
    FitResult,
    FittedW,
    column_names,
    top_loadings,
)
from flows.runs.certainty import bootstrap_on_cluster, certainty_of
from flows.runs.data import Array, LabelledDataset, open_labelled, read_rows, store_for_run
from flows.runs.fitting import FittedModel, fit
from flows.runs.resumable import ResumableRun, fit_on_cluster, resumable_run
from flows.runs.saving import model_to_save, origin, saved_model
from flows.runs.side_labels import side_labels
from flows.settings.kernels import kernel_record
from flows.settings.runs import DEPENDENCE, FitSettings, SavedRunSettings
from ism_dask import BootstrapResult, Intervals, SupervisedIKDR, intervals
from ism_dask.estimators.base import IKDR
from ism_dask.inference.intervals import have_intervals
from ism_dask.inference.refits import plan_refits
from storage import Dataset, Model, save_model

KIND = FitResult.command
# The progress that is reached when the rows are fitted, before the refits, and after all.
_HALF, _ALL = 0.5, 0.99


def fit_and_save(settings: FitSettings, start: Model | None = None) -> FitResult:
    """Fit W to all rows of a stored data set, and save the model.

    `start` is the model that `settings.start_from` names, if the caller has loaded it.
    """
    labelled = open_labelled(settings)
    run = run_name(settings, labelled)
    report_progress(0.0, f"fit {settings.title}")
    progress_log(labelled.describe(settings))
    sides, data = side_labels(settings, labelled), labelled.data
    names = column_names(data.feature_names, data.image_shape, data.X.shape[1])
    # Without refits, the fit is nearly all of the work; with them, about half of it.
    part = ProgressShare(stop=_ALL if settings.bootstrap is None else _HALF)

    def work() -> tuple[FittedModel, Intervals | None]:
        X, weights = read_rows(labelled.data.X, settings), labelled.data.weights
        fitted = fit(
            settings,
            X,
            labelled.y,
            part,
            start=_start(settings, labelled, start),
            weights=weights,
            sides=sides,
        )
        if settings.bootstrap is not None or not _have_intervals(fitted.model):
            return fitted, None
        return fitted, intervals(fitted.model, X, labelled.y, sample_weight=weights, **sides)

    with resumable_run(run, KIND, settings, labelled.identity) as this:
        fitted, sure = fit_on_cluster(settings, this, work, len(labelled.y))
        sure = _bootstrap(settings, this, labelled, fitted, sides) or sure
        result = FitResult(
            run=run,
            n_components=len(fitted.model.components_),
            fitted=fitted_w(fitted, settings, labelled.data),
            certainty=None if sure is None else certainty_of(sure, names),
            **labelled.facts(settings),
            **origin(),
        )
        model = model_to_save(fitted.model, settings, labelled.data, labelled.first_y, result)
        path = save_model(run, replace(model, class_names=labelled.class_names))
    report_progress(1.0, f"saved {run}")
    return replace(result, path=str(path))


def _bootstrap(
    settings: FitSettings,
    this: ResumableRun,
    labelled: LabelledDataset,
    fitted: FittedModel,
    sides: Mapping[str, Array],
) -> BootstrapResult | None:
    """Return what refits to resampled rows tell of W, if the settings request them."""
    if settings.bootstrap is None:
        return None
    data = labelled.data
    plan = plan_refits(
        fitted.model,
        read_rows(data.X, settings),
        labelled.y,
        sample_weight=data.weights,
        random_state=settings.seed,
        avoid=sides.get("avoid"),
        given=sides.get("given"),
    )
    return bootstrap_on_cluster(settings, this, plan, ProgressShare(_HALF, _ALL))


def _have_intervals(model: IKDR) -> bool:
    return isinstance(model, SupervisedIKDR) and have_intervals(model)


def _avoided(model: IKDR) -> Avoided | None:
    avoided = getattr(model, "avoided_", None)
    return None if avoided is None else Avoided(**dataclasses.asdict(avoided))


def run_name(settings: FitSettings, labelled: LabelledDataset) -> str:
    """Return the name of the saved run."""
    return settings.run or labelled.default_name(settings)


def _start(settings: FitSettings, labelled: LabelledDataset, start: Model | None) -> Model | None:
    """Return the model of the run to start from, if there is one; its columns must be the same."""
    if settings.start_from is None:
        return None
    start = start or saved_model(settings.start_from)
    criterion = start.config.get("criterion", DEPENDENCE)
    if criterion != settings.criterion:
        raise SettingsError(
            f"`start_from` is {settings.start_from!r}, a fit by {criterion}, but `criterion` is "
            f"{settings.criterion!r}; leave one of them out"
        )
    same = start.components.shape[1] == labelled.data.X.shape[1]
    if not same or start.feature_names != labelled.data.feature_names:
        raise SettingsError(
            f"`start_from` is {settings.start_from!r}, which was fitted to other columns than "
            f"{labelled.data.name} has; leave it out"
        )
    return start


def fit_plain(settings: FitSettings) -> FitResult:
    """Run the whole command `fit` without Prefect, ingestion included."""
    return fit_and_save(store_for_run(settings)[0])


def fitted_w(fitted: FittedModel, settings: SavedRunSettings, data: Dataset) -> FittedW:
    """Return what a run reports of its W, fitted to labels or clusters."""
    model = fitted.model
    names = column_names(data.feature_names, data.image_shape, data.X.shape[1])
    return FittedW(
        fitted_kernel=kernel_record(settings.kernel, model.kernel_),
        objective=float(model.objective_),
        selection=fitted.selection,
        eigenvalues=tuple(model.eigenvalues_.tolist()),
        eigengap=float(model.eigengap_),
        components_advice=model.components_advice_,
        ending=fitted.ending,
        avoided=_avoided(model),
        loadings=top_loadings(model.components_, names),
        contributions=_contributions(model),
        few_columns=_few_columns(model),
        dimensions=tuple(
            DimensionTried(**dataclasses.asdict(each))
            for each in getattr(model, "dimension_path_", ())
        )
        or None,
    )


def _contributions(model: IKDR) -> tuple[Contribution, ...] | None:
    """Return the contribution of each new feature to J; None for clusters, or if J is 0."""
    if not isinstance(model, SupervisedIKDR) or not model.objective_:
        return None
    shares = np.array(model.contributions_).T / model.objective_
    return tuple(Contribution(alone=alone, lost=lost) for alone, lost in shares.tolist())


def _few_columns(model: IKDR) -> FewColumns | None:
    """Return what a limit on the columns has chosen, or None if there was no limit."""
    if not isinstance(model, SupervisedIKDR) or model.max_features is None:
        return None
    share = model.objective_ / model.full_objective_ if model.full_objective_ else 1.0
    return FewColumns(used=int(model.get_support().sum()), share_of_objective=float(share))
