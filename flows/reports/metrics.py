"""Numbers of runs, of refreshes and of the disk of the home, as Prometheus reads them."""

from __future__ import annotations

import shutil
from contextlib import suppress
from datetime import datetime
from functools import lru_cache

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    disable_created_metrics,
    generate_latest,
)

from flows.reports.blocks import sentences
from flows.reports.runs import ListedRun, unfinished_runs
from flows.results.refresh import PUBLISHED, STATES, UNCHANGED, RefreshResult, refresh_records
from storage import StorageError, home, list_runs, refreshed_names
from storage.refreshes import history_path

CONTENT_TYPE = CONTENT_TYPE_LATEST
_RUN_STATES = ("computing", "interrupted", "failed", "died", "finished", "damaged")
# The most unfinished runs that have metrics, and the most finished ones: the newest.
_MOST = 50
_RUN, _REFRESH = "ism_dask_run_", "ism_dask_refresh_"
# The time at which this process has made a counter says nothing.
disable_created_metrics()  # type: ignore[no-untyped-call]


def render_metrics() -> str:
    """Return the numbers of the newest runs, of all refreshes and of the disk, for Prometheus."""
    registry = CollectorRegistry()
    _add_runs(registry)
    _add_refreshes(registry)
    with suppress(OSError):  # before the first run there is no home
        free = shutil.disk_usage(home()).free
        Gauge("ism_dask_home_free_bytes", "Free bytes on its disk.", registry=registry).set(free)
    return generate_latest(registry).decode()


def _add_runs(registry: CollectorRegistry) -> None:
    unfinished = unfinished_runs()[:_MOST]
    names = {each.name for each in unfinished}
    # A run that is computed anew has an earlier result until it ends.
    finished = [run for run in list_runs() if run.name not in names][:_MOST]
    runs, labels = [*unfinished, *map(ListedRun.of, finished)], ("run", "kind")
    about = "1 for the state of the run, else 0."
    states = Gauge(f"{_RUN}state", about, (*labels, "state"), registry=registry)
    for each in runs:
        for state in _RUN_STATES:
            states.labels(each.name, each.kind, state).set(state == each.state)
    for metric, part in ((Gauge, "gauges"), (Counter, "counters")):
        for name, meaning in sentences()[part].items():
            values = metric(_RUN + name, meaning, labels, registry=registry)
            for each in runs:
                if (value := each.numbers.get(name)) is not None:
                    values.labels(each.name, each.kind).inc(value)


def _add_refreshes(registry: CollectorRegistry) -> None:
    about = "1 for what happened last to the published run, else 0."
    states = Gauge(f"{_REFRESH}state", about, ("run", "state"), registry=registry)
    about = "When one published or had nothing to do, in seconds since 1970."
    success = Gauge(f"{_REFRESH}last_success", about, ("run",), registry=registry)
    about = "The largest population stability index of the last comparison."
    drift = Gauge(f"{_REFRESH}drift", about, ("run",), registry=registry)
    for name in refreshed_names():
        try:
            records = _records(name, history_path(name).stat().st_mtime_ns)
        except (StorageError, OSError):  # `ism-dask check` reports a damaged one
            continue
        if not records:
            continue
        for state in STATES:
            states.labels(name, state).set(state == records[-1].state)
        good = [each.time for each in records if each.state in (PUBLISHED, UNCHANGED)]
        if good:
            success.labels(name).set(datetime.fromisoformat(good[-1]).timestamp())
        compared = [each.comparison for each in records if each.comparison]
        if compared:
            drift.labels(name).set(compared[-1].largest_drift)


@lru_cache(maxsize=256)
def _records(name: str, _written: int) -> tuple[RefreshResult, ...]:
    """Return the records of a history that was written at a time; it is read once for each."""
    return refresh_records(name)
