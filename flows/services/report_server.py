"""The server of the runs' reports on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from flows.services.ports import HOST
from flows.services.service import Service

# By name: its process imports what it takes to draw a report, this one need not.
_MODULE = "flows.reports.server"
_SIGNATURE = "ism-dask-reports"


@dataclass(frozen=True, kw_only=True)
class ReportServer(Service):
    """A page for each run, and one that lists them."""

    name = "reports"
    title = "report server"

    port: int | None = None

    @property
    def address(self) -> str:
        """Where the list of runs is; the page of a run is below it."""
        return f"http://{HOST}:{self.port}"

    @property
    def page(self) -> str:
        """The list of runs."""
        return self.address

    def command(self) -> list[str]:
        """Return the module that serves."""
        return [_MODULE, "--port", str(self.port)]

    def ready(self) -> bool:
        """Return whether it is ours that answers."""
        try:
            reply = httpx.head(self.address, timeout=5.0)
        except httpx.HTTPError:
            return False
        return reply.is_success and reply.headers.get("server", "").startswith(_SIGNATURE)

    def usual_ports(self) -> Mapping[str, int]:
        """Return the port beside those of Dask."""
        return {"port": 8788}
