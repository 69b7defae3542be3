"""The history of a published run: a file for each record."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from storage.atomic import explain_os_errors, make_folder, replace_synced, visible_entries
from storage.errors import StorageError
from storage.paths import home, resolve_under, safe_name
from storage.records import read_sealed, to_sealed_json

FORMAT_VERSION = 3


def refreshes_folder() -> Path:
    """Return the folder that holds the histories of refreshes."""
    return home() / "refreshes"


def refresh_folder(name: str) -> Path:
    """Return the folder of the refreshes of run `name`, whether or not it exists."""
    return resolve_under(refreshes_folder(), safe_name(name, "run"))


def record_path(name: str, number: int) -> Path:
    """Return the file of a record of run `name`, whether or not it exists."""
    return refresh_folder(name) / f"{number}.json"


def refresh_run(name: str, number: int) -> str:
    """Return the name of the run that the refresh with a number, from 1, of run `name` makes."""
    return f"{name}-{number:04d}"


def refreshed_names() -> list[str]:
    """Return the names of the runs that have a history of refreshes."""
    names = [each.name for each in visible_entries(refreshes_folder()) if each.is_dir()]
    return [name for name in names if record_paths(name)]


def record_paths(name: str) -> dict[int, Path]:
    """Return the files of the records of run `name` by their numbers, which ascend."""
    files = visible_entries(refresh_folder(name))
    return dict(sorted((int(each.stem), each) for each in files if is_record(each.name)))


def is_record(file: str) -> bool:
    """Return whether a file has the name of a record, such as 17.json."""
    return re.fullmatch(r"[1-9][0-9]*\.json", file) is not None


def read_history(name: str) -> dict[int, dict[str, Any]]:
    """Return the records of all refreshes of run `name` by their numbers, oldest first.

    Raises
    ------
    DamagedStore
        If a file is not as it was written.
    """
    return {number: _read_record(name, path) for number, path in record_paths(name).items()}


def _read_record(name: str, path: Path) -> dict[str, Any]:
    content = read_sealed(path, "a record of refreshes")
    version = content.pop("format_version", None)
    if version != FORMAT_VERSION:
        raise StorageError(
            f"{path} has format version {version!r}; this version of the package reads "
            f"{FORMAT_VERSION}. Take the one that wrote it; or, to begin a new history, move that "
            f"folder away and remove the run (ism-dask remove run:{name} --force)"
        )
    return content


def write_record(name: str, number: int, record: Mapping[str, Any]) -> None:
    """Write a record of run `name` in the place of an earlier one, all of it or nothing."""
    make_folder(refresh_folder(name))
    content = {**record, "format_version": FORMAT_VERSION}
    replace_synced(record_path(name, number), to_sealed_json(content))


def remove_record(name: str, number: int) -> None:
    """Remove a record of run `name`, which a later one repeats."""
    path = record_path(name, number)
    with explain_os_errors(path):
        path.unlink(missing_ok=True)
