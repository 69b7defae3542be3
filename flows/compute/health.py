"""Detect that a Dask cluster is lost or hangs, explain it in one line, and end waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from distributed.client import FutureCancelledError, FuturesCancelledError
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker, NoValidWorkerError, NoWorkerError

from flows.compute.base import ClusterAddress
from flows.compute.connection import EndableClient
from flows.errors import FlowError
from flows.progress.watching import progress_log
from flows.text import count_noun
from ism_dask.observe.progress import duration
from storage.errors import StorageError

# Name of the Dask span that holds all our computations.
SPAN = "ism-dask"
# Topic of the events in which nannies report that they ended a worker for its memory.
OVER_MEMORY = "worker-restart-memory"
# Seconds within which a live scheduler answers, even if it is busy.
_PULSE_SECONDS = 10.0
# Seconds to wait for the event that a nanny logs when it ends a worker for its memory; it may come
# after the error of the task.
_EVENTS_SECONDS = 2.0
# Largest number of seconds between two checks, and smallest number of checks before a cluster
# counts as stalled.
_MAX_INTERVAL, _MIN_CHECKS = 5.0, 5
# A cluster counts as lost after this many seconds without any worker, or after its own `wait` if
# that is longer.
_NO_WORKERS_SECONDS = 30.0
# Largest number of workers that a line of the log names.
_NAMED = 4


@dataclass(frozen=True)
class Pulse:
    """A sign of life of a cluster."""

    scheduler: str  # its id; after a restart it has the same address, but another id
    workers: tuple[str, ...]  # their addresses
    done: int  # tasks that have finished since the scheduler started


def pulse(dask_scheduler: Any) -> Pulse:
    """Return the pulse of the cluster, and drop the finished task groups of our span."""
    # A span would keep each group for ever.
    spans = dask_scheduler.extensions.get("spans")
    for span in spans.spans_search_by_tag[SPAN] if spans else ():
        span.groups.intersection_update(dask_scheduler.task_groups.values())
    prefixes = list(dask_scheduler.task_prefixes.values())
    done = sum(prefix.state_counts.get("memory", 0) for prefix in prefixes)
    return Pulse(dask_scheduler.id, tuple(dask_scheduler.workers), done)


class ClusterLost(FlowError):  # noqa: N818 - by itself no error: the work can be taken up again
    """The cluster that computes was lost on the way.

    `advice` is for a fit that cannot be resumed; `gone` is whether to join the cluster anew.
    """

    transient = True

    def __init__(self, what: str, advice: str, *, gone: bool = True) -> None:
        super().__init__(f"{what}; {advice}")
        self.what, self.advice, self.gone = what, advice, gone


def pulse_of(client: EndableClient) -> Pulse | None:
    """Return the pulse of the cluster, or None unless its scheduler answers soon."""
    # Any error on the way there or back counts as no answer.
    with suppress(Exception):
        answer = client.result_within(client._run_on_scheduler, pulse, within=_PULSE_SECONDS)
        return answer if isinstance(answer, Pulse) else None
    return None


@contextmanager
def explain_loss(client: EndableClient, reached: ClusterAddress) -> Iterator[None]:
    """Turn Dask's errors in the block into ClusterLost, or into a FlowError of one line."""
    before = pulse_of(client)
    try:
        yield
    except (FlowError, StorageError):
        raise
    except (FutureCancelledError, FuturesCancelledError, CommClosedError) as error:
        raise _scheduler_lost(reached) from error
    except (NoWorkerError, NoValidWorkerError) as error:
        raise _no_workers(reached) from error
    except KilledWorker as error:
        raise _killed_worker_error(client, reached, error) from error
    except Exception as error:
        # The death of a scheduler causes one of many errors, depending on the call that it
        # interrupts. So its pulse decides, compared with the one from before the block.
        now = pulse_of(client)
        if now is None or (before is not None and now.scheduler != before.scheduler):
            raise _scheduler_lost(reached) from error
        # An adaptive cluster may have had no workers at the start of the block.
        if not now.workers and (before is None or before.workers):
            raise _no_workers(reached) from error
        raise


def _no_workers(reached: ClusterAddress) -> ClusterLost:
    return ClusterLost(
        f"the Dask cluster at {reached.address} lost all its workers, and none came back",
        f"{reached.none_came}, and repeat the command",
    )


