"""Whether scheduler and workers have what this process has: else tasks fail in riddles."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pkgutil import resolve_name
from typing import Any

from flows.errors import FlowError

# How many of the leading numbers of a version have to be the same: with these, tasks are pickled
# and numbers computed.
_LEADING = {"python": 2, "dask": 3, "distributed": 3, "cloudpickle": 2, "numpy": 1, "ism-dask": 3}
_OWN = "ism-dask"
_OWN_VERSION = "ism_dask:__version__"
# Workers that are asked: those of a large cluster are alike.
_ASKED = 32
# Seconds that they may take to import ism_dask, from a slow disk.
_WITHIN = 60.0

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
    found = _on_workers(client, _packages())
    own = _on_workers(client, resolve_name, _OWN_VERSION)
    return {
        address: _versions(f"the worker at {address}", packages, own[address])
        for address, packages in found.items()
    }


def _versions_here() -> Versions:
    return _versions("this process", _packages()(), resolve_name(_OWN_VERSION))


def _versions_elsewhere(client: Any) -> Iterator[tuple[str, Versions]]:
    # The scheduler unpickles the graphs, and so needs to know what they name.
    where = f"the scheduler at {client.scheduler.address}"
    packages = _on_scheduler(client, _packages())
    yield where, _versions(where, packages, _on_scheduler(client, resolve_name, _OWN_VERSION))
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


def _on_workers(client: Any, function: Callable[..., Any], *arguments: str) -> dict[str, Any]:
    addresses = sorted(client.scheduler_info(n_workers=-1)["workers"])
    step = -(-len(addresses) // _ASKED)
    asked = addresses[:: max(step, 1)]
    answers: dict[str, Any] = _in_time(
        client,
        lambda: client.run(function, *arguments, workers=asked, on_error="return"),
    )
    return answers


def _on_scheduler(client: Any, function: Callable[..., Any], *arguments: str) -> Any:
    try:
        return _in_time(client, lambda: client.run_on_scheduler(function, *arguments))
    except FlowError:
        raise
    # Whatever was raised there; what it means is told by who knows what was asked.
    except Exception as error:
        return error


def _in_time(client: Any, call: Callable[[], Any]) -> Any:
    """Return what `call` gives, which Dask would wait for without end."""

    async def asked() -> Any:
        return await asyncio.wait_for(call(), _WITHIN)

    try:
        return client.sync(asked)
    except TimeoutError as error:
        raise FlowError(
            f"the Dask cluster at {client.scheduler.address} does not tell its versions within "
            f"{_WITHIN:g} s; see the logs of its workers"
        ) from error
