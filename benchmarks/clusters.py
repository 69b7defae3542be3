"""Clusters of worker processes on this machine, and what becomes of their workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Client, LocalCluster

# What the scheduler and the nannies say of workers that came to harm.
_HARM = ("worker-restart-memory", "worker-fail-hard")


@contextmanager
def local_cluster(workers: int, memory_limit: str | None = None) -> Iterator[Client]:
    """Start `workers` processes of one thread each on 127.0.0.1, and make them the active ones."""
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
        client.run(_imported)
        yield client


def worker_pids(client: Client) -> list[int]:
    """Return the process ids of the workers."""
    return sorted(client.run(os.getpid).values())


def restarts(client: Client) -> int:
    """Return how often a worker was restarted, lost or told to pause for good since the start."""
    events: dict[str, Any] = client.get_events()
    harm = sum(len(events.get(topic, ())) for topic in _HARM)
    removed = [event for _, event in events.get("all", ()) if _action(event) == "remove-worker"]
    return harm + len(removed)


def _action(event: Any) -> str:
    return str(event.get("action", "")) if isinstance(event, dict) else ""


def _imported() -> None:
    """Import what tasks need, so that the first of them is not the one that waits for it."""
    import storage  # noqa: F401, PLC0415
    from ism_dask import SupervisedIKDR  # noqa: F401, PLC0415
