"""What `ism-dask up` keeps up: it starts all services, and ends all if one of them ends.

To start it again is the work of systemd or Compose (`deploy/`).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager, suppress
from dataclasses import replace
from shutil import rmtree
from types import FrameType

from flows.errors import FlowError, SettingsError
from flows.reports.pages import write_index
from flows.services.dask import SCHEDULER, WORKERS, dask_scheduler, dask_workers
from flows.services.liveness import is_running, receipts_to_send
from flows.services.service import (
    TEMPORARY,
    Service,
    ServiceRecord,
    Tell,
    choose_port,
    last_record,
    launch_process,
    live_record,
    log_end,
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
    check_password,
    external_api_address,
    prefect_environment,
    prefect_server,
    prefect_worker,
    report_server,
    without_password,
)
from storage import reports_folder

# Name of this process in its record, whose address is that of the API in use.
NAME = "up"
# All services in the order of their start: each may need those before it.
_SERVICES = (SERVER, REPORTS, SCHEDULER, WORKERS, WORKER)
# Seconds between two looks at the processes of the services, and between two requests to them. A
# service that answers none for so many seconds hangs; a busy machine takes some.
_EVERY, _ASK_EVERY, _SILENT = 0.5, 10.0, 60.0
# The number of ports that are tried, from the usual port on, before any other.
_NEXT = 10
# More seconds than the slowest end of all services takes.
_STOP_SECONDS = 120.0
_END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def service_records() -> list[ServiceRecord]:
    """Return the records of this machine's services, the supervisor first, as far as they run."""
    return [record for name in (NAME, *_SERVICES) if (record := live_record(name))]


def running_services() -> dict[str, str | None]:
    """Return the addresses of the services on this machine; None for those that do not run.

    They are `api` and `ui` of the Prefect server, `scheduler` and `dashboard` of Dask, the list of
    `reports`, and the work `pool` whose flow runs the Prefect worker starts.
    """
    records = {record.name: record for record in service_records() if record.address}
    absent = ServiceRecord(name="")
    prefect = records.get(NAME) or records.get(SERVER, absent)
    scheduler = records.get(SCHEDULER, absent)
    return {
        "api": prefect.address or None,
        "ui": prefect.page,
        "scheduler": scheduler.address or None,
        "dashboard": scheduler.page,
        "reports": records.get(REPORTS, absent).page,
        "pool": records.get(WORKER, absent).address or None,
    }


def why_ended() -> str:
    """Return why the last `up` ended by itself; empty if it did not, or if one runs."""
    last = last_record(NAME)
    return last.ended or "" if last else ""


def run_supervised(settings: ServiceSettings, tell: Tell, shown: Callable[[bool], None]) -> None:
    """Keep all services up until the user interrupts, or one of them ends, then end all.

    `tell` shows a line of text. `shown` is called once all services run, with whether another
    process supervises them; in that case this function returns at once.
    """
    avoid_proxies()
    with _interrupt_once():
        with services_lock():
            services = [] if _is_supervised(settings) else _start_all(settings, tell)
        if not services:
            shown(True)
            return
        why = ""
        try:
            shown(False)
            _look_after(services)
        except KeyboardInterrupt:  # the usual end
            with suppress(OSError):  # the terminal may be gone
                tell("ending all of it ...")
        except BaseException as error:
            why = str(error)
            raise
        finally:
            _ignore_end_signals()
            with services_lock():
                _end_all(why)


def start_detached(settings: ServiceSettings) -> bool:
    """Let a process of its own run `run_supervised`; return whether another one does already."""
    with services_lock():
        if _is_supervised(settings):
            return True
    options = command_words(ServiceSettings, vars(settings))
    process = launch_process(["flows.cli", "up", "--quiet", *options], NAME, {})
    try:
        while not ((record := live_record(NAME)) and record.address):
            # Without a record it has failed; else another `up` was faster.
            if record is None and not is_running(process):
                break
            time.sleep(0.1)
        else:
            return False
    except BaseException:
        stop_processes({process}, _STOP_SECONDS)
        raise
    raise FlowError(f"`ism-dask up` ended; {log_end(NAME)}")


def stop_all() -> list[ServiceRecord]:
    """End all services, whichever process started them; return the records of those that ran."""
    if not services_folder().is_dir():
        return []
    ran = service_records()
    # The supervisor may still be starting services, which it then has to end.
    supervisor = {each.process for each in ran if each.name == NAME and each.process}
    stop_processes(supervisor, _STOP_SECONDS)
    with services_lock():
        if live_record(NAME) is None:  # no other process has started them again
            _end_all()
    return ran


def _is_supervised(settings: ServiceSettings) -> bool:
    """Return whether a process supervises the services; raise FlowError if with other options."""
    record = live_record(NAME)
    if record is None:
        return False
    wanted = {name: value for name, value in vars(settings).items() if value is not None}
    if not wanted.items() <= record.options.items():
        given = (f"{name} {value}" for name, value in record.options.items() if value is not None)
        raise FlowError(
            f"`ism-dask up` runs already, as process {record.pid} with {', '.join(given)}; leave "
            "out the options that differ, or end it with `ism-dask up --stop`"
        )
    return True


