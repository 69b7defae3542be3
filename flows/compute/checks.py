"""Checks that the workers see our files and have our versions; the list of the workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pkgutil import resolve_name
from typing import Any

from flows.compute.endable_client import on_scheduler, on_workers, workers_to_check
from flows.errors import FlowError


def check_files_visible(folder: str) -> None:
    """Raise FlowError unless the workers of the default client see a folder that we see."""
    from distributed import default_client  # noqa: PLC0415

    client = default_client()
    for address, seen in on_workers(
        client, workers_to_check(client), os.path.isdir, folder
    ).items():
        if seen is not True:
            raise FlowError(
                f"the worker at {address} does not see {folder}, from where it would read the "
                "rows; let ISM_DASK_HOME be a folder that this process and all workers share"
            )


# The number of leading parts of a version that have to agree. These packages pickle the tasks and
# compute the numbers.
_N_PARTS = {"python": 2, "dask": 3, "distributed": 3, "cloudpickle": 2, "numpy": 1, "ism-dask": 3}
_DISTRIBUTION = "ism-dask"
_VERSION_NAME = "ism_dask:__version__"

Versions = dict[str, str]


def check_versions(client: Any) -> None:
    """Raise FlowError if the scheduler, or a worker, has other versions than this process."""
    here = _versions_here()
    for where, there in _versions_elsewhere(client):
        odd = [
            name for name in _N_PARTS if _leading_parts(name, here) != _leading_parts(name, there)
        ]
        if odd:
            theirs, ours = (
                ", ".join(f"{name} {each[name]}" for name in odd) for each in (there, here)
            )
            raise FlowError(
                f"{where} has {theirs}, but this process has {ours}: install the same there, or "
                "join from an environment like theirs"
            )


def worker_versions(client: Any) -> dict[str, Versions]:
    """Return the versions on a sample of the workers, by their addresses."""
    sample = workers_to_check(client)
    packages = on_workers(client, sample, _versions_function())
    own = on_workers(client, sample, resolve_name, _VERSION_NAME)
    return {
        address: _merge_versions(f"the worker at {address}", packages[address], own[address])
        for address in sample
    }


def _versions_here() -> Versions:
    return _merge_versions("this process", _versions_function()(), resolve_name(_VERSION_NAME))


def _versions_elsewhere(client: Any) -> Iterator[tuple[str, Versions]]:
    # The scheduler unpickles the task graphs, so it needs the packages that they refer to.
    where = f"the scheduler at {client.scheduler.address}"
    packages = on_scheduler(client, _versions_function())
    yield where, _merge_versions(where, packages, on_scheduler(client, resolve_name, _VERSION_NAME))
    for address, there in worker_versions(client).items():
        yield f"the worker at {address}", there


def _versions_function() -> Callable[..., Any]:
    # A function of Dask itself, which exists there even if ism_dask is not installed.
    from distributed.versions import get_versions  # noqa: PLC0415

    return get_versions


def _merge_versions(where: str, packages: Any, own: Any) -> Versions:
    """Return the versions from two answers, or raise FlowError if one of them is an error."""
    if isinstance(packages, BaseException):
        raise FlowError(
            f"{where} does not answer ({packages}); see its log, and that scheduler and workers "
            "reach each other both ways"
        ) from packages
    if isinstance(own, BaseException):
        raise FlowError(
            f"{where} cannot import ism_dask ({own}); install ism-dask "
            f"{resolve_name(_VERSION_NAME)} there"
        ) from own
    versions = {name: str(version or "none") for name, version in packages["packages"].items()}
    return {**versions, "python": ".".join(versions["python"].split(".")[:3]), _DISTRIBUTION: own}


def _leading_parts(name: str, versions: Versions) -> list[str]:
    return versions[name].split(".")[: _N_PARTS[name]]


# The versions that the table of workers shows.
VERSIONS = ("python", "dask", "ism-dask")


@dataclass(frozen=True)
class Worker:
    """A worker, as its scheduler describes it.

    Attributes
    ----------
    address : str
    threads : int
    memory : int
        Limit of its memory in bytes; 0 if there is none.
    versions : dict
        Versions of Python and packages; empty if the worker is not in the sample.
    """

    address: str
    threads: int
    memory: int
    versions: Versions

    def cells(self) -> tuple[str, ...]:
        """Return the cells of its row in the table of workers."""
        memory = f"{self.memory / 2**30:.1f} GiB" if self.memory else "no limit"
        versions = [self.versions.get(name, "not sampled") for name in VERSIONS]
        return (self.address, str(self.threads), memory, *versions)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return asdict(self)


def list_workers(client: Any) -> list[Worker]:
    """Return the workers of the cluster, in the order of their addresses."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    versions = worker_versions(client)
    return [
        Worker(
            address,
            each["nthreads"],
            each["memory_limit"] or 0,
            versions.get(address, {}),
        )
        for address, each in sorted(workers.items())
    ]
