"""A cluster that gets more workers while a test runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from distributed import Client, LocalCluster


def sizes_of_a_cluster(folder: Path, *sizes: int) -> Iterator[int]:
    """Yield each number of worker processes, rising, when the active cluster has as many."""
    with (
        LocalCluster(
            n_workers=0,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            local_directory=str(folder),
        ) as cluster,
        Client(cluster) as client,
    ):
        for workers in sizes:
            cluster.scale(workers)
            client.wait_for_workers(workers, timeout=120)
            yield workers
