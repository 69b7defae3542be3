"""Whether workers see the files that they are to read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pkgutil import resolve_name
from typing import Any

from flows.compute.client import on_scheduler, on_workers, sample_workers
from flows.errors import FlowError


def check_files_visible(folder: str) -> None:
    """Raise FlowError where a worker of the active cluster does not see a folder that we see."""
    from distributed import default_client  # noqa: PLC0415

    client = default_client()
    for address, seen in on_workers(client, sample_workers(client), os.path.isdir, folder).items():
        if seen is not True:
            raise FlowError(
                f"the worker at {address} does not see {folder}, from where it would read the "
                "rows; let ISM_DASK_HOME be a folder that this process and all workers share"
            )


# How many of the leading numbers of a version have to be the same: with these, tasks are pickled
# and numbers computed.
_LEADING = {"python": 2, "dask": 3, "distributed": 3, "cloudpickle": 2, "numpy": 1, "ism-dask": 3}
_OWN = "ism-dask"
_OWN_VERSION = "ism_dask:__version__"

Versions = dict[str, str]


def check_versions(client: Any) -> None:
    """Raise FlowError where the scheduler, or a worker, has other versions than this process."""
    here = _versions_here()
    for where, there in _versions_elsewhere(client):
        odd = [name for name in _LEADING if _leading(name, here) != _leading(name, there)]
        if odd:
            theirs, ours = (
                ", ".join(f"{name} {each[name]}" for name in odd) for each in (there, here)
            )
            raise FlowError(
                f"{where} has {theirs}, but this process has {ours}: install the same there, or "
                "join from an environment like theirs"
            )


def worker_versions(client: Any) -> dict[str, Versions]:
    """Return the versions of the workers that are asked, by their addresses."""
    asked = sample_workers(client)
    found = on_workers(client, asked, _packages())
    own = on_workers(client, asked, resolve_name, _OWN_VERSION)
    return {
        address: _versions(f"the worker at {address}", found[address], own[address])
        for address in asked
    }


def _versions_here() -> Versions:
    return _versions("this process", _packages()(), resolve_name(_OWN_VERSION))


def _versions_elsewhere(client: Any) -> Iterator[tuple[str, Versions]]:
    # The scheduler unpickles the graphs, and so needs to know what they name.
    where = f"the scheduler at {client.scheduler.address}"
    packages = on_scheduler(client, _packages())
    yield where, _versions(where, packages, on_scheduler(client, resolve_name, _OWN_VERSION))
    for address, there in worker_versions(client).items():
        yield f"the worker at {address}", there


def _packages() -> Callable[..., Any]:
    # One of Dask's own, which is there whatever else is not.
    from distributed.versions import get_versions  # noqa: PLC0415

    return get_versions


def _versions(where: str, packages: Any, own: Any) -> Versions:
    """Return the versions among what was answered, or raise FlowError for an error in it."""
    if isinstance(packages, BaseException):
        raise FlowError(
            f"{where} does not answer ({packages}); see its log, and that scheduler and workers "
            "reach each other both ways"
        ) from packages
    if isinstance(own, BaseException):
        raise FlowError(
            f"{where} cannot import ism_dask ({own}); install ism-dask "
            f"{resolve_name(_OWN_VERSION)} there"
        ) from own
    found = {name: str(version or "none") for name, version in packages["packages"].items()}
    return {**found, "python": ".".join(found["python"].split(".")[:3]), _OWN: own}


def _told(versions: Versions, names: list[str]) -> str:
    return ", ".join(f"{name} {versions[name]}" for name in names)


def _leading(name: str, versions: Versions) -> list[str]:
    return versions[name].split(".")[: _LEADING[name]]


# Those that a table shows.
VERSIONS = ("python", "dask", "ism-dask")


@dataclass(frozen=True)
class Worker:
    """A worker, as its scheduler tells of it.

    Attributes
    ----------
    memory : int
        Bytes that it may take; 0 where nothing limits it.
    versions : dict
        Of Python and packages, where it was asked for them.
    """

    address: str
    threads: int
    memory: int
    versions: Versions

    def cells(self) -> tuple[str, ...]:
        """Return what a table says of it."""
        memory = f"{self.memory / 2**30:.1f} GiB" if self.memory else "no limit"
        versions = [self.versions.get(name, "not asked") for name in VERSIONS]
        return (self.address, str(self.threads), memory, *versions)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return asdict(self)


def list_workers(client: Any) -> list[Worker]:
    """Return the workers of the cluster, in the order of their addresses."""
    known = client.scheduler_info(n_workers=-1)["workers"]
    versions = worker_versions(client)
    return [
        Worker(
            address,
            each["nthreads"],
            each["memory_limit"] or 0,
            versions.get(address, {}),
        )
        for address, each in sorted(known.items())
    ]
