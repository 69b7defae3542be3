"""Records that processes write about themselves, one file each: which process does what, and lives.

The lease of a run, the receipt of a flow run and the record of a service are such records. Commands
and computations read them often, so this module is cheap to import.
"""

from __future__ import annotations

import os
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil

from storage.atomic import explain_os_errors, make_folder, replace_synced
from storage.errors import DamagedStore
from storage.paths import home
from storage.records import read_sealed, restored, to_sealed_json

# Seconds after its last sign of life until a process of another machine counts as dead.
DEADLINE = 60.0
# The variable by which Prefect's workers name the flow run to the process that they start.
SET_BY_WORKERS = "PREFECT__FLOW_RUN_ID"
# Seconds in which a process whose record other machines may read gives a sign of life.
SIGN_OF_LIFE = 5.0


def process_start(process: psutil.Process) -> float:
    """Return the start of a process in seconds since the boot, a clock that nobody can set."""
    return round(float(process.create_time() - psutil.boot_time()), 2)


def is_running(process: psutil.Process) -> bool:
    """Return whether a process runs; a zombie, whose parent has not waited for it, does not."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


@dataclass(frozen=True, kw_only=True)
class ProcessRecord(ABC):
    """The record of a process, by default of this one. The time of its file is a sign of life."""

    host: str = field(default_factory=platform.node)  # name of its machine
    pid: int = field(default_factory=os.getpid)
    # Its start, in seconds since the boot, tells it from a later process with the same pid.
    created: float = field(default_factory=lambda: process_start(psutil.Process()))
    # When the file was last written or touched, in seconds since 1970, as it was read.
    renewed: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        if not 0 < self.pid < 2**31:
            raise ValueError(f"no process has the number {self.pid}")

    @property
    @abstractmethod
    def path(self) -> Path:
        """The file of the record."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a record; raise OSError, DamagedStore, ValueError or TypeError if it is none."""
        entries = read_sealed(path, "the record of a process")
        record: Self = restored(cls, {**entries, "renewed": path.stat().st_mtime})
        return record

    @classmethod
    def find(cls, path: Path) -> Self | None:
        """Return a record, or None if there is none, or it is not as it was written."""
        with suppress(OSError, DamagedStore, ValueError, TypeError):
            return cls.read(path)
        return None

    def write(self) -> None:
        """Write the record in one step, because other processes may read it now."""
        entries = {name: value for name, value in asdict(self).items() if name != "renewed"}
        replace_synced(self.path, to_sealed_json(entries))

    def touch(self) -> None:
        """Give a sign of life."""
        with suppress(OSError):
            os.utime(self.path)

    def remove(self) -> None:
        """Remove the file, if there is one."""
        with explain_os_errors(self.path):
            self.path.unlink(missing_ok=True)

    @property
    def process(self) -> psutil.Process | None:
        """The process, if it lives on this machine."""
        if self.host == platform.node():
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(self.pid)
                if process_start(process) == self.created and is_running(process):
                    return process
        return None

    @property
    def lives(self) -> bool:
        """Whether the process lives. One of another machine does as long as it gives signs."""
        if self.host == platform.node():
            return self.process is not None
        return time.time() - self.renewed < DEADLINE


@dataclass(frozen=True, kw_only=True)
class RunReceipt(ProcessRecord):
    """The receipt of a flow run: what the Prefect server does not know yet of it.

    A run writes its receipt when it starts. `ism-dask up`, or else the next run, finds the receipt
    of a run that has ended, and sends the server what it has missed.
    """

    run: str  # id of the flow run
    api: str  # address of the API of its server
    attempt: int = 0  # which attempt at the run it is of, from 1; 0 if the server did not say
    by_worker: bool = False  # whether a worker of Prefect has started the process
    # Type, name and message of its final state; empty while it runs.
    state: Mapping[str, Any] = field(default_factory=dict)
    # Key, data and description of the artifact with its result; empty when the server has it.
    page: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The file of the receipt."""
        return _receipts_folder() / f"{self.run}.json"

    def write(self) -> None:
        """Write the receipt, and the folder of all receipts."""
        make_folder(_receipts_folder(), private=True)
        super().write()


def receipts_to_send(api: str) -> Iterator[RunReceipt]:
    """Yield the receipts of runs of a server whose process has ended."""
    for path in sorted(_receipts_folder().glob("*.json")):
        receipt = RunReceipt.find(path)
        if receipt and receipt.api == api and not receipt.lives:
            yield receipt


def _receipts_folder() -> Path:
    return home() / "flow-runs"
