"""What `ism-dask up` keeps up: it starts all services, and ends all if one of them ends.

To start it again is the work of systemd (`deploy/systemd`).
"""

from __future__ import annotations

import platform
import time
import tomllib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from importlib.resources import files
from shutil import rmtree
from typing import Any, NoReturn

from dask.system import CPU_COUNT

from flows.compute.places import SCHEDULER, SCHEDULER_SETTINGS, dask_environment
from flows.errors import FlowError, SettingsError
from flows.progress.interrupts import delay_interrupts
from flows.reports.pages import write_index
from flows.services.liveness import is_running, receipts_to_send
from flows.services.service import (
    HOST,
    TEMPORARY,
    Service,
    ServiceRecord,
    free_port,
    launch_process,
    live_record,
    log_end,
    service_processes,
    services_folder,
    services_lock,
    start_services,
    stop_processes,
)
from flows.settings.base import POOL, PORTS, ServiceSettings
from flows.settings.fields import command_words
from flows.tracking.server import (
    REPORTS,
    SERVER,
    avoid_proxies,
    basic_auth,
    external_api_address,
    prefect_environment,
)
from storage import reports_folder

# Name of this process in its record, whose address is that of the API in use.
NAME = "up"
WORKERS, WORKER = "dask-workers", "prefect-worker"
# All services in the order in which they are listed.
_NAMES = (SERVER, REPORTS, SCHEDULER, WORKERS, WORKER)
# Share of the machine's memory for all Dask workers together. The scheduler, the servers and the
# user need some, too.
_MEMORY_SHARE = 0.75
# Seconds between two looks at the services.
_EVERY = 5.0
# More seconds than the slowest end of all services takes.
_STOP_SECONDS = 120.0


def service_records() -> list[ServiceRecord]:
    """Return the records of this machine's services, the supervisor first, as far as they run."""
    return [record for name in (NAME, *_NAMES) if (record := live_record(name))]


def run_supervised(settings: ServiceSettings, shown: Callable[[], None]) -> None:
    """Keep all services up until the user interrupts, or one of them ends, then end all.

    `shown` is called once all services run.
    """
    avoid_proxies()
    own = ServiceRecord(name=NAME)
    with services_lock():
        if live_record(NAME):
            raise FlowError("`ism-dask up` runs here already: see `ism-dask up --status`")
        own.write()
        _end_all()  # what a killed supervisor has left
    try:
        services, api = _start_all(settings)
        # The record has an address when all services run.
        replace(own, address=api, page=api.removesuffix("/api")).write()
        shown()
        with suppress(KeyboardInterrupt):  # the usual end
            _look_after(services, api)
    finally:
        # Services that are half ended are worse than running ones.
        with delay_interrupts(), services_lock():
            _end_all()
            own.remove()


def start_detached(settings: ServiceSettings) -> None:
    """Let a process of its own run `run_supervised`, unless one does; wait for all services."""
    command = ["flows.cli", "up", "--quiet", *command_words(ServiceSettings, vars(settings))]
    with services_lock():
        started = set() if live_record(NAME) else {launch_process(command, NAME, {})}
    try:
        while (record := live_record(NAME)) or any(map(is_running, started)):
            if record and record.address:
                return
            time.sleep(0.1)
    except BaseException:
        stop_processes(started, _STOP_SECONDS)
        raise
    raise FlowError(f"`ism-dask up` ended; {log_end(NAME)}")


def stop_all() -> list[ServiceRecord]:
    """End all services, whichever process started them; return the records of those that ran."""
    ran = service_records()
    # The supervisor may still be starting services, which it then has to end.
    supervisor = {each.process for each in ran if each.name == NAME and each.process}
    stop_processes(supervisor, _STOP_SECONDS)
    with services_lock():
        _end_all()
    return ran


def _start_all(settings: ServiceSettings) -> tuple[list[Service], str]:
    """Start the services; return them in order, and the address of Prefect's API."""
    external = external_api_address()
    if external and settings.port:
        raise SettingsError(
            f"`port` is {settings.port}, but PREFECT_API_URL names a server that runs already, "
            f"{external}; leave out --port, or unset the variable"
        )
    ports = _choose_ports(settings, PORTS.keys() - ({"port"} if external else set()))
    write_index(reports_folder())
    api, count = external or f"http://{HOST}:{ports['port']}/api", settings.workers or CPU_COUNT
    values = {
        **ports,
        "api": api,
        "reports": reports_folder().absolute(),
        "workers": count,
        "threads": settings.threads or 1,
        "memory": settings.memory or _MEMORY_SHARE / count,
        "pool": settings.pool or POOL,
        "machine": platform.node(),
    }
    services = [service(name, **values) for name in (_NAMES[1:] if external else _NAMES)]
    start_services(services)
    return services, api


def service(name: str, **values: Any) -> Service:
    """Return a service of `services.toml`, in whose entries these values stand."""

    def filled(entry: Any) -> Any:
        if isinstance(entry, dict):
            return {key: filled(each) for key, each in entry.items()}
        if isinstance(entry, list):
            return [filled(each) for each in entry]
        return entry.format(**values) if isinstance(entry, str) else entry

    text = (files("flows.services") / "services.toml").read_text(encoding="utf-8")
    entries = filled(tomllib.loads(text)[name])
    ours = {**prefect_environment(), **dask_environment(SCHEDULER_SETTINGS)}
    environment = {**ours, **entries.pop("environment", {})}
    auth = basic_auth() if entries.pop("is_private", False) else None
    return Service(name=name, auth=auth, environment=environment, **entries)


def _choose_ports(settings: ServiceSettings, names: Iterable[str]) -> dict[str, int]:
    """Return a port for each of these settings: the one given, else the usual or any free one."""
    ports = dict[str, int]()
    for name in sorted(names, key=lambda each: getattr(settings, each) is None):  # given ones first
        (title, usual), given = PORTS[name], getattr(settings, name)
        wanted = given or usual
        ports[name] = port = free_port(0 if wanted in ports.values() else wanted)
        if port != given and given:
            raise FlowError(
                f"the port {given} that you named for the {title} is in use; name another"
            )
    return ports


def _look_after(services: Iterable[Service], api: str) -> NoReturn:
    """Look at the services again and again; raise FlowError when one has ended, or hangs."""
    while True:
        time.sleep(_EVERY)
        # A process reports runs whose own process has died: to import Prefect takes much memory.
        if any(receipts_to_send(api)):
            environment = {**prefect_environment(), "PREFECT_API_URL": api}
            launch_process(["flows.tracking.client"], "lost-runs", environment)
        for each in services:
            each.is_well()


def _end_all() -> None:
    """End every service, with all that it has started."""
    runs = service_processes(WORKER)
    if worker := live_record(WORKER):
        # It records the end of the runs that it has started.
        stop_processes(runs - {worker.process})
    stop_processes(runs)
    stop_processes(service_processes())
    rmtree(services_folder() / TEMPORARY, ignore_errors=True)
