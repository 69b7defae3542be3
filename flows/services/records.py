"""What runs on this machine for us: a record of each process, kept under the home.

Cheap to import: commands and computations look here for what is up.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from storage.atomic import replace_synced
from storage.errors import DamagedStore
from storage.paths import home
from storage.records import check_field_types, read_sealed, to_sealed_json

# Every process of a service, and whatever it starts, has this in its environment.
MARK = "ISM_DASK_SERVICE"
# Of folders with logs, links and keys: they are their owner's alone.
PRIVATE = 0o700


@dataclass(frozen=True)
class ProcessRecord:
    """A process that a command of ours has started.

    Attributes
    ----------
    name : str
        Of the service that it is.
    pid : int
    created : float
        When the process began, in seconds since the machine did: another process may have its
        number by now.
    address : str
        Where programs find what it offers.
    page : str, optional
        Where people see it.
    options : mapping
        What the service was started with.
    """

    name: str
    pid: int
    created: float
    address: str
    page: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def process(self) -> psutil.Process | None:
        """Return the process while it lives."""
        return is_alive(self.pid, self.created)

    def write(self) -> None:
        """Keep the record, at once and whole: others may read it now."""
        replace_synced(record_path(self.name), to_sealed_json(asdict(self)))


def process_start(process: psutil.Process) -> float:
    """Return when a process began, by a clock that nobody sets: in seconds since the boot."""
    return round(float(process.create_time() - psutil.boot_time()), 2)


def is_alive(pid: int, created: float) -> psutil.Process | None:
    """Return the process of that number if it is the one that began then, and while it lives."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if process_start(process) == created and lives(process):
            return process
    return None


def recorded(name: str) -> ProcessRecord | None:
    """Return the record of the service `name`, if its process still lives."""
    with suppress(OSError, DamagedStore, ValueError, TypeError):
        record = ProcessRecord(**read_sealed(record_path(name), "the record of a service"))
        check_field_types(record)
        return record if record.process else None
    return None


def forget(name: str) -> None:
    """Remove the record of the service `name`."""
    with suppress(OSError):  # a home that cannot be written to has no record either
        record_path(name).unlink(missing_ok=True)


def services_folder() -> Path:
    """Return the folder of the records and logs."""
    return home().absolute() / "services"


def record_path(name: str) -> Path:
    """Return the file of a record."""
    return services_folder() / f"{name}.json"


def log_path(name: str) -> Path:
    """Return the file with what the service `name` has printed. It is its lock, too."""
    return services_folder() / f"{name}.log"


def mark(name: str = "") -> str:
    """Return what marks the processes of the service `name`; of all services it is the start."""
    return f"{services_folder()}:{name}"


def family(name: str = "") -> list[psutil.Process]:
    """Return the processes of a service, or of all: those it started too, whoever lives of them.

    A process whose parent was killed has lost its place in the tree, but not its mark.
    """
    sought, found = mark(name), []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            marked = process.environ().get(MARK, "")
            if (marked == sought if name else marked.startswith(sought)) and lives(process):
                found.append(process)
    return [process for process in found if process.pid != os.getpid()]


def lives(process: psutil.Process) -> bool:
    """Return whether a process has not ended, be it that nobody has asked for its status yet."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False
