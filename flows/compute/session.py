"""The connection of a run to its Dask cluster, which is renewed when the cluster is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from typing import Any

from distributed import span

from flows.compute.connection import (
    await_workers,
    check_versions,
    joined_client,
    quiet_logs,
    workers_of,
)
from flows.compute.health import SPAN, ClusterLost, Watchdog, explain_loss
from flows.compute.places import ClusterAddress, opened_cluster
from flows.errors import FlowError
from flows.progress.watching import in_context, progress_log, report_progress, run_context
from flows.text import count_noun

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
    def watched(self, stall: float) -> Iterator[None]:
        """Raise ClusterLost, too, if the block waits for a cluster that hangs: `Watchdog`."""
        # By default each computation is a span of its own, and a scheduler never forgets a span.
        # With one span for all computations their number does not grow.
        watchdog = Watchdog(self.client, self.reached, stall)
        with self.explained(), watchdog.watching(), span(SPAN):
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

    @property
    def executor(self) -> Executor:
        """What runs work on the workers of the cluster."""
        executor: Executor = self.client.get_executor(pure=False)
        return executor

    def close(self) -> None:
        """Disconnect from the cluster, and end what was started for it."""
        if self._lost:
            self._close_lost()
        else:
            self._stack.close()

    def _join(self) -> None:
        with ExitStack() as stack:
            self.reached = stack.enter_context(opened_cluster(self._scheduler))
            self.client = stack.enter_context(joined_client(self.reached))
            await_workers(self.client, self.reached)
            check_versions(self.client)
            workers = count_noun(len(workers_of(self.client)), "worker")
            where = f"{self.reached.address}, dashboard {self.client.dashboard_link}"
            progress_log(f"joined the Dask cluster at {where}, {workers}")
            self._stack, self._lost = stack.pop_all(), False

    def _close_lost(self) -> None:
        """End what remains of a lost cluster, but do not wait long, because it may hang."""

        def close_quietly(stack: ExitStack) -> None:
            # Half of the cluster is gone, so errors are expected and say nothing new.
            with suppress(Exception):
                stack.close()

        stack, self._stack = self._stack, ExitStack()
        thread = threading.Thread(target=close_quietly, args=(stack,), daemon=True)
        thread.start()
        thread.join(_CLOSE_SECONDS)


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
            closing(Session(scheduler)) as session,
            in_context(cluster=(scheduler, session)),
        ):
            yield session


@contextmanager
def joined_workers(scheduler: str | None) -> Iterator[Session | None]:
    """Join the cluster that `scheduler` names for work of many pieces, such as files of a table.

    The errors of a lost cluster are explained in the block.
    """
    with joined_cluster(scheduler) as session, session.explained() if session else nullcontext():
        yield session
