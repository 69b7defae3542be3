"""Services, processes that stay up: how they are found, started and ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from flows.errors import FlowError
from flows.services.liveness import ProcessRecord, is_running, process_start
from flows.services.ports import Ports
from storage.atomic import explain_os_errors, lock_file, make_folder
from storage.errors import DamagedStore
from storage.paths import home

# Environment variable of every process of a service, and of all processes that it starts.
_MARK = "ISM_DASK_SERVICE"
# Seconds within which a service has to be ready, and to end.
_READY_SECONDS, _GRACE_SECONDS = 120.0, 10.0
_FOLDER_VARIABLES = ("ISM_DASK_HOME", "ISM_DASK_DATA", "PREFECT_HOME")

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class ServiceRecord(ProcessRecord):
    """The record of the process of a service. It stays when the process has ended.

    Attributes
    ----------
    name : str
        Name of the service.
    address : str
        Address of the service for programs.
    page : str, optional
        Address of its web page.
    options : mapping
        Options that the service was started with.
    """

    name: str
    address: str = ""
    page: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The file of the record."""
        return services_folder() / f"{self.name}.json"


def services_folder() -> Path:
    """Return the folder of the records and logs."""
    return home().absolute() / "services"


def log_path(name: str) -> Path:
    """Return the path of the log of the service `name`, which is also its lock file."""
    return services_folder() / f"{name}.log"


def last_record(name: str) -> ServiceRecord | None:
    """Return the record of the service `name`, which may have ended, or None."""
    with suppress(OSError, DamagedStore, ValueError, TypeError):
        return ServiceRecord.read(services_folder() / f"{name}.json")
    return None


def live_record(name: str) -> ServiceRecord | None:
    """Return the record of the service `name`, or None unless its process lives here."""
    record = last_record(name)
    return record if record and record.process else None


@dataclass(frozen=True)
class ServiceKind:
    """A kind of service.

    Attributes
    ----------
    name : str
        Name of its record and log.
    title : str
        Name in messages.
    make : callable
        Takes `Ports` and options, and returns the service with a value for each option.
    starts_runs : bool
        Whether the processes that it starts are runs. They have to end before it, so that it can
        record their end, and go on if it dies, while it is restarted.
    """

    name: str
    title: str
    make: Callable[..., Service]
    starts_runs: bool = False


@dataclass(frozen=True, kw_only=True)
class Service:
    """A service: a process that stays up.

    Attributes
    ----------
    kind : ServiceKind
    options : mapping
        The options from which its kind makes it.
    address : str
        Address of the service for programs.
    page : str or None
        Address of its web page.
    command : list of str
        The module to run, and its arguments.
    ready : callable
        Returns whether the service works.
    environment : mapping
        Environment variables of its process, for those that the user has not set.
    """

    kind: ServiceKind
    options: Mapping[str, Any]
    address: str
    page: str | None = None
    command: list[str]
    ready: Callable[[], bool]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class WantedService:
    """A service that is to run, with those of its options that matter; None is not chosen."""

    kind: ServiceKind
    options: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> ServiceRecord | None:
        """Return the record of the service if it runs; raise FlowError for other options."""
        record = live_record(self.kind.name)
        if record is not None and not all(
            value in (None, record.options.get(name)) for name, value in self.options.items()
        ):
            has = [f"{name} {value}" for name, value in record.options.items() if value is not None]
            raise FlowError(
                f"process {record.pid} is the {self.kind.title} already, otherwise than asked for, "
                f"with {', '.join(has)}; leave these options out, or end it with "
                "`ism-dask up --stop`"
            )
        return record

    def running(self, tell: Tell) -> Service | None:
        """Return the service if it runs, and end it if it hangs."""
        record = self.check()
        if record is None:
            _end_remains(self.kind)
            return None
        running = self.kind.make(Ports(tell, runs=True), **record.options)
        if running.ready():
            return running
        end_service(self.kind)
        return None

    def made(self, tell: Tell, given: set[int]) -> Service:
        """Return the service to start, with the last ports if they are free."""
        last = last_record(self.kind.name)
        ports = Ports(tell, self.kind.title, last.options if last else {}, given)
        return self.kind.make(ports, **self.options)


def ensure_running(wanted: Sequence[WantedService], tell: Tell) -> list[Service]:
    """Start those services that do not run, all at once; return all of them, ready."""
    given: set[int] = set()
    with explain_os_errors(services_folder()), ExitStack() as locks:
        make_folder(services_folder(), private=True)
        for each in wanted:
            locks.enter_context(lock_file(log_path(each.kind.name)))
        running = [each.running(tell) for each in wanted]
        complete = [
            old or each.made(tell, given) for old, each in zip(running, wanted, strict=True)
        ]
        _start_all([new for new, old in zip(complete, running, strict=True) if not old], tell, "wb")
        return complete


