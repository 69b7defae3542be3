"""The Dask services of this machine, and our configuration of Dask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import urljoin

from flows.services.service import HOST, HOSTS, Service, answers
from flows.settings.base import ServiceSettings

# Share of the machine's memory for all workers together. The scheduler, the servers and the user
# need some, too.
_MEMORY_SHARE = 0.75
_ORIGINS = "distributed.scheduler.dashboard.bokeh-application.allow-websocket-origin"
# Names of both among the services.
SCHEDULER, WORKERS = "dask-scheduler", "dask-workers"
# The number of messages that each connection remembers for debugging, with the W that is in them.
CLIENT_SETTINGS: dict[str, Any] = {"distributed.admin.low-level-log-length": 50}
# Our Dask configuration of a scheduler.
SCHEDULER_SETTINGS: dict[str, Any] = {
    **CLIENT_SETTINGS,
    # The time that tasks may wait for a worker when there is none. By default Dask waits for ever.
    "distributed.scheduler.no-workers-timeout": "5 minutes",
    # The number of workers that may die under one task. By default Dask blames the task at the
    # fourth, but preemption kills many workers without a fault of the task.
    "distributed.scheduler.allowed-failures": 10,
}


def dask_scheduler(port: int, dashboard_port: int) -> Service:
    """Return the Dask scheduler of this machine, with its dashboard."""
    page = f"http://{HOST}:{dashboard_port}/status"
    # Pages of other servers, which a browser shows, may not open the dashboard.
    origins = {_ORIGINS: [f"{host}:{dashboard_port}" for host in HOSTS]}
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
        is_ready=_workers_come(page, 0),  # the dashboard starts last
        environment=dask_environment(SCHEDULER_SETTINGS | origins),
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
        is_ready=_workers_come(scheduler.page, count),
    )


def _workers_come(dashboard: str | None, count: int) -> Callable[[], bool]:
    """Return what looks whether the scheduler with this dashboard has so many workers."""
    counts = urljoin(str(dashboard), "/json/counts.json")
    return partial(answers, counts, lambda reply: reply.json()["workers"] >= count)


def dask_environment(configuration: Mapping[str, Any]) -> dict[str, str]:
    """Return a configuration of Dask as environment variables, for another process."""
    return {
        f"DASK_{name.replace('.', '__').replace('-', '_').upper()}": str(value)
        for name, value in configuration.items()
    }
