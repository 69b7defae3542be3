"""A Dask cluster of worker processes on this machine, for one run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass

from flows.compute.base import (
    ClusterAddress,
    ClusterPlaceBase,
    ClusterPlan,
    check_memory,
    check_numbers,
    scheduler_defaults,
)
from flows.progress.interrupts import delay_interrupts
from flows.services.certificates import temporary_security
from flows.services.ports import HOST
from flows.text import count_noun


@dataclass(frozen=True, kw_only=True)
class Local(ClusterPlaceBase):
    """A cluster of worker processes on this machine, which other machines cannot reach.

    Attributes
    ----------
    workers : int
        Number of processes.
    threads : int
        Number of threads of each worker.
    memory : str, optional
        Memory of each worker. Default: an equal share of the memory of the machine.
    tls : bool
        Whether connections are encrypted, with certificates that are made for the run and never
        leave its memory.
    """

    workers: int = 1
    threads: int = 2
    memory: str | None = None
    tls: bool = False

    def __post_init__(self) -> None:
        check_numbers(1, workers=self.workers, threads=self.threads)
        if self.memory is not None:
            check_memory(self.memory)

    def plan(self) -> ClusterPlan:
        """Return a description of the workers that `opened` would start."""
        memory = "its share of the memory" if self.memory is None else self.memory
        tls = ", encrypted" if self.tls else ""
        line = (
            f"{self._workers_text} of {count_noun(self.threads, 'thread')} and {memory} on "
            f"{HOST}{tls}"
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
                awaited=f"{self._workers_text} to start",
                none_came="--debug may show why",
            )

    @property
    def _workers_text(self) -> str:
        return count_noun(self.workers, "worker")
