"""The Prefect flow `tables`: it measures the paper's tables and figures again."""

from __future__ import annotations

from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows.interface.progress import ProgressShare
from flows.paper.measure import tables_plain
from flows.paper.series import Series, measure_series
from flows.paper.settings import TablesSettings
from flows.reports.markdown import run_page
from flows.reports.summary import card_line
from flows.results.paper import SeriesResult, TablesResult
from flows.tracking.flow_run import run_flow, track_run


@task(name="series", task_run_name="{part.name}", cache_policy=NO_CACHE, persist_result=False)
def series_step(series: Series, settings: TablesSettings, part: ProgressShare) -> SeriesResult:
    """Measure what is still missing of one table cell or one line of a figure."""
    return measure_series(series, settings, part)


@flow(name="tables", flow_run_name="{settings.flow_run_name}", persist_result=False)
def tables(settings: TablesSettings) -> dict[str, Any]:
    """Measure the tables and figures of the paper again, with ISM and the other solvers.

    Measurements that an earlier run of that name has saved are reused.
    """
    with track_run("tables", settings) as run:
        result = tables_plain(settings, series_step)
        return run.finished(
            result, run.page(run_page(result, run.links(result)), card_line(result))
        )


def run_tables(settings: TablesSettings) -> TablesResult:
    """Run the flow `tables` in this process and return its result."""
    return TablesResult.from_json(run_flow(tables, settings))
