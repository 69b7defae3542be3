"""Leases of runs: at most one live process computes a run, and a dead one's lease is taken over.

The lease is a file in the folder of the run, which names the process. A
thread of that process renews it every few seconds, so that other machines see that it lives.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flows.errors import FlowError, RunHeldError
from flows.progress.watching import repeated
from flows.services.liveness import SIGN_OF_LIFE, ProcessRecord
from ism_dask.words import count_noun
from storage import Checkpoints, DamagedStore, StorageError, lease_path, run_folder, runs_folder
from storage.atomic import explain_os_errors, lock_file, make_folder
from storage.runs import LEASE

# The kind of the lease by which a refresh holds the run that it publishes.
REFRESH = "refresh"
# In the folder of all runs: one process at a time changes a lease, which takes a moment.
_LOCK = ".leases"
# A time later than this, in the year 5138, is no reading of a clock.
_MAX_TIME = 1e11


@dataclass(frozen=True, kw_only=True)
class Lease(ProcessRecord):
    """The record of the process that computes a run, or was computing it when the process ended."""

    run: str
    kind: str  # name of its flow
    settings: Mapping[str, Any]  # of the run, in plain JSON
    taken: float = field(default_factory=time.time)  # when the process took the lease
    # How the run ended without a result. Empty while it goes on, and if the process has died.
    ended: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.taken < _MAX_TIME:
            raise ValueError(f"no process begins at {self.taken}")

    @property
    def path(self) -> Path:
        """The file of the lease."""
        return lease_path(self.run)

    @property
    def holding(self) -> tuple[str, int, float, float]:
        """What tells this lease from those of other processes, and from others of this one."""
        return self.host, self.pid, self.created, self.taken

    @property
    def held(self) -> bool:
        """Whether the process still computes the run."""
        return not self.ended and self.lives

    @property
    def description(self) -> str:
        """A description for people: which process computes the run, or how it ended."""
        process = f"process {self.pid} on {self.host}"
        taken = f"{datetime.fromtimestamp(self.taken, UTC):%Y-%m-%d %H:%M:%S} UTC"
        if self.held:
            return f"{process} computes it since {taken}"
        return f"{process}, begun {taken}, {self.ended or 'ended without a word'}"


def find_lease(run: str) -> Lease | None:
    """Return the lease of a run, or None; raise FlowError if its file is damaged."""
    path = lease_path(run)
    try:
        lease = Lease.read(path)
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
    paths = sorted(runs_folder().glob(f"*/{LEASE}"))
    leases = ((path.parent.name, Lease.find(path)) for path in paths)
    return [replace(lease, run=name) for name, lease in leases if lease is not None]


def describe_unfinished(lease: Lease) -> dict[str, Any]:
    """Return an entry for a run that is not complete: facts for programs, a sentence for people."""
    newest = Checkpoints.of_run(lease.run).find()
    facts = {"name": lease.run, "kind": lease.kind, "running": lease.held}
    progress = "" if newest is None else f", saved up to {newest.progress}"
    advice = f"; `ism-dask resume {lease.run}` goes on with it"
    if lease.kind == REFRESH:
        advice = f"; `ism-dask run {lease.settings.get('file')}` refreshes it again"
    advice = "" if lease.held else advice
    description = f"{lease.kind}, {lease.description}{progress}{advice}"
    return {**facts, "description": description}


class HeldLease:
    """The lease of a run that this process computes.

    `previous` is that which an earlier process left behind, if it ended without a result.
    """

    def __init__(self, lease: Lease, previous: Lease | None) -> None:
        self._lease, self.previous = lease, previous

    def check(self) -> None:
        """Raise FlowError if another process has taken the lease over, or it is gone.

        Other machines take a process for dead that was suspended for long.
        """
        if not self._is_ours():
            now = find_lease(self._lease.run)
            owner = "its lease is gone" if now is None else now.description
            raise FlowError(
                f"the run {self._lease.run!r} was taken from this process, which had not been "
                f"heard of for a while: {owner}. Nothing of this process is saved any more"
            )

    def renew(self) -> None:
        """Write the lease again as a sign of life."""
        # If the disk cannot be written to, the run itself fails with an error that says so.
        with suppress(OSError, StorageError), _locked():
            if self._is_ours():
                self._lease.write()

    def end(self, how: str) -> None:
        """Delete the lease, or, if `how` is not empty, keep it with this description of its end."""
        folder = run_folder(self._lease.run)
        with suppress(OSError, StorageError), _locked():
            if not self._is_ours():
                return
            if how:
                replace(self._lease, ended=how).write()
                return
            self._lease.path.unlink(missing_ok=True)
            if all(each.name.startswith(".") for each in folder.iterdir()):
                shutil.rmtree(folder, ignore_errors=True)

    def _is_ours(self) -> bool:
        try:
            current = find_lease(self._lease.run)
        except FlowError:
            return True  # the file is damaged, but no other process has replaced it
        return current is not None and current.holding == self._lease.holding


@contextmanager
def hold_lease(
    run: str, kind: str, settings: Mapping[str, Any], begun: Callable[[], bool]
) -> Iterator[HeldLease]:
    """Hold the lease of a run in the block, and renew it from a thread.

    If the block raises, and `begun` then returns that there is something to continue from, the
    lease file stays behind and records how the run ended.
    """
    lease = _acquire(Lease(run=run, kind=kind, settings=settings))
    how = ""
    try:
        with repeated(lease.renew, SIGN_OF_LIFE):
            yield lease
    except Exception as error:
        how = f"failed: {error}"
        raise
    except BaseException:
        how = "was interrupted"
        raise
    finally:
        lease.end(how if begun() else "")


def _locked() -> AbstractContextManager[Any]:
    """Lock all leases against other processes."""
    return lock_file(runs_folder() / _LOCK)


def _acquire(lease: Lease) -> HeldLease:
    """Write the lease unless another process holds it; return it with the one before."""
    folder = run_folder(lease.run)
    with explain_os_errors(folder):
        make_folder(runs_folder())
        with _locked():
            before = find_lease(lease.run)
            if before is None or not before.held:
                make_folder(folder)
                lease.write()
                return HeldLease(lease, before)
    silence = count_noun(round(time.time() - before.renewed), "second")
    raise RunHeldError(
        f"the run {lease.run!r} is being computed: {before.description}, last heard of {silence} "
        "ago; wait for it, end that process, or choose another name with `run`",
        "run",
    )
