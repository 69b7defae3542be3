"""The history of a run that refreshes publish, and which of its runs keep their files.

A refresh publishes its runs, `sales-0001` and so on, as `sales`. That is a copy, which every
command takes like any other run.
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
    BEGUN,
    FAILED,
    PUBLISHED,
    RefreshResult,
    refresh_records,
)
from flows.services.leases import find_lease
from flows.services.liveness import SET_BY_WORKERS, ProcessRecord
from storage import (
    DamagedStore,
    model_hash,
    refresh_lock,
    remove_run,
    write_record,
)
from storage.records import restored
from storage.refreshes import LOCK, refresh_folder, remove_record


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
    """The history of a published run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._saved = refresh_records(name)

    @property
    def records(self) -> list[RefreshResult]:
        """All records, oldest first."""
        return [*self._saved.values()]

    @property
    def runs(self) -> list[str]:
        """The runs that it has made, oldest first, also those whose files are removed."""
        return list(dict.fromkeys(each.run for each in self.records if each.run))

    @property
    def file(self) -> str:
        """The run file of its refreshes; empty without any."""
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
        return next(reversed(runs), None)

    @property
    def before(self) -> str | None:
        """The run that was published before the present one, None if there is none."""
        made = (each for each in self.records if each.state == PUBLISHED and not each.pruned)
        runs = [each.run for each in made]
        current = self.published
        earlier = runs[: runs.index(current)] if current in runs else runs
        return next(reversed(earlier), None)

    def equal_rows_of(self, run: str) -> float:
        """Return the share of rows of a run that equal an earlier one."""
        return next((each.equal_rows for each in self.records if each.run == run), 0.0)

    def begin(self, file: str) -> None:
        """Record that a refresh begins; one whose process died has failed."""
        number = max(self._saved, default=0)
        if number and self._saved[number].state == BEGUN:
            died = replace(self._saved[number], state=FAILED, process=None)
            self._write(number, replace(died, reasons=("its process ended without a word",)))
        process = asdict(RefreshProcess(name=self.name))
        record = RefreshResult(name=self.name, state=BEGUN, file=file, process=process)
        self._write(number + 1, _signed(record))

    def add(self, record: RefreshResult) -> RefreshResult:
        """Record what has happened, and return the record; one like the last is counted with it."""
        record, numbers = _signed(record), [*self._saved]
        has_begun = bool(numbers) and self._saved[numbers[-1]].state == BEGUN
        number = numbers.pop() if has_begun else max(numbers, default=0) + 1
        last = self._saved[numbers[-1]] if numbers else None
        is_repeated = last is not None and record.repeats(last)
        if last is not None and is_repeated:
            record = replace(last, time=record.time, by=record.by, times=last.times + 1)
        self._write(number, record)
        if is_repeated:
            del self._saved[numbers[-1]]
            remove_record(self.name, numbers[-1])
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
        for number, each in self._saved.items():
            if each.run in old and not each.pruned:
                # First: a removal that was killed is completed by the next one.
                self._write(number, replace(each, pruned=True))
        for run, digest in old.items():
            # A damaged run or lease: somebody should look at it.
            with suppress(DamagedStore, FlowError):
                if not _is_computed(run) and model_hash(run) in ("", digest):
                    remove_run(run)

    def _write(self, number: int, record: RefreshResult) -> None:
        self._saved[number] = record
        write_record(self.name, number, record.to_json())


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


def _is_computed(run: str) -> bool:
    lease = find_lease(run)
    return lease is not None and lease.held
