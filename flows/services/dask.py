"""The Dask services of this machine, TLS certificates of clusters, our configuration of Dask."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, fields
from pathlib import Path
from shutil import rmtree
from typing import Any
from urllib.parse import urljoin

import httpx

from flows.errors import FlowError
from flows.services.service import (
    HOST,
    HOSTS,
    Service,
    ServiceRecord,
    live_record,
    preferred_ports,
    services_folder,
)
from flows.settings.toml_tables import RelativePath
from storage.atomic import make_folder

# Share of the machine's memory for all workers together. The scheduler, the servers and the user
# need some, too.
_MEMORY_SHARE = 0.75
_ORIGINS_VARIABLE = (
    "DASK_DISTRIBUTED__SCHEDULER__DASHBOARD__BOKEH_APPLICATION__ALLOW_WEBSOCKET_ORIGIN"
)
# Name of the scheduler among the services.
SCHEDULER = "dask-scheduler"


def dask_scheduler(
    port: int | None = None, dashboard_port: int | None = None, tls: bool | None = None
) -> Service:
    """Return the Dask scheduler of this machine, with its dashboard."""
    address = f"{'tls' if tls else 'tcp'}://{HOST}:{port}"
    page = f"http://{HOST}:{dashboard_port}/status"
    # Pages of other servers, which a browser shows, may not open the dashboard.
    origins = json.dumps([f"{host}:{dashboard_port}" for host in HOSTS])
    return Service(
        name=SCHEDULER,
        title="Dask scheduler",
        make=dask_scheduler,
        options={"port": port, "dashboard_port": dashboard_port, "tls": tls},
        ports=preferred_ports(SCHEDULER, port=8786, dashboard_port=8787),
        address=address,
        page=page,
        command=[
            *("distributed.cli.dask_scheduler", "--host", HOST, "--port", str(port)),
            *("--dashboard-address", f"{HOST}:{dashboard_port}"),
            *_tls_options(address),
        ],
        # The dashboard starts last.
        is_ready=lambda: _count_workers(page) is not None,
        environment={**scheduler_environment(), _ORIGINS_VARIABLE: origins},
    )


def dask_workers(
    workers: int | None = None, threads: int | None = None, memory: str | None = None
) -> Service:
    """Return the workers of our scheduler: by default one for each core, and equal memory.

    Each has a nanny that restarts it when it dies.
    """
    from dask.system import CPU_COUNT  # noqa: PLC0415

    count = workers or CPU_COUNT
    scheduler = live_record(SCHEDULER) or ServiceRecord(name=SCHEDULER)
    return Service(
        name="dask-workers",
        title="Dask workers",
        make=dask_workers,
        options={"workers": workers, "threads": threads, "memory": memory},
        address=scheduler.address,
        command=[
            *("distributed.cli.dask_worker", scheduler.address, "--host", HOST),
            *("--nworkers", str(count), "--nthreads", str(threads or 1)),
            *("--memory-limit", memory or str(_MEMORY_SHARE / count)),
            # By default the HTTP server of a worker listens on every interface, even if the worker
            # has no dashboard.
            *("--no-dashboard", "--dashboard-address", f"{HOST}:0"),
            *_tls_options(scheduler.address),
        ],
        is_ready=lambda: (_count_workers(scheduler.page) or 0) >= count,
    )


def _tls_options(address: str) -> list[str]:
    """Return the TLS options of Dask's commands if the address is a tls:// one, else none."""
    if not address.startswith("tls://"):
        return []
    files = {"ca-file": "ca.pem", "cert": "cert.pem", "key": "key.pem"}
    own = certificates_folder()
    return ["--protocol=tls", *(f"--tls-{name}={own / file}" for name, file in files.items())]


def _count_workers(dashboard: str | None) -> int | None:
    """Return the number of workers of the scheduler with this dashboard; None without answer."""
    try:
        reply = httpx.get(urljoin(str(dashboard), "/json/counts.json"), timeout=5.0)
        return int(reply.json()["workers"]) if reply.is_success else None
    except (httpx.HTTPError, KeyError, ValueError):
        return None


@dataclass(frozen=True)
class Tls:
    """Paths of PEM files such as `deploy/tls/make-certificates` writes."""

    ca_file: RelativePath  # certificate of the authority to trust
    cert: RelativePath
    key: RelativePath

    def __post_init__(self) -> None:
        for each in fields(self):
            path = getattr(self, each.name)
            if not os.path.isfile(path):  # noqa: PTH113 - no error for a name that is too long
                raise ValueError(f"{each.name}: there is no file {path}")

    def security(self) -> Any:
        """Return a `distributed.Security` with the same certificate for every role."""
        from distributed import Security  # noqa: PLC0415

        roles = ("client", "scheduler", "worker")
        keys = {f"tls_{role}_key": str(self.key) for role in roles}
        certificates = {f"tls_{role}_cert": str(self.cert) for role in roles}
        return Security(
            require_encryption=True, tls_ca_file=str(self.ca_file), **keys, **certificates
        )


def make_certificates(folder: Path) -> Tls:
    """Write a new certificate, which trusts only itself, to a folder that its owner may read."""
    security = temporary_security()
    rmtree(folder, ignore_errors=True)
    make_folder(folder, private=True)
    texts = {
        "ca": security.tls_ca_file,
        "cert": security.tls_worker_cert,
        "key": security.tls_worker_key,
    }
    for name, text in texts.items():
        path = folder / f"{name}.pem"
        path.touch(mode=0o600)
        path.write_text(text, encoding="ascii")
    return certificates_in(folder)


def certificates_in(folder: Path) -> Tls:
    """Return the files of `make_certificates`; raise ValueError if one is missing."""
    return Tls(*(folder / f"{name}.pem" for name in ("ca", "cert", "key")))


def certificates_folder() -> Path:
    """Return the folder of the certificates for the Dask services of this machine."""
    return services_folder() / "tls"


def temporary_security() -> Any:
    """Return a `distributed.Security` with new certificates, in memory only."""
    from distributed import Security  # noqa: PLC0415

    try:
        return Security.temporary()
    except ImportError as error:
        raise FlowError(
            "certificates cannot be made without the package cryptography; install it with "
            "`pip install 'ism-dask[tls]'`"
        ) from error


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
