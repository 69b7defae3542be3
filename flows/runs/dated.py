"""Dated runs: one for each day, and a copy of the newest under the name that they share.

With `keep_runs`, the run `nightly` of 24 November 2026 is saved as `nightly-2026-11-24`, and then
copied to `nightly`, which every command and the report server take like any other run.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

from flows.errors import FlowError
from flows.services.leases import find_lease
from storage import (
    StorageError,
    open_run,
    publish_run,
    read_history,
    remove_run,
    saved_run_path,
)
from storage.runs import DATED, run_names, shared_name


def dated_name(run: str, *, force: bool) -> str:
    """Return the name under which a run that keeps earlier ones is saved today (UTC).

    A run that was interrupted today is continued; one that is complete is never replaced. A name
    with a date stays as it is. While a process computes a run of the name, of whatever date, it is
    the name of that one, whose lease refuses another process.

    Raises
    ------
    FlowError
        If the newest run could not be copied to `run`, as another run has that name. `force`
        allows replacing it, unless refreshes publish it.
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
    """Copy the newest run of the dated ones that `run` is one of, and remove all but `keep`.

    Without `keep`, and for a run without a date, there is nothing to do. Unfinished runs older than
    the oldest one that stays are removed, too.
    """
    name = shared_name(run)
    if keep is None or not name:
        return
    names = dated_runs(name)
    saved = [each for each in names if saved_run_path(each) is not None]
    publish_run(saved[-1], name)
    for old in names[: names.index(saved[-keep:][0])]:
        with suppress(FlowError):  # a lease that is damaged: somebody should look at the run
            if not _is_computed(old):
                remove_run(old)


def dated_runs(name: str) -> list[str]:
    """Return the dated runs that share a name, finished or not, oldest first."""
    mine = [each for each in run_names() if shared_name(each) == name]
    return sorted(mine, key=lambda each: (DATED.sub(r"\2", each), _number(each)))


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
    original = ""
    with suppress(StorageError):
        original = open_run(name).copy_of
    if read_history(name) or not (force or shared_name(original)):
        raise FlowError(
            f"there is a run {name!r} already, which is no copy of a dated one; remove it with "
            f"`ism-dask rm {name}`, or choose another name with --run"
        )
