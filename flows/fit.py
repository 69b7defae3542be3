"""The flow `fit`: W on all rows, kept as a run."""

from __future__ import annotations

from typing import Any

from prefect import flow, tags, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from flows.reports.markdown import fit_page
from flows.settings import FitSettings
from flows.steps import begin
from flows.tracking import current_run, tracked
from flows.work.fitting import fit_and_save


@task(name="fit", task_run_name="fit W", cache_policy=NO_CACHE, persist_result=False)
def fit_step(settings: FitSettings) -> dict[str, Any]:
    """Fit W to all rows and save the model."""
    return fit_and_save(settings)


@flow(name="fit", flow_run_name="{settings.title}", persist_result=False)
def fit(settings: FitSettings) -> dict[str, Any]:
    """Fit W to all rows of a data set and keep the model as a run."""
    with tracked("fit", settings.dataset, settings.kernel) as key:
        begin(settings)
        summary = fit_step(settings)
        create_markdown_artifact(markdown=fit_page(summary), key=key)
        return {**summary, "flow_run": current_run()}


def run_fit(settings: FitSettings) -> dict[str, Any]:
    """Run the flow here, tagged with its data set and kernel."""
    with tags(settings.dataset, settings.kernel):
        return fit(settings)
