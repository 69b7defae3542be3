"""A Dask cluster of worker processes on this machine, for one run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass

from flows.compute.base import (
    ClusterAddress,
    ClusterPlace,
    ClusterPlan,
    Count,
    Memory,
    scheduler_defaults,
)
from flows.progress.interrupts import delay_interrupts
from flows.services.certificates import temporary_security
from flows.services.ports import HOST
from flows.text import count_noun


@dataclass(frozen=True, kw_only=True)
class Local(ClusterPlace):
    """A cluster of worker processes on this machine, which other machines cannot reach."""

    workers: Count = 1
    threads: Count = 2  # of each worker
    memory: Memory | None = None  # of each worker; None is an equal share of that of the machine
    tls: bool = False  # encrypt, with certificates that never leave the memory of the run

    def plan(self) -> ClusterPlan:
        """Return a description of the workers that `opened` would start."""
        memory = "its share of the memory" if self.memory is None else self.memory
        tls = ", encrypted" if self.tls else ""
        line = (
            f"{count_noun(self.workers, 'worker')} of {count_noun(self.threads, 'thread')} and "
            f"{memory} on {HOST}{tls}"
        )
        return ClusterPlan((line,), asdict(self))

    @contextmanager
    def opened(self) -> Iterator[ClusterAddress]:
        """Start the processes, and end them with the block."""
        from distributed import LocalCluster  # noqa: PLC0415

        security = temporary_security() if self.tls else None
        with ExitStack() as stack:
            # The configuration has to hold while workers connect, too: each new connection reads
            # from it how many messages to remember.
            stack.enter_context(scheduler_defaults())
            with delay_interrupts():
                cluster = LocalCluster(
                    n_workers=0,
                    threads_per_worker=self.threads,
                    memory_limit=self.memory or "auto",
                    processes=True,
                    host=HOST,
                    protocol="tls" if self.tls else "tcp",
                    security=security,
                    dashboard_address=f"{HOST}:0",
                    # By default the HTTP server of a worker listens on every interface, even if
                    # the worker has no dashboard.
                    worker_dashboard_address=f"{HOST}:0",
                    silence_logs=logging.CRITICAL,
                )
                stack.enter_context(cluster)
            cluster.scale(self.workers)
            yield ClusterAddress(
                cluster.scheduler_address,
                security,
                workers=self.workers,
                wait=60.0,
                awaited=f"{count_noun(self.workers, 'worker')} to start",
                none_came="--debug may show why",
            )
