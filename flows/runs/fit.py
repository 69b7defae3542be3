"""Fit W to all rows of a data set and save the model as a run, without Prefect."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from flows.interface.progress import ProgressShare, report_progress
from flows.runs.data import (
    Array,
    FittedModel,
    LabelledDataset,
    ensure_stored,
    fit,
    open_labelled,
    read_rows,
)
from flows.runs.resumable import fit_on_cluster, resumable_run
from flows.runs.saving import model_to_save
from flows.settings.runs import FitSettings, SavedRunSettings
from ism_dask.estimators.base import IKDR
from storage import Dataset, save_model

KIND = "fit"
# A summary lists this many loadings of each new feature.
_TOP_LOADINGS = 5


@dataclass(frozen=True)
class Loading:
    """The weight of an original (standardised) feature in a new one."""

    feature: str
    weight: float


def fit_and_save(settings: FitSettings) -> dict[str, Any]:
    """Fit W to all rows of a stored data set, save the model, and return a summary in JSON."""
    labelled = open_labelled(settings)
    run = settings.run or labelled.default_name(settings)
    report_progress(0.0, f"fit {settings.title}")

    def work() -> FittedModel:
        rows = read_rows(labelled.data.X, settings)
        return fit(settings, rows, labelled.y, ProgressShare(stop=0.95))

    with resumable_run(run, KIND, settings, labelled.identity) as this:
        fitted = fit_on_cluster(settings, this, work)
        summary = _summary(settings, labelled, fitted)
        model = model_to_save(fitted.model, settings, labelled.data, labelled.y, summary)
        path = save_model(run, replace(model, class_names=labelled.class_names))
    report_progress(1.0, f"saved {run}")
    return {"command": KIND, "run": run, "path": str(path), **summary}


def fit_plain(settings: FitSettings) -> dict[str, Any]:
    """Run the whole command `fit` without Prefect, ingestion included."""
    ensure_stored(settings.dataset, settings.split)
    return fit_and_save(settings)


def top_loadings(components: Array, names: tuple[str, ...]) -> list[list[Loading]]:
    """Return the largest weights of each row of `components` (q, d), largest first."""
    orders = np.argsort(-np.abs(components), axis=1, kind="stable")[:, :_TOP_LOADINGS]
    return [
        [Loading(names[j], float(row[j])) for j in order]
        for row, order in zip(components, orders, strict=True)
    ]


def _summary(
    settings: FitSettings, labelled: LabelledDataset, fitted: FittedModel
) -> dict[str, Any]:
    account = fit_summary(fitted, settings, labelled.data)
    return {**labelled.facts(settings), "n_components": len(fitted.model.components_), **account}


def fit_summary(fitted: FittedModel, settings: SavedRunSettings, data: Dataset) -> dict[str, Any]:
    """Return the entries of a summary that describe a fitted model, with labels or clusters."""
    model = fitted.model
    names = data.feature_names or tuple(f"feature_{j}" for j in range(data.X.shape[1]))
    loadings = top_loadings(model.components_, names)
    return {
        "fitted_kernel": _kernel_record(settings, model),
        "objective": float(model.objective_),
        "eigenvalues": model.eigenvalues_.tolist(),
        "eigengap": float(model.eigengap_),
        "components_advice": model.components_advice_,
        **fitted.account,
        "loadings": [[asdict(loading) for loading in row] for row in loadings],
    }


def _kernel_record(settings: SavedRunSettings, model: IKDR) -> dict[str, Any]:
    """Return the kernel with the parameters that were computed from the data, such as sigma."""
    kernel: Any = model.kernel_
    # The anchors of a kernel with per-row widths are data rows: they are not part of a summary.
    parameters = {each.name: getattr(kernel, each.name) for each in fields(kernel) if each.repr}
    return {"name": settings.kernel, **parameters}
