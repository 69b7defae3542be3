"""Numbers of refreshes, and of the disk of the home, for `GET /metrics`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from flows.results.refresh import PUBLISHED, STATES, UNCHANGED, RefreshResult
from storage import StorageError, home, read_history, refreshed_names
from storage.refreshes import history_path

_PREFIX = "ism_dask_refresh_"


def refresh_families() -> Iterator[Metric]:
    """Yield the metrics of all histories as they are on disk, and of the disk itself."""
    known: dict[str, tuple[RefreshResult, ...]] = {}
    for name in refreshed_names():
        with suppress(StorageError, OSError):  # `ism-dask check` reports a damaged one
            known[name] = _records(name, history_path(name).stat().st_mtime_ns)
    about = "1 for what happened last to the published run, else 0."
    states = GaugeMetricFamily(f"{_PREFIX}state", about, labels=("run", "state"))
    for name, records in known.items():
        for state in STATES:
            states.add_metric((name, state), float(state == records[-1].state))
    yield states
    for key, (meaning, value) in _GAUGES.items():
        metric = GaugeMetricFamily(_PREFIX + key, meaning, labels=("run",))
        for name, records in known.items():
            number = value(records)
            if number is not None:
                metric.add_metric((name,), number)
        yield metric
    with suppress(OSError):  # before the first run there is no home
        free = shutil.disk_usage(home()).free
        yield GaugeMetricFamily("ism_dask_home_free_bytes", "Free bytes on its disk.", free)


@lru_cache(maxsize=256)
def _records(name: str, _written: int) -> tuple[RefreshResult, ...]:
    """Return the records of a history that was written at a time; it is read once for each."""
    return tuple(RefreshResult.from_json(each) for each in read_history(name))


def _last_success(records: Sequence[RefreshResult]) -> float | None:
    good = (each for each in reversed(records) if each.state in (PUBLISHED, UNCHANGED))
    last = next(good, None)
    return None if last is None else datetime.fromisoformat(last.time).timestamp()


def _drift(records: Sequence[RefreshResult]) -> float | None:
    last = next((each.comparison for each in reversed(records) if each.comparison), None)
    return None if last is None else last.largest_drift


_GAUGES: dict[str, tuple[str, Callable[[Sequence[RefreshResult]], float | None]]] = {
    "last_success": (
        "When one published or had nothing to do, in seconds since 1970.",
        _last_success,
    ),
    "drift": ("The largest population stability index of the last comparison.", _drift),
}
