"""Detect that a Dask cluster is lost or hangs, explain it in one line, and end waits for it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.compute.base import ClusterAddress
from flows.compute.probe import OVER_MEMORY, Pulse, pulse, state_of_scheduler, state_of_worker
from flows.errors import FlowError
from flows.progress.watching import progress_log
from flows.text import count_noun
from ism_dask.observe.time_left import duration
from storage.atomic import PRIVATE, replace_synced
from storage.errors import StorageError

if TYPE_CHECKING:
    from flows.compute.endable_client import EndableClient

# Seconds within which a live scheduler answers, even if it is busy.
_PULSE_SECONDS = 10.0
# Seconds to wait for the event that a nanny logs when it ends a worker for its memory; it may come
# after the error of the task.
_EVENTS_SECONDS = 2.0


class ClusterLost(FlowError):  # noqa: N818 - by itself no error: the work can be taken up again
    """The cluster that computes was lost on the way.

    Attributes
    ----------
    what : str
        Description of the loss.
    advice : str
        Advice for the case that the fit cannot be resumed.
    gone : bool
        Whether the cluster has to be joined anew.
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


def no_workers(reached: ClusterAddress) -> ClusterLost:
    """Return the error for a cluster that has lost all its workers."""
    return ClusterLost(
        f"the Dask cluster at {reached.address} lost all its workers, and none came back",
        f"{reached.none_came}, and repeat the command",
    )


@contextmanager
def explain_loss(client: EndableClient, reached: ClusterAddress) -> Iterator[None]:
    """Turn Dask's errors in the block into ClusterLost, or into a FlowError of one line."""
    # Imported here, so that runs without a cluster do not wait for the import of distributed.
    from distributed.client import FutureCancelledError, FuturesCancelledError  # noqa: PLC0415
    from distributed.comm.core import CommClosedError  # noqa: PLC0415
    from distributed.scheduler import (  # noqa: PLC0415
        KilledWorker,
        NoValidWorkerError,
        NoWorkerError,
    )

    before = pulse_of(client)
    try:
        yield
    except (FlowError, StorageError):
        raise
    except (FutureCancelledError, FuturesCancelledError, CommClosedError) as error:
        raise _scheduler_lost(reached) from error
    except (NoWorkerError, NoValidWorkerError) as error:
        raise no_workers(reached) from error
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
            raise no_workers(reached) from error
        raise


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
    while True:
        with suppress(Exception):
            events = client.result_within(
                client.scheduler.events, topic=OVER_MEMORY, within=_EVENTS_SECONDS
            )
            rss = [int(event["rss"]) for _, event in events if event["worker"] == address]
            if rss:
                return rss[-1]
        if time.monotonic() > until:
            return None
        time.sleep(0.2)


# Largest number of seconds between two checks, and smallest number of checks before a cluster
# counts as stalled.
_MAX_INTERVAL, _MIN_CHECKS = 5.0, 5
# A cluster counts as lost after this many seconds without any worker, or after its own `wait` if
# that is longer.
_NO_WORKERS_SECONDS = 30.0
# Seconds that the scheduler, and each worker, may take to send its state.
_STATE_SECONDS = 15.0
# Largest number of workers that a line of the log names.
_NAMED = 4


