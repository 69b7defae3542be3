"""The connection of a run to its Dask cluster, which is renewed when the cluster is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from math import inf
from typing import Any

from distributed import span

from flows.compute.connection import await_workers, check_versions, joined_client, workers_of
from flows.compute.health import SPAN, Watchdog
from flows.compute.places import ClusterAddress, DaskCluster, cluster_place
from flows.errors import FlowError
from flows.progress.watching import progress_log, report_progress
from ism_dask.words import count_noun

# Seconds within which a lost cluster has to be back, and seconds between two attempts to join it.
_REJOIN_SECONDS, _RETRY_SECONDS = 120.0, 1.0
# Seconds to wait for the end of a cluster that no longer answers.
_CLOSE_SECONDS = 30.0


class Session:
    """A connection to the cluster of `scheduler`, which has workers with versions like ours."""

    reached: ClusterAddress
    client: Any  # the default client of Dask; `renew` may replace it by another

    def __init__(self, scheduler: str) -> None:
        self._scheduler = scheduler
        self._join()

    @contextmanager
    def watched(self, stall: float = inf) -> Iterator[None]:
        """Raise ClusterLost if the block fails for a lost cluster, or waits for one: `Watchdog`."""
        # By default each computation is a span of its own, and a scheduler never forgets a span.
        # With one span for all computations their number does not grow.
        with Watchdog(self.client, self.reached, stall).watching(), span(SPAN):
            yield

    def renew(self) -> None:
        """Join the cluster again after a loss, within a time limit.

        A cluster that we had started is started anew; any other may come back after a while.
        """
        self.close()
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
        """Disconnect, and end what was started; not wait long, because a lost cluster may hang."""

        def close_quietly() -> None:
            # If half of the cluster is gone, errors are expected and say nothing new.
            with suppress(Exception):
                self._stack.close()

        thread = threading.Thread(target=close_quietly, daemon=True)
        thread.start()
        thread.join(_CLOSE_SECONDS)

    def _join(self) -> None:
        with ExitStack() as stack:
            place = cluster_place(self._scheduler)
            if isinstance(place, DaskCluster):
                place = stack.enter_context(place.opened())
            self.reached = place
            self.client = stack.enter_context(joined_client(self.reached))
            await_workers(self.client, self.reached)
            check_versions(self.client)
            workers = count_noun(len(workers_of(self.client)), "worker")
            where = f"{self.reached.address}, dashboard {self.client.dashboard_link}"
            progress_log(f"joined the Dask cluster at {where}, {workers}")
            self._stack = stack.pop_all()
