"""The Prefect flow `fit`: it fits W to all rows and saves the model as a run."""

from __future__ import annotations

from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.utilities.annotations import quote

from flows.ingest import ingest_and_name_run
from flows.reports.markdown import run_page
from flows.reports.summary import card_line
from flows.results.runs import FitResult
from flows.runs.fit import fit_and_save, run_name
from flows.settings.runs import FitSettings
from flows.tracking.flow_run import RETRY_OPTIONS, run_flow, track_run


@task(
    name="fit", task_run_name="fit W", cache_policy=NO_CACHE, persist_result=False, **RETRY_OPTIONS
)
def fit_step(settings: FitSettings, data: Any) -> FitResult:
    """Fit W to all rows and save the model as a run."""
    return fit_and_save(settings, data)


@flow(name="fit", flow_run_name="{settings.flow_run_name}", persist_result=False)
def fit(settings: FitSettings) -> dict[str, Any]:
    """Fit W to all rows of a data set and save the model as a run."""
    with track_run("fit", settings) as run:
        settings, data = ingest_and_name_run(settings, run, run_name)
        result: FitResult = fit_step(settings, quote(data))
        return run.finished(
            result, run.page(run_page(result, run.links(result)), card_line(result))
        )


def run_fit(settings: FitSettings) -> FitResult:
    """Run the flow `fit` in this process and return its result."""
    return FitResult.from_json(run_flow(fit, settings))
