"""Services, processes that stay up: how they are found, started and ended."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from flows.errors import FlowError
from flows.services.liveness import ProcessRecord, is_running, process_start
from storage.atomic import explain_os_errors, lock_file, make_folder
from storage.errors import DamagedStore
from storage.paths import home

HOST = "127.0.0.1"
# The names under which a browser on this machine may open our pages.
HOSTS = (HOST, "localhost")
# The number of ports that are tried, from the usual port on, before any other.
_NEXT = 10
# Environment variable of every process of a service, and of all processes that it starts.
_MARK = "ISM_DASK_SERVICE"
# Seconds within which a service has to be ready, and to end.
_READY_SECONDS, _GRACE_SECONDS = 120.0, 10.0
_FOLDER_VARIABLES = ("ISM_DASK_HOME", "ISM_DASK_DATA", "PREFECT_HOME")
# Folder of the temporary files of the services, below that of their records. Dask and Prefect use
# folders with fixed names for them: in /tmp, these may belong to another user, who then decides
# what Python imports.
TEMPORARY = "tmp"

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class ServiceRecord(ProcessRecord):
    """The record of the process of a service. It stays when the process has ended."""

    name: str
    address: str = ""  # for programs
    page: str | None = None  # address of its web page
    options: Mapping[str, Any] = field(default_factory=dict)  # that it was started with

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


@dataclass(frozen=True, kw_only=True)
class Service:
    """A service: a process that stays up."""

    name: str  # of its record and log
    title: str  # in messages
    make: Callable[..., Service]  # the function that makes it of its options
    options: Mapping[str, Any]  # one of a wanted service that is None may have any value
    # The options that are ports, with those to try first.
    ports: Mapping[str, Sequence[int]] = field(default_factory=dict)
    address: str  # for programs
    page: str | None = None  # address of its web page
    command: list[str]  # the module to run, and its arguments
    is_ready: Callable[[], bool]  # returns whether it works
    # Environment variables of its process, for those that the user has not set.
    environment: Mapping[str, str] = field(default_factory=dict)
    # Whether the processes that it starts are runs. They have to end before it, because it records
    # their end.
    starts_runs: bool = False

    def check(self) -> ServiceRecord | None:
        """Return the record of the service if it runs; raise FlowError for other options."""
        record = live_record(self.name)
        has = record.options if record else {}
        wants = {name: value for name, value in self.options.items() if value is not None}
        others = {name: value for name, value in wants.items() if has.get(name) != value}
        if record and others:
            given, wanted = (
                ", ".join(f"{name} {value}" for name, value in each.items() if value is not None)
                for each in (has, others)
            )
            raise FlowError(
                f"the {self.title} runs already, as process {record.pid} with {given}, not with "
                f"{wanted}; leave out the options that differ, or end it with `ism-dask up --stop`"
            )
        return record

    def running(self) -> Service | None:
        """Return the service if it runs, and end it if it hangs."""
        record = self.check()
        if record is not None:
            running = self.make(**record.options)
            if running.is_up(record.process):
                return running
        if record is not None or not self.starts_runs:
            end_service(self)  # if its process was killed, others may be left
        return None

    def is_up(self, process: psutil.Process | None) -> bool:
        """Return whether the service is ready, and `process` is the one that answers on its ports.

        A program of another user may have taken a port first. It must not get a password.
        """
        ports = {self.options[name] for name in self.ports}
        return process is not None and ports <= _ports_of(process) and self.is_ready()

    def with_ports(self, tell: Tell, taken: set[int]) -> Service:
        """Return the service to start; `tell` and `taken` are as for `choose_port`."""
        ports = {
            option: choose_port(self.title, self.options[option], preferred, taken, tell)
            for option, preferred in self.ports.items()
        }
        return self.make(**{**self.options, **ports})


def preferred_ports(name: str, **usual: int) -> dict[str, list[int]]:
    """Return, for each option of a service that is a port, its last value and the usual one."""
    record = last_record(name)
    last = record.options if record else {}
    known = {option: port for option, port in last.items() if type(port) is int and port > 0}
    return {option: [known.get(option, port), port] for option, port in usual.items()}


def choose_port(
    title: str,
    named: int | None,
    preferred: Sequence[int],
    taken: set[int],
    tell: Tell,
) -> int:
    """Return a free port for the service `title`, and add it to `taken`.

    If the user has `named` a port that is in use, raise FlowError. Else try the `preferred` ones,
    then those after the last of them, then any, and `tell` so if it is not the first choice. The
    ports `taken` are those of services that start together, which may not listen yet.
    """
    usual = preferred[-1]
    candidates = [named] if named else [*preferred, *range(usual + 1, usual + _NEXT), 0]
    free = (_bindable_port(each) for each in candidates if each not in taken)
    port, first = next(filter(None, free), 0), candidates[0]
    if port != first:
        user = "another of these services" if first in taken else _user_of(first)
        if not port:
            raise FlowError(
                f"the port {first} that you named for the {title} is in use by {user}; end that, "
                "or name another port"
            )
        tell(f"port {first} is in use by {user}: the {title} takes {port}")
    taken.add(port)
    return port


def _ports_of(process: psutil.Process) -> set[int]:
    """Return the ports that a process listens on."""
    with suppress(psutil.Error, OSError):
        sockets = process.net_connections("tcp")
        return {each.laddr.port for each in sockets if each.status == psutil.CONN_LISTEN}
    return set()


def _user_of(port: int) -> str:
    """Return a description of the process that listens on a port, as far as we may see it."""
    with suppress(psutil.Error, OSError):
        for each in psutil.net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN and each.laddr.port == port and each.pid:
                return f"process {each.pid} ({psutil.Process(each.pid).name()})"
    return "another process"


def _bindable_port(port: int) -> int | None:
    """Return `port` if it can be listened on, else None; for 0, return any such port."""
    with socket.socket() as probe, suppress(OSError, OverflowError):
        # Servers set this option, too: connections of an earlier server that are still closing do
        # not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))
        return int(probe.getsockname()[1])
    return None


@contextmanager
def services_lock(*names: str) -> Iterator[None]:
    """Let only one process at a time start or end the services of these names."""
    with explain_os_errors(services_folder()), ExitStack() as locks:
        make_folder(services_folder(), private=True)
        for name in names:
            locks.enter_context(lock_file(log_path(name)))
        yield


def ensure_running(wanted: Sequence[Service], tell: Tell) -> list[Service]:
    """Start those services that do not run, all at once; return all of them, ready."""
    taken: set[int] = set()
    with services_lock(*(each.name for each in wanted)):
        ready = [each.running() or each.with_ports(tell, taken) for each in wanted]
        _start_all([each for each in ready if live_record(each.name) is None], tell)
        return ready


def launch_process(
    command: Sequence[str], name: str, environment: Mapping[str, str]
) -> psutil.Popen:
    """Start a Python module, with its arguments, as a process that goes on when this one ends.

    The log `name` takes its output. `environment` has variables for those that
    the user has not set.
    """
    # It runs in another working directory.
    folders = {
        variable: str(Path(os.environ[variable]).absolute())
        for variable in _FOLDER_VARIABLES
        if os.environ.get(variable)
    }
    temporary = services_folder() / TEMPORARY
    make_folder(temporary, private=True)
    with log_path(name).open("wb") as log:
        # A session of its own keeps the process alive when the command ends, and Ctrl-C away.
        return psutil.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=services_folder(),
            env={
                **environment,
                **os.environ,
                **folders,
                "TMPDIR": str(temporary),
                _MARK: _mark(name),
            },
        )


def _mark(name: str) -> str:
    return f"{services_folder()}:{name}"


def service_processes(name: str = "") -> set[psutil.Process]:
    """Return the live processes of one service, or of all, with those that they have started.

    It finds them by their mark: a process whose parent was killed is no longer in the process
    tree of its service, but still has the mark.
    """
    wanted, processes = _mark(name), set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            value = process.environ().get(_MARK, "")
            if (value == wanted if name else value.startswith(wanted)) and is_running(process):
                processes.add(process)
    return {process for process in processes if process.pid != os.getpid()}


def end_service(service: Service) -> None:
    """End a service with all processes that it has started."""
    record = live_record(service.name)
    main = {record.process} if record and record.process else set()
    if service.starts_runs:
        stop_processes(service_processes(service.name) - main)
    stop_processes(main)
    stop_processes(service_processes(service.name))


def stop_processes(processes: set[psutil.Process], grace: float = _GRACE_SECONDS) -> None:
    """Terminate processes; kill those that still live after `grace` seconds."""
    for end, seconds in (
        (psutil.Process.terminate, grace),
        (psutil.Process.kill, _GRACE_SECONDS),
    ):
        for process in filter(is_running, processes):
            with suppress(psutil.NoSuchProcess):
                end(process)
        until = time.monotonic() + seconds
        while any(map(is_running, processes)) and time.monotonic() < until:
            time.sleep(0.05)


def log_end(name: str) -> str:
    """Return the last lines of the log of a service, joined to one line."""
    text = log_path(name).read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return f"the end of its log {log_path(name)}: {' | '.join(lines[-3:]) or 'nothing'}"


def _start_all(services: Sequence[Service], tell: Tell) -> None:
    try:
        # All are launched before the first is waited for.
        for service, process in [(each, _launch(each, tell)) for each in services]:
            _wait_until_ready(process, service)
    except BaseException:
        for service in services:
            end_service(service)
        raise


def _launch(service: Service, tell: Tell) -> psutil.Popen:
    process = launch_process(service.command, service.name, service.environment)
    ServiceRecord(
        pid=process.pid,
        created=process_start(process),
        name=service.name,
        address=service.address,
        page=service.page,
        options=service.options,
    ).write()
    where = service.page or service.address
    tell(f"starting the {service.title} at {where} (process {process.pid})")
    return process


def _wait_until_ready(process: psutil.Popen, service: Service) -> None:
    until, what = time.monotonic() + _READY_SECONDS, ""
    while not service.is_up(process):
        if process.poll() is not None:
            what = f"ended with status {process.returncode}"
        elif time.monotonic() > until:
            what = f"did not become ready within {_READY_SECONDS:.0f} s"
        if what:
            raise FlowError(f"the {service.title} {what}; {log_end(service.name)}")
        time.sleep(0.2)
