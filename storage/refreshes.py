"""The history of refreshes of a published run: one file of records, and a lock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from storage.atomic import explain_os_errors, lock_file, make_folder, replace_synced
from storage.errors import StorageError
from storage.paths import home, resolve_under, safe_name
from storage.records import dumps, loads

FORMAT_VERSION = 1


def refresh_folder(name: str) -> Path:
    """Return the folder of the refreshes of run `name`, whether or not it exists."""
    return resolve_under(home() / "refreshes", safe_name(name, "run"))


def refreshed_names() -> list[str]:
    """Return the names of the runs that have a history of refreshes."""
    root = home() / "refreshes"
    with explain_os_errors(root, "read"):
        entries = root.iterdir() if root.is_dir() else ()
        return sorted(each.name for each in entries if (each / "history.json").exists())


def read_history(name: str) -> list[dict[str, Any]]:
    """Return the records of all refreshes of run `name`, oldest first."""
    path = refresh_folder(name) / "history.json"
    try:
        with explain_os_errors(path, "read"):
            if not path.exists():
                return []
            content = loads(path.read_text(encoding="utf-8"))
        if content["format_version"] != FORMAT_VERSION:
            raise StorageError(
                f"{path} has format version {content['format_version']!r}; this version reads "
                f"{FORMAT_VERSION}. Upgrade the package."
            )
        return list(content["refreshes"])
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(
            f"{path} is no history of refreshes ({error}); restore it from a backup, or move it "
            "away to begin a new one"
        ) from error


def add_to_history(name: str, record: Mapping[str, Any]) -> None:
    """Add the record of a refresh of run `name`: all of it is written, or nothing."""
    records: Sequence[Mapping[str, Any]] = [*read_history(name), record]
    make_folder(refresh_folder(name))
    content = {"format_version": FORMAT_VERSION, "refreshes": records}
    replace_synced(refresh_folder(name) / "history.json", dumps(content))


@contextmanager
def refresh_lock(name: str) -> Iterator[None]:
    """Let one process at a time refresh run `name`; raise BlockingIOError for another."""
    folder = refresh_folder(name)
    with explain_os_errors(folder):
        make_folder(folder)
    with lock_file(folder / "lock", wait=False):
        yield
