"""Who computes a run: one process at a time, and none that has died."""

from __future__ import annotations

import os
import platform
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

import psutil

from flows.errors import FlowError
from flows.services.records import began, living
from flows.wording import counted
from storage import (
    Checkpoints,
    DamagedStore,
    StorageError,
    lease_path,
    run_folder,
    runs_folder,
)
from storage.durable import explained, locked, replace_synced
from storage.kinds import check_kinds
from storage.runs import LEASE
from storage.sealed import read_sealed, sealed

# A lease is renewed so often; that of another machine is over when it was not for so long.
_BEATS_EVERY, _OVER_AFTER = 5.0, 60.0
_LOCK = ".lease"
# Of what is later, in the year 5138, no clock tells.
_LATEST = 1e11


@dataclass(frozen=True)
class Lease:
    """A run that is being computed, or was when its process ended.

    Attributes
    ----------
    run, kind : str
        Its name, and which flow it is of.
    settings : Mapping
        What it was asked to do, in plain JSON.
    host : str
    pid : int
    created : float
        When the process began, in seconds since the machine did.
    taken, renewed : float
        In seconds since 1970.
    ended : str
        How it ended without a result: empty while it goes on, or where nobody could tell.
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

    def __post_init__(self) -> None:
        check_kinds(self)
        if not (self.pid > 0 and all(0 <= at < _LATEST for at in (self.taken, self.renewed))):
            raise ValueError(f"no process {self.pid} of {self.taken}, last heard of {self.renewed}")

    @property
    def held(self) -> bool:
        """Whether its process still computes, as far as can be told."""
        if self.ended:
            return False
        if self.host == platform.node():
            return living(self.pid, self.created) is not None
        return time.time() - self.renewed < _OVER_AFTER

    @property
    def told(self) -> str:
        """What has become of it, for people."""
        who = f"process {self.pid} on {self.host}"
        if self.held:
            return f"{who} computes it since {_moment(self.taken)}"
        return f"{who}, begun {_moment(self.taken)}, {self.ended or 'ended without a word'}"

    def write(self) -> None:
        """Keep it."""
        replace_synced(lease_path(self.run), sealed(asdict(self)))


def find_lease(run: str) -> Lease | None:
    """Return the lease of a run, None where there is none."""
    path = lease_path(run)
    try:
        lease = Lease(**read_sealed(path, "a lease"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (DamagedStore, ValueError, TypeError) as error:
        what = error.what if isinstance(error, DamagedStore) else error
        raise FlowError(
            f"{path} is damaged ({what}): remove it, and run the command of that run again"
        ) from error
    return replace(lease, run=run)  # its folder may have been renamed


def list_leases() -> list[Lease]:
    """Return the leases there are, by the names of their runs; damaged ones are left out."""
    leases = []
    for path in sorted(runs_folder().glob(f"*/{LEASE}")):
        with suppress(FlowError, StorageError):
            leases.append(find_lease(path.parent.name))
    return [lease for lease in leases if lease is not None]


def unfinished_line(lease: Lease) -> dict[str, Any]:
    """Return what there is to say of a run that is not complete, for programs and for people."""
    newest = Checkpoints.of_run(lease.run).newest()
    known = {"name": lease.run, "kind": lease.kind, "running": lease.held}
    where = "" if newest is None else f", kept as far as {newest.told}"
    advice = "" if lease.held else f"; `ism-dask resume {lease.run}` goes on with it"
    return {**known, "told": f"{lease.kind}, {lease.told}{where}{advice}"}


@contextmanager
def leased(
    run: str, kind: str, settings: Mapping[str, Any], begun: Callable[[], bool]
) -> Iterator[Lease | None]:
    """Hold the lease of a run in the block; yield that of a process that did not end in order.

    Where the block raises, the lease stays behind and says how that ended, if then `begun` says
    that there is something to go on from.
    """
    lease, before = _take(run, kind, settings)
    ended = threading.Event()
    beats = threading.Thread(target=_beat, args=(lease, ended), name="lease", daemon=True)
    beats.start()
    how = ""
    try:
        yield before
    except KeyboardInterrupt:
        how = "was interrupted"
        raise
    except BaseException as error:
        how = f"failed: {error}"
        raise
    finally:
        ended.set()
        beats.join()
        with suppress(OSError, StorageError):
            if how and begun():
                replace(lease, ended=how, renewed=time.time()).write()
            else:
                _drop(run)


def _drop(run: str) -> None:
    """Forget a lease, and a run of which there is nothing else."""
    lease_path(run).unlink(missing_ok=True)
    folder = run_folder(run)
    if all(each.name.startswith(".") for each in folder.iterdir()):
        shutil.rmtree(folder, ignore_errors=True)


def _take(run: str, kind: str, settings: Mapping[str, Any]) -> tuple[Lease, Lease | None]:
    folder, now = run_folder(run), time.time()
    lease = Lease(
        run=run,
        kind=kind,
        settings=settings,
        host=platform.node(),
        pid=os.getpid(),
        created=began(psutil.Process()),
        taken=now,
        renewed=now,
    )
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / _LOCK):
            before = find_lease(run)
            if before is not None and before.held:
                raise FlowError(
                    f"the run {run!r} is being computed: {before.told}, last heard of "
                    f"{counted(round(now - before.renewed), 'second')} ago; wait for it, end that "
                    "process, or choose another name with --run"
                )
            lease.write()
    return lease, before


def _beat(lease: Lease, ended: threading.Event) -> None:
    while not ended.wait(_BEATS_EVERY):
        # Where nothing can be written, the run itself will say so.
        with suppress(StorageError):
            replace(lease, renewed=time.time()).write()


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
