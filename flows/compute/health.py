"""What becomes of a cluster on the way, told in one line; and whether the work can go on."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.compute.base import JoinedCluster
from flows.compute.probe import OVER_MEMORY, Pulse, pulse, state_of_scheduler, state_of_worker
from flows.errors import FlowError
from flows.interface.progress import duration
from flows.services.records import PRIVATE
from flows.text import count_noun
from storage.atomic import replace_synced
from storage.errors import StorageError

if TYPE_CHECKING:
    from flows.compute.client import EndableClient

if TYPE_CHECKING:
    from flows.compute.client import EndableClient

# Seconds in which a scheduler that is there says so; it may be busy.
_ANSWERS_WITHIN = 10.0
# Nannies tell of a worker that they end; that may come after the task's own end.
_EVENTS_WITHIN = 2.0


class ClusterLost(FlowError):  # noqa: N818 - by itself no error: the work can be taken up again
    """A cluster that a fit was computed on is lost to it.

    Attributes
    ----------
    what : str
        What was lost.
    advice : str
        What to do where the work cannot be taken up again.
    gone : bool
        Whether the cluster has to be joined anew.
    """

    def __init__(self, what: str, advice: str, *, gone: bool = True) -> None:
        super().__init__(f"{what}; {advice}")
        self.what, self.advice, self.gone = what, advice, gone


def pulse_of(client: EndableClient, within: float = _ANSWERS_WITHIN) -> Pulse | None:
    """Return how the cluster is, None where its scheduler does not answer in so many seconds."""
    # Whatever is raised on the way there and back, it is no answer.
    with suppress(Exception):
        found = client.ask(client._run_on_scheduler, pulse, within=within)
        return found if isinstance(found, Pulse) else None
    return None


def no_workers(reached: JoinedCluster) -> ClusterLost:
    """Return what to say of a cluster whose workers are gone."""
    return ClusterLost(
        f"the Dask cluster at {reached.address} lost all its workers, and none came back",
        f"{reached.none_came}, and repeat the command",
    )


@contextmanager
def explain_loss(client: EndableClient, reached: JoinedCluster) -> Iterator[None]:
    """Raise ClusterLost, or say in one line what else became of the cluster, from an error."""
    # Only those who want a cluster wait for what it takes to talk to one.
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
        raise _no_scheduler(reached) from error
    except (NoWorkerError, NoValidWorkerError) as error:
        raise no_workers(reached) from error
    except KilledWorker as error:
        raise _killed(client, reached, error) from error
    except Exception as error:
        # A scheduler that dies comes out as one of many errors, by what was asked of it just then.
        now = pulse_of(client)
        if now is None or (before is not None and now.scheduler != before.scheduler):
            raise _no_scheduler(reached) from error
        # Of a cluster that grows when it has to, there may have been none.
        if not now.workers and (before is None or before.workers):
            raise no_workers(reached) from error
        raise


def _no_scheduler(reached: JoinedCluster) -> ClusterLost:
    return ClusterLost(
        f"the Dask scheduler at {reached.address} was lost on the way",
        "see its log, start it and its workers again, and repeat the command",
    )


def _killed(client: EndableClient, reached: JoinedCluster, error: Any) -> FlowError:
    """Tell a task that takes too much memory from workers that somebody else has ended."""
    ended = f"one task ended {count_noun(error.allowed_failures + 1, 'worker')} of the Dask cluster"
    worker = error.last_worker
    had = _over_memory(client, worker.address)
    if had is None:
        return ClusterLost(
            f"{ended} at {reached.address}, and no nanny ended them for want of memory",
            "see their logs; where the system ended them, give each worker more memory or fewer "
            "threads",
            gone=False,
        )
    return FlowError(
        f"{ended} at {reached.address} for want of memory: the last had taken "
        f"{had / 2**20:.0f} MiB of its {worker.memory_limit / 2**20:.0f} MiB with "
        f"{count_noun(worker.nthreads, 'thread')}; give each worker more memory or fewer threads"
    )


def _over_memory(client: EndableClient, address: str) -> int | None:
    """Return the bytes that a worker had when its nanny ended it for that, None if it did not."""
    until = time.monotonic() + _EVENTS_WITHIN
    while True:
        with suppress(Exception):
            told = client.ask(client.scheduler.events, topic=OVER_MEMORY, within=_EVENTS_WITHIN)
            had = [int(event["rss"]) for _, event in told if event["worker"] == address]
            if had:
                return had[-1]
        if time.monotonic() > until:
            return None
        time.sleep(0.2)


# Seconds between two looks at most, and looks at least before a cluster counts as stalled.
_LOOKS_EVERY, _LOOKS = 5.0, 5
# Seconds without any worker, at least, after which a cluster counts as lost.
_UNMANNED = 30.0
# Seconds that scheduler and workers may take to tell their state.
_STATE_WITHIN = 15.0


class Watchdog:
    """Looks at a cluster again and again, and ends the waits for one that is lost.

    Parameters
    ----------
    client : EndableClient
    reached : Reached
    stall : float
        Seconds without a task that is done.
    folder : Path
        Where the state of a stalled cluster is kept.
    """

    def __init__(
        self, client: EndableClient, reached: JoinedCluster, stall: float, folder: Path
    ) -> None:
        self._client, self._reached, self._stall, self._folder = client, reached, stall, folder
        self._every = min(_LOOKS_EVERY, stall / _LOOKS)
        self._done = -1
        self._moved = self._manned = time.monotonic()

    def watch(self, ended: threading.Event) -> None:
        """Look until the work has ended, or the cluster is lost."""
        while not ended.wait(self._every):
            lost = self._look(pulse_of(self._client))
            if lost is not None and not ended.is_set():
                self._client.end_waits(lost)
                return

    def _look(self, found: Pulse | None) -> ClusterLost | None:
        """Take note of how the cluster is; return what there is to say if it is lost."""
        now = time.monotonic()
        idle = not self._client.awaited
        if idle or (found is not None and found.done != self._done):
            self._moved = now
        if idle or found is None or found.workers:
            self._manned = now
        if found is not None:
            self._done = found.done
        if now - self._manned > max(_UNMANNED, self._reached.wait):
            return no_workers(self._reached)
        return self._stalled() if now - self._moved > self._stall else None

    def _stalled(self) -> ClusterLost:
        what = (
            f"no task was done for {duration(self._stall)} on the Dask cluster at "
            f"{self._reached.address}"
        )
        return ClusterLost(
            f"{what} ({self._dumped()})",
            "see the logs of its scheduler and workers, or give it more time with --stall",
        )

    def _dumped(self) -> str:
        """Keep the state of the cluster, and say where."""
        moment = f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
        path = self._folder / f"cluster-{moment}.json"
        try:
            self._folder.mkdir(exist_ok=True, mode=PRIVATE)
            replace_synced(path, json.dumps(state_of(self._client), default=str))
        # A stall is to be told whatever becomes of what is told of it.
        except Exception as error:
            return f"its state could not be kept: {type(error).__name__} {error}"
        return f"its state is in {path}"


@contextmanager
def watch_health(
    client: EndableClient, reached: JoinedCluster, stall: float, folder: Path
) -> Iterator[None]:
    """Raise ClusterLost in the block where it waits for a cluster that hangs."""
    ended = threading.Event()
    dog = Watchdog(client, reached, stall, folder)
    thread = threading.Thread(target=dog.watch, args=(ended,), name="watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        # Not waited for: a look at a cluster that hangs takes its time.
        ended.set()


def state_of(client: EndableClient) -> dict[str, Any]:
    """Return what scheduler and workers tell of themselves, as far as they answer."""

    async def told(call: Any) -> Any:
        try:
            return await asyncio.wait_for(call, _STATE_WITHIN)
        except Exception as error:
            return f"no answer: {type(error).__name__} {error}"

    async def all_told() -> dict[str, Any]:
        scheduler = await told(client._run_on_scheduler(state_of_scheduler))
        addresses = list(scheduler["workers"]) if isinstance(scheduler, dict) else []
        calls = [told(client._run(state_of_worker, workers=[each])) for each in addresses]
        workers = dict(zip(addresses, await asyncio.gather(*calls), strict=True))
        return {"scheduler": scheduler, "workers": workers}

    found: dict[str, Any] = client.ask(all_told, within=4 * _STATE_WITHIN)
    return found
