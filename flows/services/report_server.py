"""The service that serves the reports of the runs of this machine."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus

import httpx

from flows.services.ports import HOST, Ports
from flows.services.service import Service, ServiceKind, live_record
from storage import report_path

# Given by name, because only the process of the server needs the imports that draw a report.
_MODULE = "flows.reports.server"
_SIGNATURE = "ism-dask-reports"


def _report_server(ports: Ports, *, port: int | None = None) -> Service:
    port = ports.choose("port", port, 8788)  # the next after those of Dask
    address = f"http://{HOST}:{port}"
    return Service(
        kind=REPORT_SERVER,
        options={"port": port},
        address=address,
        page=address,
        command=[_MODULE, "--port", str(port)],
        ready=partial(is_report_server, address),
    )


REPORT_SERVER = ServiceKind("reports", "report server", _report_server)


def is_report_server(address: str) -> bool:
    """Return whether a server answers that has the signature of ours."""
    try:
        reply = httpx.head(address, timeout=5.0)
    except httpx.HTTPError:
        return False
    # It may ask for a password, which this process need not know.
    is_up = reply.is_success or reply.status_code == HTTPStatus.UNAUTHORIZED
    return is_up and reply.headers.get("server", "").startswith(_SIGNATURE)


def report_url(run: str) -> str:
    """Return the link to the report of a run: on the report server if it runs, else the file."""
    server = live_record(REPORT_SERVER.name)
    return f"{server.address}/{run}" if server else report_path(run).absolute().as_uri()
