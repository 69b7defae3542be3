"""The base class of services (processes that stay up), and how they are started and ended."""

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
    is_running,
    live_record,
    log_path,
    process_start,
    remove_record,
    service_mark,
    service_processes,
    services_folder,
)
from storage.atomic import explain_os_errors, lock_file

_GRACE_SECONDS = 10.0
_FOLDER_VARIABLES = ("ISM_DASK_HOME", "ISM_DASK_DATA", "PREFECT_HOME")


@dataclass(frozen=True, kw_only=True)
class Service(ABC):
    """A service: a process that stays up. Its fields are its options; None is not chosen yet.

    Attributes
    ----------
    name : str
        Name of its record and log.
    title : str
        Name in messages.
    within : float
        Seconds within which it has to be ready.
    children_first : bool
        Whether the processes that it has started have to end before it, so that it can record
        their end.
    children_go_on : bool
        Whether the processes that it has started go on if it dies, while it is restarted.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    within: ClassVar[float] = 120.0
    children_first: ClassVar[bool] = False
    children_go_on: ClassVar[bool] = False

    @property
    @abstractmethod
    def address(self) -> str:
        """Return the address of the service for programs."""

    @property
    def page(self) -> str | None:
        """Return the address of its web page, or None."""
        return None

    @abstractmethod
    def command(self) -> list[str]:
        """Return the module to run, and its arguments."""

    @abstractmethod
    def ready(self) -> bool:
        """Return whether the service works."""

    def usual_ports(self) -> Mapping[str, int]:
        """Return the default ports, by the names of their options."""
        return {}

    def environment(self) -> Mapping[str, str]:
        """Return environment variables of its process, for those that the user has not set."""
        return {}

    def with_defaults(self, ports: Ports) -> Self:
        """Return the service with a value for each option."""
        chosen = {
            option: ports.choose(getattr(self, option), usual, self.title)
            for option, usual in self.usual_ports().items()
        }
        return replace(self, **chosen)

    def matches(self, options: Mapping[str, Any]) -> bool:
        """Return whether a service that runs with `options` has the options that are set here."""
        return all(value in (None, options.get(name)) for name, value in asdict(self).items())


@dataclass(frozen=True)
class StartupMessages:
    """Callbacks that show the user how services start.

    Attributes
    ----------
    tell : callable
        Shows a line of text.
    waiting : callable
        Takes the records of the services that start. Returns a context manager that shows the
        wait for them.
    """

    tell: Callable[[str], None]
    waiting: Callable[[Sequence[ProcessRecord]], AbstractContextManager[object]]


def ensure_running(services: Sequence[Service], telling: StartupMessages) -> list[Service]:
    """Start those services that do not run, all at once; return all of them, ready."""
    ports = Ports(telling.tell)
    with explain_os_errors(services_folder()), ExitStack() as locks:
        services_folder().mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        for service in services:
            locks.enter_context(lock_file(log_path(service.name)))
        running = [_running_service(service) for service in services]
        complete = [
            old or new.with_defaults(ports) for old, new in zip(running, services, strict=True)
        ]
        if None in running:
            _start_all(
                [new for new, old in zip(complete, running, strict=True) if old is None],
                telling,
                "wb",
            )
        return complete


def check_options(wanted: Service, record: ProcessRecord) -> None:
    """Raise FlowError if a service runs with other options than those that are set in `wanted`."""
    if not wanted.matches(record.options):
        raise FlowError(
            f"process {record.pid} is the {wanted.title} already, otherwise than asked for, with "
            f"{_format_options(record.options)}; leave these options out, or end it with "
            "`ism-dask up --stop`"
        )


def restart(service: Service, telling: StartupMessages) -> None:
    """Start a service that has died again, with the same options."""
    with explain_os_errors(services_folder()), lock_file(log_path(service.name)):
        _clear_dead(service)
        _start_all([service], telling, "ab")


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
    with log_path(name).open(mode) as log:
        # A session of its own keeps the process alive when the command ends, and Ctrl-C away.
        return psutil.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=services_folder(),
            env={**defaults, **os.environ, **_folder_environment(), **own},
        )


def end_process(service: type[Service] | Service) -> ProcessRecord | None:
    """End a service with all processes that it has started; return its record if it ran."""
    record = live_record(service.name)
    main = {record.process} - {None} if record else set()
    members = {
        *service_processes(service.name),
        *(each for one in main for each in _children(one)),
    } - main
    if service.children_first:
        stop_processes(members)
    _signal_and_wait(main, psutil.Process.terminate, _GRACE_SECONDS)
    stop_processes({*main, *members, *service_processes(service.name)})
    remove_record(service.name)
    return record


def stop_processes(processes: set[psutil.Process], grace: float = _GRACE_SECONDS) -> None:
    """Terminate processes; kill those that still live after `grace` seconds."""
    _signal_and_wait(processes, psutil.Process.terminate, grace)
    _signal_and_wait(processes, psutil.Process.kill, _GRACE_SECONDS)


def log_end(name: str) -> str:
    """Return the last lines of the log of a service, joined to one line."""
    text = log_path(name).read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return f"the end of its log {log_path(name)}: {' | '.join(lines[-3:]) or 'nothing'}"


def _clear_dead(service: Service) -> None:
    """End what remains of a service whose process may have been killed."""
    if service.children_go_on:
        remove_record(service.name)
    else:
        end_process(service)


def _running_service(wanted: Service) -> Service | None:
    record = live_record(wanted.name)
    if record is None:
        _clear_dead(wanted)
        return None
    check_options(wanted, record)
    running = type(wanted)(**record.options)
    if running.ready():
        return running
    end_process(wanted)  # it hangs
    return None


def _format_options(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in options.items() if value is not None)


def _start_all(services: Sequence[Service], telling: StartupMessages, mode: str) -> None:
    try:
        processes = [_launch(service, mode) for service in services]
        with telling.waiting(
            [_write_record(*each) for each in zip(services, processes, strict=True)]
        ):
            for service, process in zip(services, processes, strict=True):
                _wait_until_ready(process, service)
    except BaseException:
        for service in services:
            end_process(service)
        raise


def _launch(service: Service, mode: str) -> psutil.Popen:
    marked = {MARK: service_mark(service.name)}
    return launch_process(service.command(), service.name, mode, service.environment(), **marked)


def _folder_environment() -> dict[str, str]:
    """Return the variables that name our folders as absolute paths.

    Services run in another working directory.
    """
    return {
        name: str(Path(os.environ[name]).absolute())
        for name in _FOLDER_VARIABLES
        if os.environ.get(name)
    }


def _write_record(service: Service, process: psutil.Popen) -> ProcessRecord:
    values = (service.name, process.pid, process_start(process), service.address, service.page)
    record = ProcessRecord(*values, options=asdict(service))
    record.write()
    return record


def _wait_until_ready(process: psutil.Popen, service: Service) -> None:
    until = time.monotonic() + service.within
    while not service.ready():
        if process.poll() is not None:
            raise _startup_error(service, f"ended with status {process.returncode}")
        if time.monotonic() > until:
            raise _startup_error(service, f"did not become ready within {service.within:.0f} s")
        time.sleep(0.2)


def _startup_error(service: Service, what: str) -> FlowError:
    return FlowError(f"the {service.title} {what}; {log_end(service.name)}")


def _children(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return list(process.children(recursive=True))
    return []


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
