"""Checks that the workers see our files and have our versions; the list of the workers."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from distributed import default_client

from flows.compute.connection import EndableClient
from flows.errors import FlowError

Versions = dict[str, str]

# The number of leading parts of a version that have to agree. These packages pickle the tasks and
# compute the numbers.
_N_PARTS = {"python": 2, "dask": 3, "distributed": 3, "cloudpickle": 2, "numpy": 1, "ism-dask": 3}
# The versions that the table of workers shows.
VERSIONS = ("python", "dask", "ism-dask")


def check_files_visible(folder: str) -> None:
    """Raise FlowError unless the workers of the default client see a folder that we see."""
    client: Any = default_client()
    for address, seen in client.answer(
        client._run, os.path.isdir, folder, on_error="return"
    ).items():
        if seen is not True:
            raise FlowError(
                f"the worker at {address} does not see {folder}, from where it would read the "
                "rows; let ISM_DASK_HOME be a folder that this process and all workers share"
            )


def check_versions(client: EndableClient) -> None:
    """Raise FlowError if the scheduler, or a worker, has other versions than this process."""
    answer = _versions(client)
    here = _leading_parts(answer["client"])
    # The scheduler unpickles the task graphs, so it needs the packages that they refer to.
    elsewhere = {f"the scheduler at {client.scheduler.address}": answer["scheduler"]}
    elsewhere |= {f"the worker at {each}": answer["workers"][each] for each in answer["workers"]}
    for where, versions in elsewhere.items():
        there = _leading_parts(versions)
        odd = [name for name in _N_PARTS if here[name] != there[name]]
        if odd:
            theirs, ours = (
                ", ".join(f"{name} {each['packages'][name]}" for name in odd)
                for each in (versions, answer["client"])
            )
            raise FlowError(
                f"{where} has {theirs}, but this process has {ours}: install the same there, or "
                "join from an environment like theirs"
            )


def _versions(client: EndableClient) -> dict[str, Any]:
    """Return the versions of this process, of the scheduler, and of each worker that answers."""
    answer: dict[str, Any] = client.answer(client._get_versions, packages=["ism-dask"])
    return answer


def _leading_parts(versions: dict[str, Any]) -> dict[str, list[str]]:
    packages = versions["packages"]
    return {name: str(packages[name]).split(".")[:parts] for name, parts in _N_PARTS.items()}


@dataclass(frozen=True)
class Worker:
    """A worker, as its scheduler describes it."""

    address: str
    threads: int
    memory: int  # limit in bytes; 0 if there is none
    versions: Versions  # empty if it did not answer

    def cells(self) -> tuple[str, ...]:
        """Return the cells of its row in the table of workers."""
        memory = f"{self.memory / 2**30:.1f} GiB" if self.memory else "no limit"
        versions = [self.versions.get(name, "no answer") for name in VERSIONS]
        return (self.address, str(self.threads), memory, *versions)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return asdict(self)


def list_workers(client: EndableClient) -> list[Worker]:
    """Return the workers of the cluster, in the order of their addresses."""
    answers = _versions(client)["workers"]
    versions = {
        address: {name: ".".join(parts) for name, parts in _leading_parts(each).items()}
        for address, each in answers.items()
    }
    return [
        Worker(address, each["nthreads"], each["memory_limit"] or 0, versions.get(address, {}))
        for address, each in sorted(client.workers.items())
    ]
