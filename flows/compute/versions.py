"""Whether scheduler and workers have what this process has: else tasks fail in riddles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pkgutil import resolve_name
from typing import Any

from flows.compute.asking import on_scheduler, on_workers, sample
from flows.errors import FlowError

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
    asked = sample(client)
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
