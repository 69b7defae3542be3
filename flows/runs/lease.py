"""Leases of runs: at most one live process computes a run, and a dead one's lease is taken over.

The lease is a file in the folder of the run, which names the process. A thread of that process
renews it every few seconds, so that other machines can see that the process lives.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from flows.errors import FlowError, RunHeldError
from flows.services.leases import FAILED, Lease, find_lease
from flows.services.records import ProcessIdentity
from flows.text import count_noun
from storage import Checkpoints, StorageError, lease_path, run_folder
from storage.atomic import explain_os_errors, lock_file, make_folder

# Seconds between two renewals of a lease.
_BEATS_EVERY = 5.0
_LOCK = ".lease"


def describe_unfinished(lease: Lease) -> dict[str, Any]:
    """Return an entry for a run that is not complete: facts for programs, a sentence for people."""
    newest = Checkpoints.of_run(lease.run).find()
    facts = {"name": lease.run, "kind": lease.kind, "running": lease.held}
    progress = "" if newest is None else f", saved up to {newest.progress}"
    advice = "" if lease.held else f"; `ism-dask resume {lease.run}` goes on with it"
    description = f"{lease.kind}, {lease.description}{progress}{advice}"
    return {**facts, "description": description}


class HeldLease:
    """The lease of a run that this process computes.

    Parameters
    ----------
    lease : Lease
    previous : Lease or None
        The lease that an earlier process left behind, if it ended without a result.
    """

    def __init__(self, lease: Lease, before: Lease | None) -> None:
        self._lease, self.previous = lease, before
        # The fit and the watchdog of its cluster, a thread, both update the numbers.
        self._updating = threading.Lock()

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

    def update_numbers(self, **numbers: Any) -> None:
        """Set some of the numbers of the run; the next renewal writes them."""
        with self._updating:
            live = replace(self._lease.numbers, **numbers)
            self._lease = replace(self._lease, numbers=live)

    def count_workers_lost(self, count: int) -> None:
        """Add workers of the Dask cluster that were lost to the numbers of the run."""
        self.update_numbers(workers_lost=self._lease.numbers.workers_lost + count)

    def count_cluster_lost(self) -> None:
        """Add a Dask cluster that was lost to the numbers of the run."""
        self.update_numbers(clusters_lost=self._lease.numbers.clusters_lost + 1)

    def renew(self) -> None:
        """Write the current time into the lease, which shows other machines that we live."""
        with _locked(self._lease.run) as exists:
            if exists and self._is_ours():
                replace(self._lease, renewed=time.time()).write()

    def end(self, how: str) -> None:
        """Delete the lease, or, if `how` is not empty, keep it with this description of its end."""
        with _locked(self._lease.run) as exists:
            if not (exists and self._is_ours()):
                return
            if how:
                replace(self._lease, ended=how, renewed=time.time()).write()
            else:
                _delete(self._lease.run)

    @property
    def is_retry(self) -> bool:
        """Whether this process had the lease before, with the same settings, and now retries."""
        before, now = self.previous, self._lease
        return before is not None and (before.holder, before.settings) == (now.holder, now.settings)

    def _is_ours(self) -> bool:
        try:
            current = find_lease(self._lease.run)
        except FlowError:
            return True  # the file is damaged, but no other process has replaced it
        if current is None:
            return False
        return (current.holder, current.taken) == (self._lease.holder, self._lease.taken)


@contextmanager
def hold_lease(
    run: str, kind: str, settings: Mapping[str, Any], begun: Callable[[], bool]
) -> Iterator[HeldLease]:
    """Hold the lease of a run in the block, and renew it from a thread.

    If the block raises, and `begun` then returns that there is something to continue from, the
    lease file stays behind and records how the run ended.
    """
    lease = _acquire(run, kind, settings)
    ended = threading.Event()
    renewal = threading.Thread(target=_renew_often, args=(lease, ended), name="lease", daemon=True)
    renewal.start()
    how = ""
    try:
        yield lease
    except KeyboardInterrupt:
        how = "was interrupted"
        raise
    except BaseException as error:
        how = f"{FAILED}{error}"
        raise
    finally:
        ended.set()
        renewal.join()
        with suppress(OSError, StorageError):
            lease.end(how if begun() else "")


def _delete(run: str) -> None:
    """Delete the lease of a run, and the folder of the run if only hidden files remain in it."""
    lease_path(run).unlink(missing_ok=True)
    folder = run_folder(run)
    if all(each.name.startswith(".") for each in folder.iterdir()):
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(run: str) -> Iterator[bool]:
    """Lock the lease of a run against other processes, so that one at a time writes it.

    Yields whether the lock file still exists: while this process waited for the lock, another may
    have deleted the folder of the run.
    """
    path = run_folder(run) / _LOCK
    with lock_file(path) as lock:
        exists = False
        with suppress(FileNotFoundError):
            exists = os.path.samestat(os.fstat(lock.fileno()), path.stat())
        yield exists


def _acquire(run: str, kind: str, settings: Mapping[str, Any]) -> HeldLease:
    folder, now, own = run_folder(run), time.time(), ProcessIdentity.of_this_process()
    lease = Lease(
        run=run,
        kind=kind,
        settings=settings,
        host=own.host,
        pid=own.pid,
        created=own.created,
        taken=now,
        renewed=now,
    )
    with explain_os_errors(folder):
        while True:
            make_folder(folder)
            with suppress(FileNotFoundError), _locked(run) as exists:
                if exists:
                    before = find_lease(run)
                    _refuse_held(run, before)
                    lease.write()
                    return HeldLease(lease, before)


def _refuse_held(run: str, lease: Lease | None) -> None:
    if lease is not None and lease.held:
        raise RunHeldError(
            f"the run {run!r} is being computed: {lease.description}, last heard of "
            f"{count_noun(round(time.time() - lease.renewed), 'second')} ago; wait for it, end "
            "that process, or choose another name with --run"
        )


def _renew_often(lease: HeldLease, ended: threading.Event) -> None:
    while not ended.wait(_BEATS_EVERY):
        # If the disk cannot be written to, the run itself fails with an error that says so.
        with suppress(OSError, StorageError):
            lease.renew()
