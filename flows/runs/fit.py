"""Fit W to all rows of a data set and save the model as a run, without Prefect."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np

from flows.errors import SettingsError
from flows.progress.watching import ProgressShare, run_step
from flows.results.runs import Certainty, FitResult, ShareInterval, column_names
from flows.runs.data import Array, label_of, read_rows, side_labels, store_for_run
from flows.runs.fitting import FittedModel, described_run, fit, fitted_w, save_fitted
from flows.runs.resumable import fit_on_cluster, resumable_run
from flows.settings.runs import DEPENDENCE, KERNEL_PARAMETERS, FitSettings
from ism_dask import Intervals, PredictiveIKDR, intervals
from ism_dask.estimators.supervised import SupervisedBase
from ism_dask.selection.rules import RULES
from storage import Dataset, Model, load_model

# The progress that is reached when the rows are fitted.
_FITTED = 0.99
# A result lists this many shares.
_TOP_SHARES = 10


def fit_and_save(
    settings: FitSettings, data: Dataset, start: Model | None = None
) -> tuple[FitResult, Model, Any, Array]:
    """Fit W to all rows of a stored data set, and save the model.

    `start` is the model that `settings.start_from` names, if the caller has loaded it. Returns the
    result, the model, the rows (n, d) of the fit, in memory or on disk, and their label.
    """
    if (start := _start(settings, data, start)) is not None:
        settings = replace(settings, n_components=start.n_components)
    labelled = label_of(data, settings)
    run, y, weights = settings.run or labelled.default_name(settings), labelled.y, data.weights
    sides, facts = side_labels(settings, labelled), labelled.facts(settings)
    if start is not None:  # another run of its name may have replaced it since
        facts["known"]["start"] = sha256(start.components.tobytes()).hexdigest()
    part = ProgressShare(stop=_FITTED)

    def work() -> tuple[FittedModel[SupervisedBase], Intervals | None]:
        X = read_rows(data.X, settings)
        fitted = fit(settings, X, y, part, start=start, weights=weights, sides=sides)
        model, q = fitted.model, len(fitted.model.components_)
        free = (int(model.get_support().sum()) - q) * q
        is_served = isinstance(model, PredictiveIKDR) and model.converged_
        has_rows = model.report_.residual_rows >= RULES.fewest_rows  # copies count as one
        if not (is_served and has_rows and 0 < free <= RULES.most_weights):
            return fitted, None
        return fitted, intervals(fitted.model, X, y, sample_weight=weights, **sides)

    with resumable_run(run, FitResult.command, settings, **facts) as this:
        fitted, certainty = fit_on_cluster(settings, this, work)
        result = FitResult(
            label=labelled.label,
            certainty=None if certainty is None else _certainty_record(certainty, data),
            **vars(described_run(run, settings, data, len(fitted.model.components_))),
            **vars(fitted_w(fitted, settings, data)),
        )
        saved = save_fitted(
            result,
            fitted,
            settings,
            data,
            y,
            check=this.lease.check,
            class_names=labelled.class_names,
        )
        return *saved, fitted.rows, y


def run_fit(settings: FitSettings) -> FitResult:
    """Fit W to all rows of a data set and save the model as a run."""
    stored = run_step(f"ingest {settings.dataset}", store_for_run, settings)
    return run_step("fit W", fit_and_save, *stored)[0]


def _start(settings: FitSettings, data: Dataset, start: Model | None) -> Model | None:
    """Return the model of the run to start from, if there is one; its columns must be the same."""
    if settings.start_from is None:
        return None
    start = start or load_model(settings.start_from)
    problem = "" if "fitted_kernel" in start.metrics else "no run of `ism-dask fit`"
    columns = (start.n_features, start.feature_names)
    if not problem and columns != (data.X.shape[1], data.feature_names):
        problem = f"fitted to other columns than {data.name} has"
    if problem:
        message = f"`start_from` is {settings.start_from!r}, {problem}; name another run"
        raise SettingsError(f"{message}, or leave it out", "start_from")
    fixed = {name: start.config[name] for name in ("kernel", *KERNEL_PARAMETERS)}
    fixed["criterion"] = start.config.get("criterion", DEPENDENCE)
    for name, value in (*fixed.items(), ("n_components", start.n_components)):
        if getattr(settings, name) not in (None, value):
            raise SettingsError(
                f"`start_from` is {settings.start_from!r}, a fit with `{name}` {value}; give "
                "the same, or leave one of them out",
                "start_from",
                name,
            )
    return start


def _certainty_record(result: Intervals, data: Dataset) -> Certainty:
    """Return what a run reports of intervals."""
    names, pvalues = column_names(data, len(result.shares)), result.adjusted_pvalues
    largest = np.argsort(-result.shares, kind="stable")[:_TOP_SHARES]
    return Certainty(
        distance_interval=result.distance_interval,
        standardized_interval=result.standardized_interval,
        stability=tuple(result.stability.tolist()),
        retention=tuple(result.retention.tolist()),
        separated=len(result.separated),
        shares=tuple(
            ShareInterval(
                feature=names[j],
                share=float(result.shares[j]),
                low=float(result.shares_low[j]),
                high=float(result.shares_high[j]),
                pvalue=float(pvalues[j]),
            )
            for j in largest
        ),
        doubts=result.doubts,
    )
