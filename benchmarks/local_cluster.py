"""Start Dask clusters of worker processes on this machine, and count restarts of their workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Client, LocalCluster

# Topics of the events that the scheduler and the nannies log for failed or restarted workers.
_FAILURE_TOPICS = ("worker-restart-memory", "worker-fail-hard")


@contextmanager
def local_cluster(workers: int, memory_limit: str | None = None) -> Iterator[Client]:
    """Start `workers` processes of one thread each on 127.0.0.1, with their client as default."""
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit=memory_limit or "auto",
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(workers)
        client.run(_import_packages)
        yield client


def worker_pids(client: Client) -> list[int]:
    """Return the process ids of the workers."""
    return sorted(client.run(os.getpid).values())


def restarts(client: Client) -> int:
    """Return how often a worker was restarted, removed or failed for good since the start."""
    events: dict[str, Any] = client.get_events()
    failures = sum(len(events.get(topic, ())) for topic in _FAILURE_TOPICS)
    removed = [event for _, event in events.get("all", ()) if _action(event) == "remove-worker"]
    return failures + len(removed)


def _action(event: Any) -> str:
    return str(event.get("action", "")) if isinstance(event, dict) else ""


def _import_packages() -> None:
    """Import the packages that tasks need, so that the first task does not wait for the imports."""
    import storage  # noqa: F401, PLC0415
    from ism_dask import SupervisedIKDR  # noqa: F401, PLC0415
