"""Checks that the workers see our files and have our versions; the list of the workers."""

from __future__ import annotations

import os
from typing import Any

from distributed import default_client

from flows.compute.connection import EndableClient
from flows.errors import FlowError

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


def list_workers(client: EndableClient) -> list[dict[str, Any]]:
    """Return address, threads, limit of memory in bytes (0: none) and versions of each worker.

    A worker that does not answer has no versions.
    """
    answers, workers = _versions(client)["workers"], []
    for address, each in sorted(client.workers.items()):
        versions = _leading_parts(answers[address]) if address in answers else {}
        workers.append(
            {
                "address": address,
                "threads": each["nthreads"],
                "memory": each["memory_limit"] or 0,
                "versions": {name: ".".join(parts) for name, parts in versions.items()},
            }
        )
    return workers


def worker_cells(worker: dict[str, Any]) -> list[str]:
    """Return the cells of a worker in the table of workers."""
    memory = f"{worker['memory'] / 2**30:.1f} GiB" if worker["memory"] else "no limit"
    versions = [worker["versions"].get(name, "no answer") for name in VERSIONS]
    return [worker["address"], str(worker["threads"]), memory, *versions]
