"""The Prefect flow `ingest`, and the ingestion step with which the other flows begin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows.reports.markdown import render_markdown
from flows.results.base import IngestResult
from flows.runs.columns_read import ingest_summary
from flows.runs.data import LabelledDataset, RunSettings, label_of, store_dataset, store_for_run
from flows.settings.base import IngestSettings
from flows.settings.runs import CrossvalSettings, FitSettings
from flows.tracking.credentials import block_credentials
from flows.tracking.flow_run import RETRY_OPTIONS, TrackedRun, run_flow, track_run
from storage import Dataset

Search = TypeVar("Search", CrossvalSettings, FitSettings)


@task(
    name="store",
    task_run_name="store {settings.dataset}",
    cache_policy=NO_CACHE,
    persist_result=False,
    **RETRY_OPTIONS,
)
def store_step(settings: IngestSettings) -> IngestResult:
    """Read the raw files, check them, and store the rows."""
    return store_dataset(settings)


@flow(name="ingest", flow_run_name="{settings.flow_run_name}", persist_result=False)
def ingest(settings: IngestSettings) -> dict[str, Any]:
    """Read the raw files of a data set, check them, and store the rows."""
    with track_run("ingest", settings) as run:
        with block_credentials(settings.credentials):
            result: IngestResult = store_step(settings)
        return run.finished(
            result, run.page(render_markdown(ingest_summary(result)), _card_line(result))
        )


def run_ingest(settings: IngestSettings) -> IngestResult:
    """Run the flow `ingest` in this process and return its result."""
    return IngestResult.from_json(run_flow(ingest, settings))


@task(
    name="ingest",
    task_run_name="ingest {settings.dataset}",
    cache_policy=NO_CACHE,
    persist_result=False,
    **RETRY_OPTIONS,
)
def ingest_step(settings: RunSettings) -> tuple[RunSettings, Dataset]:
    """Store the data set unless it is stored already; return the settings with its name, and it."""
    return store_for_run(settings)


def ingest_and_name_run(
    settings: Search, run: TrackedRun, run_name: Callable[[Search, LabelledDataset], str]
) -> tuple[Search, Dataset]:
    """Ingest the data set, and name the flow run by the data, the saved run and q.

    Unless the settings give q, it follows from the number of classes in the data. Return the
    settings with the name of the data set, and the data set.
    """
    named, data = ingest_step(settings)
    labelled = label_of(data, named)
    q = labelled.count_components(named)
    run.describe(replace(named, n_components=q, run=run_name(named, labelled)))
    return named, data


def _card_line(result: IngestResult) -> str:
    return f"{result.dataset}, {result.rows:,} rows, {result.columns:,} columns"
