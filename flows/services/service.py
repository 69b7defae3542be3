"""A process that stays up: how it is started, found again and ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import psutil

from flows.errors import FlowError
from flows.services.ports import Ports
from flows.services.records import (
    MARK,
    PRIVATE,
    ProcessRecord,
    family,
    forget,
    lives,
    log_path,
    mark,
    process_start,
    recorded,
    services_folder,
)
from storage.atomic import explain_os_errors, lock_file

_GRACE = 10.0
_FOLDERS = ("ISM_DASK_HOME", "ISM_DASK_DATA", "PREFECT_HOME")


@dataclass(frozen=True, kw_only=True)
class Service(ABC):
    """What can be kept up. Its fields are its options: None is for what was not asked for.

    Attributes
    ----------
    name : str
        Of its record and log.
    title : str
        For people.
    within : float
        Seconds in which it has to be ready.
    children_first : bool
        Whether the processes that it has started are to end before it, while it can take note.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    within: ClassVar[float] = 120.0
    children_first: ClassVar[bool] = False

    @property
    @abstractmethod
    def address(self) -> str:
        """Where programs find what it offers."""

    @property
    def page(self) -> str | None:
        """Where people see it."""
        return None

    @abstractmethod
    def command(self) -> list[str]:
        """Return the module to run, and its arguments."""

    @abstractmethod
    def ready(self) -> bool:
        """Return whether it does what it is for."""

    def usual_ports(self) -> Mapping[str, int]:
        """Return the ports to take, by the names of their options."""
        return {}

    def environment(self) -> Mapping[str, str]:
        """Return what its process is to find in the environment, but for what the user has set."""
        return {}

    def settled(self, ports: Ports) -> Self:
        """Return the service with all its options chosen."""
        chosen = {
            option: ports.choose(getattr(self, option), usual, self.title)
            for option, usual in self.usual_ports().items()
        }
        return replace(self, **chosen)

    def asks_for(self, options: Mapping[str, Any]) -> bool:
        """Return whether one that runs with `options` is what was asked for."""
        return all(value in (None, options.get(name)) for name, value in asdict(self).items())


@dataclass(frozen=True)
class StartupMessages:
    """What people are told of a service that starts.

    Attributes
    ----------
    tell : callable
        Called with a line for people.
    waiting : callable
        Returns what is shown while services start; called with their records.
    """

    tell: Callable[[str], None]
    waiting: Callable[[Sequence[ProcessRecord]], AbstractContextManager[object]]


def ensure_running(asked: Sequence[Service], telling: StartupMessages) -> list[Service]:
    """Return services that are ready, with all their options: found, or started at once."""
    ports = Ports(telling.tell)
    with explain_os_errors(services_folder()), ExitStack() as held:
        services_folder().mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        for service in asked:
            held.enter_context(lock_file(log_path(service.name)))
        found = [_found(service) for service in asked]
        ours = [it or one.settled(ports) for it, one in zip(found, asked, strict=True)]
        if None in found:
            _start([one for one, it in zip(ours, found, strict=True) if it is None], telling, "wb")
        return ours


def restart(service: Service, telling: StartupMessages) -> None:
    """End what is left of a service, and start it again with the same options."""
    with explain_os_errors(services_folder()), lock_file(log_path(service.name)):
        end_process(service)
        _start([service], telling, "ab")


def launch_process(
    command: Sequence[str], name: str, mode: str, defaults: Mapping[str, str], **own: str
) -> psutil.Popen:
    """Start a process to stay; return it.

    Parameters
    ----------
    command : sequence of str
        A module, and its arguments.
    name : str
        Of the log that takes what it prints.
    mode : str
        How the log is opened.
    defaults : mapping
        What it finds in the environment where the user has set nothing else.
    **own : str
        What it finds there in any case.
    """
    with log_path(name).open(mode) as log:
        # Of its own session: it stays when the command ends, and Ctrl-C is not meant for it.
        return psutil.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=services_folder(),
            env={**defaults, **os.environ, **_paths(), **own},
        )


def end_process(service: type[Service] | Service) -> ProcessRecord | None:
    """End a service with all that it has started; return the record if it ran."""
    record = recorded(service.name)
    main = {record.process} - {None} if record else set()
    members = {*family(service.name), *(each for one in main for each in _children(one))} - main
    if service.children_first:
        stop_processes(members)
    _signal(main, psutil.Process.terminate, _GRACE)
    stop_processes({*main, *members, *family(service.name)})
    forget(service.name)
    return record


def stop_processes(processes: set[psutil.Process], grace: float = _GRACE) -> None:
    """Ask processes to end; kill those that have not after a grace of seconds."""
    _signal(processes, psutil.Process.terminate, grace)
    _signal(processes, psutil.Process.kill, _GRACE)


def log_end(name: str) -> str:
    """Return the end of the log of a service, on one line."""
    text = log_path(name).read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return f"the end of its log {log_path(name)}: {' | '.join(lines[-3:]) or 'nothing'}"


def _found(asked: Service) -> Service | None:
    record = recorded(asked.name)
    if record is None:
        # Its process may have been killed, and have left others behind.
        end_process(asked)
        return None
    if not asked.asks_for(record.options):
        raise FlowError(
            f"process {record.pid} is the {asked.title} already, otherwise than asked for, with "
            f"{_told(record.options)}; leave these options out, or end it with "
            "`ism-dask up --stop`"
        )
    found = type(asked)(**record.options)
    if found.ready():
        return found
    end_process(asked)  # it hangs
    return None


def _told(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in options.items() if value is not None)


def _start(services: Sequence[Service], telling: StartupMessages, mode: str) -> None:
    try:
        processes = [_launch(service, mode) for service in services]
        with telling.waiting([_record(*each) for each in zip(services, processes, strict=True)]):
            for service, process in zip(services, processes, strict=True):
                _await(process, service)
    except BaseException:
        for service in services:
            end_process(service)
        raise


def _launch(service: Service, mode: str) -> psutil.Popen:
    marked = {MARK: mark(service.name)}
    return launch_process(service.command(), service.name, mode, service.environment(), **marked)


def _paths() -> dict[str, str]:
    """Return the variables that name our folders, for processes that run in another one."""
    return {
        name: str(Path(os.environ[name]).absolute()) for name in _FOLDERS if os.environ.get(name)
    }


def _record(service: Service, process: psutil.Popen) -> ProcessRecord:
    found = (service.name, process.pid, process_start(process), service.address, service.page)
    record = ProcessRecord(*found, options=asdict(service))
    record.write()
    return record


def _await(process: psutil.Popen, service: Service) -> None:
    until = time.monotonic() + service.within
    while not service.ready():
        if process.poll() is not None:
            raise _not_started(service, f"ended with status {process.returncode}")
        if time.monotonic() > until:
            raise _not_started(service, f"did not become ready within {service.within:.0f} s")
        time.sleep(0.2)


def _not_started(service: Service, what: str) -> FlowError:
    return FlowError(f"the {service.title} {what}; {log_end(service.name)}")


def _children(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return list(process.children(recursive=True))
    return []


def _signal(
    processes: set[psutil.Process], action: Callable[[psutil.Process], None], within: float
) -> None:
    """Do something to those of the processes that live, and wait for their end, but not long."""
    for process in filter(lives, processes):
        with suppress(psutil.NoSuchProcess):
            action(process)
    until = time.monotonic() + within
    while any(map(lives, processes)) and time.monotonic() < until:
        time.sleep(0.05)
