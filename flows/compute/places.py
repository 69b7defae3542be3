"""The places that a run can compute on, and the cluster files (TOML) that describe them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from flows.compute.base import ClusterAddress, ClusterPlace, ClusterPlaceBase
from flows.compute.kubernetes import Kubernetes
from flows.compute.local import Local
from flows.compute.slurm import Slurm
from flows.compute.tls import Tls, tls_files
from flows.errors import FlowError, SettingsError
from flows.interface.toml_tables import TableError, closest_name, parse_toml, read_table
from flows.services.certificates import own_certificates
from flows.services.dask import DASK_SCHEDULER
from flows.services.service import live_record

_ADDRESS_PATTERN = re.compile(r"(tcp|tls|ws|wss|ucx)://[^\s/]+:(\d{1,5})")


@dataclass(frozen=True, kw_only=True)
class Address(ClusterPlaceBase):
    """A scheduler that runs already, given by its address.

    Attributes
    ----------
    address : str
        Address of the scheduler, such as tcp://127.0.0.1:8786.
    tls : Tls, optional
        Certificates for a tls:// address. Default: those of Dask's own configuration.
    """

    # Seconds to wait for the first worker.
    wait: ClassVar[float] = 8.0

    address: str
    tls: Tls | None = None

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


def is_address(text: str) -> bool:
    """Return whether `text` is the address of a scheduler."""
    match = _ADDRESS_PATTERN.fullmatch(text)
    return match is not None and 0 < int(match[2]) < 2**16


NAME = "up"
_VARIABLE = "ISM_DASK_SCHEDULER"


@dataclass(frozen=True, kw_only=True)
class LocalServices(ClusterPlaceBase):
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
        scheduler = live_record(DASK_SCHEDULER.name)
        if scheduler is None:
            raise FlowError(
                "`scheduler` is 'up', but no Dask scheduler of `ism-dask up` runs here; start it "
                "with `ism-dask up`, or leave out --scheduler to compute here"
            )
        security = _own_security() if scheduler.address.startswith("tls://") else None
        yield ClusterAddress(scheduler.address, security, none_came="see `ism-dask up --status`")


def _own_security() -> Any:
    try:
        return tls_files(own_certificates()).security()
    except ValueError as error:
        raise FlowError(
            f"the certificates of `ism-dask up --tls` are gone ({error}); end it with "
            "`ism-dask up --stop`, and start it again"
        ) from error


# The values that the key `kind` of a cluster file may have.
KINDS: dict[str, type[Any]] = {
    "local": Local,
    "address": Address,
    "slurm": Slurm,
    "kubernetes": Kubernetes,
}
_SUFFIX = ".toml"


def cluster_place(scheduler: str) -> ClusterPlace:
    """Return the place that `--scheduler` names, checked as far as possible without starting it."""
    if is_address(scheduler):
        return Address(address=scheduler)
    if scheduler == NAME:
        return LocalServices()
    if scheduler.endswith(_SUFFIX):
        return read_cluster(Path(scheduler).expanduser())
    raise SettingsError(
        f"`scheduler` is {scheduler!r}; expected an address such as tcp://127.0.0.1:8786, which "
        "`dask scheduler` prints when it starts, up for that of `ism-dask up`, or a cluster file "
        "such as slurm.toml"
    )


def read_cluster(file: Path) -> ClusterPlace:
    """Return the place that a cluster file describes; raise SettingsError if the file is wrong."""
    table = parse_toml(file, "cluster file", "those in docs/clusters.md")
    kind = table.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise SettingsError(f"{file}: {_bad_kind_message(kind)}")
    try:
        place: ClusterPlace = read_table(KINDS[kind], table, file.parent)
        place.check()
    except TableError as error:
        raise SettingsError(f"{file}: {error} (a cluster of kind {kind!r})") from error
    except FlowError as error:
        raise SettingsError(f"{file}: {error}") from error
    return place


def _bad_kind_message(kind: Any) -> str:
    names = ", ".join(KINDS)
    if kind is None:
        return f"`kind` is missing; expected one of {names}"
    return f"`kind` is {kind!r}; expected one of {names}{closest_name(str(kind), list(KINDS))}"
