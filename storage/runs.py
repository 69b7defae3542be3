"""Saved runs: one folder each, with a result, which is a record and arrays, and files beside it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from storage.atomic import (
    exists_settled,
    explain_os_errors,
    remove_folder,
    sync,
    visible_entries,
    workspace,
)
from storage.errors import RunNotFound, StorageError, did_you_mean
from storage.manifest import read_manifest
from storage.paths import home, resolve_under, safe_name
from storage.records import restored
from storage.saved_arrays import RECORD, commit_arrays, open_arrays
from storage.store import reading

FORMAT_VERSION = 4
# Folder of the result in that of a run.
RESULT = "result"
# The file beside it: the lease of the process that computes the run.
LEASE = "lease.json"
# The kinds of runs whose result is a model.
MODELS = ("fit", "cluster")


@dataclass(frozen=True)
class Run:
    """A saved run without the arrays of its result.

    Attributes
    ----------
    path : Path
        The folder of its result.
    kind : str
        "fit", "cluster" or "crossval"; empty for a damaged one.
    created : datetime
        Time at which it was saved, in UTC.
    bytes : int
        Size on disk.
    config, metrics, versions : Mapping
        Plain values, as they were saved.
    problem : str
        The defect of a damaged run, else empty.
    """

    name: str
    path: Path
    kind: str
    created: datetime
    bytes: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""


def runs_folder() -> Path:
    """Return the folder that holds the runs."""
    return home() / "runs"


def run_folder(name: str) -> Path:
    """Return the folder of run `name`, whether or not it exists."""
    return resolve_under(runs_folder(), safe_name(name, "run"))


def reports_folder() -> Path:
    """Return the folder of the reports of runs, with an index, which `ism-dask up` serves."""
    return home() / "reports"


def report_path(name: str, folder: Path | None = None) -> Path:
    """Return the path of the report of run `name` in a folder of reports, by default the home's."""
    return (folder or reports_folder()) / "runs" / f"{safe_name(name, 'run')}.html"


def lease_path(name: str) -> Path:
    """Return the path of the lease of run `name`, whether or not it exists."""
    return resolve_under(run_folder(name), LEASE)


def saved_run_path(name: str) -> Path | None:
    """Return the folder of the result of run `name`, or None if nothing is saved."""
    path = resolve_under(run_folder(name), RESULT)
    return path if exists_settled(path) else None


def existing_path(name: str) -> Path:
    """Return the folder of the result of run `name`; raise RunNotFound if nothing is saved."""
    path = saved_run_path(name)
    if path is None:
        raise _run_not_found(name)
    return path


def open_run(name: str) -> Run:
    """Open the run `name` without reading its arrays.

    Raises
    ------
    RunNotFound
        If no such run is saved.
    DamagedStore
        If a file of it is missing or altered.
    """
    path = existing_path(name)
    saved = open_arrays(path, FORMAT_VERSION)
    with reading(path, RECORD):
        values = {key: saved.record[key] for key in ("kind", "config", "metrics", "versions")}
        values["created"] = datetime.fromisoformat(saved.record["created"])
        if values["created"].tzinfo is None:  # it could not be compared with others
            raise ValueError("`created` has no time zone")
        place = {"name": name, "path": path, "bytes": saved.manifest.total_bytes}
        run: Run = restored(Run, {**values, **place})
    return run


def list_runs() -> tuple[Run, ...]:
    """Return the saved runs, the newest first; a damaged one has a `problem`."""
    runs = []
    for name in run_names():
        folder = runs_folder() / name
        try:
            runs += [open_run(name)] if saved_run_path(name) else []
        except StorageError as error:
            changed = datetime.fromtimestamp(folder.stat().st_mtime, UTC)
            runs.append(Run(name, folder, "", changed, problem=str(error)))
    return tuple(sorted(runs, key=lambda run: run.created, reverse=True))


def save_results(
    name: str, kind: str, *, check: Callable[[], None] = lambda: None, **record: Any
) -> Path:
    """Save the result of run `name`, atomically, replacing an earlier one; return its folder.

    The `record` has `config`, `metrics` and `versions`, and what else a model consists of.
    `check` is called when all is written, before readers see it, and may raise.
    """
    target = resolve_under(run_folder(name), RESULT)
    created = datetime.now(UTC).isoformat(timespec="milliseconds")
    saved = {**record, "kind": kind, "created": created}
    commit_arrays(target, FORMAT_VERSION, saved, check=check)
    _remove_report(name)
    return target


def _remove_report(name: str) -> None:
    """Remove the report of an earlier run of this name, and its model card."""
    page = report_path(name)
    for path in (page, page.with_suffix(".md")):
        with explain_os_errors(path):
            path.unlink(missing_ok=True)


def publish_run(source: str, target: str) -> None:
    """Copy the saved run `source` to the name `target`, in the place of an earlier one.

    Readers see the earlier run or the new one, whole.
    """
    path = existing_path(source)
    with workspace(resolve_under(run_folder(target), RESULT)) as space:
        # `shutil.copytree` collects errors, without the number that says that the disk is full.
        with explain_os_errors(space.folder):
            for each in sorted((path, *path.rglob("*"))):
                copy = space.payload / each.relative_to(path)
                copy.mkdir() if each.is_dir() else shutil.copy2(each, copy)
            for each in space.payload.rglob("*"):
                sync(each)  # a folder once all its entries are there
        space.publish()
    _remove_report(target)


def remove_run(name: str) -> None:
    """Remove a run with all its files, if it exists: readers see all of it or nothing."""
    remove_folder(run_folder(name))
    _remove_report(name)


def model_hash(name: str) -> str:
    """Return the digest of the arrays of a saved run; empty if there is none."""
    path = saved_run_path(name)
    return "" if path is None else read_manifest(path).data_hash


def _run_not_found(name: str) -> RunNotFound:
    """Return the error for a run that is not saved, which suggests what to do."""
    if lease_path(name).exists():
        return RunNotFound(f"the run {name!r} is not finished; `ism-dask runs` has how far it is")
    hint = did_you_mean(name, [each for each in run_names() if each != name])
    return RunNotFound(f"no run {name!r} is saved; {hint}`ism-dask runs` lists them")


def run_names() -> list[str]:
    """Return the names of all folders of runs, whatever they contain."""
    return [each.name for each in visible_entries(runs_folder()) if each.is_dir()]
