"""What is written of a published run: rows projected, and its report; also after a rollback."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from flows.errors import FlowError, SettingsError
from flows.reports.html import write_report
from flows.results.refresh import ROLLED_BACK, RefreshResult
from flows.runs.published import History, publishing
from flows.runs.transform import transform_rows
from flows.settings.base import TransformSettings
from flows.settings.run_file import RunFile, read_run_file
from storage import StorageError, publish_run, read_history


def write_outputs(plan: RunFile, run: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Project rows and write the report of a run; yield each path with the counts of the rows.

    A report has no counts.
    """
    for each in plan.transforms:
        counts = transform_rows(run, TransformSettings(**asdict(each)))
        yield str(each.out), counts
    if plan.report is not None:
        yield str(write_report(run, plan.report)), {}


def outputs_or_reason(plan: RunFile, run: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write the outputs of a run; return their paths, and why the others are stale, if they are."""
    written: list[str] = []
    try:
        written.extend(path for path, _ in write_outputs(plan, run))
    except (FlowError, StorageError) as error:
        return tuple(written), (f"outputs of the run file are stale: {error}",)
    return tuple(written), ()


def rollback(run: str) -> RefreshResult:
    """Publish another run of a history, with the outputs of its run file; return the record.

    Parameters
    ----------
    run : str
        A run of a history, such as `sales-0003`; or the name of the published run, for the one
        that was published before it.
    """
    is_name = bool(read_history(run))
    name = run if is_name else _published_name(run)
    with publishing(name) as history:
        target = _run_before(history) if is_name else run
        record = _record_of(history, target)
        publish_run(target, name)
        written: tuple[str, ...] = ()
        stale: tuple[str, ...] = ()
        if history.file:
            try:
                written, stale = outputs_or_reason(read_run_file(Path(history.file)), name)
            except SettingsError as error:
                stale = (f"outputs of the run file are stale: {error}",)
        now = replace(record, state=ROLLED_BACK, written=written, reasons=stale, times=1)
        return history.add(replace(now, comparison=None))


def _published_name(run: str) -> str:
    name, _, number = run.rpartition("-")
    while name and not read_history(name):  # a dated run has dashes in its date
        name = name.rpartition("-")[0]
    if not (name and number):
        raise SettingsError(f"{run!r} is no run of a refresh")
    return name


def _run_before(history: History) -> str:
    if history.before is None:
        raise FlowError(f"no run of {history.name!r} was published before {history.published}")
    return history.before


def _record_of(history: History, run: str) -> RefreshResult:
    """Return the record of a run; raise a SettingsError unless the history has it, with files."""
    records = {each.run: each for each in history.records if each.run}
    if run in records and records[run].pruned:
        raise SettingsError(
            f"the files of {run!r} were removed, for it is an old run (`keep` in [refresh] sets "
            "how many stay)"
        )
    if run not in records:
        have = ", ".join(each for each in records if not records[each].pruned)
        raise SettingsError(f"{run!r} is no run of a refresh; there are {have}")
    return records[run]
