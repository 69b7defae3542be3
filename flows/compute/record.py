"""The record of a process that a command of ours keeps up, under the home of ism-dask."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from storage import home


@dataclass(frozen=True)
class Record:
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
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            if began(process) == self.created and lives(process):
                return process
        return None


def began(process: psutil.Process) -> float:
    """Return when a process began, by a clock that nobody sets: in seconds since the boot."""
    return round(float(process.create_time() - psutil.boot_time()), 2)


def lives(process: psutil.Process) -> bool:
    """Return whether a process has not ended, be it that nobody has asked for its status yet."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def recorded(name: str) -> Record | None:
    """Return the record of the service `name`, if its process still lives."""
    with suppress(OSError, ValueError, TypeError):
        record = Record(**json.loads(record_path(name).read_text(encoding="utf-8")))
        return record if record.process else None
    return None


def services_folder() -> Path:
    """Return the folder of the records and logs."""
    return home().absolute() / "services"


def record_path(name: str) -> Path:
    """Return the file of a record."""
    return services_folder() / f"{name}.json"
