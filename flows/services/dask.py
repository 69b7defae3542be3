"""The Dask services of this machine, and our configuration of Dask."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any
from urllib.parse import urljoin

from flows.services.service import HOST, HOSTS, Service, answer_of
from flows.settings.base import ServiceSettings

# Share of the machine's memory for all workers together. The scheduler, the servers and the user
# need some, too.
_MEMORY_SHARE = 0.75
_ORIGINS_VARIABLE = (
    "DASK_DISTRIBUTED__SCHEDULER__DASHBOARD__BOKEH_APPLICATION__ALLOW_WEBSOCKET_ORIGIN"
)
# Names of both among the services.
SCHEDULER, WORKERS = "dask-scheduler", "dask-workers"


def dask_scheduler(port: int, dashboard_port: int) -> Service:
    """Return the Dask scheduler of this machine, with its dashboard."""
    page = f"http://{HOST}:{dashboard_port}/status"
    # Pages of other servers, which a browser shows, may not open the dashboard.
    origins = json.dumps([f"{host}:{dashboard_port}" for host in HOSTS])
    return Service(
        name=SCHEDULER,
        title="Dask scheduler",
        address=f"tcp://{HOST}:{port}",
        page=page,
        ports=frozenset({port, dashboard_port}),
        command=[
            *("distributed.cli.dask_scheduler", "--host", HOST, "--port", str(port)),
            *("--dashboard-address", f"{HOST}:{dashboard_port}"),
        ],
        # The dashboard starts last.
        is_ready=lambda: _count_workers(page) is not None,
        environment={**scheduler_environment(), _ORIGINS_VARIABLE: origins},
    )


def dask_workers(settings: ServiceSettings, scheduler: Service) -> Service:
    """Return the workers of our scheduler: by default one for each core, and equal memory.

    Each has a nanny that restarts it when it dies.
    """
    from dask.system import CPU_COUNT  # noqa: PLC0415

    count = settings.workers or CPU_COUNT
    return Service(
        name=WORKERS,
        title="Dask workers",
        address=scheduler.address,
        command=[
            *("distributed.cli.dask_worker", scheduler.address, "--host", HOST),
            *("--nworkers", str(count), "--nthreads", str(settings.threads or 1)),
            *("--memory-limit", settings.memory or str(_MEMORY_SHARE / count)),
            # By default the HTTP server of a worker listens on every interface, even if the worker
            # has no dashboard.
            *("--no-dashboard", "--dashboard-address", f"{HOST}:0"),
        ],
        is_ready=lambda: (_count_workers(scheduler.page) or 0) >= count,
    )


def _count_workers(dashboard: str | None) -> int | None:
    """Return the number of workers of the scheduler with this dashboard; None without answer."""
    with suppress(KeyError, ValueError):
        reply = answer_of(urljoin(str(dashboard), "/json/counts.json"))
        return int(reply.json()["workers"]) if reply else None
    return None


# The number of messages that each connection remembers for debugging, with the W that is in them.
CLIENT_SETTINGS: dict[str, Any] = {"distributed.admin.low-level-log-length": 50}
# The number of workers that may die under one task. By default Dask blames the task at the fourth,
# but preemption kills many workers without a fault of the task.
ALLOWED_FAILURES = 10
# The time that tasks may wait for a worker when there is none. By default Dask waits for ever.
NO_WORKERS = "5 minutes"


def scheduler_settings() -> dict[str, Any]:
    """Return our Dask configuration of a scheduler."""
    return {
        "distributed.scheduler.no-workers-timeout": NO_WORKERS,
        "distributed.scheduler.allowed-failures": ALLOWED_FAILURES,
        **CLIENT_SETTINGS,
    }


def scheduler_environment() -> dict[str, str]:
    """Return `scheduler_settings` as environment variables, for a scheduler in another process."""
    return {
        f"DASK_{name.replace('.', '__').replace('-', '_').upper()}": str(value)
        for name, value in scheduler_settings().items()
    }
