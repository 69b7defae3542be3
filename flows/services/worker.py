"""The Prefect worker of this machine, which runs what is deployed."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Self

import httpx

from flows.services.ports import Ports
from flows.services.records import recorded
from flows.services.server import basic_auth, prefect_environment
from flows.services.service import Service
from flows.services.wishes import POOL

_NAME = f"ism-dask on {socket.gethostname()}"


@dataclass(frozen=True, kw_only=True)
class PrefectWorker(Service):
    """A worker of a pool of kind `process`, which it makes if there is none."""

    name = "prefect-worker"
    title = "Prefect worker"
    # A run that ends before the worker is Crashed; one that the worker ends is Running for ever.
    children_first = True

    api: str | None = None
    pool: str | None = None

    @property
    def address(self) -> str:
        """Whose runs it takes."""
        return str(self.pool)

    def command(self) -> list[str]:
        """Return Prefect's own command."""
        pool = ["--pool", self.address, "--type", "process", "--name", _NAME]
        return ["prefect", "worker", "start", *pool, "--install-policy", "never"]

    def ready(self) -> bool:
        """Return whether the server has heard of it since it began."""
        record = recorded(self.name)
        process = record.process if record else None
        heard = [each["last_heartbeat_time"] for each in self._known() if each["name"] == _NAME]
        return process is not None and any(_since(time) > process.create_time() for time in heard)

    def settled(self, ports: Ports) -> Self:
        """Return the worker of the usual pool, if no other was asked for."""
        return replace(super().settled(ports), pool=self.pool or POOL)

    def environment(self) -> Mapping[str, str]:
        """Return what leads its runs to the server, and their log into its own."""
        return {**prefect_environment(), "PREFECT_API_URL": str(self.api)}

    def _known(self) -> list[dict[str, str]]:
        try:
            reply = httpx.post(
                f"{self.api}/work_pools/{self.pool}/workers/filter",
                json={},
                auth=basic_auth(),
                timeout=5.0,
            )
            return list(reply.json()) if reply.is_success else []
        except (httpx.HTTPError, ValueError):
            return []


def _since(time: str) -> float:
    return datetime.fromisoformat(time).astimezone(UTC).timestamp()
