"""The history of a published run: one file of records, and a lock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from storage.atomic import (
    explain_os_errors,
    lock_file,
    make_folder,
    replace_synced,
    visible_entries,
)
from storage.errors import DamagedStore, StorageError
from storage.paths import home, resolve_under, safe_name
from storage.records import read_sealed, to_sealed_json

FORMAT_VERSION = 2
# The files in the folder of a history.
HISTORY, LOCK = "history.json", "lock"


def refreshes_folder() -> Path:
    """Return the folder that holds the histories of refreshes."""
    return home() / "refreshes"


def refresh_folder(name: str) -> Path:
    """Return the folder of the refreshes of run `name`, whether or not it exists."""
    return resolve_under(refreshes_folder(), safe_name(name, "run"))


def history_path(name: str) -> Path:
    """Return the file of the history of run `name`, whether or not it exists."""
    return refresh_folder(name) / HISTORY


def refresh_run(name: str, number: int) -> str:
    """Return the name of the run that the refresh with a number, from 1, of run `name` makes."""
    return f"{name}-{number:04d}"


def refreshed_names() -> list[str]:
    """Return the names of the runs that have a history of refreshes."""
    root = refreshes_folder()
    return [each.name for each in visible_entries(root) if (each / HISTORY).exists()]


def read_history(name: str) -> list[dict[str, Any]]:
    """Return the records of all refreshes of run `name`, oldest first.

    Raises
    ------
    DamagedStore
        If the file is not as it was written.
    """
    path = history_path(name)
    with explain_os_errors(path, "read"):
        if not path.exists():
            return []
    content = read_sealed(path, "the history of refreshes")
    version = content.get("format_version")
    if version != FORMAT_VERSION:
        raise StorageError(
            f"{path} has format version {version!r}; this version of the package reads "
            f"{FORMAT_VERSION}. Take the one that wrote it; or, to begin a new history, move that "
            f"file away and remove the run (ism-dask remove run:{name} --force)"
        )
    records = content.get("refreshes")
    if not isinstance(records, list) or not all(isinstance(each, dict) for each in records):
        defect = "`refreshes` is no list of records"
        raise DamagedStore(f"{path} is damaged: {defect}", path.name, defect)
    return records


def write_history(name: str, records: Sequence[Mapping[str, Any]]) -> None:
    """Write the records of run `name`, oldest first: all of them are written, or nothing."""
    make_folder(refresh_folder(name))
    content = {"format_version": FORMAT_VERSION, "refreshes": list(records)}
    replace_synced(history_path(name), to_sealed_json(content))


@contextmanager
def refresh_lock(name: str, *, wait: bool = False) -> Iterator[None]:
    """Let one process at a time publish as `name`; another one waits, or BlockingIOError is raised.

    A refresh holds the lock for as long as it takes.
    """
    folder = refresh_folder(name)
    make_folder(folder)
    with lock_file(folder / LOCK, wait=wait):
        yield
