"""What `ism-dask up` keeps up: it starts all services, restarts those that end, and ends all."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from shutil import rmtree
from types import FrameType

import psutil

from flows.errors import FlowError, SettingsError
from flows.reports.html import write_index
from flows.services.dask import (
    SCHEDULER,
    certificates_folder,
    dask_scheduler,
    dask_workers,
    make_certificates,
)
from flows.services.liveness import is_running, receipts_to_send
from flows.services.service import (
    TEMPORARY,
    Service,
    ServiceRecord,
    Tell,
    end_service,
    ensure_running,
    launch_process,
    live_record,
    log_end,
    restart,
    service_processes,
    services_folder,
    services_lock,
    stop_processes,
)
from flows.settings.base import ServiceSettings
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
    ui_address,
    without_password,
)
from storage import reports_folder

# Name of this process in its record, whose address is that of the API in use.
NAME = "up"

_EVERY = 0.5
# A service that ends is restarted after `_PAUSE` seconds. One that ends within `_SHORT_LIFE`
# seconds of its start, again and again, is restarted after 2 and 4 times that, then given up.
_RESTARTS = 3
_PAUSE = 1.0
_SHORT_LIFE = 10.0
# More seconds than the slowest end of all services takes.
_STOP_SECONDS = 120.0
# Seconds between two reports of flow runs whose process has died, and those that one may take.
_REPORTS_EVERY, _REPORT_SECONDS = 10.0, 20.0
_END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def service_records() -> list[ServiceRecord]:
    """Return the records of this machine's services, the supervisor first, as far as they run."""
    names = [NAME, *(service.name for service in _all_services())]
    return [record for name in names if (record := live_record(name))]


def _all_services() -> list[Service]:
    """Return all services in the order of their start: each may need those before it."""
    return [prefect_server(), report_server(), dask_scheduler(), dask_workers(), prefect_worker()]


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


def run_supervised(settings: ServiceSettings, tell: Tell, shown: Callable[[bool], None]) -> None:
    """Keep all services up until the user interrupts, then end them.

    `tell` shows a line of text. `shown` is called once all services run, with whether another
    process supervises them; in that case this function returns at once.
    """
    avoid_proxies()
    with _interrupt_once():
        services = _start_or_join(settings, tell)
        if services is None:
            shown(True)
            return
        try:
            shown(False)
            _look_after(services, tell)
        except KeyboardInterrupt:  # the usual end
            with suppress(OSError):  # the terminal may be gone
                tell("ending all of it ...")
        finally:
            _ignore_end_signals()
            with services_lock(NAME):
                _end_all()


def start_detached(settings: ServiceSettings) -> bool:
    """Let a process of its own run `run_supervised`; return whether another one does already."""
    with services_lock(NAME):
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
    with services_lock(NAME):
        if live_record(NAME) is None:  # no other process has started them again
            _end_all()
    return ran


def _start_or_join(settings: ServiceSettings, tell: Tell) -> list[Service] | None:
    """Start the services; return them in order, or None if another process supervises them."""
    with services_lock(NAME):
        if _is_supervised(settings):
            return None
        own = ServiceRecord(name=NAME)
        own.write()
        new = [each for each in _all_services() if live_record(each.name) is None]
        try:
            external = external_api_address()
            write_index(reports_folder())
            wanted = _servers(settings, external)
            if settings.tls and live_record(SCHEDULER) is None:
                make_certificates(certificates_folder())  # restarted services use the same
            servers = ensure_running(wanted, tell)
            api = external or servers[0].address
            check_password(api)
            services = [*servers, *ensure_running(_workers(settings, api), tell)]
        except BaseException:
            _ignore_end_signals()
            _end_services(new)
            if not service_processes():
                rmtree(services_folder() / TEMPORARY, ignore_errors=True)
            own.remove()
            raise
        # It has an address when all services run.
        replace(own, address=api, page=ui_address(api)).write()
        return services


