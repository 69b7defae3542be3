"""What becomes of a cluster on the way, told in one line; and whether the work can go on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from flows.compute.place import Reached
from flows.compute.pulse import OVER_MEMORY, Pulse, pulse
from flows.errors import FlowError
from flows.wording import counted
from storage.errors import StorageError

if TYPE_CHECKING:
    from flows.compute.client import EndableClient

# Seconds in which a scheduler that is there says so; it may be busy.
_ANSWERS_WITHIN = 10.0
# Nannies tell of a worker that they end; that may come after the task's own end.
_TOLD_WITHIN = 2.0


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


def no_workers(reached: Reached) -> ClusterLost:
    """Return what to say of a cluster whose workers are gone."""
    return ClusterLost(
        f"the Dask cluster at {reached.address} lost all its workers, and none came back",
        f"{reached.none_came}, and repeat the command",
    )


@contextmanager
def explained(client: EndableClient, reached: Reached) -> Iterator[None]:
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


def _no_scheduler(reached: Reached) -> ClusterLost:
    return ClusterLost(
        f"the Dask scheduler at {reached.address} was lost on the way",
        "see its log, start it and its workers again, and repeat the command",
    )


def _killed(client: EndableClient, reached: Reached, error: Any) -> FlowError:
    """Tell a task that takes too much memory from workers that somebody else has ended."""
    ended = f"one task ended {counted(error.allowed_failures + 1, 'worker')} of the Dask cluster"
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
        f"{counted(worker.nthreads, 'thread')}; give each worker more memory or fewer threads"
    )


def _over_memory(client: EndableClient, address: str) -> int | None:
    """Return the bytes that a worker had when its nanny ended it for that, None if it did not."""
    until = time.monotonic() + _TOLD_WITHIN
    while True:
        with suppress(Exception):
            told = client.ask(client.scheduler.events, topic=OVER_MEMORY, within=_TOLD_WITHIN)
            had = [int(event["rss"]) for _, event in told if event["worker"] == address]
            if had:
                return had[-1]
        if time.monotonic() > until:
            return None
        time.sleep(0.2)
