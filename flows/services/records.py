"""Records of the service processes on this machine, one file each, under the home of ism-dask.

Commands and computations read them to find the services that run, so this module is cheap to
import.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from storage.atomic import replace_synced
from storage.errors import DamagedStore
from storage.paths import home
from storage.records import read_sealed, restored, to_sealed_json

# Environment variable of every process of a service, and of all processes that it starts.
MARK = "ISM_DASK_SERVICE"
# Mode of folders with logs, links and keys: only their owner may read them.
PRIVATE = 0o700


@dataclass(frozen=True)
class ProcessIdentity:
    """What identifies a process on any machine, also after it has ended.

    Attributes
    ----------
    host : str
        Name of its machine.
    pid : int
    created : float
        Start of the process, in seconds since the boot. It tells the process from a later one
        with the same pid.
    """

    host: str
    pid: int
    created: float

    @classmethod
    def of_this_process(cls) -> ProcessIdentity:
        """Return the identity of the process that calls."""
        own = psutil.Process()
        return cls(platform.node(), own.pid, process_start(own))

    @property
    def is_of_this_machine(self) -> bool:
        """Whether this machine can look the process up."""
        return self.host == platform.node()

    @property
    def lives(self) -> bool:
        """Whether a process of this machine lives."""
        return find_process(self.pid, self.created) is not None


@dataclass(frozen=True)
class ProcessRecord:
    """The record of a process that one of our commands has started.

    Attributes
    ----------
    name : str
        Name of the service.
    pid : int
    created : float
        Start of the process, in seconds since the boot. It tells the process from a later one
        with the same pid.
    address : str
        Address of the service for programs.
    page : str, optional
        Address of its web page.
    options : mapping
        Options that the service was started with.
    """

    name: str
    pid: int
    created: float
    address: str
    page: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def process(self) -> psutil.Process | None:
        """Return the process, or None if it has ended."""
        return find_process(self.pid, self.created)

    def write(self) -> None:
        """Write the record to its file atomically, because other processes may read it now."""
        replace_synced(record_path(self.name), to_sealed_json(asdict(self)))


def process_start(process: psutil.Process) -> float:
    """Return the start of a process in seconds since the boot, a clock that nobody can set."""
    return round(float(process.create_time() - psutil.boot_time()), 2)


def find_process(pid: int, created: float) -> psutil.Process | None:
    """Return the live process with this pid and start, or None if there is none."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if process_start(process) == created and is_running(process):
            return process
    return None


def live_record(name: str) -> ProcessRecord | None:
    """Return the record of the service `name`, or None unless its process lives."""
    with suppress(OSError, DamagedStore, ValueError, TypeError):
        entries = read_sealed(record_path(name), "the record of a service")
        record: ProcessRecord = restored(ProcessRecord, entries)
        return record if record.process else None
    return None


def remove_record(name: str) -> None:
    """Remove the record of the service `name`."""
    with suppress(OSError):  # if the home is not writable, it has no record either
        record_path(name).unlink(missing_ok=True)


def services_folder() -> Path:
    """Return the folder of the records and logs."""
    return home().absolute() / "services"


def record_path(name: str) -> Path:
    """Return the path of the record of the service `name`."""
    return services_folder() / f"{name}.json"


def log_path(name: str) -> Path:
    """Return the path of the log of the service `name`, which is also its lock file."""
    return services_folder() / f"{name}.log"


def service_mark(name: str = "") -> str:
    """Return the value of `MARK` for the service `name`; without a name, the prefix of them all."""
    return f"{services_folder()}:{name}"


def service_processes(name: str = "") -> list[psutil.Process]:
    """Return the live processes of one service, or of all, with those that they have started.

    It finds them by their mark: a process whose parent was killed is no longer in the process
    tree of its service, but still has the mark.
    """
    wanted, processes = service_mark(name), []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            value = process.environ().get(MARK, "")
            if (value == wanted if name else value.startswith(wanted)) and is_running(process):
                processes.append(process)
    return [process for process in processes if process.pid != os.getpid()]


def is_running(process: psutil.Process) -> bool:
    """Return whether a process runs; a zombie, whose parent has not waited for it, does not."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False
