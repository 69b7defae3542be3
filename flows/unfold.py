"""The Prefect flow `unfold`: it places all rows in a picture, and saves their coordinates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prefect import flow
from prefect.utilities.annotations import quote

from flows.ingest import ingest_step
from flows.results.runs import UnfoldResult
from flows.runs.unfolding import run_name, unfold_and_save
from flows.settings.unfolding import UnfoldSettings
from flows.tracking.flow_run import step, track_run


@step("unfold", "unfold rows")
def unfold_step(settings: UnfoldSettings, data: Any) -> UnfoldResult:
    """Place the rows in a picture, and save their coordinates as a run."""
    return unfold_and_save(settings, data)


@flow(name="unfold", flow_run_name="{settings.flow_run_name}", persist_result=False)
def unfold(settings: UnfoldSettings) -> dict[str, Any]:
    """Place all rows of a data set in a picture and save their coordinates as a run."""
    with track_run("unfold", settings) as run:
        settings, data = ingest_step(settings)
        run.describe(replace(settings, run=run_name(settings, data)))
        return run.saved(unfold_step(settings, quote(data)))
