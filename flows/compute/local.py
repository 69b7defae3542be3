"""Worker processes on this machine."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass

from flows.compute.base import (
    ClusterPlan,
    JoinedCluster,
    StartedCluster,
    check_memory,
    check_numbers,
    scheduler_defaults,
)
from flows.interface.interrupts import interrupts_held
from flows.services.certificates import temporary_security
from flows.text import count_noun

HOST = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class Local(StartedCluster):
    """Worker processes on this machine, which nobody else can reach.

    Attributes
    ----------
    workers : int
        How many processes.
    threads : int
        In each.
    memory : str, optional
        Of each worker. Default: an equal share of what the machine has.
    tls : bool
        Whether it is encrypted, with certificates that are made for the run and stay in it.
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
        """Return what would be started."""
        each = "its share of the memory" if self.memory is None else self.memory
        how = ", encrypted" if self.tls else ""
        line = f"{self._count} of {count_noun(self.threads, 'thread')} and {each} on {HOST}{how}"
        return ClusterPlan((line,), asdict(self))

    @contextmanager
    def opened(self) -> Iterator[JoinedCluster]:
        """Start the processes, and end them with the block."""
        from distributed import LocalCluster  # noqa: PLC0415

        security = temporary_security() if self.tls else None
        with ExitStack() as opened:
            # Also when the workers come: each connection asks anew how much to remember.
            opened.enter_context(scheduler_defaults())
            with interrupts_held():
                cluster = LocalCluster(
                    n_workers=0,
                    threads_per_worker=self.threads,
                    memory_limit=self.memory or "auto",
                    processes=True,
                    host=HOST,
                    protocol="tls" if self.tls else "tcp",
                    security=security,
                    dashboard_address=f"{HOST}:0",
                    # Without one, a worker has a page all the same, on every interface.
                    worker_dashboard_address=f"{HOST}:0",
                    silence_logs=logging.CRITICAL,
                )
                opened.enter_context(cluster)
            cluster.scale(self.workers)
            yield JoinedCluster(
                cluster.scheduler_address,
                security,
                workers=self.workers,
                wait=60.0,
                awaited=f"{self._count} to start",
                none_came="--debug may show why",
            )

    @property
    def _count(self) -> str:
        return count_noun(self.workers, "worker")
