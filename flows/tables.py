"""The Prefect flow `tables`: it measures the paper's tables and figures again."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows.paper.measure import tables_plain
from flows.paper.series import Series, measure_series
from flows.paper.settings import TablesSettings
from flows.progress.watching import ProgressShare
from flows.results.paper import SeriesResult
from flows.tracking.flow_run import step, track_run


@step("series", "{part.name}", retried=False)
def series_step(series: Series, settings: TablesSettings, part: ProgressShare) -> SeriesResult:
    """Measure what is still missing of one table cell or one line of a figure."""
    return measure_series(series, settings, part)


@flow(name="tables", flow_run_name="{settings.flow_run_name}", persist_result=False)
def tables(settings: TablesSettings) -> dict[str, Any]:
    """Measure the tables and figures of the paper again, with ISM and the other solvers.

    Measurements that an earlier run of that name has saved are reused.
    """
    with track_run("tables", settings) as run:
        return run.saved(tables_plain(settings, series_step))
