"""Numbers of the runs in the text format of Prometheus, for `GET /metrics`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from flows.reports.refresh_metrics import RefreshCollector
from flows.reports.view import saved_result
from flows.results.base import RunResult
from flows.results.runs import ClusterResult, CrossvalResult, FitResult
from flows.results.unfolding import UnfoldResult
from flows.services.leases import Lease, list_leases
from storage import Run, list_runs

CONTENT_TYPE = CONTENT_TYPE_LATEST
# At most so many unfinished runs are shown, and at most so many finished ones: the newest.
_MOST = 50
_LABELS = ("run", "kind")
_STATES = ("computing", "interrupted", "failed", "died", "finished", "damaged")


@dataclass(frozen=True, kw_only=True)
class RunNumbers:
    """The numbers of one run; None for those that are unknown.

    Attributes
    ----------
    run, kind, state : str
    seconds : float or None
        Since the process took the run up; of a finished run, what its fits took.
    seconds_since_sign_of_life : float or None
        Seconds since the last sign of life of the process; None for a finished run.
    """

    run: str
    kind: str
    state: str
    rows: int | None = None
    iterations: float | None = None
    objective: float | None = None
    rows_per_second: float | None = None
    seconds: float | None = None
    seconds_since_sign_of_life: float | None = None
    workers_lost: int | None = None
    clusters_lost: int | None = None


# The meaning of each metric, which has the name of a field after the prefix.
_PREFIX = "ism_dask_run_"
_GAUGES = {
    "rows": "Rows of the fit.",
    "iterations": "Iterations of the fit; of a finished cross-validation, of all its fits.",
    "objective": "J of the latest iteration; of a finished cross-validation, its mean.",
    "rows_per_second": "Rows of the fit, times its iterations, by its seconds.",
    "seconds": "Seconds since the process took up the run; of a finished run, of its fits.",
    "seconds_since_sign_of_life": "Seconds since an unfinished run has renewed its lease.",
}
_COUNTERS = {
    "workers_lost": "Dask workers that left the cluster while the process fitted on it.",
    "clusters_lost": "Times that the process lost the Dask cluster.",
}


def render_metrics() -> str:
    """Return the numbers of the newest runs, unfinished and finished, as Prometheus reads them."""
    registry = CollectorRegistry()
    registry.register(_RunCollector())
    registry.register(RefreshCollector())
    return generate_latest(registry).decode()


class _RunCollector(Collector):
    """Yields the metrics of the runs as they are on disk."""

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with its value for each run."""
        runs = run_numbers()
        states = GaugeMetricFamily(
            f"{_PREFIX}state", "1 for the state of the run, else 0.", labels=(*_LABELS, "state")
        )
        for each in runs:
            for state in _STATES:
                states.add_metric((each.run, each.kind, state), float(state == each.state))
        yield states
        for family, names in ((GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _COUNTERS)):
            for name, meaning in names.items():
                metric = family(_PREFIX + name, meaning, labels=_LABELS)
                for each in runs:
                    value = getattr(each, name)
                    if value is not None:
                        metric.add_metric((each.run, each.kind), value)
                yield metric


def run_numbers() -> list[RunNumbers]:
    """Return the numbers of the newest unfinished runs, then of the newest finished ones."""
    leases = sorted(list_leases(), key=lambda lease: lease.renewed, reverse=True)[:_MOST]
    unfinished = {lease.run: _of_lease(lease) for lease in leases}
    # A run that is computed anew has an earlier result until it ends.
    finished = [_of_run(run) for run in list_runs() if run.name not in unfinished][:_MOST]
    return [*unfinished.values(), *finished]


def _of_lease(lease: Lease) -> RunNumbers:
    live, now = lease.numbers, time.time()
    until = now if lease.state == "computing" else lease.renewed
    return RunNumbers(
        run=lease.run,
        kind=lease.kind,
        state=lease.state,
        rows=live.rows or None,
        iterations=live.iterations,
        objective=live.objective,
        rows_per_second=live.rows_per_second,
        # Clocks of two machines may differ.
        seconds=max(0.0, until - lease.taken),
        seconds_since_sign_of_life=max(0.0, now - lease.renewed),
        workers_lost=live.workers_lost,
        clusters_lost=live.clusters_lost,
    )


def _of_run(run: Run) -> RunNumbers:
    if run.problem:
        return RunNumbers(run=run.name, kind=run.kind, state="damaged")
    return RunNumbers(
        run=run.name, kind=run.kind, state="finished", **_of_result(saved_result(run))
    )


def _of_result(result: RunResult | None) -> Mapping[str, Any]:
    """Return the numbers of the fits of a finished run, as far as it has any."""
    if isinstance(result, UnfoldResult):
        names = ("rows", "iterations", "objective", "seconds")
        return {name: getattr(result, name) for name in names}
    if isinstance(result, FitResult | ClusterResult):
        rows, fits = result.rows, [(result.fitted.objective, result.fitted.ending)]
    elif isinstance(result, CrossvalResult):
        # Each fold is held out of one fit.
        rows = round(result.rows * (1 - 1 / result.folds))
        fits = [(-each.cost, each.ending) for each in result.results]
    else:
        return {}
    seconds = sum(ending.seconds for _, ending in fits)
    iterations = sum(ending.iterations for _, ending in fits)
    return {
        "rows": rows,
        "iterations": iterations,
        "objective": fmean(objective for objective, _ in fits),
        "rows_per_second": rows * iterations / seconds if seconds > 0 else None,
        "seconds": seconds,
    }
