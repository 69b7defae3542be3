"""Saved runs: one folder each, with a model or results alone, and a record of the run."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import zarr
from numpy.typing import NDArray

from storage.atomic import (
    exists_settled,
    explain_os_errors,
    remove_folder,
    remove_leftovers,
    sync,
    visible_entries,
    workspace,
)
from storage.errors import RunNotFound, StorageError, did_you_mean
from storage.manifest import MANIFEST, damaged_store, read_manifest
from storage.paths import home, resolve_under, safe_name
from storage.records import dumps, loads
from storage.store import (
    commit_group,
    get_array,
    open_checked,
    put_arrays,
    read_again_if_replaced,
)

FORMAT_VERSION = 1
# Folders in that of a run: a run has either a model or results alone.
MODEL, RESULTS = "model", "results"
# Files beside them: the report of the run, and the lease of the process that computes it.
REPORT, LEASE = "report.html", "lease.json"
# Folder beside them for dumps of the state of Dask clusters on which the run has stalled.
STALLED = "stalled"
# The name of a dated run; a number follows from the second run of a day on.
DATED = re.compile(r"(.+)-(\d{4}-\d{2}-\d{2})(?:-(\d+))?")
_RECORD = {"kind": str, "config": dict, "metrics": dict, "versions": dict}


@dataclass(frozen=True)
class Run:
    """A saved run without the arrays of its model.

    Attributes
    ----------
    name : str
    path : Path
        The folder of its model or results.
    kind : str
        "fit", "cluster", "crossval" or "unfold"; empty for a damaged one.
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

    @property
    def has_model(self) -> bool:
        """Return whether the run has a model for `load_model` to load."""
        return self.path.name == MODEL

    @property
    def copy_of(self) -> str:
        """The run that this one was copied from when it was published; empty if it was not."""
        original = str(self.config.get("run"))
        return original if original.startswith(f"{self.name}-") else ""


def shared_name(run: str) -> str:
    """Return the name that dated runs share, as `night` of `night-2026-11-24`; empty for others."""
    match = DATED.fullmatch(run)
    return match[1] if match else ""


def runs_folder() -> Path:
    """Return the folder that holds the runs."""
    return home() / "runs"


def run_folder(name: str) -> Path:
    """Return the folder of run `name`, whether or not it exists."""
    return resolve_under(runs_folder(), safe_name(name, "run"))


def report_path(name: str) -> Path:
    """Return the path of the report of run `name`, whether or not it exists."""
    return resolve_under(run_folder(name), REPORT)


def lease_path(name: str) -> Path:
    """Return the path of the lease of run `name`, whether or not it exists."""
    return resolve_under(run_folder(name), LEASE)


def saved_run_path(name: str) -> Path | None:
    """Return the folder of the model or results of run `name`, or None if nothing is saved."""
    folder = run_folder(name)
    existing = [
        path for part in (MODEL, RESULTS) if exists_settled(path := resolve_under(folder, part))
    ]
    # Both exist if one replaced the other and the older one could not be removed.
    return max(existing, key=_completion_time, default=None)


def open_run(name: str) -> Run:
    """Open the run `name` without reading its arrays.

    Raises
    ------
    RunNotFound
        If no such run is saved.
    DamagedStore
        If a file of it is missing or altered.
    """
    path = saved_run_path(name)
    if path is None:
        raise run_not_found(name)
    record = read_record(path)[1]
    created, size = _created(path, record), read_manifest(path).total_bytes
    recorded = {key: record[key] for key in _RECORD}
    return Run(name=name, path=path, created=created, bytes=size, **recorded)


def list_runs() -> tuple[Run, ...]:
    """Return the saved runs, the newest first; a damaged one has a `problem`."""
    runs = [run for name in run_names() if (run := _describe(name))]
    return tuple(sorted(runs, key=lambda run: run.created, reverse=True))


def save_results(
    name: str,
    kind: str,
    *,
    config: Mapping[str, Any],
    metrics: Mapping[str, Any],
    versions: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]] | None = None,
    columns: Mapping[str, Any] | None = None,
) -> Path:
    """Save a run that has results but no model, atomically, replacing an earlier one.

    `arrays`, by name, are stored beside the record; `columns`, what new rows have to be like, in
    it.

    Returns
    -------
    The folder of the results.
    """
    record = {
        "kind": kind,
        "config": config,
        "metrics": metrics,
        "versions": versions,
        **(columns or {}),
    }
    text = dumps(record)
    return commit_run(name, RESULTS, record, lambda group: put_arrays(group, arrays or {}, text))


