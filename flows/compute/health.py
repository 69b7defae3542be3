"""Detect that a Dask cluster is lost or hangs, explain it in one line, and end waits for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from distributed import Client
from distributed.client import FutureCancelledError, FuturesCancelledError
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker, NoValidWorkerError, NoWorkerError

from flows.compute.places import ClusterAddress
from flows.errors import ClusterLost, FlowError
from flows.progress.watching import repeated
from ism_dask.observe.progress import duration
from ism_dask.words import count_noun
from storage.errors import StorageError

# Name of the Dask span that holds all our computations.
SPAN = "ism-dask"
# Seconds within which a live scheduler answers, even if it is busy.
_PULSE_SECONDS = 10.0
# Largest number of seconds between two checks, and smallest number of checks before a cluster
# counts as stalled.
_MAX_INTERVAL, _MIN_CHECKS = 5.0, 5
# A cluster counts as lost after this many seconds without any worker, or after its own `wait` if
# that is longer.
_NO_WORKERS_SECONDS = 30.0
# Errors that only a lost scheduler causes, and only a cluster without workers.
_SCHEDULER_ERRORS = (FutureCancelledError, FuturesCancelledError, CommClosedError)
_WORKER_ERRORS = (NoWorkerError, NoValidWorkerError)


@dataclass(frozen=True)
class Pulse:
    """A sign of life of a cluster."""

    scheduler: str  # its id; after a restart it has the same address, but another id
    workers: int  # how many it has
    done: int  # tasks that have finished since the scheduler started


def pulse(dask_scheduler: Any) -> Pulse:
    """Return the pulse of the cluster, and drop the finished task groups of our span."""
    # A span would keep each group for ever.
    spans = dask_scheduler.extensions.get("spans")
    for span in spans.spans_search_by_tag[SPAN] if spans else ():
        span.groups.intersection_update(dask_scheduler.task_groups.values())
    prefixes = list(dask_scheduler.task_prefixes.values())
    done = sum(prefix.state_counts.get("memory", 0) for prefix in prefixes)
    return Pulse(dask_scheduler.id, len(dask_scheduler.workers), done)


def pulse_of(client: Any) -> Pulse | None:
    """Return the pulse of the cluster, or None unless its scheduler answers soon."""
    # Any error on the way there or back counts as no answer.
    with suppress(Exception):
        answer = client.sync(client._run_on_scheduler, pulse, callback_timeout=_PULSE_SECONDS)
        return answer if isinstance(answer, Pulse) else None
    return None


async def _end_waits(client: Any) -> None:
    """Close a client: its futures are cancelled, and each wait for the cluster gets an error."""
    if client.scheduler_comm is not None:
        client.scheduler_comm.abort()  # a scheduler that hangs would not take the messages
    await client._close(fast=True)


class Watchdog:
    """Checks a cluster at intervals, and ends the waits for one that is lost or hangs.

    `stall` is the number of seconds without a finished task after which the cluster counts as lost.
    """

    def __init__(self, client: Client, reached: ClusterAddress, stall: float) -> None:
        self._client, self._stall = client, stall
        self._cluster = f"the Dask cluster at {reached.address}"
        # An adaptive cluster may have had no workers when the watch began.
        self._first = self._last = pulse_of(client)
        self._last_progress = self._last_with_workers = time.monotonic()
        self._patience = max(_NO_WORKERS_SECONDS, reached.wait)
        self._no_workers = ClusterLost(
            f"{self._cluster} lost all its workers, and none came back",
            f"{reached.none_came}, and repeat the command",
        )
        self._lost: ClusterLost | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Raise ClusterLost if the block fails for a lost cluster, or waits for one."""
        try:
            with repeated(self._look, min(_MAX_INTERVAL, self._stall / _MIN_CHECKS)):
                yield
        except Exception as error:
            lost = self._lost or self._explained(error)
            if lost is None:
                raise
            raise lost from error
        if self._lost is not None:
            raise self._lost

    def _explained(self, error: Exception) -> ClusterLost | None:
        """Return the loss of the cluster that has caused an error, or None."""
        if isinstance(error, FlowError | StorageError):
            return None
        if isinstance(error, KilledWorker):
            ended = count_noun(error.allowed_failures + 1, "worker")
            return ClusterLost(
                f"one task ended {ended} of {self._cluster}",
                "see their logs; if they ended for want of memory, give each more of it, or fewer "
                "threads",
            )
        # The death of a scheduler causes one of many errors, depending on the call that it
        # interrupts. So its pulse decides, compared with the first one.
        first = self._first
        now = None if isinstance(error, _SCHEDULER_ERRORS) else pulse_of(self._client)
        if now is None or (first is not None and now.scheduler != first.scheduler):
            return ClusterLost(
                f"the scheduler of {self._cluster} was lost on the way",
                "see its log, start it and its workers again, and repeat the command",
            )
        no_workers = not now.workers and (first is None or first.workers)
        return self._no_workers if no_workers or isinstance(error, _WORKER_ERRORS) else None

    def _look(self) -> None:
        """Check the cluster, and end the waits for it if it is lost."""
        self._lost = self._check(pulse_of(self._client))
        if self._lost is not None:
            client: Any = self._client
            client.loop.add_callback(_end_waits, client)
            raise self._lost

    def _check(self, current: Pulse | None) -> ClusterLost | None:
        """Record the pulse of the cluster; return the error if the cluster is lost, else None."""
        # While this process computes, no task is to be done, and no result is on its way here.
        # A task is to be done again if its worker ended with the result ("lost").
        states = {each.status for each in [*self._client.futures.values()]}
        idle = states.isdisjoint(("pending", "lost")) and not self._client.rpc.active
        now, last = time.monotonic(), self._last
        if idle or (current is not None and (last is None or current.done != last.done)):
            self._last_progress = now
        if idle or current is None or current.workers:
            self._last_with_workers = now
        self._last = current or last
        if now - self._last_with_workers > self._patience:
            return self._no_workers
        if now - self._last_progress > self._stall:
            return ClusterLost(
                f"no task was done for {duration(self._stall)} on {self._cluster}",
                "see the logs of its scheduler and workers, or give it more time with --stall",
            )
        return None
