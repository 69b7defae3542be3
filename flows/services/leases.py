"""Leases of runs as files: which process computes a run, and how far it has come."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from flows.errors import FlowError
from flows.services.records import ProcessIdentity
from storage import DamagedStore, StorageError, lease_path, runs_folder
from storage.atomic import replace_synced
from storage.records import read_sealed, restored, to_sealed_json
from storage.runs import LEASE

# How the description of the end of a failed run begins.
FAILED = "failed: "
# Seconds without a renewal until a lease of another machine expires.
_EXPIRES_AFTER = 60.0
# A time later than this, in the year 5138, is no reading of a clock.
_MAX_TIME = 1e11


@dataclass(frozen=True)
class LiveNumbers:
    """How far the present fit of a run has come, and what its process has lost.

    Attributes
    ----------
    rows : int
        Number of rows of the fit; 0 before the first.
    iterations : int
        Those before an interruption count, too.
    objective : float or None
        J after the last iteration.
    rows_per_second : float or None
        Rows of the fit times iterations by seconds, since this process took the fit up.
    workers_lost, clusters_lost : int
        Dask workers that left the cluster during fits, and clusters that were joined again.
    """

    rows: int = 0
    iterations: int = 0
    objective: float | None = None
    rows_per_second: float | None = None
    workers_lost: int = 0
    clusters_lost: int = 0


@dataclass(frozen=True)
class Lease:
    """The record of the process that computes a run, or was computing it when the process ended.

    Attributes
    ----------
    run, kind : str
        Name of the run, and of its flow.
    settings : Mapping
        The settings of the run, in plain JSON.
    host : str
    pid : int
    created : float
        When the process began, in seconds since the machine started.
    taken, renewed : float
        When the process took the lease and last renewed it, in seconds since 1970.
    ended : str
        How the run ended without a result. Empty while it goes on, and if the process died without
        recording it.
    numbers : LiveNumbers
    """

    run: str
    kind: str
    settings: Mapping[str, Any]
    host: str
    pid: int
    created: float
    taken: float
    renewed: float
    ended: str = ""
    numbers: LiveNumbers = field(default_factory=LiveNumbers)

    def __post_init__(self) -> None:
        if not (self.pid > 0 and all(0 <= at < _MAX_TIME for at in (self.taken, self.renewed))):
            raise ValueError(f"no process {self.pid} of {self.taken}, last heard of {self.renewed}")

    @property
    def holder(self) -> ProcessIdentity:
        """The process."""
        return ProcessIdentity(self.host, self.pid, self.created)

    @property
    def held(self) -> bool:
        """Whether the process still computes the run.

        On this machine the process itself is looked up. A process of another machine counts as
        alive as long as it renews the lease.
        """
        if self.ended:
            return False
        if self.holder.is_of_this_machine:
            return self.holder.lives
        return time.time() - self.renewed < _EXPIRES_AFTER

    @property
    def state(self) -> str:
        """One word for the same: "computing", "failed", "interrupted" or "died"."""
        if self.held:
            return "computing"
        if not self.ended:
            return "died"
        return "failed" if self.ended.startswith(FAILED) else "interrupted"

    @property
    def description(self) -> str:
        """A description for people: which process computes the run, or how it ended."""
        process = f"process {self.pid} on {self.host}"
        if self.held:
            return f"{process} computes it since {_utc(self.taken)}"
        return f"{process}, begun {_utc(self.taken)}, {self.ended or 'ended without a word'}"

    def write(self) -> None:
        """Write the lease into the folder of its run."""
        replace_synced(lease_path(self.run), to_sealed_json(asdict(self)))


def find_lease(run: str) -> Lease | None:
    """Return the lease of a run, or None; raise FlowError if its file is damaged."""
    path = lease_path(run)
    try:
        lease: Lease = restored(Lease, read_sealed(path, "a lease"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (DamagedStore, ValueError, TypeError) as error:
        what = error.what if isinstance(error, DamagedStore) else error
        raise FlowError(
            f"{path} is damaged ({what}): remove it, and run the command of that run again"
        ) from error
    return replace(lease, run=run)  # its folder may have been renamed


def list_leases() -> list[Lease]:
    """Return all leases, ordered by the names of their runs, without damaged ones."""
    leases = []
    for path in sorted(runs_folder().glob(f"*/{LEASE}")):
        with suppress(FlowError, StorageError):
            leases.append(find_lease(path.parent.name))
    return [lease for lease in leases if lease is not None]


def _utc(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
