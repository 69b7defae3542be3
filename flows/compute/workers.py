"""What is known of the workers of a cluster."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

from flows.compute.versions import Versions, worker_versions

_SHOWN = ("python", "dask", "ism-dask")


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
    host: str
    threads: int
    memory: int
    versions: Versions

    def cells(self) -> tuple[str, ...]:
        """Return what a table says of it."""
        memory = f"{self.memory / 2**30:.1f} GiB" if self.memory else "no limit"
        told = ", ".join(f"{name} {self.versions[name]}" for name in _SHOWN if self.versions)
        return (self.address, self.host, str(self.threads), memory, told)

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
            str(each.get("host") or urlsplit(address).hostname),
            each["nthreads"],
            each["memory_limit"] or 0,
            versions.get(address, {}),
        )
        for address, each in sorted(known.items())
    ]