def _start_all(settings: ServiceSettings, tell: Tell) -> list[Service]:
    """Start the services, and return them in order; end those that a killed supervisor has left."""
    _end_all()
    external = external_api_address()
    if external and settings.port:
        raise SettingsError(
            f"`port` is {settings.port}, but PREFECT_API_URL names a server that runs already, "
            f"{external}; leave out --port, or unset the variable"
        )
    ports = _choose_ports(settings, PORTS.keys() - ({"port"} if external else set()), tell)
    own = ServiceRecord(name=NAME, options={**vars(settings), **ports})
    own.write()
    try:
        write_index(reports_folder())
        scheduler = dask_scheduler(ports["scheduler_port"], ports["dashboard_port"])
        prefect = [] if external else [prefect_server(ports["port"])]
        servers = [*prefect, report_server(ports["report_port"]), scheduler]
        start_services(servers, tell)
        api = external or servers[0].address
        check_password(api)
        workers = [dask_workers(settings, scheduler), prefect_worker(api, settings.pool)]
        start_services(workers, tell)
    except BaseException:
        _ignore_end_signals()
        _end_all()
        raise
    # It has an address when all services run.
    replace(own, address=api, page=api.removesuffix("/api")).write()
    return [*servers, *workers]


def _choose_ports(settings: ServiceSettings, wanted: Set[str], tell: Tell) -> dict[str, int]:
    """Return a port for each of these settings: that of the last `up`, if nothing else has it."""
    last, ports = last_record(NAME), dict[str, int]()
    for name in sorted(wanted):
        (title, usual), named = PORTS[name], getattr(settings, name)
        known = last.options.get(name) if last else None
        preferred = [known or usual, *range(usual, usual + _NEXT), 0]
        ports[name] = choose_port(title, [named] if named else preferred, ports.values(), tell)
    return ports


def _look_after(services: list[Service]) -> None:
    """Return never; raise FlowError when a service has ended, or hangs."""
    heard = dict.fromkeys((service.name for service in services), time.monotonic())
    next_round = time.monotonic() + _ASK_EVERY
    while True:
        time.sleep(_EVERY)
        for service in services:
            if live_record(service.name) is None:
                raise _given_up(service, "has ended")
        if time.monotonic() > next_round:
            _report_lost_runs()
            for service in services:
                if service.is_ready():
                    heard[service.name] = time.monotonic()
                elif time.monotonic() > heard[service.name] + _SILENT:
                    raise _given_up(service, f"has not answered for {_SILENT:.0f} s")
            next_round = time.monotonic() + _ASK_EVERY


def _report_lost_runs() -> None:
    """Let a process report flow runs whose own process has died to the server, if there are some.

    To import Prefect takes a second and much memory.
    """
    supervisor = live_record(NAME)
    api = supervisor.address if supervisor else ""
    if any(receipts_to_send(without_password(api))):
        environment = {**prefect_environment(), "PREFECT_API_URL": api}
        launch_process(["flows.tracking.client"], "lost-runs", environment)


def _given_up(service: Service, what: str) -> FlowError:
    return FlowError(f"the {service.title} {what}, so all else was ended; {log_end(service.name)}")


def _end_all(why: str = "") -> None:
    """End every service, last ones first, with all that they have started; record why."""
    for name in reversed(_SERVICES):
        record = live_record(name)
        main = {record.process} if record and record.process else set()
        if name == WORKER:  # it records the end of the runs that it has started
            stop_processes(service_processes(name) - main)
        stop_processes(main)
        stop_processes(service_processes(name))
    stop_processes(service_processes())
    rmtree(services_folder() / TEMPORARY, ignore_errors=True)
    if last := last_record(NAME):
        replace(last, address="", page=None, ended=why).write()


@contextmanager
def _interrupt_once() -> Iterator[None]:
    """Turn SIGINT, SIGTERM and SIGHUP into one KeyboardInterrupt, and ignore those that follow.

    The end of all services takes a while, and must not be interrupted again.
    """
    # nohup starts a process with SIGHUP ignored, so that it survives its terminal: then SIGHUP is
    # not caught. The & of a script starts it with SIGINT ignored; this one is caught all the same,
    # because the processes that we start would inherit it and ignore SIGINT, too.
    is_nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    caught = [each for each in _END_SIGNALS if each != signal.SIGHUP or not is_nohup]

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        _ignore_end_signals()
        raise KeyboardInterrupt

    previous = {each: signal.signal(each, interrupt) for each in caught}
    try:
        yield
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)


def _ignore_end_signals() -> None:
    """Ignore all end signals: services that are half ended are worse than running ones."""
    for each in _END_SIGNALS:
        signal.signal(each, signal.SIG_IGN)