def restart(service: Service, tell: Tell) -> None:
    """Start a service that has died again, with the same options."""
    with explain_os_errors(services_folder()), lock_file(log_path(service.kind.name)):
        _end_remains(service.kind)
        _start_all([service], tell, "ab")


def launch_process(
    command: Sequence[str], name: str, mode: str, defaults: Mapping[str, str], **own: str
) -> psutil.Popen:
    """Start a process that goes on when this one ends, and return it.

    Parameters
    ----------
    command : sequence of str
        A Python module, and its arguments.
    name : str
        Name of the log that takes its output.
    mode : str
        Mode in which the log is opened.
    defaults : mapping
        Environment variables, for those that the user has not set.
    **own : str
        Environment variables that override those of the user.
    """
    # It runs in another working directory.
    folders = {
        variable: str(Path(os.environ[variable]).absolute())
        for variable in _FOLDER_VARIABLES
        if os.environ.get(variable)
    }
    with log_path(name).open(mode) as log:
        # A session of its own keeps the process alive when the command ends, and Ctrl-C away.
        return psutil.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=services_folder(),
            env={**defaults, **os.environ, **folders, **own},
        )


def marked(name: str) -> dict[str, str]:
    """Return the environment variable that marks the processes of a service."""
    return {_MARK: f"{services_folder()}:{name}"}


def service_processes(name: str = "") -> set[psutil.Process]:
    """Return the live processes of one service, or of all, with those that they have started.

    It finds them by their mark: a process whose parent was killed is no longer in the process
    tree of its service, but still has the mark.
    """
    wanted, processes = marked(name)[_MARK], set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            value = process.environ().get(_MARK, "")
            if (value == wanted if name else value.startswith(wanted)) and is_running(process):
                processes.add(process)
    return {process for process in processes if process.pid != os.getpid()}


def end_service(kind: ServiceKind) -> None:
    """End a service with all processes that it has started."""
    record = live_record(kind.name)
    main = {record.process} if record and record.process else set()
    members = service_processes(kind.name) - main
    for process in main:
        with suppress(psutil.NoSuchProcess):
            members |= set(process.children(recursive=True))
    if kind.starts_runs:
        stop_processes(members)
    _signal_and_wait(main, psutil.Process.terminate, _GRACE_SECONDS)
    stop_processes(main | members | service_processes(kind.name))


def stop_processes(processes: set[psutil.Process], grace: float = _GRACE_SECONDS) -> None:
    """Terminate processes; kill those that still live after `grace` seconds."""
    _signal_and_wait(processes, psutil.Process.terminate, grace)
    _signal_and_wait(processes, psutil.Process.kill, _GRACE_SECONDS)


def log_end(name: str) -> str:
    """Return the last lines of the log of a service, joined to one line."""
    text = log_path(name).read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return f"the end of its log {log_path(name)}: {' | '.join(lines[-3:]) or 'nothing'}"


def _end_remains(kind: ServiceKind) -> None:
    """End what remains of a service whose process may have been killed."""
    if not kind.starts_runs:
        end_service(kind)


def _start_all(services: Sequence[Service], tell: Tell, mode: str) -> None:
    try:
        processes = [_launch(service, tell, mode) for service in services]
        for service, process in zip(services, processes, strict=True):
            _wait_until_ready(process, service)
    except BaseException:
        for service in services:
            end_service(service.kind)
        raise


def _launch(service: Service, tell: Tell, mode: str) -> psutil.Popen:
    name, page = service.kind.name, service.page
    process = launch_process(service.command, name, mode, service.environment, **marked(name))
    ServiceRecord(
        pid=process.pid,
        created=process_start(process),
        name=name,
        address=service.address,
        page=page,
        options=service.options,
    ).write()
    tell(f"starting the {service.kind.title} at {page or service.address} (process {process.pid})")
    return process


def _wait_until_ready(process: psutil.Popen, service: Service) -> None:
    until, what = time.monotonic() + _READY_SECONDS, ""
    while not service.ready():
        if process.poll() is not None:
            what = f"ended with status {process.returncode}"
        elif time.monotonic() > until:
            what = f"did not become ready within {_READY_SECONDS:.0f} s"
        if what:
            raise FlowError(f"the {service.kind.title} {what}; {log_end(service.kind.name)}")
        time.sleep(0.2)


def _signal_and_wait(
    processes: set[psutil.Process], action: Callable[[psutil.Process], None], within: float
) -> None:
    """Apply `action` to the live processes, and wait up to `within` seconds for their end."""
    for process in filter(is_running, processes):
        with suppress(psutil.NoSuchProcess):
            action(process)
    until = time.monotonic() + within
    while any(map(is_running, processes)) and time.monotonic() < until:
        time.sleep(0.05)
