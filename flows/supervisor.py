"""What `ism-dask up` keeps up: it starts all services, restarts those that end, and ends all."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from shutil import rmtree
from types import FrameType

import psutil

from flows.errors import FlowError, SettingsError
from flows.services.certificates import own_certificates
from flows.services.dask import DASK_SCHEDULER, DASK_WORKERS, SCRATCH
from flows.services.liveness import is_running, receipts_to_send
from flows.services.report_server import REPORT_SERVER
from flows.services.service import (
    Service,
    ServiceKind,
    ServiceRecord,
    Tell,
    WantedService,
    end_service,
    ensure_running,
    launch_process,
    live_record,
    log_end,
    log_path,
    marked,
    restart,
    service_processes,
    services_folder,
    stop_processes,
)
from flows.services.settings import ServiceSettings
from flows.tracking.server import (
    PREFECT_SERVER,
    PREFECT_WORKER,
    avoid_proxies,
    check_password,
    external_api_address,
    prefect_environment,
    ui_address,
    without_password,
)
from storage.atomic import explain_os_errors, lock_file, make_folder

# Name of this process in its record, whose address is that of the API in use.
NAME = "up"
# In the order of their start: each service may need those before it, and ends before them.
KINDS = (PREFECT_SERVER, REPORT_SERVER, DASK_SCHEDULER, DASK_WORKERS, PREFECT_WORKER)

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
    names = [NAME, *(kind.name for kind in KINDS)]
    return [record for name in names if (record := live_record(name))]


def running_services() -> dict[str, str | None]:
    """Return the addresses of the services on this machine; None for those that do not run.

    They are `api` and `ui` of the Prefect server, `scheduler` and `dashboard` of Dask, the list of
    `reports`, and the work `pool` whose flow runs the Prefect worker starts.
    """
    records = {record.name: record for record in service_records()}
    absent = ServiceRecord(name="")
    supervisor = records.get(NAME, absent)
    main = supervisor if supervisor.address else records.get(PREFECT_SERVER.name, absent)
    scheduler = records.get(DASK_SCHEDULER.name, absent)
    return {
        "api": main.address or None,
        "ui": main.page,
        "scheduler": scheduler.address or None,
        "dashboard": scheduler.page,
        "reports": records.get(REPORT_SERVER.name, absent).address or None,
        "pool": records.get(PREFECT_WORKER.name, absent).address or None,
    }


def run_supervised(settings: ServiceSettings, tell: Tell, shown: Callable[[bool], None]) -> None:
    """Keep all services up until the user interrupts, then end them.

    Parameters
    ----------
    settings : ServiceSettings
        Settings of the services.
    tell : callable
        Shows a line of text.
    shown : callable
        Called once all services run, with whether another process supervises them. In that case
        this function returns at once.
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
            with _service_lock():
                _end_all()


def start_detached(settings: ServiceSettings) -> bool:
    """Let a process of its own run `run_supervised`; return whether another one does already."""
    with explain_os_errors(services_folder()):
        make_folder(services_folder(), private=True)
    if live_record(NAME) is not None:
        with _service_lock():
            _check_running(settings)
        return True
    process = launch_process(["flows.cli", "up", "--quiet", *settings.arguments()], NAME, "wb", {})
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
    supervisor = live_record(NAME)
    process = supervisor.process if supervisor else None
    if process is not None:
        # The supervisor may still be starting services, which it then has to end.
        stop_processes({process}, _STOP_SECONDS)
    with _service_lock():
        if live_record(NAME) is None:  # no other process has started them again
            _end_all()
    return ran


@contextmanager
def _service_lock() -> Iterator[None]:
    """Let only one process at a time start or end services."""
    with explain_os_errors(services_folder()):
        make_folder(services_folder(), private=True)
        with lock_file(log_path(NAME)):
            yield


def _start_or_join(settings: ServiceSettings, tell: Tell) -> list[Service] | None:
    """Start the services; return them in order, or None if another process supervises them."""
    with _service_lock():
        if live_record(NAME) is not None:
            _check_running(settings)
            return None
        own = ServiceRecord(name=NAME)
        own.write()
        running = [kind for kind in KINDS if live_record(kind.name)]
        try:
            services, api = _start_services(settings, tell)
        except BaseException:
            _ignore_end_signals()
            _end_services(kind for kind in KINDS if kind not in running)
            own.remove()
            raise
        # It has an address when all services run.
        replace(own, address=api, page=ui_address(api)).write()
        return services


def _check_running(settings: ServiceSettings) -> None:
    """Raise FlowError for a setting that has no effect, since the services run otherwise."""
    scheduler = live_record(DASK_SCHEDULER.name)
    if settings.tls and scheduler and not scheduler.options.get("tls"):
        raise FlowError(
            f"a Dask scheduler without TLS runs already, at {scheduler.address}; end it with "
            "`ism-dask up --stop`, and start it again with --tls"
        )
    for wanted in _wanted_services(settings):
        wanted.check()


