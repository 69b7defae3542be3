"""The Prefect flow `fit`: it fits W to all rows and saves the model as a run."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.utilities.annotations import quote

from flows.ingest import ingest_and_name_run
from flows.results.runs import FitResult
from flows.runs.fit import fit_and_save, run_name
from flows.settings.runs import FitSettings
from flows.tracking.flow_run import step, track_run


@step("fit", "fit W")
def fit_step(settings: FitSettings, data: Any) -> FitResult:
    """Fit W to all rows and save the model as a run."""
    return fit_and_save(settings, data)


@flow(name="fit", flow_run_name="{settings.flow_run_name}", persist_result=False)
def fit(settings: FitSettings) -> dict[str, Any]:
    """Fit W to all rows of a data set and save the model as a run."""
    with track_run("fit", settings) as run:
        settings, data = ingest_and_name_run(settings, run, run_name)
        return run.saved(fit_step(settings, quote(data)))
