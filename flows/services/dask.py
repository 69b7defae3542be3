"""The Dask services of this machine, scheduler and workers, and our configuration of Dask."""

from __future__ import annotations

import json
from functools import partial
from typing import Any
from urllib.parse import urljoin

import httpx

from flows.services.certificates import own_certificates
from flows.services.ports import HOST, HOSTS, Ports
from flows.services.service import Service, ServiceKind

# Share of the machine's memory for all workers together. The scheduler, the servers and the user
# need some, too.
_MEMORY_SHARE = 0.75
_ORIGINS_VARIABLE = (
    "DASK_DISTRIBUTED__SCHEDULER__DASHBOARD__BOKEH_APPLICATION__ALLOW_WEBSOCKET_ORIGIN"
)
# Folder for the temporary files of the workers, below the folder of the records.
SCRATCH = "dask-space"


def _scheduler(
    ports: Ports,
    *,
    port: int | None = None,
    dashboard_port: int | None = None,
    tls: bool | None = None,
) -> Service:
    port = ports.choose("port", port, 8786)
    dashboard_port = ports.choose("dashboard_port", dashboard_port, 8787)
    address = f"{'tls' if tls else 'tcp'}://{HOST}:{port}"
    page = f"http://{HOST}:{dashboard_port}/status"
    listen = ["--host", HOST, "--port", str(port)]
    # Pages of other servers, which a browser shows, may not open the dashboard.
    origins = json.dumps([f"{host}:{dashboard_port}" for host in HOSTS])
    return Service(
        kind=DASK_SCHEDULER,
        options={"port": port, "dashboard_port": dashboard_port, "tls": tls},
        address=address,
        page=page,
        command=[
            "distributed.cli.dask_scheduler",
            *listen,
            *("--dashboard-address", f"{HOST}:{dashboard_port}"),
            *_tls_options(address),
        ],
        # The dashboard starts last.
        ready=lambda: _count_workers(page) is not None,
        environment={**scheduler_environment(), _ORIGINS_VARIABLE: origins},
    )


def _workers(
    _ports: Ports,
    scheduler: str = "",
    monitor: str | None = None,
    workers: int | None = None,
    threads: int | None = None,
    memory: str | None = None,
) -> Service:
    """Return the workers of a scheduler: by default one for each core, and equal memory.

    Each has a nanny that restarts it when it dies.
    """
    from dask.system import CPU_COUNT  # noqa: PLC0415
    from dask.utils import format_bytes  # noqa: PLC0415
    from distributed.system import MEMORY_LIMIT  # noqa: PLC0415

    workers, threads = workers or CPU_COUNT, threads or 1
    share = format_bytes(int(MEMORY_LIMIT * _MEMORY_SHARE / workers)).replace(" ", "")
    memory = memory or share
    return Service(
        kind=DASK_WORKERS,
        options={
            "scheduler": scheduler,
            "monitor": monitor,
            "workers": workers,
            "threads": threads,
            "memory": memory,
        },
        address=scheduler,
        command=[
            "distributed.cli.dask_worker",
            *(scheduler, "--host", HOST, "--nworkers", str(workers), "--nthreads", str(threads)),
            *("--memory-limit", memory, "--local-directory", SCRATCH),
            # By default the HTTP server of a worker listens on every interface, even if the worker
            # has no dashboard.
            *("--no-dashboard", "--dashboard-address", f"{HOST}:0"),
            *_tls_options(scheduler),
        ],
        ready=partial(_has_workers, monitor, workers),
    )


DASK_SCHEDULER = ServiceKind("dask-scheduler", "Dask scheduler", _scheduler)
DASK_WORKERS = ServiceKind("dask-workers", "Dask workers", _workers)


def _tls_options(address: str) -> list[str]:
    """Return the TLS options of Dask's commands if the address is a tls:// one, else none."""
    return own_certificates().arguments() if address.startswith("tls://") else []


def _has_workers(dashboard: str | None, workers: int) -> bool:
    return (_count_workers(dashboard) or 0) >= workers


def _count_workers(dashboard: str | None) -> int | None:
    """Return the number of workers of the scheduler with this dashboard; None without answer."""
    try:
        reply = httpx.get(urljoin(str(dashboard), "/json/counts.json"), timeout=5.0)
        return int(reply.json()["workers"]) if reply.is_success else None
    except (httpx.HTTPError, KeyError, ValueError):
        return None


# The time that tasks may wait for a worker when there is none. By default Dask waits for ever.
NO_WORKERS = "5 minutes"
# The number of workers that may die under one task. By default Dask blames the task at the fourth,
# but preemption kills many workers without a fault of the task.
ALLOWED_FAILURES = 10
# The number of messages that each connection remembers for debugging, with the W that is in them.
MESSAGES = 50


def scheduler_settings() -> dict[str, Any]:
    """Return our Dask configuration of a scheduler."""
    return {
        "distributed.scheduler.no-workers-timeout": NO_WORKERS,
        "distributed.scheduler.allowed-failures": ALLOWED_FAILURES,
        **client_settings(),
    }


def client_settings() -> dict[str, Any]:
    """Return our Dask configuration of a client."""
    return {"distributed.admin.low-level-log-length": MESSAGES}


def scheduler_environment() -> dict[str, str]:
    """Return `scheduler_settings` as environment variables, for a scheduler in another process."""
    return {
        f"DASK_{name.replace('.', '__').replace('-', '_').upper()}": str(value)
        for name, value in scheduler_settings().items()
    }