def _scheduler_lost(reached: ClusterAddress) -> ClusterLost:
    return ClusterLost(
        f"the Dask scheduler at {reached.address} was lost on the way",
        "see its log, start it and its workers again, and repeat the command",
    )


def _killed_worker_error(client: EndableClient, reached: ClusterAddress, error: Any) -> FlowError:
    """Return the error for a task whose workers died.

    It is a FlowError if a nanny ended them because the task took too much memory, and ClusterLost
    if something else ended them.
    """
    ended = f"one task ended {count_noun(error.allowed_failures + 1, 'worker')} of the Dask cluster"
    worker = error.last_worker
    rss = _memory_when_ended(client, worker.address)
    if rss is None:
        return ClusterLost(
            f"{ended} at {reached.address}, and no nanny ended them for want of memory",
            "see their logs; where the system ended them, give each worker more memory or fewer "
            "threads",
            gone=False,
        )
    return FlowError(
        f"{ended} at {reached.address} for want of memory: the last had taken "
        f"{rss / 2**20:.0f} MiB of its {worker.memory_limit / 2**20:.0f} MiB with "
        f"{count_noun(worker.nthreads, 'thread')}; give each worker more memory or fewer threads"
    )


def _memory_when_ended(client: EndableClient, address: str) -> int | None:
    """Return the bytes that a worker had taken when its nanny ended it for them, else None."""
    until = time.monotonic() + _EVENTS_SECONDS
    while time.monotonic() < until:
        with suppress(Exception):
            events = client.result_within(
                client.scheduler.events, topic=OVER_MEMORY, within=_EVENTS_SECONDS
            )
            rss = [int(event["rss"]) for _, event in events if event["worker"] == address]
            if rss:
                return rss[-1]
        time.sleep(0.2)
    return None


@dataclass(eq=False)
class Watchdog:
    """Checks a cluster at intervals, and ends the waits for one that is lost or hangs."""

    client: EndableClient
    reached: ClusterAddress
    stall: float  # seconds without a finished task after which the cluster counts as lost

    def __post_init__(self) -> None:
        self._last: Pulse | None = None
        self._last_progress = self._last_with_workers = time.monotonic()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Raise ClusterLost in the block if it waits for a cluster that is lost."""
        ended = threading.Event()
        # In a copy of the context: the watchers of the run get what it logs.
        thread = threading.Thread(
            target=copy_context().run, args=(self._watch, ended), name="watchdog", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            # The thread is not joined, because a check of a cluster that hangs takes long.
            ended.set()

    def _watch(self, ended: threading.Event) -> None:
        """Check the cluster at intervals, until the work has ended or the cluster is lost."""
        self._check(pulse_of(self.client))
        while not ended.wait(min(_MAX_INTERVAL, self.stall / _MIN_CHECKS)):
            lost = self._check(pulse_of(self.client))
            if lost is not None and not ended.is_set():
                self.client.end_waits(lost)
                return

    def _check(self, current: Pulse | None) -> ClusterLost | None:
        """Record the pulse of the cluster; return the error if the cluster is lost, else None."""
        now, idle, last = time.monotonic(), not self.client.awaited, self._last
        if idle or (current is not None and (last is None or current.done != last.done)):
            self._last_progress = now
        if idle or current is None or current.workers:
            self._last_with_workers = now
        if current is not None:
            self._note_workers(current)
            self._last = current
        if now - self._last_with_workers > max(_NO_WORKERS_SECONDS, self.reached.wait):
            return _no_workers(self.reached)
        return self._stalled() if now - self._last_progress > self.stall else None

    def _note_workers(self, current: Pulse) -> None:
        """Log which workers came and went since the last pulse."""
        last = self._last or current
        before, workers = set(last.workers), set(current.workers)
        for what, changed in (("lost", before - workers), ("joined", workers - before)):
            if changed:
                number, now = (count_noun(len(each), "worker") for each in (changed, workers))
                some = sorted(changed)[:_NAMED] + ["..."] * (len(changed) > _NAMED)
                progress_log(f"{number} {what}, {', '.join(some)}: {now} now")

    def _stalled(self) -> ClusterLost:
        return ClusterLost(
            f"no task was done for {duration(self.stall)} on the Dask cluster at "
            f"{self.reached.address}",
            "see the logs of its scheduler and workers, or give it more time with --stall",
        )
