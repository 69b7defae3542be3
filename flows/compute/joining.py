"""Let shards find a cluster: one that runs already, or one that is started for the block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from flows.compute.clusters import place_of
from flows.compute.connecting import await_workers, connected, quiet
from flows.compute.place import Place, Reached
from flows.compute.versions import check_versions
from flows.errors import FlowError
from flows.wording import counted

# What `--scheduler` said, and where that led, in the block around.
_JOINED: ContextVar[tuple[str, Reached] | None] = ContextVar("joined", default=None)


@contextmanager
def joined(scheduler: str | None) -> Iterator[None]:
    """Make the cluster that `scheduler` names the one that shards find; for None, do nothing.

    What was started for the block ends with it. Within the block the same name means the same
    cluster: the folds of a cross-validation share one.
    """
    around = _JOINED.get()
    if scheduler is None:
        yield
    elif around is not None and around[0] == scheduler:
        with _explained(around[1]):
            yield
    else:
        with _reached(place_of(scheduler)) as (reached, _), _remembered(scheduler, reached):
            yield


@contextmanager
def joined_place(place: Place) -> Iterator[Any]:
    """Yield a client of a cluster that has workers, all with versions like ours."""
    with _reached(place) as (_, client):
        yield client


@contextmanager
def _reached(place: Place) -> Iterator[tuple[Reached, Any]]:
    with quiet(), place.opened() as reached, connected(reached) as client:
        await_workers(client, reached)
        check_versions(client)
        with _explained(reached):
            yield reached, client


@contextmanager
def _remembered(scheduler: str, reached: Reached) -> Iterator[None]:
    token = _JOINED.set((scheduler, reached))
    try:
        yield
    finally:
        _JOINED.reset(token)


@contextmanager
def _explained(reached: Reached) -> Iterator[None]:
    """Say in one line what became of the cluster on the way."""
    # Only those who want a cluster wait for what it takes to talk to one.
    from distributed.client import FutureCancelledError  # noqa: PLC0415
    from distributed.comm.core import CommClosedError  # noqa: PLC0415
    from distributed.scheduler import (  # noqa: PLC0415
        KilledWorker,
        NoValidWorkerError,
        NoWorkerError,
    )

    try:
        yield
    except (FutureCancelledError, CommClosedError) as error:
        raise FlowError(
            f"the Dask scheduler at {reached.address} was lost on the way; see its log, start it "
            "and its workers again, and repeat the command"
        ) from error
    except (NoWorkerError, NoValidWorkerError) as error:
        raise FlowError(
            f"the Dask cluster at {reached.address} lost all its workers, and none came back; "
            f"{reached.none_came}, and repeat the command"
        ) from error
    except KilledWorker as error:
        ended = counted(error.allowed_failures + 1, "worker")
        raise FlowError(
            f"one task ended {ended} of the Dask cluster at "
            f"{reached.address}, most likely for want of memory; see their logs, and give each "
            "worker more memory or fewer threads"
        ) from error
