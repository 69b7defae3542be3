"""Fit an estimator with the settings of a run; report how it ended, and build what is saved."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import reduce
from importlib.metadata import version
from operator import add
from typing import Any, Generic, TypeVar

import numpy as np

from flows.progress.watching import ProgressShare, run_context, watched_fit
from flows.results.runs import (
    ClusterResult,
    Contribution,
    FewColumns,
    FitEnding,
    FitResult,
    FittedW,
    Loading,
    RunResult,
    Selection,
    SettingTried,
    largest,
)
from flows.runs.data import Array, explained_row, row_batches, target_of
from flows.settings.choices import fitted_kernel, kernel_record
from flows.settings.runs import ALL, DEPENDENCE, PREDICTION, SavedRunSettings, SearchSettings
from ism_dask import PredictiveIKDR, SupervisedIKDR
from ism_dask.engines import EngineOptions
from ism_dask.estimators.base import IKDR
from ism_dask.estimators.supervised import SupervisedBase
from ism_dask.records.fit_report import FitReport
from ism_dask.rows.raw import ColumnMoments
from ism_dask.selection.sample import Setting
from ism_dask.solvers import ISM, Ascent, as_solver
from ism_dask.status import Status
from storage import Dataset, Model, Sample, run_folder, save_model
from storage.runs import RESULT

M = TypeVar("M", bound=IKDR)
R = TypeVar("R", FitResult, ClusterResult)

_PACKAGES = ("ism-dask", "numpy", "scipy", "scikit-learn", "dask", "zarr")
# A model is saved with the new features of this many rows, for scatter plots.
_SAMPLE_SIZE = 2000
# A result lists this many trials of a selection, weights of each new feature, and columns of a row.
_TRIED, _TOP = 5, 5


@dataclass(frozen=True, eq=False)
class FittedModel(Generic[M]):
    """A fitted estimator, the rows (n, d) in memory or on disk, and the seconds of the fit."""

    model: M
    rows: Any
    seconds: float


def ending_of(fitted: FittedModel[Any]) -> FitEnding:
    """Return how a fit ended, and how accurate W is."""
    model, report = fitted.model, fitted.model.report_
    # Only the published rule, on the change of the eigenvalues, ends a fit with this status.
    by_change = model.status_ is Status.TOLERANCE
    return FitEnding(
        seconds=fitted.seconds,
        iterations=model.n_iter_,
        solver=report.solver,
        converged=model.converged_,
        status=model.status_.value,
        residual=model.residual_,
        residual_rows=report.residual_rows,
        engine=report.engine,
        engine_error=report.engine_error,
        engine_note=report.engine_note,
        tolerance=report.tolerance,
        measure="change" if by_change else as_solver(model.solver).measure,
        angle=model.history_[-1].angle if model.history_ else None,
    )


def selection_of(model: IKDR) -> Selection | None:
    """Return what a fit by prediction chose; None of a fit by HSIC."""
    setting, report = getattr(model, "setting_", None), model.report_
    return setting and Selection(
        width=setting.width,
        ridge=setting.ridge,
        target=report.target,
        scales=None if model.scales_ is None else tuple(map(tuple, model.scales_.tolist())),
        tried=tuple(SettingTried.from_json(vars(each)) for each in report.trials[:_TRIED]),
        other_maximum=report.other_maximum,
    )


def fitted_w(fitted: FittedModel[Any], settings: SavedRunSettings, data: Dataset) -> FittedW:
    """Return the report of a run on its W, fitted to labels or clusters."""
    model, report = fitted.model, fitted.model.report_
    J, full = model.objective_, report.full_objective
    contributions, few = None, None  # the former also for clusters, or if J is 0
    if isinstance(model, SupervisedBase) and J:
        shares = np.array(model.contributions_).T / J
        contributions = tuple(Contribution(alone=one, lost=lost) for one, lost in shares.tolist())
    if full is not None:
        share = float(J / full) if full else 1.0
        few = FewColumns(used=int(model.get_support().sum()), share_of_objective=share)
    return FittedW(
        **vars(ending_of(fitted)),
        fitted_kernel=kernel_record(settings.kernel, model.kernel_),
        objective=J,
        selection=selection_of(model),
        eigenvalues=tuple(model.eigenvalues_.tolist()),
        eigengap=model.eigengap_,
        components_advice=report.components_advice,
        loadings=tuple(
            tuple(Loading(feature=each, weight=weight) for each, weight in largest(data, row, _TOP))
            for row in model.components_
        ),
        contributions=contributions,
        few_columns=few,
        dimensions=report.dimensions,
        avoided=report.avoided,
    )


# The estimator of each criterion.
_ESTIMATORS: dict[str, Callable[..., SupervisedBase]] = {
    PREDICTION: PredictiveIKDR,
    DEPENDENCE: SupervisedIKDR,
}


def shared_parameters(settings: SavedRunSettings) -> dict[str, Any]:
    """Return the parameters that all estimators share, without the number of components."""
    # Clusterings have one criterion alone.
    criterion = settings.criterion if isinstance(settings, SearchSettings) else DEPENDENCE
    solver = Ascent if criterion == PREDICTION else ISM
    parameters = {
        "kernel": settings.build_kernel(),
        "solver": solver(**settings.solver_options),
        "rotation": settings.rotation,
        "random_state": settings.seed,
    }
    if criterion == PREDICTION:
        return parameters
    return {**parameters, "engine": EngineOptions(settings.engine, settings.engine_tol)}


def fit_estimator(
    model: M, X: Any, y: Any, part: ProgressShare, **arguments: Any
) -> FittedModel[M]:
    """Fit a model, report progress as the share `part`, and measure the time.

    `arguments` are others of `fit`, such as what to avoid.
    """
    rounds = getattr(model, "stopping_of_rounds", None)
    with watched_fit(part, as_solver(model.solver), rounds):
        started = time.perf_counter()
        model.fit(X, y, **arguments)
        return FittedModel(model, X, time.perf_counter() - started)


def fit(
    settings: SearchSettings,
    X: Any,
    y: Array,
    part: ProgressShare,
    *,
    start: Model | None = None,
    weights: Array | None,
    sides: Mapping[str, Array],
) -> FittedModel[SupervisedBase]:
    """Fit W to rows X (n, d) and labels y (n,), and report progress as the share `part`.

    Rows count by their weights (n,), if there are some. `sides` are the labels to avoid, those that
    are given and those of groups, by the arguments of the estimator. A fit by dependence has no
    unseen rows, so that groups do not matter to it.
    With `start`, the fit begins at the W of that model, with the kernel parameters, or the width
    and the ridge, that it had.
    """
    parameters = shared_parameters(settings)
    if start is not None and settings.criterion == DEPENDENCE:
        parameters["kernel"] = fitted_kernel(start.metrics["fitted_kernel"])
    parameters |= {
        "target": target_of(y, settings.target),
        "class_weight": "balanced" if settings.balanced else None,
        "avoid_weight": settings.avoid_weight,
        "warm_start": start is not None,
    }
    if settings.max_features is not None:
        parameters["max_features"] = None if settings.max_features == ALL else settings.max_features
    model = _ESTIMATORS[settings.criterion](settings.n_components, **parameters)
    if start is not None:
        model.components_ = start.components
        if isinstance(model, PredictiveIKDR):
            chosen = Selection.from_json(start.metrics["selection"])
            model.setting_ = Setting(chosen.width, chosen.ridge)
            model.scales_ = None if chosen.scales is None else np.array(chosen.scales)
            model.report_ = FitReport(target=chosen.target)
            model.status_ = Status(start.metrics["status"])
    if settings.criterion == DEPENDENCE:
        sides = {name: values for name, values in sides.items() if name != "groups"}
    if weights is not None:
        sides = {**sides, "sample_weight": weights}
    return fit_estimator(model, X, y, part, **sides)


def described_run(
    run: str, settings: SavedRunSettings, data: Dataset, n_components: int | None
) -> RunResult:
    """Return what all results have of a run: from which rows it was computed, how and where."""
    rows, columns = data.X.shape
    return RunResult(
        run=run,
        path=str(run_folder(run) / RESULT),
        host=platform.node(),
        page=run_context().page,
        dataset=settings.dataset,
        split=data.split,
        rows=rows,
        columns=columns,
        kernel=settings.kernel,
        n_components=n_components,
        data_hash=data.data_hash,
        settings=settings.to_json(),
    )


def saved_record(settings: SavedRunSettings, result: RunResult) -> dict[str, Any]:
    """Return the settings, the metrics and the versions that every run saves."""
    versions = {package: version(package) for package in _PACKAGES}
    return {
        "config": settings.to_json(),
        "metrics": result.metrics,
        "versions": {"python": platform.python_version(), **versions},
    }


def save_fitted(
    result: R,
    fitted: FittedModel[Any],
    settings: SavedRunSettings,
    data: Dataset,
    values: Array,
    *,
    check: Callable[[], None],
    **more: Any,
) -> tuple[R, Model]:
    """Save a fitted model as the run of its result, and return both as they are saved.

    `values` are the class or cluster (n,) or the numbers (n,) or (n, t) of each row; the saved
    sample of rows has them.
    `check` raises an error if the run is another process's by now; it is called at the last moment.
    `more` are other fields of the model.
    """
    sample, statistics = _projected_rows(fitted, values, settings.seed)
    model = fitted.model
    record = Model(
        components=model.components_,
        mean=model.mean_,
        scale=model.scale_,
        eigenvalues=model.eigenvalues_,
        image_shape=data.image_shape,
        sample=sample,
        statistics=statistics,
        history=[asdict(each) for each in model.history_],
        feature_names=data.feature_names,
        table=data.info.table and data.info.table["schema"],
        **more,
    )
    deviation = np.maximum(statistics.deviation, np.finfo(np.float32).tiny)
    distances = np.linalg.norm((sample.points - statistics.mean) / deviation, axis=1)
    ends = sample_rows(len(data.X), settings.seed)[[distances.argmin(), distances.argmax()]]
    rows = tuple(explained_row(record, fitted.rows, row, _TOP) for row in ends.tolist())
    result = replace(result, explained=rows)
    record = replace(record, **saved_record(settings, result))
    save_model(result.run, record, check=check)
    return result, record


def sample_rows(n: int, seed: int) -> Array:
    """Return the numbers, ascending, of the rows of n that a model is saved with."""
    drawn = np.random.default_rng(seed).choice(n, min(n, _SAMPLE_SIZE), replace=False)
    return np.asarray(np.sort(drawn))


def chosen_of(chosen: Array, start: int, batch: Array) -> Array:
    """Return the rows with the ascending numbers `chosen` that a batch from `start` on has."""
    first, last = np.searchsorted(chosen, [start, start + len(batch)])
    rows: Array = batch[chosen[first:last] - start]
    return rows


def _projected_rows(
    fitted: FittedModel[Any], values: Array, seed: int
) -> tuple[Sample, ColumnMoments]:
    """Return the new features of rows drawn at random, and statistics of those of all rows."""
    chosen = sample_rows(len(fitted.rows), seed)
    points, moments = [], []
    for start, batch in row_batches(fitted.rows):
        new = fitted.model.transform(batch)
        moments.append(ColumnMoments.from_rows(new))
        points.append(chosen_of(chosen, start, new))
    sample = Sample(np.concatenate(points).astype(np.float32), values[chosen])
    return sample, reduce(add, moments)
