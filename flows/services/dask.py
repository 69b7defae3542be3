"""A Dask cluster on this machine: a scheduler, and workers that stay."""

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

# Of the memory of the machine, for all workers together: the scheduler, the servers and whoever
# sits in front of it need some, too.
_SHARE = 0.75
_ORIGINS = "DASK_DISTRIBUTED__SCHEDULER__DASHBOARD__BOKEH_APPLICATION__ALLOW_WEBSOCKET_ORIGIN"
# Of the workers, in the folder of the records.
SCRATCH = "dask-space"


@dataclass(frozen=True, kw_only=True)
class DaskScheduler(Service):
    """The scheduler, with its dashboard."""

    name = "dask-scheduler"
    title = "Dask scheduler"

    port: int | None = None
    dashboard_port: int | None = None
    tls: bool | None = None

    @property
    def address(self) -> str:
        """Where clients and workers come to."""
        return f"{'tls' if self.tls else 'tcp'}://{HOST}:{self.port}"

    @property
    def page(self) -> str:
        """The dashboard."""
        return f"http://{HOST}:{self.dashboard_port}/status"

    def command(self) -> list[str]:
        """Return Dask's own command."""
        dashboard = f"{HOST}:{self.dashboard_port}"
        address = ["--host", HOST, "--port", str(self.port), "--dashboard-address", dashboard]
        return ["distributed.cli.dask_scheduler", *address, *_encrypting(self.address)]

    def environment(self) -> Mapping[str, str]:
        """Return what keeps tasks from waiting for ever, and pages of elsewhere off the dashboard.

        A browser may show such pages.
        """
        origins = json.dumps([f"{host}:{self.dashboard_port}" for host in HOSTS])
        return {**scheduler_environment(), _ORIGINS: origins}

    def ready(self) -> bool:
        """Return whether the dashboard, which is up last, knows of the scheduler."""
        return _counts(self.page) is not None

    def usual_ports(self) -> Mapping[str, int]:
        """Return Dask's own defaults."""
        return {"port": 8786, "dashboard_port": 8787}


@dataclass(frozen=True, kw_only=True)
class DaskWorkers(Service):
    """The workers, each with a nanny that starts it again when it dies."""

    name = "dask-workers"
    title = "Dask workers"

    scheduler: str | None = None
    monitor: str | None = None
    workers: int | None = None
    threads: int | None = None
    memory: str | None = None

    @property
    def address(self) -> str:
        """Whom they work for."""
        return str(self.scheduler)

    def command(self) -> list[str]:
        """Return Dask's own command: nannies, workers and their pages listen here only."""
        size = ["--nworkers", str(self.workers), "--nthreads", str(self.threads)]
        limits = ["--memory-limit", str(self.memory), "--local-directory", SCRATCH]
        # A worker without a dashboard has a page all the same, which would listen everywhere.
        pages = ["--no-dashboard", "--dashboard-address", f"{HOST}:0"]
        module = "distributed.cli.dask_worker"
        encrypting = _encrypting(self.address)
        return [module, self.address, "--host", HOST, *size, *limits, *pages, *encrypting]

    def ready(self) -> bool:
        """Return whether the scheduler counts them all."""
        counts = _counts(self.monitor)
        return counts is not None and counts["workers"] >= (self.workers or 1)

    def settled(self, ports: Ports) -> Self:
        """Return the workers with a core each, and a fair share of the memory."""
        from dask.system import CPU_COUNT  # noqa: PLC0415
        from dask.utils import format_bytes  # noqa: PLC0415
        from distributed.system import MEMORY_LIMIT  # noqa: PLC0415

        workers = self.workers or CPU_COUNT
        share = format_bytes(int(MEMORY_LIMIT * _SHARE / workers)).replace(" ", "")
        return replace(
            super().settled(ports),
            workers=workers,
            threads=self.threads or 1,
            memory=self.memory or share,
        )


def _encrypting(address: str) -> list[str]:
    """Return what Dask's commands are told to encrypt, where the address asks for it."""
    return own_certificates().arguments() if address.startswith("tls://") else []


def _counts(dashboard: str | None) -> dict[str, Any] | None:
    """Return how many workers, tasks and clients the scheduler with that dashboard has."""
    try:
        reply = httpx.get(urljoin(str(dashboard), "/json/counts.json"), timeout=5.0)
        return dict(reply.json()) if reply.is_success else None
    except (httpx.HTTPError, ValueError):
        return None


# How long tasks may wait for a worker when there is none: by default Dask waits for ever.
NO_WORKERS = "5 minutes"
# How many workers may end under one task. By default Dask takes the fourth for the task's fault,
# but whoever takes machines back takes many.
ALLOWED_FAILURES = 10
# Messages that each connection keeps for whoever looks for a fault, with the W that is in them.
MESSAGES = 50


def scheduler_settings() -> dict[str, Any]:
    """Return what a scheduler is to be told by the configuration of Dask."""
    return {
        "distributed.scheduler.no-workers-timeout": NO_WORKERS,
        "distributed.scheduler.allowed-failures": ALLOWED_FAILURES,
        **client_settings(),
    }


def client_settings() -> dict[str, Any]:
    """Return what whoever joins a scheduler is to be told by the configuration of Dask."""
    return {"distributed.admin.low-level-log-length": MESSAGES}


def scheduler_environment() -> dict[str, str]:
    """Return the same for one that is a process of its own."""
    return {
        f"DASK_{name.replace('.', '__').replace('-', '_').upper()}": str(value)
        for name, value in scheduler_settings().items()
    }
