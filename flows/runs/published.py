"""The history of a run that refreshes publish, and which of its runs keep their files.

A refresh publishes its runs, `sales-0001` and so on, as `sales`. That is a copy, which every
command takes like any other run.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property

from flows.errors import FlowError
from flows.results.refresh import FAILED, PUBLISHED, SUSPICIOUS, RefreshResult
from flows.services.leases import REFRESH, find_lease, hold_lease
from flows.services.liveness import SET_BY_WORKERS
from storage import DamagedStore, model_hash, publish_run, read_history, remove_run, write_record
from storage.refreshes import record_path, remove_record


class History:
    """The history of a published run; damaged records raise DamagedStore."""

    def __init__(self, name: str, check: Callable[[], None] = lambda: None) -> None:
        # Raises an error if what is published is another process's by now.
        self.name, self._check = name, check
        self._saved: dict[int, RefreshResult] = {}  # by their numbers, oldest first
        for number, content in read_history(name).items():
            try:
                self._saved[number] = RefreshResult.from_json(content)
            except (TypeError, ValueError) as error:
                path, defect = record_path(name, number), f"not the record as written ({error})"
                raise DamagedStore(f"{path} is damaged: {defect}", path.name, defect) from error

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

    @cached_property
    def published(self) -> str | None:
        """The run that is the published one, None if it is none of them."""
        digest = model_hash(self.name)
        same = [each for each in self.records if digest and each.model_hash == digest]
        # A suspicious run of a table with other columns may have the same W.
        sound = [each for each in same if each.state != SUSPICIOUS] or same
        return sound[-1].run if sound else None

    @property
    def before(self) -> str | None:
        """The run that was published before the present one, None if there is none."""
        made = (each for each in self.records if each.state == PUBLISHED and not each.pruned)
        runs = [each.run for each in made]
        current = self.published
        earlier = runs[: runs.index(current)] if current in runs else runs
        return next(reversed(earlier), None)

    def add(self, record: RefreshResult) -> RefreshResult:
        """Record what has happened, and return the record; one like the last is counted with it."""
        record, number = _signed(record), max(self._saved, default=0)
        last = self._saved.get(number)
        is_repeated = last is not None and record.repeats(last)
        if last is not None and is_repeated:
            record = replace(record, times=last.times + 1)
        self._write(number + 1, record)
        if is_repeated:
            del self._saved[number]
            remove_record(self.name, number)
        return record

    def fail(self, reason: str) -> None:
        """Record that a refresh has failed."""
        self.add(RefreshResult(name=self.name, state=FAILED, file=self.file, reasons=(reason,)))

    def publish(self, run: str) -> None:
        """Publish a run; raise FlowError if what is published is another process's by now."""
        self._check()
        publish_run(run, self.name)
        self.published = run

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
                lease = find_lease(run)
                is_computed = lease is not None and lease.held
                if not is_computed and model_hash(run) in ("", digest):
                    remove_run(run)

    def _write(self, number: int, record: RefreshResult) -> None:
        self._check()
        self._saved[number] = record
        write_record(self.name, number, record.to_json())


def _signed(record: RefreshResult) -> RefreshResult:
    """Return a new record with the time, and with who or what has begun it."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may have no name for its user
        user = str(os.getuid())
    by = f"Prefect worker ({user})" if SET_BY_WORKERS in os.environ else user
    return replace(record, times=1, by=by, time=datetime.now(UTC).isoformat(timespec="seconds"))


@contextmanager
def publishing(name: str, file: str = "") -> Iterator[History]:
    """Hold the lease of a published run in the block; raise RunHeldError if another process does.

    If the process of an earlier refresh has died, that one has failed. `file` is the run file.
    """
    with hold_lease(name, REFRESH, {"file": file}, lambda: False) as lease:
        history = History(name, lease.check)
        died = lease.previous
        since = [datetime.fromisoformat(each.time).timestamp() for each in history.records[-1:]]
        if died and died.kind == REFRESH and not any(each >= int(died.taken) for each in since):
            history.fail("its process ended without a word")
        yield history