def _is_supervised(settings: ServiceSettings) -> bool:
    """Return whether a process supervises the services; raise FlowError if they run otherwise."""
    if live_record(NAME) is None:
        return False
    for wanted in (*_servers(settings, external_api_address()), *_workers(settings, None)):
        wanted.check()
    return True


def _servers(settings: ServiceSettings, external: str | None) -> list[Service]:
    """Return the servers that are wanted, that of Prefect first unless there is an external one."""
    if external and settings.port:
        raise SettingsError(
            f"`port` is {settings.port}, but PREFECT_API_URL names a server that runs already, "
            f"{external}; leave out --port, or unset the variable"
        )
    prefect = [] if external else [prefect_server(settings.port)]
    ports = settings.scheduler_port, settings.dashboard_port
    reports = report_server(settings.report_port)
    return [*prefect, reports, dask_scheduler(*ports, settings.tls or None)]


def _workers(settings: ServiceSettings, api: str | None) -> list[Service]:
    """Return the workers that are wanted; `api` is the address of the Prefect server."""
    dask = dask_workers(settings.workers, settings.threads, settings.memory)
    return [dask, prefect_worker(api, settings.pool)]


def _look_after(services: list[Service], tell: Tell) -> None:
    """Restart services that end, until the user interrupts or one of them ends too often.

    Report flow runs whose process dies.
    """
    watched = [_WatchedService(service) for service in services]
    report, next_report = None, 0.0
    while True:
        time.sleep(_EVERY)
        if time.monotonic() > next_report and (report is None or report.poll() is not None):
            report, next_report = _report_lost_runs(), time.monotonic() + _REPORTS_EVERY
        for each in watched:
            if live_record(each.service.name) is None:
                each.restart(tell)


def _report_lost_runs() -> psutil.Popen | None:
    """Report flow runs whose process has died to the server in use, if there are some.

    Return the process that does it. To import Prefect takes a second and much memory.
    """
    supervisor = live_record(NAME)
    api = supervisor.address if supervisor else ""
    if not any(receipts_to_send(without_password(api))):
        return None
    environment = {**prefect_environment(), "PREFECT_API_URL": api}
    return launch_process(["flows.tracking.client"], "lost-runs", environment)


@dataclass
class _WatchedService:
    """A service, the time of its last start, and the number of its short lives in a row."""

    service: Service
    started: float = field(default_factory=time.monotonic)
    short_lives: int = 0

    def restart(self, tell: Tell) -> None:
        """Start the service again after a pause; raise FlowError if it has ended too often."""
        title, log = self.service.title, log_end(self.service.name)
        was_short = time.monotonic() - self.started < _SHORT_LIFE
        self.short_lives = self.short_lives + 1 if was_short else 0
        if self.short_lives > _RESTARTS:
            raise FlowError(
                f"the {title} ended for the {self.short_lives}th time right after its start, so "
                f"all else was ended too; {log}"
            )
        seconds = _PAUSE * 2 ** max(0, self.short_lives - 1)
        _print_error(f"the {title} ended; to be started again in {seconds:g} s; {log}")
        time.sleep(seconds)
        try:
            restart(self.service, tell)
        except FlowError as error:
            _print_error(str(error))
        self.started = time.monotonic()


def _print_error(text: str) -> None:
    with suppress(OSError):  # the terminal may be gone, which is no reason to stop
        print("ism-dask:", text, file=sys.stderr, flush=True)


def _end_all() -> None:
    """End every service, then remove the processes and files that remain of them."""
    _end_services(_all_services())
    stop_processes(service_processes())
    rmtree(services_folder() / TEMPORARY, ignore_errors=True)
    ServiceRecord(name=NAME).remove()


def _end_services(services: list[Service]) -> None:
    """End services in reverse order of their start."""
    for service in reversed(services):
        end_service(service)
        # Runs that ended with the worker.
        if service.starts_runs and (report := _report_lost_runs()) is not None:
            with suppress(psutil.TimeoutExpired):
                report.wait(_REPORT_SECONDS)
    if live_record(SCHEDULER) is None:
        rmtree(certificates_folder(), ignore_errors=True)


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
