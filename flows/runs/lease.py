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
from flows.services.records import is_alive, process_start
from flows.text import count_noun
from storage import (
    Checkpoints,
    DamagedStore,
    StorageError,
    lease_path,
    run_folder,
    runs_folder,
)
from storage.atomic import explain_os_errors, lock_file, make_folder, replace_synced
from storage.records import check_field_types, read_sealed, to_sealed_json
from storage.runs import LEASE

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
        check_field_types(self)
        if not (self.pid > 0 and all(0 <= at < _LATEST for at in (self.taken, self.renewed))):
            raise ValueError(f"no process {self.pid} of {self.taken}, last heard of {self.renewed}")

    @property
    def holder(self) -> tuple[str, int, float]:
        """Which process has it."""
        return self.host, self.pid, self.created

    @property
    def held(self) -> bool:
        """Whether its process still computes, as far as can be told."""
        if self.ended:
            return False
        if self.host == platform.node():
            return is_alive(self.pid, self.created) is not None
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
        replace_synced(lease_path(self.run), to_sealed_json(asdict(self)))


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


def unfinished_entry(lease: Lease) -> dict[str, Any]:
    """Return what there is to say of a run that is not complete, for programs and for people."""
    newest = Checkpoints.of_run(lease.run).newest()
    known = {"name": lease.run, "kind": lease.kind, "running": lease.held}
    where = "" if newest is None else f", kept as far as {newest.progress}"
    advice = "" if lease.held else f"; `ism-dask resume {lease.run}` goes on with it"
    return {**known, "told": f"{lease.kind}, {lease.told}{where}{advice}"}


class HeldLease:
    """A run that this process holds.

    Parameters
    ----------
    lease : Lease
    before : Lease or None
        That of a process that did not end in order.
    """

    def __init__(self, lease: Lease, before: Lease | None) -> None:
        self._lease, self.before = lease, before

    def check(self) -> None:
        """Raise FlowError where the run is held by another process now.

        One that has stood still for long is thought dead by other machines.
        """
        if not self._is_ours():
            now = find_lease(self._lease.run)
            who = "its lease is gone" if now is None else now.told
            raise FlowError(
                f"the run {self._lease.run!r} was taken from this process, which had not been "
                f"heard of for a while: {who}. Nothing of this process is kept any more"
            )

    def renew(self) -> None:
        """Tell other machines that this process lives."""
        with _gate(self._lease.run) as there:
            if there and self._is_ours():
                replace(self._lease, renewed=time.time()).write()

    def end(self, how: str) -> None:
        """Forget the lease, or, if there is anything to say of how it ended, keep that."""
        with _gate(self._lease.run) as there:
            if not (there and self._is_ours()):
                return
            if how:
                replace(self._lease, ended=how, renewed=time.time()).write()
            else:
                _drop(self._lease.run)

    @property
    def begins_again(self) -> bool:
        """Whether it was this process, too, that was asked for the same before: it tries again."""
        before, now = self.before, self._lease
        return before is not None and (before.holder, before.settings) == (now.holder, now.settings)

    def _is_ours(self) -> bool:
        try:
            found = find_lease(self._lease.run)
        except FlowError:
            return True  # damaged, but nobody else's
        if found is None:
            return False
        return (found.holder, found.taken) == (self._lease.holder, self._lease.taken)


@contextmanager
def hold_lease(
    run: str, kind: str, settings: Mapping[str, Any], begun: Callable[[], bool]
) -> Iterator[HeldLease]:
    """Hold a run in the block.

    Where the block raises, the lease stays behind and says how that ended, if then `begun` says
    that there is something to go on from.
    """
    hold = _take(run, kind, settings)
    ended = threading.Event()
    beats = threading.Thread(target=_beat, args=(hold, ended), name="lease", daemon=True)
    beats.start()
    how = ""
    try:
        yield hold
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
            hold.end(how if begun() else "")


def _drop(run: str) -> None:
    """Forget a lease, and a run of which there is nothing else."""
    lease_path(run).unlink(missing_ok=True)
    folder = run_folder(run)
    if all(each.name.startswith(".") for each in folder.iterdir()):
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _gate(run: str) -> Iterator[bool]:
    """Let one process at a time write the lease of a run.

    Yields whether the folder is still that in which the lock was: who has waited for it may find
    that the run was dropped meanwhile.
    """
    path = run_folder(run) / _LOCK
    with lock_file(path) as lock:
        there = False
        with suppress(FileNotFoundError):
            there = os.path.samestat(os.fstat(lock.fileno()), path.stat())
        yield there


def _take(run: str, kind: str, settings: Mapping[str, Any]) -> HeldLease:
    folder, now = run_folder(run), time.time()
    lease = Lease(
        run=run,
        kind=kind,
        settings=settings,
        host=platform.node(),
        pid=os.getpid(),
        created=process_start(psutil.Process()),
        taken=now,
        renewed=now,
    )
    with explain_os_errors(folder):
        while True:
            make_folder(folder)
            with suppress(FileNotFoundError), _gate(run) as there:
                if there:
                    before = find_lease(run)
                    _refuse_held(run, before)
                    lease.write()
                    return HeldLease(lease, before)


def _refuse_held(run: str, lease: Lease | None) -> None:
    if lease is not None and lease.held:
        raise FlowError(
            f"the run {run!r} is being computed: {lease.told}, last heard of "
            f"{count_noun(round(time.time() - lease.renewed), 'second')} ago; wait for it, end "
            "that process, or choose another name with --run"
        )


def _beat(hold: HeldLease, ended: threading.Event) -> None:
    while not ended.wait(_BEATS_EVERY):
        # Where nothing can be written, the run itself will say so.
        with suppress(OSError, StorageError):
            hold.renew()


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
