"""The flow `ingest`: a data set read, checked and stored."""

from __future__ import annotations

from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows.reports.markdown import ingest_page
from flows.settings import IngestSettings
from flows.steps import RETRIED
from flows.tracking import run_flow, tracked
from flows.work.storing import store


@task(
    name="store",
    task_run_name="store {settings.dataset}",
    cache_policy=NO_CACHE,
    persist_result=False,
    **RETRIED,
)
def store_step(settings: IngestSettings) -> dict[str, Any]:
    """Read the raw files, check them, and store the rows."""
    return store(settings)


@flow(name="ingest", flow_run_name="{settings.title}", persist_result=False)
def ingest(settings: IngestSettings) -> dict[str, Any]:
    """Read the raw files of a data set, check them, and store the rows."""
    with tracked("ingest", settings) as run:
        summary = store_step(settings)
        return run.finished(summary, run.page(ingest_page(summary)))


def run_ingest(settings: IngestSettings) -> dict[str, Any]:
    """Run the flow here."""
    return run_flow(ingest, settings)
