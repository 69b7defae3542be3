"""A cluster that is joined, and joined again when it is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.compute.base import ClusterPlace, JoinedCluster
from flows.compute.checks import check_versions
from flows.compute.connection import await_workers, joined_client, quiet_logs
from flows.compute.health import ClusterLost, explain_loss, watch_health
from flows.compute.places import cluster_place
from flows.compute.probe import SPAN
from flows.errors import FlowError
from flows.interface.progress import report_progress

if TYPE_CHECKING:
    from flows.compute.client import EndableClient

# Seconds in which a lost cluster has to be there again, and between two looks.
_BACK_WITHIN, _LOOKS_EVERY = 60.0, 1.0
# Seconds that the end of one may take that does not answer any more.
_ENDS_WITHIN = 30.0


class Session:
    """A cluster that is joined.

    Parameters
    ----------
    place : Place

    Attributes
    ----------
    reached : Reached
    client : distributed.Client
        The active one. After `renew` it is another.
    """

    reached: JoinedCluster
    client: EndableClient

    def __init__(self, place: ClusterPlace) -> None:
        self._place = place
        self._opened = ExitStack()
        self._lost = False
        self._open()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Raise ClusterLost from what a lost cluster makes of the block."""
        try:
            with explain_loss(self.client, self.reached):
                yield
        except ClusterLost as lost:
            self._lost = lost.gone
            raise

    @contextmanager
    def watched(self, stall: float, folder: Path) -> Iterator[None]:
        """Raise ClusterLost, too, where the block waits in vain for a cluster that hangs.

        Parameters
        ----------
        stall : float
            Seconds without a task that is done.
        folder : Path
            Where the state of such a cluster is kept.
        """
        from distributed import span  # noqa: PLC0415

        # Of one for each computation, as by default, schedulers would keep all.
        with self.explained(), watch_health(self.client, self.reached, stall, folder), span(SPAN):
            yield

    def renew(self) -> None:
        """Join again: what was ours is started anew, what is not may be back in a while."""
        if not self._lost:
            await_workers(self.client, self.reached)
            return
        self._end()
        until = time.monotonic() + _BACK_WITHIN
        while True:
            try:
                self._open()
            except FlowError:
                if time.monotonic() > until:
                    raise
            else:
                return
            report_progress(
                0.0, f"waiting for the Dask cluster to come back, up to {_BACK_WITHIN:.0f} s"
            )
            time.sleep(_LOOKS_EVERY)

    def close(self) -> None:
        """Leave the cluster; what was started for it ends."""
        if self._lost:
            self._end()
        else:
            self._opened.close()

    def _open(self) -> None:
        with ExitStack() as opened:
            self.reached = opened.enter_context(self._place.opened())
            self.client = opened.enter_context(joined_client(self.reached))
            await_workers(self.client, self.reached)
            check_versions(self.client)
            self._opened, self._lost = opened.pop_all(), False

    def _end(self) -> None:
        """End what is left of a lost cluster, which may hang."""
        ending = threading.Thread(target=self._end_quietly, name="end of a cluster", daemon=True)
        ending.start()
        ending.join(_ENDS_WITHIN)
        self._opened = ExitStack()

    def _end_quietly(self) -> None:
        # Half of it is gone: whatever is raised tells of that.
        with suppress(Exception):
            self._opened.close()


# What `--scheduler` said, and where that led, in the block around.
_JOINED: ContextVar[tuple[str, Session] | None] = ContextVar("joined", default=None)


@contextmanager
def joined_cluster(scheduler: str | None) -> Iterator[Session | None]:
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
        with quiet_logs(), closing(Session(cluster_place(scheduler))) as session:
            token = _JOINED.set((scheduler, session))
            try:
                yield session
            finally:
                _JOINED.reset(token)


@contextmanager
def joined_cluster_at(place: ClusterPlace) -> Iterator[Any]:
    """Yield a client of a cluster that has workers, all with versions like ours."""
    with quiet_logs(), closing(Session(place)) as session, session.explained():
        yield session.client
