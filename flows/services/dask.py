"""The Dask services of this machine, scheduler and workers, and our configuration of Dask."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self
from urllib.parse import urljoin

import httpx

from flows.services.certificates import own_certificates
from flows.services.ports import HOST, HOSTS, Ports
from flows.services.service import Service

# Share of the machine's memory for all workers together. The scheduler, the servers and the user
# need some, too.
_MEMORY_SHARE = 0.75
_ORIGINS_VARIABLE = (
    "DASK_DISTRIBUTED__SCHEDULER__DASHBOARD__BOKEH_APPLICATION__ALLOW_WEBSOCKET_ORIGIN"
)
# Folder for the temporary files of the workers, below the folder of the records.
SCRATCH = "dask-space"


@dataclass(frozen=True, kw_only=True)
class DaskScheduler(Service):
    """The Dask scheduler, with its dashboard."""

    name = "dask-scheduler"
    title = "Dask scheduler"

    port: int | None = None
    dashboard_port: int | None = None
    tls: bool | None = None

    @property
    def address(self) -> str:
        """Return the address that clients and workers connect to."""
        return f"{'tls' if self.tls else 'tcp'}://{HOST}:{self.port}"

    @property
    def page(self) -> str:
        """Return the address of the dashboard."""
        return f"http://{HOST}:{self.dashboard_port}/status"

    def command(self) -> list[str]:
        """Return Dask's command that starts a scheduler."""
        dashboard = f"{HOST}:{self.dashboard_port}"
        address = ["--host", HOST, "--port", str(self.port), "--dashboard-address", dashboard]
        return ["distributed.cli.dask_scheduler", *address, *_tls_options(self.address)]

    def environment(self) -> Mapping[str, str]:
        """Return our configuration of Dask, and the origins that may open the dashboard.

        The configuration keeps tasks from waiting for ever. The origins shut out pages of other
        servers that a browser shows.
        """
        origins = json.dumps([f"{host}:{self.dashboard_port}" for host in HOSTS])
        return {**scheduler_environment(), _ORIGINS_VARIABLE: origins}

    def ready(self) -> bool:
        """Return whether the dashboard, which starts last, reports on the scheduler."""
        return _scheduler_counts(self.page) is not None

    def usual_ports(self) -> Mapping[str, int]:
        """Return Dask's default ports."""
        return {"port": 8786, "dashboard_port": 8787}


@dataclass(frozen=True, kw_only=True)
class DaskWorkers(Service):
    """The Dask workers, each with a nanny that restarts it when it dies."""

    name = "dask-workers"
    title = "Dask workers"

    scheduler: str | None = None
    monitor: str | None = None
    workers: int | None = None
    threads: int | None = None
    memory: str | None = None

    @property
    def address(self) -> str:
        """Return the address of their scheduler."""
        return str(self.scheduler)

    def command(self) -> list[str]:
        """Return Dask's command; nannies, workers and their web pages listen on `HOST` only."""
        size = ["--nworkers", str(self.workers), "--nthreads", str(self.threads)]
        limits = ["--memory-limit", str(self.memory), "--local-directory", SCRATCH]
        # By default the HTTP server of a worker listens on every interface, even if the worker has
        # no dashboard.
        pages = ["--no-dashboard", "--dashboard-address", f"{HOST}:0"]
        module = "distributed.cli.dask_worker"
        encrypting = _tls_options(self.address)
        return [module, self.address, "--host", HOST, *size, *limits, *pages, *encrypting]

    def ready(self) -> bool:
        """Return whether the scheduler counts all workers."""
        counts = _scheduler_counts(self.monitor)
        return counts is not None and counts["workers"] >= (self.workers or 1)

    def with_defaults(self, ports: Ports) -> Self:
        """Return the workers with all options: by default one for each core, and equal memory."""
        from dask.system import CPU_COUNT  # noqa: PLC0415
        from dask.utils import format_bytes  # noqa: PLC0415
        from distributed.system import MEMORY_LIMIT  # noqa: PLC0415

        workers = self.workers or CPU_COUNT
        share = format_bytes(int(MEMORY_LIMIT * _MEMORY_SHARE / workers)).replace(" ", "")
        return replace(
            super().with_defaults(ports),
            workers=workers,
            threads=self.threads or 1,
            memory=self.memory or share,
        )


def _tls_options(address: str) -> list[str]:
    """Return the TLS options of Dask's commands if the address is a tls:// one, else none."""
    return own_certificates().arguments() if address.startswith("tls://") else []


def _scheduler_counts(dashboard: str | None) -> dict[str, Any] | None:
    """Return the numbers of workers, tasks and clients of the scheduler with this dashboard.

    Return None if the dashboard does not answer.
    """
    try:
        reply = httpx.get(urljoin(str(dashboard), "/json/counts.json"), timeout=5.0)
        return dict(reply.json()) if reply.is_success else None
    except (httpx.HTTPError, ValueError):
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
