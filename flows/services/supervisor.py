"""Start all services in order, restart those that end, and end all without leaving anything."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from shutil import rmtree

import psutil

from flows.errors import FlowError, SettingsError
from flows.services.certificates import own_certificates
from flows.services.dask import SCRATCH, DaskScheduler, DaskWorkers
from flows.services.end_signals import ignore_end_signals, interrupt_once
from flows.services.lost_runs import LostRuns
from flows.services.prefect import (
    PrefectServer,
    PrefectWorker,
    check_password,
    external_api_address,
    ui_address,
)
from flows.services.records import (
    PRIVATE,
    ProcessRecord,
    is_running,
    live_record,
    log_path,
    process_start,
    remove_record,
    service_processes,
    services_folder,
)
from flows.services.report_server import ReportServer
from flows.services.service import (
    Service,
    StartupMessages,
    check_options,
    end_process,
    ensure_running,
    launch_process,
    log_end,
    restart,
    stop_processes,
)
from flows.services.settings import ServiceSettings
from flows.services.status import NAME, RunningServices, running_services
from storage.atomic import explain_os_errors, lock_file

# In the order of their start: each service may need those before it, and ends before them.
KINDS: tuple[type[Service], ...] = (
    PrefectServer,
    ReportServer,
    DaskScheduler,
    DaskWorkers,
    PrefectWorker,
)

_EVERY = 0.5
# A service that ends is restarted after `_PAUSE` seconds. One that ends within `_SHORT_LIFE`
# seconds of its start, again and again, is restarted after 2 and 4 times that, then given up.
_RESTARTS = 3
_PAUSE = 1.0
_SHORT_LIFE = 10.0
# More seconds than the slowest end of all services takes.
_STOP_SECONDS = 120.0


def run_supervised(
    settings: ServiceSettings,
    telling: StartupMessages,
    shown: Callable[[RunningServices, bool], None],
) -> None:
    """Keep all services up until the user interrupts, then end them.

    Parameters
    ----------
    settings : ServiceSettings
        Settings of the services.
    telling : StartupMessages
        Callbacks that show the start.
    shown : callable
        Called once with the addresses of the services, and with whether another process
        supervises them. In that case this function returns at once.
    """
    with interrupt_once():
        members = _start_or_join(settings, telling)
        if members is None:
            shown(running_services() or RunningServices(), True)
            return
        try:
            shown(running_services() or RunningServices(), False)
            _look_after(members, telling)
        except KeyboardInterrupt:  # the usual end
            with suppress(OSError):  # the terminal may be gone
                telling.tell("ending all of it ...")
        finally:
            ignore_end_signals()
            with _service_lock():
                _end_all()


def start_detached(
    settings: ServiceSettings, telling: StartupMessages
) -> tuple[RunningServices, bool]:
    """Start all services, and a process that supervises them from then on.

    Return the arguments that `run_supervised` passes to `shown`.
    """
    with interrupt_once():
        if _start_or_join(settings, telling) is None:
            return running_services() or RunningServices(), True
        try:
            _hand_over(settings)
        except BaseException:
            ignore_end_signals()
            stop_all()
            raise
        return running_services() or RunningServices(), False


def stop_all() -> list[ProcessRecord]:
    """End all services, whichever process started them; return the records of those that ran."""
    if not services_folder().is_dir():
        return []
    ran = [record for name in (NAME, *_names()) if (record := live_record(name))]
    supervisor = live_record(NAME)
    process = supervisor.process if supervisor else None
    if process is not None:
        # The supervisor may still be starting services, which it then has to end.
        stop_processes({process}, _STOP_SECONDS)
    with _service_lock():
        if live_record(NAME) is None:  # no other process has started them again
            _end_all()
    return ran


def _names() -> list[str]:
    return [kind.name for kind in KINDS]


@contextmanager
def _service_lock() -> Iterator[None]:
    """Let only one process at a time start or end services."""
    with explain_os_errors(services_folder()):
        services_folder().mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        with lock_file(log_path(NAME)):
            yield


def _start_or_join(settings: ServiceSettings, telling: StartupMessages) -> list[Service] | None:
    """Start the services; return them in order, or None if another process supervises them."""
    with _service_lock():
        if live_record(NAME) is not None:
            _check_tls(settings)
            _check_running(settings)
            return None
        _write_own_record()
        running = [kind for kind in KINDS if live_record(kind.name)]
        try:
            return _start_services(settings, telling)
        except BaseException:
            ignore_end_signals()
            _end_services(kind for kind in KINDS if kind not in running)
            raise


def _check_tls(settings: ServiceSettings) -> None:
    """Raise FlowError if the settings demand TLS and the running Dask scheduler has none."""
    scheduler = live_record(DaskScheduler.name)
    if settings.tls and scheduler and not scheduler.options.get("tls"):
        raise FlowError(
            f"a Dask scheduler without TLS runs already, at {scheduler.address}; end it with "
            "`ism-dask up --stop`, and start it again with --tls"
        )


def _check_running(settings: ServiceSettings) -> None:
    """Raise FlowError for a setting that has no effect, since the services run otherwise."""
    for wanted in (_wanted_server(settings), *_wanted_services(settings)):
        record = live_record(wanted.name)
        if record:
            check_options(wanted, record)


def _wanted_server(settings: ServiceSettings) -> PrefectServer:
    """Return the Prefect server to start; raise SettingsError if it has a port but is not ours."""
    external = external_api_address()
    if external and settings.port:
        raise SettingsError(
            f"`port` is {settings.port}, but PREFECT_API_URL names a server that runs already, "
            f"{external}; leave out --port, or unset the variable"
        )
    return PrefectServer(port=settings.port)


def _wanted_services(
    settings: ServiceSettings,
) -> tuple[ReportServer, DaskScheduler, DaskWorkers, PrefectWorker]:
    """Return the other services, with the options that the settings set."""
    dask = DaskScheduler(
        port=settings.scheduler_port,
        dashboard_port=settings.dashboard_port,
        tls=settings.tls or None,
    )
    workers = DaskWorkers(
        workers=settings.workers, threads=settings.threads, memory=settings.memory
    )
    reports = ReportServer(port=settings.report_port)
    return reports, dask, workers, PrefectWorker(pool=settings.pool)


def _start_services(settings: ServiceSettings, telling: StartupMessages) -> list[Service]:
    server, external = _wanted_server(settings), external_api_address()
    own_server = [] if external else [server]
    if settings.tls and live_record(DaskScheduler.name) is None:
        own_certificates().make()  # restarted services use the same
    reports, dask, dask_workers, prefect_worker = _wanted_services(settings)
    servers = ensure_running([*own_server, reports, dask], telling)
    api, scheduler = external or servers[0].address, servers[-1]
    check_password(api)
    workers = ensure_running(
        [
            replace(dask_workers, scheduler=scheduler.address, monitor=scheduler.page),
            replace(prefect_worker, api=api),
        ],
        telling,
    )
    _write_own_record(api, ui_address(api))
    return [*servers, *workers]


def _write_own_record(address: str = "", page: str | None = None) -> None:
    """Write the record of this process, the supervisor; it has an address when all services run."""
    ProcessRecord(NAME, os.getpid(), process_start(psutil.Process()), address, page).write()


def _hand_over(settings: ServiceSettings) -> None:
    """Start a process that finds the running services and supervises them from now on."""
    remove_record(NAME)
    process = launch_process(["flows.cli", "up", "--quiet", *settings.arguments()], NAME, "wb", {})
    while is_running(process):
        record = live_record(NAME)
        if record and record.address:
            return
        time.sleep(0.1)
    if live_record(NAME) is None:  # if there is a record, another process was faster
        raise FlowError(f"the process that is to look after the services ended; {log_end(NAME)}")


def _look_after(members: list[Service], telling: StartupMessages) -> None:
    """Restart services that end, until the user interrupts or one of them ends too often.

    Report flow runs whose process dies.
    """
    records = {service.name: _Record(_now()) for service in members}
    lost_runs = _lost_runs()
    while True:
        time.sleep(_EVERY)
        lost_runs.look()
        for service in members:
            if live_record(service.name) is None:
                record = records[service.name].after_end()
                started = _restart_after_pause(service, record.short_lives, telling)
                records[service.name] = replace(record, started=started)


@dataclass(frozen=True)
class _Record:
    """When a service was started, None if that failed, and how many short lives it has had."""

    started: float | None
    short_lives: int = 0

    def after_end(self) -> _Record:
        """Return the record after the end of the service."""
        was_short = self.started is None or _now() - self.started < _SHORT_LIFE
        return replace(self, short_lives=self.short_lives + 1 if was_short else 0)


def _lost_runs() -> LostRuns:
    record = live_record(NAME)
    return LostRuns(record.address if record else "")


def _restart_after_pause(
    service: Service, short_lives: int, telling: StartupMessages
) -> float | None:
    """Start a service again; return when that was done, or None if it failed."""
    if short_lives > _RESTARTS:
        raise FlowError(
            f"the {service.title} ended for the {short_lives}th time right after its start, so all "
            f"else was ended too; {log_end(service.name)}"
        )
    seconds = _PAUSE * 2 ** max(0, short_lives - 1)
    what = f"the {service.title} ended; to be started again in {seconds:g} s"
    _print_error(f"{what}; {log_end(service.name)}")
    time.sleep(seconds)
    try:
        restart(service, telling)
    except FlowError as error:
        _print_error(str(error))  # the next round of `_look_after` counts this as an end
        return None
    return _now()


def _print_error(text: str) -> None:
    with suppress(OSError):  # the terminal may be gone, which is no reason to stop
        print("ism-dask:", text, file=sys.stderr, flush=True)


def _now() -> float:
    return time.monotonic()


def _end_all() -> None:
    """End every service, then remove the processes and files that remain of them."""
    _end_services(KINDS)
    stop_processes(set(service_processes()))
    rmtree(services_folder() / SCRATCH, ignore_errors=True)
    # A process that is killed while it writes a record leaves such a temporary file.
    for temporary in services_folder().glob("*.new"):
        temporary.unlink(missing_ok=True)


def _end_services(kinds: Iterable[type[Service]]) -> None:
    """End services in reverse order of their start, and remove the record of the supervisor."""
    for kind in reversed(list(kinds)):
        end_process(kind)
        if kind is PrefectWorker:
            _lost_runs().report_now()  # those that ended with the worker
    if live_record(DaskScheduler.name) is None:
        own_certificates().remove()
    remove_record(NAME)
