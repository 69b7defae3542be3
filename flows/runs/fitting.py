"""Fit an estimator with the settings of a run, and say how the fit ended."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from flows.progress.fits import watched_fit
from flows.progress.watching import ProgressShare
from flows.results.runs import CertificateRecord, FitEnding, Selection, SettingTried
from flows.runs.data import Array, target_of
from flows.settings.kernels import fitted_kernel
from flows.settings.runs import DEPENDENCE, PREDICTION, SearchSettings, Settings
from ism_dask import Certificate, SupervisedIKDR
from ism_dask.engines import Auto, EngineOptions, Landmarks, as_engine
from ism_dask.estimators.base import IKDR
from ism_dask.estimators.pose import CRITERIA
from ism_dask.observe.fit_events import FitWatcher, watching_fits
from ism_dask.selection.sample import Setting
from ism_dask.solvers import SOLVERS, Solver
from ism_dask.status import Status
from storage import Model

# A result lists this many trials of a selection.
_TRIED = 5


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A fitted W.

    Attributes
    ----------
    model : IKDR
    seconds : float
        What the fit took.
    """

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
            certificate=_certificate_record(model.certificate_),
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
            tried=tuple(
                SettingTried(
                    start=each.start,
                    width=each.width,
                    ridge=each.ridge,
                    explained=each.explained,
                )
                for each in model.selection_[:_TRIED]
            ),
            other_maximum=model.other_maximum_,
        )


def _certificate_record(certificate: Certificate) -> CertificateRecord:
    eigenvalue, distance = certificate.largest_eigenvalue, certificate.distance
    return CertificateRecord(
        is_certified=certificate.is_certified,
        is_global=certificate.is_global,
        reason=certificate.reason,
        largest_eigenvalue=eigenvalue if math.isfinite(eigenvalue) else None,
        distance=distance if math.isfinite(distance) else None,
    )


def solver_of(settings: Settings) -> Solver:
    """Return the solver with the options that these settings give it."""
    usual = CRITERIA[_criterion_of(settings)]
    return SOLVERS[usual if settings.solver == "auto" else settings.solver](
        **settings.solver_options
    )


def engine_of(settings: Settings) -> str | EngineOptions:
    """Return the engine with the tolerance that these settings give it, if it has one."""
    if _criterion_of(settings) == PREDICTION:
        return settings.engine
    if settings.engine == "auto":
        return Auto(settings.engine_tol)
    if settings.engine == "landmarks":
        return Landmarks(settings.engine_tol)
    return as_engine(settings.engine)


def _criterion_of(settings: Settings) -> str:
    """Return the criterion of a fit; clusterings have one alone."""
    return settings.criterion if isinstance(settings, SearchSettings) else DEPENDENCE


def shared_parameters(settings: Settings) -> dict[str, Any]:
    """Return the parameters that all estimators share, without the number of components."""
    return {
        "kernel": settings.build_kernel(),
        "solver": solver_of(settings),
        "engine": engine_of(settings),
        "rotation": settings.rotation,
        "random_state": settings.seed,
    }


class _NoWarnings(FitWatcher):
    """Suppresses the warnings of fits: commands report status and eigenvalues in their summary."""

    reports_endings = True


_NO_WARNINGS = _NoWarnings()


def timed_fit(
    model: IKDR,
    X: Any,
    y: Any,
    weights: Array | None = None,
    watcher: FitWatcher = _NO_WARNINGS,
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
        _continue_from(model, start)
    with watched_fit(part, model.plan) as reports:
        return timed_fit(model, X, y, weights, reports, **sides)


def _continue_from(model: SupervisedIKDR, start: Model) -> None:
    """Set the attributes that a fit of `model` continues from."""
    model.components_ = start.components
    if model.criterion == PREDICTION:
        chosen = Selection.from_json(start.metrics["selection"])
        model.setting_, model.target_ = Setting(chosen.width, chosen.ridge), chosen.target
        model.status_ = Status(start.metrics["status"])
