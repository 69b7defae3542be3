"""What `ism-dask up` keeps up: it starts all services, and ends all if one of them ends.

To start it again is the work of systemd or Compose (`deploy/`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from shutil import rmtree
from typing import NoReturn

from flows.errors import FlowError, SettingsError
from flows.progress.interrupts import delay_interrupts
from flows.reports.pages import write_index
from flows.services.dask import SCHEDULER, WORKERS, dask_scheduler, dask_workers
from flows.services.liveness import is_running, receipts_to_send
from flows.services.service import (
    TEMPORARY,
    Service,
    ServiceRecord,
    Tell,
    free_port,
    launch_process,
    live_record,
    log_end,
    record_path,
    service_processes,
    services_folder,
    services_lock,
    start_services,
    stop_processes,
)
from flows.settings.base import PORTS, ServiceSettings
from flows.settings.fields import command_words
from flows.tracking.server import (
    REPORTS,
    SERVER,
    WORKER,
    avoid_proxies,
    external_api_address,
    prefect_environment,
    prefect_server,
    prefect_worker,
    report_server,
)
from storage import reports_folder

# Name of this process in its record, whose address is that of the API in use.
NAME = "up"
# All services in the order of their start: each may need those before it.
_SERVICES = (SERVER, REPORTS, SCHEDULER, WORKERS, WORKER)
# Seconds between two looks at the services.
_EVERY = 5.0
# More seconds than the slowest end of all services takes.
_STOP_SECONDS = 120.0


def service_records() -> list[ServiceRecord]:
    """Return the records of this machine's services, the supervisor first, as far as they run."""
    return [record for name in (NAME, *_SERVICES) if (record := live_record(name))]


def running_services() -> dict[str, str | None]:
    """Return the addresses of the services on this machine; None for those that do not run.

    They are `api` and `ui` of the Prefect server, `scheduler` and `dashboard` of Dask, the list of
    `reports`, and the work `pool` whose flow runs the Prefect worker starts.
    """
    records = [record for record in service_records() if record.address]
    addresses = {record.name: record.address for record in records}
    pages = {record.name: record.page for record in records}
    return {
        "api": addresses.get(NAME, addresses.get(SERVER)),
        "ui": pages.get(NAME, pages.get(SERVER)),
        "scheduler": addresses.get(SCHEDULER),
        "dashboard": pages.get(SCHEDULER),
        "reports": pages.get(REPORTS),
        "pool": addresses.get(WORKER),
    }


def why_ended() -> str:
    """Return why the last `up` ended by itself; empty if it did not, or if one runs."""
    last = ServiceRecord.find(record_path(NAME))
    return (last and last.ended) or ""


def run_supervised(settings: ServiceSettings, tell: Tell, shown: Callable[[bool], None]) -> None:
    """Keep all services up until the user interrupts, or one of them ends, then end all.

    `tell` shows a line of text. `shown` is called once all services run, or, with True, if another
    process supervises them; in that case this function returns at once.
    """
    avoid_proxies()
    own, why = ServiceRecord(name=NAME), ""
    with services_lock():
        if live_record(NAME):
            shown(True)
            return
        own.write()
        _end_all()  # what a killed supervisor has left
    try:
        services, api = _start_all(settings, tell)
        # The record has an address when all services run.
        replace(own, address=api, page=api.removesuffix("/api")).write()
        shown(False)
        with suppress(KeyboardInterrupt):  # the usual end
            _look_after(services, api)
        with suppress(OSError):  # the terminal may be gone
            tell("ending all of it ...")
    except Exception as error:
        why = str(error)
        raise
    finally:
        # Services that are half ended are worse than running ones.
        with delay_interrupts(), services_lock():
            _end_all()
            replace(own, ended=why).write()


def start_detached(settings: ServiceSettings) -> bool:
    """Let a process of its own run `run_supervised`; return whether another one does already."""
    command = ["flows.cli", "up", "--quiet", *command_words(ServiceSettings, vars(settings))]
    with services_lock():
        started = set() if live_record(NAME) else {launch_process(command, NAME, {})}
    try:
        while (record := live_record(NAME)) or any(map(is_running, started)):
            if record and record.address:
                return record.process not in started
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


def _start_all(settings: ServiceSettings, tell: Tell) -> tuple[list[Service], str]:
    """Start the services; return them in order, and the address of Prefect's API."""
    external = external_api_address()
    if external and settings.port:
        raise SettingsError(
            f"`port` is {settings.port}, but PREFECT_API_URL names a server that runs already, "
            f"{external}; leave out --port, or unset the variable"
        )
    ports = _choose_ports(settings, PORTS.keys() - ({"port"} if external else set()), tell)
    write_index(reports_folder())
    scheduler = dask_scheduler(ports["scheduler_port"], ports["dashboard_port"])
    prefect = [] if external else [prefect_server(ports["port"])]
    servers = [*prefect, report_server(ports["report_port"]), scheduler]
    start_services(servers, tell)
    api = external or servers[0].address
    workers = [dask_workers(settings, scheduler), prefect_worker(api, settings.pool)]
    start_services(workers, tell)
    return [*servers, *workers], api


def _choose_ports(settings: ServiceSettings, names: Iterable[str], tell: Tell) -> dict[str, int]:
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
        if port != wanted:
            tell(f"port {wanted} is in use: the {title} takes {port}")
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
    # The worker records the end of the runs that it has started, on the server.
    if worker := live_record(WORKER):
        stop_processes(service_processes(WORKER) - {worker.process})
        stop_processes(service_processes(WORKER))
    stop_processes(service_processes())
    rmtree(services_folder() / TEMPORARY, ignore_errors=True)
