"""Let shards find a cluster: one that runs already, or one that is started for the block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from typing import Any

from flows.compute.clusters import place_of
from flows.compute.connecting import quiet
from flows.compute.place import Place
from flows.compute.session import Session

# What `--scheduler` said, and where that led, in the block around.
_JOINED: ContextVar[tuple[str, Session] | None] = ContextVar("joined", default=None)


@contextmanager
def joined(scheduler: str | None) -> Iterator[Session | None]:
    """Make the cluster that `scheduler` names the one that shards find; for None, do nothing.

    What was started for the block ends with it. Within the block the same name means the same
    cluster, and the one that takes its place: the folds of a cross-validation share it.
    """
    around = _JOINED.get()
    if scheduler is None:
        yield None
    elif around is not None and around[0] == scheduler:
        yield around[1]
    else:
        with quiet(), closing(Session(place_of(scheduler))) as session:
            token = _JOINED.set((scheduler, session))
            try:
                yield session
            finally:
                _JOINED.reset(token)


@contextmanager
def joined_place(place: Place) -> Iterator[Any]:
    """Yield a client of a cluster that has workers, all with versions like ours."""
    with quiet(), closing(Session(place)) as session, session.explained():
        yield session.client