def _wanted_services(settings: ServiceSettings) -> list[WantedService]:
    """Return the services with the options that the settings set, in the order of their start.

    Raise SettingsError if the Prefect server has a port but is not ours.
    """
    external = external_api_address()
    if external and settings.port:
        raise SettingsError(
            f"`port` is {settings.port}, but PREFECT_API_URL names a server that runs already, "
            f"{external}; leave out --port, or unset the variable"
        )
    dask = {
        "port": settings.scheduler_port,
        "dashboard_port": settings.dashboard_port,
        "tls": settings.tls or None,
    }
    workers = {name: getattr(settings, name) for name in ("workers", "threads", "memory")}
    return [
        WantedService(PREFECT_SERVER, {"port": settings.port}),
        WantedService(REPORT_SERVER, {"port": settings.report_port}),
        WantedService(DASK_SCHEDULER, dask),
        WantedService(DASK_WORKERS, workers),
        WantedService(PREFECT_WORKER, {"pool": settings.pool}),
    ]


def _start_services(settings: ServiceSettings, tell: Tell) -> tuple[list[Service], str]:
    """Start the services; return them in order, and the address of the API in use."""
    wanted, external = _wanted_services(settings), external_api_address()
    if settings.tls and live_record(DASK_SCHEDULER.name) is None:
        own_certificates().make()  # restarted services use the same
    servers = ensure_running(wanted[1:3] if external else wanted[:3], tell)
    api, scheduler = external or servers[0].address, servers[-1]
    check_password(api)
    dask_workers, worker = wanted[3:]
    there = {"scheduler": scheduler.address, "monitor": scheduler.page}
    workers = ensure_running(
        [
            WantedService(dask_workers.kind, {**dask_workers.options, **there}),
            WantedService(worker.kind, {**worker.options, "api": api}),
        ],
        tell,
    )
    return [*servers, *workers], api


def _look_after(services: list[Service], tell: Tell) -> None:
    """Restart services that end, until the user interrupts or one of them ends too often.

    Report flow runs whose process dies.
    """
    watched = [_WatchedService(service) for service in services]
    reporter = _reporter()
    while True:
        time.sleep(_EVERY)
        reporter.report_lost()
        for each in watched:
            if live_record(each.service.kind.name) is None:
                each.restart(tell)


@dataclass
class _WatchedService:
    """A service that is restarted, with the time of its last start, and its short lives in a row.

    The time is None if the last start failed.
    """

    service: Service
    started: float | None = field(default_factory=time.monotonic)
    short_lives: int = 0

    def restart(self, tell: Tell) -> None:
        """Start the service again after a pause; raise FlowError if it has ended too often."""
        title, log = self.service.kind.title, log_end(self.service.kind.name)
        was_short = self.started is None or time.monotonic() - self.started < _SHORT_LIFE
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
            self.started = None
        else:
            self.started = time.monotonic()


@dataclass
class _Reporter:
    """Reports flow runs whose process has died to the server at `api`, by a process of its own.

    To import Prefect takes a second and much memory.
    """

    api: str
    process: psutil.Popen | None = None
    last: float = -_REPORTS_EVERY

    def report_lost(self, wait: float | None = None) -> None:
        """Report the lost runs, if there are some; or wait so many seconds for that."""
        is_due = wait is not None or time.monotonic() > self.last + _REPORTS_EVERY
        is_busy = self.process is not None and self.process.poll() is None
        if is_due and not is_busy and any(receipts_to_send(without_password(self.api))):
            self.last = time.monotonic()
            own = {"PREFECT_API_URL": self.api, **marked("lost-runs")}
            environment = prefect_environment()
            self.process = launch_process(
                ["flows.tracking.outbox"], "lost-runs", "wb", environment, **own
            )
            if wait is not None:
                with suppress(psutil.TimeoutExpired):
                    self.process.wait(wait)


def _reporter() -> _Reporter:
    record = live_record(NAME)
    return _Reporter(record.address if record else "")


def _print_error(text: str) -> None:
    with suppress(OSError):  # the terminal may be gone, which is no reason to stop
        print("ism-dask:", text, file=sys.stderr, flush=True)


def _end_all() -> None:
    """End every service, then remove the processes and files that remain of them."""
    _end_services(KINDS)
    stop_processes(service_processes())
    rmtree(services_folder() / SCRATCH, ignore_errors=True)
    ServiceRecord(name=NAME).remove()


def _end_services(kinds: Iterable[ServiceKind]) -> None:
    """End services in reverse order of their start."""
    for kind in reversed(list(kinds)):
        end_service(kind)
        if kind is PREFECT_WORKER:
            _reporter().report_lost(_REPORT_SECONDS)  # those that ended with the worker
    if live_record(DASK_SCHEDULER.name) is None:
        own_certificates().remove()


@contextmanager
def _interrupt_once() -> Iterator[None]:
    """Turn SIGINT, SIGTERM and SIGHUP into one KeyboardInterrupt, and ignore those that follow.

    The end of all services takes a while, and must not be interrupted again.
    """
    # nohup starts a process with SIGHUP ignored, so that it survives its terminal: then SIGHUP is
    # not caught. The & of a script starts it with SIGINT ignored; this one is caught all the same,
    # because the processes that we start would inherit it and ignore SIGINT, too.
    caught = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        caught.append(signal.SIGHUP)

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
