"""Runs that are kept: one folder each, with a model or with results alone, and their record."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Any

import zarr

from storage.atomic import exists_settled, explain_os_errors
from storage.errors import RunNotFound, StorageError
from storage.manifest import MANIFEST, damaged_store, read_manifest
from storage.paths import home, resolve_under, safe_name
from storage.records import dumps, loads
from storage.store import commit_group, open_checked

FORMAT_VERSION = 1
# What a run consists of: one of these, in a folder of that name.
MODEL, RESULTS = "model", "results"
# What may be beside it: a report made of it, and who computes it.
REPORT, LEASE = "report.html", "lease.json"
# Where the state of clusters is kept on which a run has stalled.
STALLED = "stalled"
_RECORD = ("config", "metrics", "versions")


@dataclass(frozen=True)
class Run:
    """What is known of a run that is kept, but for the arrays of its model.

    Attributes
    ----------
    name : str
    path : Path
        The folder of its model or results.
    kind : str
        "fit", "cluster" or "crossval"; empty for a damaged one.
    created : datetime
        When it was kept, in UTC.
    bytes : int
        On disk.
    config, metrics, versions : Mapping
        Plain values, as they were given.
    problem : str
        Empty, or what is wrong with it.
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
        """Whether there is something that `load_model` loads."""
        return self.path.name == MODEL


def runs_folder() -> Path:
    """Return the folder that holds the runs."""
    return home() / "runs"


def run_folder(name: str) -> Path:
    """Return the folder of run `name`, whether or not it exists."""
    return resolve_under(runs_folder(), safe_name(name, "run"))


def report_path(name: str) -> Path:
    """Return where the report of run `name` is put, whether or not it is there."""
    return resolve_under(run_folder(name), REPORT)


def lease_path(name: str) -> Path:
    """Return where it is kept who computes run `name`, whether or not anybody does."""
    return resolve_under(run_folder(name), LEASE)


def saved_run_path(name: str) -> Path | None:
    """Return the folder of the model or results of run `name`, None where nothing is kept."""
    folder = run_folder(name)
    found = [
        path for part in (MODEL, RESULTS) if exists_settled(path := resolve_under(folder, part))
    ]
    # Both are there where one replaced the other and the remains could not be removed.
    return max(found, key=_written, default=None)


def open_run(name: str) -> Run:
    """Open the run `name` without reading its arrays.

    Raises
    ------
    RunNotFound
        When there is none.
    DamagedStore
        When a file of it is missing or altered.
    """
    path = saved_run_path(name)
    if path is None:
        raise no_run(name)
    record = read_record(path)[1]
    kind, created = _kind(path, record), _created(path, record)
    size = read_manifest(path).total_bytes
    return Run(name, path, kind, created, size, **{key: record[key] for key in _RECORD})


def list_runs() -> tuple[Run, ...]:
    """Return the runs that are kept, the newest first; damaged ones say so."""
    runs = [run for name in run_names() if (run := _line(name))]
    return tuple(sorted(runs, key=lambda run: run.created, reverse=True))


def save_results(
    name: str,
    kind: str,
    *,
    config: Mapping[str, Any],
    metrics: Mapping[str, Any],
    versions: Mapping[str, Any],
) -> Path:
    """Keep a run that has results but no model, whole or not at all, replacing an earlier one.

    Returns
    -------
    The folder of the results.
    """
    record = {"kind": kind, "config": config, "metrics": metrics, "versions": versions}
    digest = sha256(dumps(record).encode()).hexdigest()
    return commit_run(name, RESULTS, record, lambda _: digest)


def commit_run(
    name: str, part: str, record: Mapping[str, Any], fill: Callable[[zarr.Group], str]
) -> Path:
    """Put what a run consists of into its folder, whole or not at all; return where.

    `record` is kept with the arrays that `fill` writes.
    """
    target = resolve_under(run_folder(name), part)
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    # As text, because Zarr's own JSON knows no NaN.
    text = dumps({**record, "created": now})
    commit_group(target, {"format_version": FORMAT_VERSION, "record": text}, fill)
    # What was there of another kind, or was made of it, says nothing of this run.
    for other in {MODEL, RESULTS} - {part}:
        shutil.rmtree(run_folder(name) / other, ignore_errors=True)
    with explain_os_errors(target):
        report_path(name).unlink(missing_ok=True)
    return target


def read_record(path: Path) -> tuple[zarr.Group, dict[str, Any]]:
    """Open what `commit_run` wrote; return its group and its record."""
    _, group = open_checked(path)
    attributes = group.attrs.asdict()
    if attributes.get("format_version") != FORMAT_VERSION:
        raise StorageError(
            f"`format_version` is {attributes.get('format_version')!r}; this version reads "
            f"{FORMAT_VERSION}. Upgrade the package, or fit and save the model again."
        )
    try:
        record: dict[str, Any] = loads(str(attributes["record"]))
        missing = [key for key in _RECORD if not isinstance(record.get(key), dict)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged_store(path, "zarr.json", f"not the record of a run ({error})") from error
    if missing:
        raise damaged_store(path, "zarr.json", f"not the record of a run (it lacks {missing[0]!r})")
    return group, record


def no_run(name: str) -> RunNotFound:
    """Return the error for a run that is not kept, which tells of those that may be meant."""
    near = get_close_matches(name, run_names())
    meant = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return RunNotFound(f"no run {name!r} is kept; {meant}`ism-dask runs` lists them")


def run_names() -> list[str]:
    """Return the names of all folders of runs, whatever is in them."""
    root = runs_folder()
    with explain_os_errors(root, "read"):
        entries = root.iterdir() if root.is_dir() else ()
        return sorted(each.name for each in entries if each.is_dir() and each.name[0] != ".")


def _line(name: str) -> Run | None:
    """Return a run of the list; None for a folder in which nothing is kept."""
    path = runs_folder() / name
    try:
        kept = saved_run_path(name)
        path = kept or path
        return open_run(name) if kept else None
    except StorageError as error:
        return Run(name, path, "", _created(path, {}), problem=str(error))


def _kind(path: Path, record: Mapping[str, Any]) -> str:
    # Earlier versions kept models only, and did not say what of.
    guess = "cluster" if "paradigm" in record["metrics"] else "fit"
    return str(record.get("kind", guess if path.name == MODEL else "crossval"))


def _created(path: Path, record: Mapping[str, Any]) -> datetime:
    try:
        return datetime.fromisoformat(record["created"])
    except (KeyError, TypeError, ValueError):
        return datetime.fromtimestamp(_written(path), UTC)


def _written(path: Path) -> float:
    """Return when the folder was completed; a damaged one is taken for the oldest."""
    try:
        return (path / MANIFEST).stat().st_mtime
    except OSError:
        return 0.0
