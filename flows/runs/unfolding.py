"""Unfold the rows of a data set and save their coordinates as a run, without Prefect."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NearestNeighbors

from flows.errors import SettingsError
from flows.progress.watching import report_progress, run_step
from flows.results.runs import UnfoldResult
from flows.runs.data import (
    Array,
    LabelledDataset,
    describe_rows,
    store_for_run,
    target_of,
    with_label,
)
from flows.runs.fitting import computed_facts, fitted_fields, names_of_columns, saved_facts
from flows.runs.resumable import ResumableRun, resumable_run
from flows.settings.unsupervised import AUTO, NO_SIDE, UnfoldSettings
from ism_dask import ColoredMVU, ComponentsWarning
from ism_dask.estimators.colored_mvu import EIGENVECTORS, NEIGHBOURS, PROGRAM
from ism_dask.estimators.unfolding_input import rows_in_memory
from ism_dask.gamma.targets import target_name
from ism_dask.observe import saving_checkpoints
from ism_dask.records.checkpoint import CheckpointedFit
from ism_dask.unfolding.refinement import REFINEMENT
from storage import Dataset, SavedUnfolding, save_unfolding

KIND = UnfoldResult.command
# The nearest rows in the picture whose classes are compared.
_NEAREST = 10
# The share of the work, about, that is done when a stage begins.
_SHARES = {NEIGHBOURS: 0.05, EIGENVECTORS: 0.6, PROGRAM: 0.7, REFINEMENT: 0.75}


def unfold_and_save(settings: UnfoldSettings, data: Dataset) -> UnfoldResult:
    """Unfold the rows of a stored data set, and save their coordinates as a run."""
    side = side_information(settings, data)
    run = settings.run or f"{data.info.folder}-unfolding-q{settings.n_components}"
    label = side.label if side else ""
    identity = {"data_hash": data.data_hash, "label": label}
    about = f"{describe_rows(data)}; label: {label or 'none'}"
    with resumable_run(run, KIND, settings, identity, about=about) as this:
        started, model = time.monotonic(), _unfitted(settings, side)
        rows: Array = rows_in_memory(data)
        # The fit continues after the stages that are saved. The result says how it has ended.
        stages = saving_checkpoints(CheckpointedFit(stages=_ReportedStages(this)))
        with stages, warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", ComponentsWarning)
            warnings.filterwarnings("ignore", "the graph of the", UserWarning)
            model.fit(rows, None if side is None else side.y)
        seconds = time.monotonic() - started
        result = _result(settings, data, rows, side, model, run=run, seconds=seconds)
        this.lease.check()
        unfolding = SavedUnfolding(
            rows,
            model.scale_,
            model.embedding_,
            None if side is None else side.first_y,
            **saved_facts(settings, data, result),
        )
        save_unfolding(run, unfolding)
    return result


def run_unfold(settings: UnfoldSettings) -> UnfoldResult:
    """Place all rows of a data set in a picture and save their coordinates as a run."""
    stored = run_step(f"ingest {settings.dataset}", store_for_run, settings)
    return run_step("unfold rows", unfold_and_save, *stored)


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


@dataclass
class _ReportedStages:
    """The stages of a fit, saved as parts of its run; progress is reported as they begin."""

    run: ResumableRun

    def find(self, key: str) -> Any:
        """Return what is saved of a stage that begins now, or None."""
        if key in _SHARES:
            report_progress(_SHARES[key], key)
        return self.run.find(key)

    def save(self, key: str, result: Any) -> None:
        """Save a stage, or what it needs to continue, in place of an earlier one."""
        self.run.save(key, result)
        if key == REFINEMENT:
            report_progress(_SHARES[key], f"{key}, {result['n_iter']:,} steps")


def _unfitted(settings: UnfoldSettings, side: LabelledDataset | None) -> ColoredMVU:
    target = "auto" if side is None else target_of(side.y, settings.target)
    return ColoredMVU(
        settings.n_components,
        target=target_name(side.y, target) if side and target == "numbers" else target,
        n_neighbors=settings.n_neighbors,
        n_eigenvectors=settings.n_eigenvectors,
        nu=settings.nu,
        standardize=not settings.raw,
        refine=not settings.smooth,
        max_iter=settings.max_iter,
    )


def _result(
    settings: UnfoldSettings,
    data: Dataset,
    rows: Array,
    side: LabelledDataset | None,
    model: ColoredMVU,
    *,
    run: str,
    seconds: float,
) -> UnfoldResult:
    column, share = _largest_column(data, rows) if settings.raw else (None, None)
    return UnfoldResult(
        label="" if side is None else side.label,
        n_components=settings.n_components,
        same_class=None if side is None else _same_class(model.embedding_, side.y),
        largest_column=column,
        largest_share=share,
        edges=model.n_edges_,
        used_axes=int(model.embedding_.any(axis=0).sum()),
        iterations=model.n_iter_,
        seconds=seconds,
        class_names=None if side is None else side.class_names,
        **fitted_fields(model, UnfoldResult),
        **computed_facts(run, settings, data),
    )


def _largest_column(data: Dataset, rows: Array) -> tuple[str, float]:
    """Return the column with the largest variance, and its share of the variance of all."""
    unit = float(np.abs(rows).max())  # squares of extreme units overflow
    variances = np.array([np.var(column / unit, dtype=np.float64) for column in rows.T])
    largest = int(variances.argmax())
    return names_of_columns(data)[largest], float(variances[largest] / variances.sum())


def _same_class(Z: Array, y: Array) -> float | None:
    """Return the share of the nearest rows that have the class of a row; None for numbers."""
    if target_of(y) != "classes":
        return None
    k = min(_NEAREST, len(Z) - 1)
    nearest = NearestNeighbors(n_neighbors=k).fit(Z).kneighbors(return_distance=False)
    return float((y[nearest] == y[:, None]).mean())
