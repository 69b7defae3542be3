"""Fit W to all rows of a data set and save the model as a run, without Prefect."""

from __future__ import annotations

from dataclasses import asdict, replace

from flows.errors import SettingsError
from flows.interface.progress import ProgressShare, progress_log, report_progress
from flows.results.runs import Avoided, FitResult, FittedW, column_names, top_loadings
from flows.runs.data import LabelledDataset, open_labelled, read_rows, store_for_run
from flows.runs.earlier_fit import earlier_course
from flows.runs.fitting import FittedModel, fit
from flows.runs.resumable import fit_on_cluster, resumable_run
from flows.runs.saving import model_to_save, origin, saved_model
from flows.runs.side_labels import side_labels
from flows.settings.kernels import kernel_record
from flows.settings.runs import FitSettings, SavedRunSettings
from ism_dask.estimators.base import IKDR
from storage import Dataset, Model, save_model

KIND = FitResult.command


def fit_and_save(settings: FitSettings) -> FitResult:
    """Fit W to all rows of a stored data set, and save the model."""
    labelled = open_labelled(settings)
    run = run_name(settings, labelled)
    report_progress(0.0, f"fit {settings.title}")
    progress_log(labelled.describe(settings))
    earlier, sides = earlier_course(settings, run), side_labels(settings, labelled)

    def work() -> FittedModel:
        rows = read_rows(labelled.data.X, settings)
        part = ProgressShare(stop=0.95)
        return fit(
            settings,
            rows,
            labelled.y,
            part,
            start=_start(settings, labelled),
            weights=labelled.data.weights,
            sides=sides,
            earlier=earlier,
        )

    with resumable_run(run, KIND, settings, labelled.identity) as this:
        fitted = fit_on_cluster(settings, this, work, len(labelled.y))
        result = FitResult(
            run=run,
            n_components=len(fitted.model.components_),
            fitted=fitted_w(fitted, settings, labelled.data),
            **labelled.facts(settings),
            **origin(),
        )
        model = model_to_save(fitted.model, settings, labelled.data, labelled.first_y, result)
        path = save_model(run, replace(model, class_names=labelled.class_names))
    report_progress(1.0, f"saved {run}")
    return replace(result, path=str(path))


def _avoided(model: IKDR) -> Avoided | None:
    avoided = getattr(model, "avoided_", None)
    return None if avoided is None else Avoided(**asdict(avoided))


def run_name(settings: FitSettings, labelled: LabelledDataset) -> str:
    """Return the name of the saved run."""
    return settings.run or labelled.default_name(settings)


def _start(settings: FitSettings, labelled: LabelledDataset) -> Model | None:
    """Return the model of the run to start from, if there is one; its columns must be the same."""
    if settings.start_from is None:
        return None
    start = saved_model(settings.start_from)
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
        eigenvalues=tuple(model.eigenvalues_.tolist()),
        eigengap=float(model.eigengap_),
        components_advice=model.components_advice_,
        ending=fitted.ending,
        avoided=_avoided(model),
        loadings=top_loadings(model.components_, names),
    )
