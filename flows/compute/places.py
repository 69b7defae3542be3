"""The places that a run can compute on, and the cluster files (TOML) that describe them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from flows.compute.base import ClusterAddress, ClusterPlace
from flows.compute.jobqueue import JobQueue
from flows.compute.kubernetes import Kubernetes
from flows.compute.local import Local
from flows.errors import FlowError, SettingsError
from flows.services.certificates import Tls, certificates_folder, certificates_in
from flows.services.dask import SCHEDULER
from flows.services.service import live_record
from flows.settings.base import CLUSTER_FILE, UP, check_scheduler, is_address
from flows.settings.fields import check_choice
from flows.settings.toml_tables import TableError, parse_toml, read_table


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


_VARIABLE = "ISM_DASK_SCHEDULER"


@dataclass(frozen=True, kw_only=True)
class LocalServices(ClusterPlace):
    """The Dask cluster that `ism-dask up` runs on this machine, or that stands in for it.

    In containers, which do not run `up`, the environment variable `ISM_DASK_SCHEDULER` has the
    address of its scheduler. So schedules compute on the cluster that they come with, anywhere.
    """

    @contextmanager
    def opened(self) -> Iterator[ClusterAddress]:
        """Yield the scheduler to join, which goes on running after the block."""
        if address := os.environ.get(_VARIABLE):
            if not is_address(address):
                raise SettingsError(
                    f"{_VARIABLE} is {address!r}; expected an address such as tcp://scheduler:8786"
                )
            with Address(address=address).opened() as there:
                yield there
            return
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


# The values that the key `kind` of a cluster file may have.
KINDS: dict[str, type[Any]] = {
    "local": Local,
    "address": Address,
    "jobqueue": JobQueue,
    "kubernetes": Kubernetes,
}


def cluster_place(scheduler: str) -> ClusterPlace:
    """Return the place that `--scheduler` names, checked as far as possible without starting it."""
    check_scheduler(scheduler)
    if scheduler == UP:
        return LocalServices()
    if scheduler.endswith(CLUSTER_FILE):
        return read_cluster(Path(scheduler).expanduser())
    return Address(address=scheduler)


def read_cluster(file: Path) -> ClusterPlace:
    """Return the place that a cluster file describes; raise SettingsError if the file is wrong."""
    table = parse_toml(file, "cluster file", "those in docs/clusters.md")
    kind = str(table.pop("kind", "missing"))
    try:
        described = KINDS[check_choice("kind", kind, list(KINDS))]
        place: ClusterPlace = read_table(described, table, file.parent)
        place.check()
    except TableError as error:
        raise SettingsError(f"{file}: {error} (a cluster of kind {kind!r})") from error
    except FlowError as error:
        raise SettingsError(f"{file}: {error}") from error
    return place