def result_arrays(name: str, *names: str) -> dict[str, NDArray[Any]]:
    """Read the arrays that were stored with the results of the run `name`.

    With `names`, read those of these arrays that there are, by default all.

    Raises
    ------
    RunNotFound
        If there is no run of that name, or it has a model.
    DamagedStore
        If a file of it is missing or altered.
    """
    path = saved_run_path(name)
    if path is None or path.name != RESULTS:
        raise run_not_found(name)

    def read() -> dict[str, NDArray[Any]]:
        group, _ = read_record(path)
        stored = sorted(group.array_keys())
        return {key: get_array(group, key) for key in stored if not names or key in names}

    return read_again_if_replaced(path, read)


def commit_run(
    name: str, part: str, record: Mapping[str, Any], fill: Callable[[zarr.Group], str]
) -> Path:
    """Save the model or results of a run, named by `part`, atomically; return their folder.

    `fill` writes the arrays; `record` is saved as an attribute of their group.
    """
    target = resolve_under(run_folder(name), part)
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    # As text, because Zarr's own JSON has no NaN.
    text = dumps({**record, "created": now})
    commit_group(target, {"format_version": FORMAT_VERSION, "record": text}, fill)
    # A model or results of an earlier run, and its report, do not belong to this run.
    for other in {MODEL, RESULTS} - {part}:
        shutil.rmtree(run_folder(name) / other, ignore_errors=True)
    with explain_os_errors(target):
        report_path(name).unlink(missing_ok=True)
    return target


def publish_run(source: str, target: str) -> None:
    """Copy the saved run `source` to the name `target`, in the place of an earlier one.

    Readers see the earlier run or the new one, whole.
    """
    path = saved_run_path(source)
    if path is None:
        raise run_not_found(source)
    with workspace(resolve_under(run_folder(target), path.name)) as space:
        with explain_os_errors(space.folder):
            shutil.copytree(path, space.payload)
            for each in space.payload.rglob("*"):
                sync(each)
        space.publish()
    for other in {MODEL, RESULTS} - {path.name}:
        shutil.rmtree(run_folder(target) / other, ignore_errors=True)
    with explain_os_errors(run_folder(target)):
        report_path(target).unlink(missing_ok=True)


def remove_run(name: str) -> None:
    """Remove a run with all its files, if it exists: readers see all of it or nothing."""
    folder = run_folder(name)
    if folder.exists():
        remove_leftovers(runs_folder())  # of a removal that was killed
        remove_folder(folder)


def model_hash(name: str) -> str:
    """Return the digest of the values of a saved run; empty if there is none."""
    path = saved_run_path(name)
    return "" if path is None else read_manifest(path).data_hash


def read_record(path: Path) -> tuple[zarr.Group, dict[str, Any]]:
    """Return the group and the record that `commit_run` wrote to a folder."""
    _, group = open_checked(path)
    attributes = group.attrs.asdict()
    if attributes.get("format_version") != FORMAT_VERSION:
        raise StorageError(
            f"`format_version` is {attributes.get('format_version')!r}; this version reads "
            f"{FORMAT_VERSION}. Upgrade the package, or fit and save the model again."
        )
    try:
        record: dict[str, Any] = loads(str(attributes["record"]))
        missing = [key for key, kind in _RECORD.items() if not isinstance(record.get(key), kind)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged_store(path, "zarr.json", f"not the record of a run ({error})") from error
    if missing:
        raise damaged_store(path, "zarr.json", f"not the record of a run (it lacks {missing[0]!r})")
    return group, record


def run_not_found(name: str) -> RunNotFound:
    """Return the error for a run that is not saved, which suggests runs of similar names."""
    hint = did_you_mean(name, run_names())
    return RunNotFound(f"no run {name!r} is saved; {hint}`ism-dask runs` lists them")


def run_names() -> list[str]:
    """Return the names of all folders of runs, whatever they contain."""
    return [each.name for each in visible_entries(runs_folder()) if each.is_dir()]


def _describe(name: str) -> Run | None:
    """Return a run, damaged or not; None for a folder without a model or results."""
    path = runs_folder() / name
    try:
        saved = saved_run_path(name)
        path = saved or path
        return open_run(name) if saved else None
    except StorageError as error:
        return Run(name, path, "", _created(path, {}), problem=str(error))


def _created(path: Path, record: Mapping[str, Any]) -> datetime:
    try:
        return datetime.fromisoformat(record["created"])
    except (KeyError, TypeError, ValueError):
        return datetime.fromtimestamp(_completion_time(path), UTC)


def _completion_time(path: Path) -> float:
    """Return the time at which the manifest was written; 0, the oldest, if it is missing."""
    try:
        return (path / MANIFEST).stat().st_mtime
    except OSError:
        return 0.0
