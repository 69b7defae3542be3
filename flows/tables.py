"""The flow `tables`: the paper's tables and figures, measured anew."""

from __future__ import annotations

from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows.interface.progress import ProgressShare
from flows.paper.measure import plan, summarise
from flows.paper.series import Series, SeriesResult, measure_series
from flows.paper.settings import TablesSettings
from flows.reports.markdown import tables_page
from flows.tracking.run import run_flow, track_run


@task(name="strand", task_run_name="{part.name}", cache_policy=NO_CACHE, persist_result=False)
def strand_step(strand: Series, settings: TablesSettings, part: ProgressShare) -> SeriesResult:
    """Measure one cell of a table, or one line of a figure, as far as it is not measured yet."""
    return measure_series(strand, settings, part)


@flow(name="tables", flow_run_name="{settings.title}", persist_result=False)
def tables(settings: TablesSettings) -> dict[str, Any]:
    """Rerun the tables and figures of the paper, rivals included.

    What an earlier run of that name has measured is not measured again.
    """
    with track_run("tables", settings) as run:
        found = [strand_step(strand, settings, part) for strand, part in plan(settings)]
        summary = summarise(settings, found)
        return run.finished(summary, run.page(tables_page(summary, run.links(summary))))


def run_tables(settings: TablesSettings) -> dict[str, Any]:
    """Run the flow here."""
    return run_flow(tables, settings)
