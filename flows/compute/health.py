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
from flows.errors import FlowError
from flows.progress.watching import progress_log, repeated
from flows.text import count_noun
from ism_dask.observe.progress import duration
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


def pulse_of(client: Any) -> Pulse | None:
    """Return the pulse of the cluster, or None unless its scheduler answers soon."""
    # Any error on the way there or back counts as no answer.
    with suppress(Exception):
        answer = client.sync(client._run_on_scheduler, pulse, callback_timeout=_PULSE_SECONDS)
        return answer if isinstance(answer, Pulse) else None
    return None


@contextmanager
def explain_loss(client: Client, reached: ClusterAddress) -> Iterator[None]:
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
        ended = count_noun(error.allowed_failures + 1, "worker")
        raise ClusterLost(
            f"one task ended {ended} of the Dask cluster at {reached.address}",
            "see their logs; if they ended for want of memory, give each more of it, or fewer "
            "threads",
            gone=False,
        ) from error
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


async def _end_waits(client: Any) -> None:
    """Close a client: its futures are cancelled, and each wait for the cluster gets an error."""
    if client.scheduler_comm is not None:
        client.scheduler_comm.abort()  # a scheduler that hangs would not take the messages
    await client._close(fast=True)


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


class Watchdog:
    """Checks a cluster at intervals, and ends the waits for one that is lost or hangs.

    `stall` is the number of seconds without a finished task after which the cluster counts as lost.
    """

    def __init__(self, client: Client, reached: ClusterAddress, stall: float) -> None:
        self._client, self._reached, self._stall = client, reached, stall
        self._lost: ClusterLost | None = None
        self._last: Pulse | None = None
        self._last_progress = self._last_with_workers = time.monotonic()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Raise ClusterLost in the block if it waits for a cluster that is lost."""
        self._last = pulse_of(self._client)
        try:
            with repeated(self._look, min(_MAX_INTERVAL, self._stall / _MIN_CHECKS)):
                yield
        except Exception as error:
            if self._lost is not None:
                raise self._lost from error
            raise
        if self._lost is not None:
            raise self._lost

    def _look(self) -> None:
        """Check the cluster, and end the waits for it if it is lost."""
        self._lost = self._check(pulse_of(self._client))
        if self._lost is not None:
            client: Any = self._client
            client.loop.add_callback(_end_waits, client)
            raise self._lost

    def _check(self, current: Pulse | None) -> ClusterLost | None:
        """Record the pulse of the cluster; return the error if the cluster is lost, else None."""
        # The cluster has no tasks while this process computes.
        idle = not any(each.status == "pending" for each in [*self._client.futures.values()])
        now, last = time.monotonic(), self._last
        if idle or (current is not None and (last is None or current.done != last.done)):
            self._last_progress = now
        if idle or current is None or current.workers:
            self._last_with_workers = now
        if current is not None:
            self._note_workers(current)
            self._last = current
        if now - self._last_with_workers > max(_NO_WORKERS_SECONDS, self._reached.wait):
            return _no_workers(self._reached)
        if now - self._last_progress > self._stall:
            return ClusterLost(
                f"no task was done for {duration(self._stall)} on the Dask cluster at "
                f"{self._reached.address}",
                "see the logs of its scheduler and workers, or give it more time with --stall",
            )
        return None

    def _note_workers(self, current: Pulse) -> None:
        """Log which workers came and went since the last pulse."""
        last = self._last or current
        before, workers = set(last.workers), set(current.workers)
        for what, changed in (("lost", before - workers), ("joined", workers - before)):
            if changed:
                number, now = (count_noun(len(each), "worker") for each in (changed, workers))
                some = sorted(changed)[:_NAMED] + ["..."] * (len(changed) > _NAMED)
                progress_log(f"{number} {what}, {', '.join(some)}: {now} now")
