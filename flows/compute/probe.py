"""What a scheduler tells of itself. These functions run there: nothing heavy is imported here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# What all our computations are part of, for Dask.
SPAN = "ism-dask"
# Where nannies say that a worker had too much memory.
OVER_MEMORY = "worker-restart-memory"
# What would be pickled code and data, and all settings of Dask, passwords among them.
_LEFT_OUT = ("run_spec", "config")


@dataclass(frozen=True)
class Pulse:
    """How a cluster is.

    Attributes
    ----------
    scheduler : str
        Its id: another one is at the same address when it was started again.
    workers : int
    done : int
        Tasks that are done, since the scheduler began.
    """

    scheduler: str
    workers: int
    done: int


def pulse(dask_scheduler: Any) -> Pulse:
    """Return how the cluster is, and let it forget what it has no use for."""
    _forget_groups(dask_scheduler)
    prefixes = list(dask_scheduler.task_prefixes.values())
    done = sum(prefix.state_counts.get("memory", 0) for prefix in prefixes)
    return Pulse(dask_scheduler.id, len(dask_scheduler.workers), done)


def state_of_scheduler(dask_scheduler: Any) -> Any:
    """Return all that a scheduler knows, in plain JSON."""
    return dask_scheduler._to_dict(exclude=_LEFT_OUT)


def state_of_worker(dask_worker: Any) -> Any:
    """Return all that a worker knows, in plain JSON."""
    return dask_worker._to_dict(exclude=_LEFT_OUT)


def _forget_groups(scheduler: Any) -> None:
    """Forget the groups of tasks that are over, of which a span keeps each for ever."""
    spans = scheduler.extensions.get("spans")
    if spans is not None:
        for span in spans.spans_search_by_tag[SPAN]:
            span.groups.intersection_update(scheduler.task_groups.values())