class Watchdog:
    """A watchdog that checks a cluster at intervals, and ends the waits for a lost one.

    Parameters
    ----------
    client : EndableClient
        The client whose waits to end.
    reached : JoinedCluster
        The cluster to watch.
    stall : float
        Seconds without a finished task after which the cluster counts as stalled.
    folder : Path
        Folder for the dump of the state of a stalled cluster.
    on_left : callable
        Called with the number of workers that have left the cluster since the last check.
    """

    def __init__(
        self,
        client: EndableClient,
        reached: ClusterAddress,
        stall: float,
        folder: Path,
        on_left: Callable[[int], None],
    ) -> None:
        self._client, self._reached, self._stall, self._folder = client, reached, stall, folder
        self._on_left = on_left
        self._last_pulse: Pulse | None = None
        self._interval = min(_MAX_INTERVAL, stall / _MIN_CHECKS)
        self._n_done = -1
        self._workers: set[str] | None = None
        self._last_progress = self._last_with_workers = time.monotonic()

    def watch(self, ended: threading.Event) -> None:
        """Check the cluster at intervals, until the work has ended or the cluster is lost."""
        first = pulse_of(self._client)
        self._check(first)
        self._count_left(first)
        while not ended.wait(self._interval):
            current = pulse_of(self._client)
            self._count_left(current)
            lost = self._check(current)
            if lost is not None and not ended.is_set():
                self._client.end_waits(lost)
                return

    def _count_left(self, current: Pulse | None) -> None:
        """Report the workers that have left since the previous pulse of the same scheduler."""
        if current is None:
            return
        before, self._last_pulse = self._last_pulse, current
        if before is not None and before.scheduler == current.scheduler:
            self._on_left(current.left - before.left)

    def _check(self, current: Pulse | None) -> ClusterLost | None:
        """Record the pulse of the cluster; return the error if the cluster is lost, else None."""
        now = time.monotonic()
        idle = not self._client.awaited
        if idle or (current is not None and current.done != self._n_done):
            self._last_progress = now
        if idle or current is None or current.workers:
            self._last_with_workers = now
        if current is not None:
            self._n_done = current.done
            self._log_changes(set(current.addresses))
        if now - self._last_with_workers > max(_NO_WORKERS_SECONDS, self._reached.wait):
            return no_workers(self._reached)
        return self._stall_error() if now - self._last_progress > self._stall else None

    def _log_changes(self, workers: set[str]) -> None:
        """Write to the log of the run which workers have come and gone since the last check."""
        before = workers if self._workers is None else self._workers
        for what, changed in (("lost", before - workers), ("joined", workers - before)):
            if changed:
                number, now = (count_noun(len(each), "worker") for each in (changed, workers))
                progress_log(f"{number} {what}, {_some(changed)}: {now} now")
        self._workers = workers

    def _stall_error(self) -> ClusterLost:
        what = (
            f"no task was done for {duration(self._stall)} on the Dask cluster at "
            f"{self._reached.address}"
        )
        return ClusterLost(
            f"{what} ({self._dump_state()})",
            "see the logs of its scheduler and workers, or give it more time with --stall",
        )

    def _dump_state(self) -> str:
        """Write the state of the cluster to a file; return a clause that names the file."""
        timestamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
        path = self._folder / f"cluster-{timestamp}.json"
        try:
            self._folder.mkdir(exist_ok=True, mode=PRIVATE)
            replace_synced(path, json.dumps(state_of(self._client), default=str))
        # The stall has to be reported even if the dump fails.
        except Exception as error:
            return f"its state could not be saved: {type(error).__name__} {error}"
        return f"its state is in {path}"


@contextmanager
def watch_health(
    client: EndableClient,
    reached: ClusterAddress,
    stall: float,
    folder: Path,
    on_left: Callable[[int], None],
) -> Iterator[None]:
    """Raise ClusterLost in the block if it waits for a cluster that hangs.

    `on_left` is called with the numbers of workers that leave the cluster meanwhile.
    """
    ended = threading.Event()
    watchdog = Watchdog(client, reached, stall, folder, on_left)
    # In a copy of the context, so that the watchers of the run get what it logs.
    thread = threading.Thread(
        target=copy_context().run, args=(watchdog.watch, ended), name="watchdog", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        # The thread is not joined, because a check of a cluster that hangs takes long.
        ended.set()


def _some(addresses: set[str]) -> str:
    """Return the first of the addresses in their order, as many as a line has room for."""
    first = sorted(addresses)[:_NAMED]
    return ", ".join(first) + (", ..." if len(addresses) > _NAMED else "")


def state_of(client: EndableClient) -> dict[str, Any]:
    """Return the state of the scheduler and of each worker, as far as they answer."""

    async def answered(call: Any) -> Any:
        try:
            return await asyncio.wait_for(call, _STATE_SECONDS)
        except Exception as error:
            return f"no answer: {type(error).__name__} {error}"

    async def all_told() -> dict[str, Any]:
        scheduler = await answered(client._run_on_scheduler(state_of_scheduler))
        addresses = list(scheduler["workers"]) if isinstance(scheduler, dict) else []
        calls = [answered(client._run(state_of_worker, workers=[each])) for each in addresses]
        workers = dict(zip(addresses, await asyncio.gather(*calls), strict=True))
        return {"scheduler": scheduler, "workers": workers}

    state: dict[str, Any] = client.result_within(all_told, within=4 * _STATE_SECONDS)
    return state
