"""The service that serves the reports of the runs of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

import httpx

from flows.services.ports import HOST
from flows.services.service import Service

# Given by name, because only the process of the server needs the imports that draw a report.
_MODULE = "flows.reports.server"
_SIGNATURE = "ism-dask-reports"


@dataclass(frozen=True, kw_only=True)
class ReportServer(Service):
    """The report server: a page for each run, and one that lists them."""

    name = "reports"
    title = "report server"

    port: int | None = None

    @property
    def address(self) -> str:
        """Return the address of the list of runs; the pages of the runs are below it."""
        return f"http://{HOST}:{self.port}"

    @property
    def page(self) -> str:
        """Return the address of the list of runs."""
        return self.address

    def command(self) -> list[str]:
        """Return the module of the server, and its arguments."""
        return [_MODULE, "--port", str(self.port)]

    def ready(self) -> bool:
        """Return whether a server answers that has the signature of ours."""
        try:
            reply = httpx.head(self.address, timeout=5.0)
        except httpx.HTTPError:
            return False
        # It may ask for a password, which this process need not know.
        is_up = reply.is_success or reply.status_code == HTTPStatus.UNAUTHORIZED
        return is_up and reply.headers.get("server", "").startswith(_SIGNATURE)

    def usual_ports(self) -> Mapping[str, int]:
        """Return the default port, the next after those of Dask."""
        return {"port": 8788}
