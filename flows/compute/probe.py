"""Functions that Dask runs on the scheduler, to read and tidy its state.

This module imports nothing heavy, because the scheduler imports it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# Name of the Dask span that holds all our computations.
SPAN = "ism-dask"
# Topic of the events in which nannies report that they ended a worker for its memory.
OVER_MEMORY = "worker-restart-memory"
# Parts that a dump of the state leaves out: pickled code and data, and the whole configuration of
# Dask, passwords among it.
_EXCLUDED = ("run_spec", "config")


@dataclass(frozen=True)
class Pulse:
    """A sign of life of a cluster."""

    scheduler: str  # its id; after a restart it has the same address, but another id
    workers: tuple[str, ...]  # their addresses
    done: int  # tasks that have finished since the scheduler started
    left: int  # workers that have left since then: that died, were lost or retired


def pulse(dask_scheduler: Any) -> Pulse:
    """Return the pulse of the cluster, and drop the finished task groups of our span."""
    _drop_finished_groups(dask_scheduler)
    prefixes = list(dask_scheduler.task_prefixes.values())
    done = sum(prefix.state_counts.get("memory", 0) for prefix in prefixes)
    left = dask_scheduler._workers_removed_total
    return Pulse(dask_scheduler.id, tuple(dask_scheduler.workers), done, left)


def state_of(dask_scheduler: Any) -> Any:
    """Return the state of the scheduler, with its workers and tasks, in plain JSON."""
    return dask_scheduler._to_dict(exclude=_EXCLUDED)


def _drop_finished_groups(scheduler: Any) -> None:
    """Drop the task groups that are over from our span, which would keep each for ever."""
    spans = scheduler.extensions.get("spans")
    if spans is not None:
        for span in spans.spans_search_by_tag[SPAN]:
            span.groups.intersection_update(scheduler.task_groups.values())
