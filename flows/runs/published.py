"""Runs that are published under a shared name: their history, dated runs, and which ones stay.

A refresh publishes its runs, `sales-0001` and so on, as `sales`. With `keep_runs`, the run
`nightly` of 24 November 2026 is saved as `nightly-2026-11-24`, and published as `nightly`. That is
a copy, which every command takes like any other run.
"""

from __future__ import annotations

import getpass
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flows.errors import FlowError, RunHeldError
from flows.results.refresh import (
    ADOPTED,
    BEGUN,
    FAILED,
    PUBLISHED,
    ROLLED_BACK,
    RefreshResult,
    refresh_records,
)
from flows.services.leases import find_lease
from flows.services.liveness import SET_BY_WORKERS, ProcessRecord
from storage import (
    DamagedStore,
    StorageError,
    model_hash,
    open_run,
    publish_run,
    refresh_lock,
    remove_run,
    saved_run_path,
    write_history,
)
from storage.records import restored
from storage.refreshes import LOCK, refresh_folder
from storage.runs import DATED, run_names, shared_name


def numbers_of(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics of a run that its record in a history has."""
    names = ("rows", "objective", "iterations", "seconds")
    return {key: metrics[key] for key in names if key in metrics}


@dataclass(frozen=True, kw_only=True)
class RefreshProcess(ProcessRecord):
    """The process of a refresh that has begun, as the history has it."""

    name: str

    @classmethod
    def of(cls, record: RefreshResult) -> RefreshProcess | None:
        """Return the process of a refresh that has begun, None if the record has none."""
        with suppress(TypeError, ValueError):
            return restored(cls, record.process) if record.state == BEGUN else None
        return None

    @property
    def path(self) -> Path:
        """The lock that it holds."""
        return refresh_folder(self.name) / LOCK

    @property
    def may_live(self) -> bool:
        """Whether the process lives; that of another machine may, whatever it does."""
        return self.host != platform.node() or self.lives


class History:
    """The history of a published run; its `records` are sorted, oldest first."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.records = list(refresh_records(name))

    @property
    def runs(self) -> list[str]:
        """The runs that it has made, oldest first, also those whose files are removed."""
        return list(dict.fromkeys(each.run for each in self.records if each.run))

    @property
    def file(self) -> str:
        """The run file of its refreshes; empty for dated runs."""
        return next((each.file for each in reversed(self.records) if each.file), "")

    @property
    def last_made(self) -> RefreshResult | None:
        """The record of the newest run, None if there is no run."""
        return next((each for each in reversed(self.records) if each.made_run), None)

    @property
    def published(self) -> str | None:
        """The run that is the published one, None if it is none of them."""
        digest = model_hash(self.name)
        runs = [each.run for each in self.records if digest and each.model_hash == digest]
        copied = original_of(self.name)  # results without a model have the same digest
        return copied if copied in runs else next(reversed(runs), None)

    @property
    def before(self) -> str | None:
        """The run that was published before the present one, None if there is none."""
        states = (PUBLISHED, ADOPTED)
        runs = [each.run for each in self.records if each.state in states and not each.pruned]
        current = self.published
        earlier = runs[: runs.index(current)] if current in runs else runs
        return next(reversed(earlier), None)

    def begin(self, file: str) -> None:
        """Record that a refresh begins; one whose process died has failed."""
        died: dict[str, Any] = {"process": None, "reasons": ("its process ended without a word",)}
        self.records = [
            replace(each, state=FAILED, **died) if each.state == BEGUN else each
            for each in self.records
        ]
        process = asdict(RefreshProcess(name=self.name))
        record = RefreshResult(name=self.name, state=BEGUN, file=file, process=process)
        self.records.append(_signed(record))
        self._write()

    def add(self, record: RefreshResult) -> RefreshResult:
        """Record what has happened, and return the record; one like the last is counted with it."""
        while self.records and self.records[-1].state == BEGUN:
            self.records.pop()
        record = _signed(record)
        last = self.records[-1] if self.records else record
        same = (last.state, last.run, last.reasons) == (record.state, record.run, record.reasons)
        if self.records and same and record.state != ROLLED_BACK:
            self.records.pop()
            record = replace(last, time=record.time, by=record.by, times=last.times + 1)
        self.records.append(record)
        self._write()
        return record

    def fail(self, reason: str) -> None:
        """Record that a refresh has failed."""
        self.add(RefreshResult(name=self.name, state=FAILED, file=self.file, reasons=(reason,)))

    def prune(self, keep: int) -> None:
        """Remove the files of old runs, whose records stay.

        The newest `keep` runs keep theirs, and so do the published one and the one before it.
        """
        stay = {*self.runs[-keep:], self.published, self.before}
        self.remove(run for run in self.runs if run not in stay)

    def remove(self, runs: Iterable[str]) -> None:
        """Remove the files of runs; other runs that have the names since then stay."""
        old = dict.fromkeys(runs, "")
        old |= {each.run: each.model_hash for each in self.records if each.run in old}
        if any(each.run in old and not each.pruned for each in self.records):
            # First: a removal that was killed is completed by the next one.
            self.records = [
                replace(each, pruned=each.pruned or each.run in old) for each in self.records
            ]
            self._write()
        for run, digest in old.items():
            # A damaged run or lease: somebody should look at it.
            with suppress(DamagedStore, FlowError):
                if not _is_computed(run) and model_hash(run) in ("", digest):
                    remove_run(run)

    def _write(self) -> None:
        write_history(self.name, [each.to_json() for each in self.records])


def _signed(record: RefreshResult) -> RefreshResult:
    """Return a record with the time, and with who or what has begun it."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may have no name for its user
        user = str(os.getuid())
    by = f"Prefect worker ({user})" if SET_BY_WORKERS in os.environ else user
    return replace(record, time=datetime.now(UTC).isoformat(timespec="seconds"), by=by)


@contextmanager
def publishing(name: str) -> Iterator[History]:
    """Lock what is published as `name` in the block; raise RunHeldError if another process does."""
    try:
        with refresh_lock(name):
            yield History(name)
    except BlockingIOError as error:
        raise RunHeldError(
            f"another process refreshes {name!r} now; wait until it has ended"
        ) from error


def dated_name(run: str, *, force: bool) -> str:
    """Return the name under which a run that keeps earlier ones is saved today (UTC).

    A run that was interrupted today is continued; one that is complete is never replaced. A name
    with a date stays as it is. While a process computes a run of the name, of whatever date, it is
    the name of that one, whose lease refuses another process. Raise a FlowError if another run has
    the name `run`. `force` allows replacing it, unless refreshes publish it.
    """
    if shared_name(run):
        return run
    _check_can_be_newest(run, force=force)
    today = f"{run}-{datetime.now(UTC):%Y-%m-%d}"
    names = dated_runs(run)[::-1]
    if computed := next((name for name in names if _is_computed(name)), ""):
        return computed
    last = next((name for name in names if name.startswith(today)), "")
    if not last:
        return today
    return last if saved_run_path(last) is None else f"{today}-{_number(last) + 1}"


def publish_newest(run: str, keep: int | None) -> None:
    """Publish the newest run of the dated ones that `run` is one of, and remove all but `keep`.

    Without `keep`, and for a run without a date, there is nothing to do. Unfinished runs older than
    the oldest one that stays are removed, too.
    """
    name = shared_name(run)
    if keep is None or not name:
        return
    with refresh_lock(name, wait=True):
        history, names = History(name), dated_runs(name)
        saved = [each for each in names if saved_run_path(each) is not None]
        record = RefreshResult(name=name, state=PUBLISHED, run=run, model_hash=model_hash(run))
        history.add(replace(record, **numbers_of(open_run(run).metrics)))
        publish_run(saved[-1], name)
        history.remove(names[: names.index(saved[-keep:][0])])


def dated_runs(name: str) -> list[str]:
    """Return the dated runs that share a name, finished or not, oldest first."""
    mine = [each for each in run_names() if shared_name(each) == name]
    return sorted(mine, key=lambda each: (DATED.sub(r"\2", each), _number(each)))


def original_of(run: str) -> str:
    """Return the run that a published one is a copy of; empty if it is none, or is damaged."""
    with suppress(StorageError):
        return open_run(run).copy_of
    return ""


def _is_computed(run: str) -> bool:
    lease = find_lease(run)
    return lease is not None and lease.held


def _number(run: str) -> int:
    """Return which run of its day a dated run is, from 1."""
    match = DATED.fullmatch(run)
    return int(match[3] or 1) if match else 1


def _check_can_be_newest(name: str, *, force: bool) -> None:
    """Raise a FlowError if a run has the name that is no copy of a dated one."""
    if saved_run_path(name) is None:
        return
    if History(name).file or not (force or shared_name(original_of(name))):
        raise FlowError(
            f"there is a run {name!r} already, which is no copy of a dated one; remove it with "
            f"`ism-dask rm {name}`, or choose another name with --run"
        )
