"""The places that a run can compute on, and the cluster files (TOML) that describe them."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import storage
from flows.compute.base import (
    ClusterAddress,
    ClusterPlace,
    ClusterPlan,
    Count,
    Memory,
    scheduler_defaults,
)
from flows.compute.jobqueue import JobQueue
from flows.errors import FlowError, SettingsError
from flows.progress.interrupts import delay_interrupts
from flows.progress.watching import progress_note
from flows.services.dask import (
    SCHEDULER,
    Tls,
    certificates_folder,
    certificates_in,
    temporary_security,
)
from flows.services.service import HOST, live_record
from flows.settings.base import CLUSTER_FILE, UP, check_scheduler, is_address
from flows.settings.fields import check_choice
from flows.settings.toml_tables import TableError, expanded, parse_toml, read_table
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
        _put_packages_on_path()
        # Else the processes that start look for their first imports in the folder of the command,
        # which may be a folder that others fill.
        os.environ["PYTHONSAFEPATH"] = "1"
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
            # Nobody else knows the port, which is any free one.
            progress_note(f"Dask dashboard: {cluster.dashboard_link}")
            yield ClusterAddress(
                cluster.scheduler_address,
                security,
                workers=self.workers,
                wait=60.0,
                awaited=f"{count_noun(self.workers, 'worker')} to start",
                none_came="--debug may show why",
            )


def _put_packages_on_path() -> None:
    """Put the folder of our packages on the path, which worker processes inherit, if it is not.

    Dask puts a folder before it that has a folder `storage` of its own. Python takes a package of
    that name all the same, but only from the path: an editable installation is elsewhere.
    """
    ours = str(Path(storage.__file__).parents[1])
    if ours not in sys.path:
        sys.path.append(ours)


@dataclass(frozen=True, kw_only=True)
class Address(ClusterPlace):
    """A scheduler that runs already, given by its address."""

    wait: ClassVar[float] = 8.0  # seconds for the first worker

    address: str  # such as tcp://127.0.0.1:8786
    tls: Tls | None = None  # for tls://; None takes the certificates of Dask's own configuration

    def __post_init__(self) -> None:
        if not is_address(self.address):
            raise ValueError(
                f"`address` is {self.address!r}; expected one such as tcp://127.0.0.1:8786"
            )
        if self.tls is not None and not self.address.startswith(("tls://", "wss://")):
            raise ValueError(
                f"`address` is {self.address!r}, but there are certificates; expected one that "
                "begins with tls://"
            )

    @contextmanager
    def opened(self) -> Iterator[ClusterAddress]:
        """Yield the scheduler to join, which goes on running after the block."""
        security = None if self.tls is None else self.tls.security()
        advice = f"start some with `dask worker {self.address}`"
        yield ClusterAddress(self.address, security, wait=self.wait, none_came=advice)


@dataclass(frozen=True, kw_only=True)
class LocalServices(ClusterPlace):
    """The Dask cluster that `ism-dask up` runs on this machine."""

    @contextmanager
    def opened(self) -> Iterator[ClusterAddress]:
        """Yield the scheduler to join, which goes on running after the block."""
        scheduler = live_record(SCHEDULER)
        if scheduler is None:
            raise FlowError(
                "`scheduler` is 'up', but no Dask scheduler of `ism-dask up` runs here; start it "
                "with `ism-dask up`, or leave out --scheduler to compute here"
            )
        address, security = scheduler.address, None
        if address.startswith("tls://"):
            try:
                security = certificates_in(certificates_folder()).security()
            except ValueError as error:
                raise FlowError(
                    f"the certificates of `ism-dask up --tls` are gone ({error}); end it with "
                    "`ism-dask up --stop`, and start it again"
                ) from error
        yield ClusterAddress(address, security, none_came="see `ism-dask up --status`")


# In containers, which do not run `up`, this environment variable has the address of the scheduler
# that stands in for it: schedules compute on the cluster that they come with, anywhere.
_VARIABLE = "ISM_DASK_SCHEDULER"
# The values that the key `kind` of a cluster file may have.
KINDS: dict[str, type[Any]] = {"local": Local, "address": Address, "jobqueue": JobQueue}


def cluster_place(scheduler: str) -> ClusterPlace:
    """Return the place that `--scheduler` names, checked as far as possible without starting it."""
    check_scheduler(scheduler)
    if scheduler == UP:
        scheduler = os.environ.get(_VARIABLE, "")
        if not scheduler:
            return LocalServices()
        if not is_address(scheduler):
            raise SettingsError(
                f"{_VARIABLE} is {scheduler!r}; expected an address such as tcp://scheduler:8786"
            )
    if scheduler.endswith(CLUSTER_FILE):
        return read_cluster(expanded(scheduler))
    return Address(address=scheduler)


def read_cluster(file: Path) -> ClusterPlace:
    """Return the place that a cluster file describes; raise SettingsError if the file is wrong."""
    table = parse_toml(file, "cluster file", "those in docs/clusters.md")
    kind = str(table.pop("kind", "missing"))
    try:
        described = KINDS[check_choice("kind", kind, list(KINDS))]
        place: ClusterPlace = read_table(described, table, file.parent)
    except TableError as error:
        raise SettingsError(f"{file}: {error} (a cluster of kind {kind!r})") from error
    except FlowError as error:
        raise SettingsError(f"{file}: {error}") from error
    return place
