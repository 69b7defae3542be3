"""The service that serves the reports of the runs of this machine."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus

import httpx

from flows.services.service import HOST, Service, live_record, preferred_ports
from storage import report_path

_NAME, _SIGNATURE = "reports", "ism-dask-reports"


def report_server(port: int | None = None) -> Service:
    """Return the server of the list of runs, and of their reports."""
    address = f"http://{HOST}:{port}"
    return Service(
        name=_NAME,
        title="report server",
        make=report_server,
        options={"port": port},
        ports=preferred_ports(_NAME, port=8788),  # the next after those of Dask
        address=address,
        page=address,
        # By name: only the process of the server needs the imports that draw a report.
        command=["flows.reports.server", "--port", str(port)],
        is_ready=partial(is_report_server, address),
    )


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
    server = live_record(_NAME)
    return f"{server.address}/{run}" if server else report_path(run).absolute().as_uri()
