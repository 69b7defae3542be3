"""Services, processes that stay up: how they are started, found and ended."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import psutil

from flows.errors import FlowError
from flows.services.liveness import ProcessRecord, is_running, process_start
from storage.atomic import explain_os_errors, lock_file, make_folder
from storage.paths import home

HOST = "127.0.0.1"
# Environment variable of every process of a service, and of all processes that it starts.
_MARK = "ISM_DASK_SERVICE"
# A service that does not answer for so many seconds hangs; a busy machine takes some. It has more
# to start.
_SILENT_SECONDS, _START_SECONDS = 60.0, 60.0
# Seconds within which a process has to end.
_GRACE_SECONDS = 10.0
_FOLDER_VARIABLES = ("ISM_DASK_HOME", "ISM_DASK_DATA", "PREFECT_HOME")
# Folder of the temporary files of the services, below that of their records. Dask and Prefect use
# folders with fixed names for them: in /tmp, these may belong to another user, who then decides
# what Python imports.
TEMPORARY = "tmp"


@dataclass(frozen=True, kw_only=True)
class ServiceRecord(ProcessRecord):
    """The record of the process of a service. It stays when the process has ended."""

    name: str
    address: str = ""  # for programs; that of `up` is empty until all services run
    page: str | None = None  # address of its web page

    @property
    def path(self) -> Path:
        """The file of the record."""
        return services_folder() / f"{self.name}.json"

    def to_json(self) -> dict[str, Any]:
        """Return what programs are told of the service."""
        where = {"address": self.address, "page": self.page, "log": str(log_path(self.name))}
        return {"name": self.name, "pid": self.pid, **where}


def services_folder() -> Path:
    """Return the folder of the records and logs."""
    return home().absolute() / "services"


def log_path(name: str) -> Path:
    """Return the path of the log of the service `name`."""
    return services_folder() / f"{name}.log"


def live_record(name: str) -> ServiceRecord | None:
    """Return the record of the service `name`, or None unless its process lives here."""
    record = ServiceRecord.find(services_folder() / f"{name}.json")
    return record if record and record.process else None


@dataclass(kw_only=True, eq=False)
class Service:
    """A service to start, a process that stays up, with the entries of `services.toml`."""

    name: str  # of its record and log
    title: str  # in messages
    address: str  # for programs
    page: str | None = None  # address of its web page
    ports: Sequence[str] = ()  # those that it listens on
    command: Sequence[str]  # the module to run, and its arguments
    needs: str = ""  # the name of the service that has to work before
    probe: str  # a page that answers if it works
    answer: str = ""  # the pattern of the answer
    auth: tuple[str, str] | None = None  # name and password for the page
    # Environment variables of its process, for those that the user has not set.
    environment: Mapping[str, str] = field(default_factory=dict)
    # Once it is started: its process, and when it last answered.
    process: psutil.Popen = field(init=False)
    heard: float = field(init=False)

    def is_up(self, process: psutil.Process) -> bool:
        """Return whether the service answers, and `process` is what listens on its ports.

        A program of another user may have taken a port first. It must not get a password.
        """
        heard = set()
        with suppress(psutil.Error, OSError):
            sockets = process.net_connections("tcp")
            heard = {str(each.laddr.port) for each in sockets if each.status == psutil.CONN_LISTEN}
        # Certificates would be loaded at each look, in 50 ms, and their memory is not all freed. No
        # server of this machine has one.
        more = {"auth": self.auth, "verify": False}
        return heard.issuperset(self.ports) and answers(self.probe, self.answer, **more)

    def is_well(self) -> bool:
        """Return whether the service works; raise FlowError if it has ended, or hangs."""
        why = "has ended"
        if is_running(self.process):
            if self.is_up(self.process):
                self.heard = max(self.heard, time.monotonic())
                return True
            if time.monotonic() < self.heard + _SILENT_SECONDS:
                return False
            why = f"has not answered for {_SILENT_SECONDS:.0f} s"
        raise FlowError(f"the {self.title} {why}, so all else was ended; {log_end(self.name)}")


def start_services(services: Sequence[Service]) -> None:
    """Start services and record them, each once the one that it needs works; wait for all.

    One that is not among them is taken to work.
    """
    started, working = list[Service](), set[str]()
    while len(working) < len(services):
        pending = {each.name for each in services} - working
        for each in services:
            if each not in started and each.needs not in pending:
                each.process = launch_process(each.command, each.name, each.environment)
                each.heard = time.monotonic() + _START_SECONDS
                record = ServiceRecord(name=each.name, address=each.address, page=each.page)
                pid, created = each.process.pid, process_start(each.process)
                replace(record, pid=pid, created=created).write()
                started.append(each)
        time.sleep(0.2)
        working = {each.name for each in started if each.is_well()}


def answers(page: str, answer: str = "", **more: Any) -> bool:
    """Return whether a server gives a good answer that fits the pattern `answer`.

    Another program that listens on the port would answer something else.
    """
    with suppress(httpx.HTTPError, httpx.InvalidURL):
        reply = httpx.get(page, **more)
        return reply.is_success and re.search(answer, reply.text) is not None
    return False


def free_port(wanted: int) -> int:
    """Return the port `wanted` if a server can listen on it, else any that is free."""
    try:
        server = socket.create_server((HOST, wanted))
    except OSError:
        server = socket.create_server((HOST, 0))
    with server:
        return int(server.getsockname()[1])


@contextmanager
def services_lock() -> Iterator[None]:
    """Let only one process at a time start or end the services."""
    with explain_os_errors(services_folder()):
        make_folder(services_folder(), private=True)
        with lock_file(log_path("up")):
            yield


def launch_process(
    command: Sequence[str], name: str, environment: Mapping[str, str]
) -> psutil.Popen:
    """Start a Python module, with its arguments, as a process that goes on when this one ends.

    The log `name` takes its output. `environment` has variables for those that
    the user has not set.
    """
    # It runs in another working directory.
    folders = {
        variable: str(Path(os.environ[variable]).expanduser().absolute())
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
                _MARK: f"{services_folder()}:{name}",
            },
        )


def service_processes(name: str = "") -> set[psutil.Process]:
    """Return the live processes of one service, or of all, with those that they have started.

    It finds them by their mark: a process whose parent was killed is no longer in the process
    tree of its service, but still has the mark.
    """
    processes, mark = set(), f"{services_folder()}:{name}"
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            is_marked = process.environ().get(_MARK, "").startswith(mark)
            if is_marked and is_running(process) and process.pid != os.getpid():
                processes.add(process)
    return processes


def stop_processes(processes: set[psutil.Process], grace: float = _GRACE_SECONDS) -> None:
    """Terminate processes; kill those that still live after `grace` seconds."""
    for end in (psutil.Process.terminate, psutil.Process.kill):
        for process in filter(is_running, processes):
            with suppress(psutil.NoSuchProcess):
                end(process)
        until = time.monotonic() + grace
        while any(map(is_running, processes)) and time.monotonic() < until:
            time.sleep(0.05)


def log_end(name: str) -> str:
    """Return the last lines of the log of a service, joined to one line."""
    text = log_path(name).read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return f"the end of its log {log_path(name)}: {' | '.join(lines[-3:]) or 'nothing'}"
