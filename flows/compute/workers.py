"""What is known of the workers of a cluster."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from flows.compute.versions import Versions, worker_versions

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


def workers_of(client: Any) -> list[Worker]:
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
