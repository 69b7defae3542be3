"""Unfold the rows of a data set and save their coordinates as a run, without Prefect."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NearestNeighbors

from flows.builtin.catalogue import folder_of
from flows.errors import SettingsError
from flows.progress.watching import progress_log, report_progress
from flows.results.runs import column_names
from flows.results.unfolding import UnfoldResult
from flows.runs.data import (
    Array,
    LabelledDataset,
    describe_rows,
    store_for_run,
    target_of,
    with_label,
)
from flows.runs.resumable import ResumableRun, SavedResults, on_cluster, resumable_run
from flows.runs.saving import origin, versions
from flows.settings.unfolding import AUTO, NO_SIDE, UnfoldSettings
from ism_dask import ColoredMVU, ComponentsWarning
from ism_dask.estimators.unfolding_input import unfolding_rows
from ism_dask.gamma.targets import target_name
from ism_dask.records.partial_results import saving_partial_results
from ism_dask.unfolding.unfold import EIGENVECTORS, NEIGHBOURS, PROGRAM, REFINEMENT
from storage import Dataset, SavedUnfolding, open_dataset, save_unfolding

KIND = UnfoldResult.command
# The nearest rows in the picture whose classes are compared.
_NEAREST = 10
# The share of the work, about, that is done when a stage begins.
_SHARES = {NEIGHBOURS: 0.05, EIGENVECTORS: 0.6, PROGRAM: 0.7, REFINEMENT: 0.75}


def unfold_and_save(settings: UnfoldSettings) -> UnfoldResult:
    """Unfold the rows of a stored data set, and save their coordinates as a run."""
    data = open_dataset(folder_of(settings.dataset, settings.split))
    side = side_information(settings, data)
    run, label = run_name(settings, data), side.label if side else ""
    report_progress(0.0, f"unfold {settings.title}")
    progress_log(f"data: {describe_rows(data)}; label: {label or 'none'}")
    with resumable_run(run, KIND, settings, {"data_hash": data.data_hash, "label": label}) as this:
        started, model = time.monotonic(), _unfitted(settings, side)
        columns = 1 if side is None or side.y.ndim == 1 else side.y.shape[1]
        rows: Array = unfolding_rows(model, data, columns)
        model = _fitted(settings, model, rows, side, this)
        seconds = time.monotonic() - started
        result = _result(settings, data, rows, side, model, seconds=seconds)
        this.lease.check()
        unfolding = SavedUnfolding(
            rows,
            model.scale_,
            model.embedding_,
            model.corrections_,
            None if side is None else side.first_y,
            feature_names=data.feature_names,
            table=data.info.table and data.info.table["schema"],
            config=settings.to_json(),
            metrics=result.metrics,
            versions=versions(),
        )
        path = save_unfolding(run, unfolding)
    report_progress(1.0, f"saved {run}")
    return replace(result, path=str(path))


def run_name(settings: UnfoldSettings, data: Dataset) -> str:
    """Return the name of the saved run."""
    return settings.run or f"{data.info.folder}-unfolding-q{settings.n_components}"


def unfold_plain(settings: UnfoldSettings) -> UnfoldResult:
    """Run the whole command `unfold` without Prefect, ingestion included."""
    return unfold_and_save(store_for_run(settings)[0])


def side_information(settings: UnfoldSettings, data: Dataset) -> LabelledDataset | None:
    """Return the data set with the label that the picture depends on, or None."""
    if settings.target == NO_SIDE:
        return None
    if not data.labels and settings.label is None:
        if settings.target != AUTO:
            raise SettingsError(
                f"`target` is {settings.target!r}, but {data.name} has no labels; leave it out"
            )
        return None
    return with_label(data, settings.label, target=settings.target)


class _SavedStages(SavedResults):
    """The stages of the fit of a run, whose progress is reported as they begin."""

    def find(self, key: str) -> Any:
        """Return what is saved of a stage that begins now, or None."""
        if key in _SHARES:
            report_progress(_SHARES[key], key)
        return super().find(key)

    def save(self, key: str, result: Any) -> None:
        """Save a stage, or what it needs to continue, in place of an earlier one."""
        super().save(key, result)
        self.run.n_saves += 1
        if key == REFINEMENT:
            report_progress(_SHARES[key], f"{key}, {result['n_iter']:,} steps")


def _target(y: Array, target: str) -> str:
    """Return how the estimator is to read labels y (n,) or (n, t)."""
    read = target_of(y, target)
    return target_name(y, read) if read == "numbers" else read


def _unfitted(settings: UnfoldSettings, side: LabelledDataset | None) -> ColoredMVU:
    return ColoredMVU(
        settings.n_components,
        target="auto" if side is None else _target(side.y, settings.target),
        n_neighbors=settings.n_neighbors,
        n_eigenvectors=settings.n_eigenvectors,
        nu=settings.nu,
        standardize=not settings.raw,
        refine=not settings.smooth,
        max_iter=settings.max_iter,
        random_state=settings.seed,
    )


def _fitted(
    settings: UnfoldSettings,
    model: ColoredMVU,
    rows: Array,
    side: LabelledDataset | None,
    this: ResumableRun,
) -> ColoredMVU:
    """Return the fitted estimator, which continues after the stages that are saved."""
    y = None if side is None else side.y

    def fit() -> ColoredMVU:
        with saving_partial_results(_SavedStages(this, this.identity)), warnings.catch_warnings():
            # The report says how the fit has ended.
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", ComponentsWarning)
            warnings.filterwarnings("ignore", "the graph of the", UserWarning)
            return model.fit(rows, y)

    return on_cluster(settings.scheduler, settings.stall, this, fit)


def _result(
    settings: UnfoldSettings,
    data: Dataset,
    rows: Array,
    side: LabelledDataset | None,
    model: ColoredMVU,
    *,
    seconds: float,
) -> UnfoldResult:
    names = None if side is None else side.class_names
    column, share = _largest_column(data, rows) if settings.raw else (None, None)
    return UnfoldResult(
        run=run_name(settings, data),
        dataset=settings.dataset,
        split=data.split,
        label="" if side is None else side.label,
        rows=len(data.X),
        columns=data.X.shape[1],
        n_components=settings.n_components,
        data_hash=data.data_hash,
        eigenvalues=tuple(model.eigenvalues_.tolist()),
        distance_error=model.distance_error_,
        hsic=model.hsic_,
        same_class=None if side is None else _same_class(model.embedding_, side.y),
        objective=model.objective_,
        program_objective=model.program_objective_,
        duality_gap=model.duality_gap_,
        extension_error=model.extension_error_,
        n_neighbors=model.n_neighbors_,
        exact_neighbors=model.exact_neighbors_,
        largest_column=column,
        largest_share=share,
        edges=model.n_edges_,
        part_sizes=model.part_sizes_,
        used_axes=int(model.embedding_.any(axis=0).sum()),
        iterations=model.n_iter_,
        status=model.status_.value,
        converged=model.converged_,
        seconds=seconds,
        class_names=None if names is None else tuple(names),
        settings=settings.to_json(),
        **origin(),
    )


def _largest_column(data: Dataset, rows: Array) -> tuple[str, float]:
    """Return the column with the largest variance, and its share of the variance of all."""
    unit = float(np.abs(rows).max())  # squares of extreme units overflow
    variances = np.array([np.var(column / unit, dtype=np.float64) for column in rows.T])
    largest = int(variances.argmax())
    names = column_names(data.feature_names, data.image_shape, len(variances))
    return names[largest], float(variances[largest] / variances.sum())


def _same_class(Z: Array, y: Array) -> float | None:
    """Return the share of the nearest rows that have the class of a row; None for numbers."""
    if target_of(y) != "classes":
        return None
    k = min(_NEAREST, len(Z) - 1)
    nearest = NearestNeighbors(n_neighbors=k).fit(Z).kneighbors(return_distance=False)
    return float((y[nearest] == y[:, None]).mean())
