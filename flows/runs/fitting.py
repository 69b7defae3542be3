"""Fit an estimator with the settings of a run, and report what it found and how it ended."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from flows.progress.fits import watched_fit
from flows.progress.watching import ProgressShare
from flows.results.runs import (
    Contribution,
    FewColumns,
    FitEnding,
    FittedW,
    Selection,
    SettingTried,
    column_names,
    top_loadings,
)
from flows.runs.data import Array, target_of
from flows.settings.kernels import fitted_kernel, kernel_record
from flows.settings.runs import (
    DEPENDENCE,
    PREDICTION,
    SavedRunSettings,
    SearchSettings,
)
from ism_dask import SupervisedIKDR
from ism_dask.engines import Auto, EngineOptions, Landmarks, as_engine
from ism_dask.estimators.base import IKDR
from ism_dask.estimators.pose import CRITERIA
from ism_dask.observe.fit_events import FitWatcher, watching_fits
from ism_dask.selection.sample import Setting
from ism_dask.solvers import SOLVERS
from ism_dask.status import Status
from storage import Dataset, Model

# A result lists this many trials of a selection.
_TRIED = 5


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A fitted estimator, and the seconds that the fit took."""

    model: IKDR
    seconds: float

    @property
    def ending(self) -> FitEnding:
        """How the fit ended and how accurate W is."""
        model = self.model
        # Only the published rule, on the change of the eigenvalues, ends a fit with this status.
        by_change = model.status_ is Status.TOLERANCE
        return FitEnding(
            seconds=self.seconds,
            iterations=int(model.n_iter_),
            solver=model.solver_,
            converged=bool(model.converged_),
            status=model.status_.value,
            residual=float(model.residual_),
            residual_rows=int(model.residual_rows_),
            engine=model.engine_,
            engine_error=float(model.engine_error_),
            engine_note=model.engine_note_,
            tolerance=float(model.tolerance_),
            measure="change" if by_change else model.plan.iterations.measure,
            angle=float(model.history_[-1].angle) if model.history_ else None,
            certificate=model.certificate_,
        )

    @property
    def selection(self) -> Selection | None:
        """What the fit chose; None if it maximised HSIC."""
        model = self.model
        setting = getattr(model, "setting_", None)
        if setting is None:
            return None
        return Selection(
            width=setting.width,
            ridge=setting.ridge,
            target=model.target_,
            tried=tuple(SettingTried.from_json(vars(each)) for each in model.selection_[:_TRIED]),
            other_maximum=model.other_maximum_,
        )


def fitted_w(fitted: FittedModel, settings: SavedRunSettings, data: Dataset) -> FittedW:
    """Return what a run reports of its W, fitted to labels or clusters."""
    model = fitted.model
    return FittedW(
        fitted_kernel=kernel_record(settings.kernel, model.kernel_),
        objective=float(model.objective_),
        selection=fitted.selection,
        eigenvalues=tuple(model.eigenvalues_.tolist()),
        eigengap=float(model.eigengap_),
        components_advice=model.components_advice_,
        ending=fitted.ending,
        avoided=getattr(model, "avoided_", None),
        loadings=top_loadings(model.components_, names_of_columns(data)),
        contributions=_contributions(model),
        few_columns=_few_columns(model),
        dimensions=tuple(getattr(model, "dimension_path_", ())) or None,
    )


def names_of_columns(data: Dataset) -> tuple[str, ...]:
    """Return the names of the columns of a data set."""
    return column_names(data.feature_names, data.image_shape, data.X.shape[1])


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


def shared_parameters(settings: SavedRunSettings) -> dict[str, Any]:
    """Return the parameters that all estimators share, without the number of components."""
    # Clusterings have one criterion alone.
    criterion = settings.criterion if isinstance(settings, SearchSettings) else DEPENDENCE
    solver = CRITERIA[criterion] if settings.solver == "auto" else settings.solver
    engine: str | EngineOptions = settings.engine
    if criterion == DEPENDENCE:
        with_tol = {"auto": Auto, "landmarks": Landmarks}.get(settings.engine)
        engine = with_tol(settings.engine_tol) if with_tol else as_engine(settings.engine)
    return {
        "kernel": settings.build_kernel(),
        "solver": SOLVERS[solver](**settings.solver_options),
        "engine": engine,
        "rotation": settings.rotation,
        "random_state": settings.seed,
    }


class _NoWarnings(FitWatcher):
    """Suppresses the warnings of fits: commands report status and eigenvalues in their summary."""

    reports_endings = True


def timed_fit(
    model: IKDR,
    X: Any,
    y: Any,
    weights: Array | None = None,
    watcher: FitWatcher = _NoWarnings(),  # noqa: B008 - it has no state
    **sides: Array,
) -> FittedModel:
    """Fit a model, with weights (n,) of the rows if there are some, and measure the time.

    `sides` are other arguments of `fit`, such as what to avoid.
    """
    with watching_fits(watcher):
        started = time.perf_counter()
        model.fit(X, y, **({} if weights is None else {"sample_weight": weights}), **sides)
        return FittedModel(model, time.perf_counter() - started)


def fit(
    settings: SearchSettings,
    X: Any,
    y: Array,
    part: ProgressShare,
    *,
    start: Model | None = None,
    weights: Array | None = None,
    sides: Mapping[str, Array] = MappingProxyType({}),
) -> FittedModel:
    """Fit W to rows X (n, d) and labels y (n,), and report progress as the share `part`.

    Rows count by their weights (n,), if there are some. `sides` are the labels to avoid and those
    that are given, by the arguments of the estimator.
    With `start`, the fit begins at the W of that model, with the kernel parameters, or the width
    and the ridge, that it had.
    """
    parameters = shared_parameters(settings)
    if start is not None and settings.criterion == DEPENDENCE:
        parameters["kernel"] = fitted_kernel(start.metrics["fitted_kernel"])
    model = SupervisedIKDR(
        settings.n_components,
        criterion=settings.criterion,
        target=target_of(y, settings.target),
        class_weight="balanced" if settings.balanced else None,
        whiten=settings.whiten,
        avoid_weight=settings.avoid_weight,
        max_features=settings.max_features,
        warm_start=start is not None,
        **parameters,
    )
    if start is not None:
        model.components_ = start.components
        if model.criterion == PREDICTION:
            chosen = Selection.from_json(start.metrics["selection"])
            model.setting_, model.target_ = Setting(chosen.width, chosen.ridge), chosen.target
            model.status_ = Status(start.metrics["status"])
    with watched_fit(part, model.plan) as reports:
        return timed_fit(model, X, y, weights, reports, **sides)
