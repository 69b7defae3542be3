"""The connection of a run to its Dask cluster, which is renewed when the cluster is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.compute.base import ClusterAddress, ClusterPlace
from flows.compute.checks import check_versions
from flows.compute.connection import await_workers, joined_client, n_workers, quiet_logs
from flows.compute.health import ClusterLost, explain_loss, watch_health
from flows.compute.places import cluster_place
from flows.compute.probe import SPAN
from flows.errors import FlowError
from flows.progress.run_context import in_context, run_context
from flows.progress.watching import progress_log, report_progress
from flows.text import count_noun

if TYPE_CHECKING:
    from flows.compute.endable_client import EndableClient

# Seconds within which a lost cluster has to be back, and seconds between two attempts to join it.
_REJOIN_SECONDS, _RETRY_SECONDS = 60.0, 1.0
# Seconds to wait for the end of a cluster that no longer answers.
_CLOSE_SECONDS = 30.0


class Session:
    """A connection to a Dask cluster that has workers with versions like ours.

    Parameters
    ----------
    place : ClusterPlace
        The place to compute on.

    Attributes
    ----------
    reached : JoinedCluster
        The cluster that is joined.
    client : EndableClient
        The default client of Dask. `renew` may replace it by another.
    """

    reached: ClusterAddress
    client: EndableClient

    def __init__(self, place: ClusterPlace) -> None:
        self._place = place
        self._stack = ExitStack()
        self._lost = False
        self._join()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn the errors that a lost cluster causes in the block into ClusterLost."""
        try:
            with explain_loss(self.client, self.reached):
                yield
        except ClusterLost as lost:
            self._lost = lost.gone
            raise

    @contextmanager
    def watched(self, stall: float, folder: Path, on_left: Callable[[int], None]) -> Iterator[None]:
        """Raise ClusterLost, too, if the block waits for a cluster that hangs.

        Parameters
        ----------
        stall : float
            Seconds without a finished task after which the cluster counts as lost.
        folder : Path
            Folder for the dump of the state of such a cluster.
        on_left : callable
            Called with the numbers of workers that leave the cluster meanwhile.
        """
        from distributed import span  # noqa: PLC0415

        # By default each computation is a span of its own, and a scheduler never forgets a span.
        # With one span for all computations their number does not grow.
        health = watch_health(self.client, self.reached, stall, folder, on_left)
        with self.explained(), health, span(SPAN):
            yield

    def renew(self) -> None:
        """Join the cluster again after a loss, within a time limit.

        A cluster that we had started is started anew; any other may come back after a while. If
        the loss does not require joining anew, only wait for workers.
        """
        if not self._lost:
            await_workers(self.client, self.reached)
            return
        self._close_lost()
        until = time.monotonic() + _REJOIN_SECONDS
        while True:
            try:
                self._join()
            except FlowError:
                if time.monotonic() > until:
                    raise
            else:
                return
            report_progress(
                0.0, f"waiting for the Dask cluster to come back, up to {_REJOIN_SECONDS:.0f} s"
            )
            time.sleep(_RETRY_SECONDS)

    def close(self) -> None:
        """Disconnect from the cluster, and end what was started for it."""
        if self._lost:
            self._close_lost()
        else:
            self._stack.close()

    def _join(self) -> None:
        with ExitStack() as stack:
            self.reached = stack.enter_context(self._place.opened())
            self.client = stack.enter_context(joined_client(self.reached))
            await_workers(self.client, self.reached)
            check_versions(self.client)
            workers = count_noun(n_workers(self.client), "worker")
            progress_log(f"joined the Dask cluster at {self.reached.address}, {workers}")
            self._stack, self._lost = stack.pop_all(), False

    def _close_lost(self) -> None:
        """End what remains of a lost cluster, but do not wait long, because it may hang."""
        thread = threading.Thread(target=self._close_quietly, name="end of a cluster", daemon=True)
        thread.start()
        thread.join(_CLOSE_SECONDS)
        self._stack = ExitStack()

    def _close_quietly(self) -> None:
        # Half of the cluster is gone, so errors are expected and say nothing new.
        with suppress(Exception):
            self._stack.close()


@contextmanager
def joined_cluster(scheduler: str | None) -> Iterator[Session | None]:
    """Join the cluster that `scheduler` names, so that shards compute on it; None joins nothing.

    A cluster that was started for the block ends with it. Within the block the same name leads to
    the same session, also after `renew`: the folds of a cross-validation share it.
    """
    current = run_context().cluster
    if scheduler is None:
        yield None
    elif current is not None and current[0] == scheduler:
        yield current[1]
    else:
        with (
            quiet_logs(),
            closing(Session(cluster_place(scheduler))) as session,
            in_context(cluster=(scheduler, session)),
        ):
            yield session


@contextmanager
def joined_cluster_at(place: ClusterPlace) -> Iterator[Any]:
    """Yield a client of the cluster at `place`, which has workers, all with versions like ours."""
    with quiet_logs(), closing(Session(place)) as session, session.explained():
        yield session.client
