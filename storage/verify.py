"""Verify data sets, runs and histories: read every file, and report all that is damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from storage.atomic import exists_settled, remove_leftovers, visible_entries
from storage.dataset import datasets_folder, open_dataset, stored_folders
from storage.errors import DamagedStore, RunNotFound, StorageError
from storage.manifest import MANIFEST, checked_bytes, damaged_store, read_manifest
from storage.models import load_model
from storage.partial_results import PARTIAL, PartialResults
from storage.paths import resolve_under
from storage.records import read_sealed
from storage.refreshes import (
    is_record,
    read_history,
    record_paths,
    refresh_run,
    refreshed_names,
    refreshes_folder,
)
from storage.runs import (
    LEASE,
    RESULT,
    model_hash,
    open_run,
    run_folder,
    run_names,
    runs_folder,
    saved_run_path,
)
from storage.store import chunk_digest, chunked_digest

OnBytes = Callable[[int], None]


@dataclass(frozen=True)
class Problem:
    """A file that is not as it was written; `what` is the defect."""

    path: Path
    what: str

    def __str__(self) -> str:
        """Return path and defect in one line."""
        return f"{self.path}: {self.what}"


@dataclass(frozen=True)
class StoredItem:
    """A data set, run or history of refreshes in the home that can be checked.

    Attributes
    ----------
    kind : str
        "data set", "run" or "history".
    name : str
        Name of its folder.
    path : Path
        The folder.
    """

    kind: str
    name: str
    path: Path

    @property
    def bytes(self) -> int:
        """Return the total length of all its files."""
        total = 0
        for each in _files(self.path):
            with suppress(OSError):  # removed in the meantime
                total += each.lstat().st_size
        return total

    def problems(self, on_bytes: OnBytes = lambda _: None) -> Iterator[Problem]:
        """Yield all problems; call `on_bytes` with the length of each file that has been read."""
        yield from _problems_at(self.path, _CHECKS[self.kind], on_bytes)


def stored_items() -> list[StoredItem]:
    """Return all data sets, runs that have any file, and histories of refreshes.

    Unfinished runs are among them. Leftovers of dead writers are removed first.
    """
    folders = [runs_folder() / name for name in run_names()]
    for each in (datasets_folder(), runs_folder(), *folders):
        if not each.is_symlink():
            remove_leftovers(each)  # restores what a dead writer had set aside
    runs = [each for each in folders if any(visible_entries(each))]
    return [
        *(StoredItem("data set", path.name, path) for path in stored_folders()),
        *(StoredItem("run", path.name, path) for path in runs),
        *(StoredItem("history", name, refreshes_folder() / name) for name in refreshed_names()),
    ]


# Yields the problems of the file or folder at a path.
Check = Callable[[Path, OnBytes], Iterable[Problem]]


def _problems_at(path: Path, check: Check, on_bytes: OnBytes) -> Iterator[Problem]:
    """Yield the problems at `path`; also `path` itself if it is unreadable or leads out."""
    try:
        yield from check(resolve_under(path.parent, path.name), on_bytes)
    except StorageError as error:
        yield Problem(path, error.what)
    except OSError as error:
        yield Problem(path, f"cannot be read ({error.strerror or error})")


def _check_store(read: Callable[[Path], object], root: Path, on_bytes: OnBytes) -> list[Problem]:
    """Return the problems of a store that `read` reads, once all its files are whole."""
    while (before := _inode(root)) is not None:
        problems = list(_problems_of_store(root, read, on_bytes))
        if not problems or _inode(root) == before:  # else another process has replaced it
            return problems
    return []


def _problems_of_store(
    root: Path, read: Callable[[Path], object], on_bytes: OnBytes
) -> Iterator[Problem]:
    try:
        manifest, damaged = read_manifest(root), False
        for name, entry in manifest.files.items():
            try:
                checked_bytes(root, name, entry)
            except DamagedStore as error:
                damaged = True
                yield Problem(root / name, error.what)
            on_bytes(entry.bytes)
        for path in _files(root):
            if path.relative_to(root).as_posix() not in {MANIFEST, *manifest.files}:
                yield Problem(path, "no manifest lists it")
        if not damaged:
            read(root)
    except StorageError as error:
        yield Problem(root / error.file, error.what)


def _read_values(path: Path) -> None:
    """Read a whole data set; raise DamagedStore unless its values have the recorded digest."""
    data = open_dataset(path)
    X, step = data.X, data.X.chunk_rows
    chunks = (X.read(start, min(start + step, len(X))) for start in range(0, len(X), step))
    data_hash = chunked_digest(X, step, map(chunk_digest, chunks), data.labels)
    if data_hash != data.data_hash:
        what = f"the values have the SHA-256 {data_hash}, not its `data_hash`"
        raise damaged_store(path, MANIFEST, what)


def _read_result(path: Path) -> None:
    """Read the result of a run: its record, and its model if it has one."""
    open_run(path.parent.name)
    with suppress(RunNotFound):
        load_model(path)


def _check_run(folder: Path, on_bytes: OnBytes) -> Iterator[Problem]:
    yield from _problems_at(folder / RESULT, partial(_check_store, _read_result), on_bytes)
    yield from _problems_at(folder / PARTIAL, _check_partial_results, on_bytes)
    yield from _problems_at(folder / LEASE, _check_lease, on_bytes)
    yield from _unexpected_entries(folder, {RESULT, PARTIAL, LEASE}.__contains__)


def _check_partial_results(folder: Path, on_bytes: OnBytes) -> Iterator[Problem]:
    results = PartialResults(folder)
    check = partial(_check_store, lambda path: results.read(path.name))
    for key in results.keys(""):
        yield from _problems_at(folder / key, check, on_bytes)
    yield from _unexpected_entries(folder, lambda name: (folder / name).is_dir())


def _check_lease(path: Path, on_bytes: OnBytes) -> tuple[Problem, ...]:
    with suppress(FileNotFoundError):  # a running process may have removed it meanwhile
        on_bytes(path.stat().st_size)
        read_sealed(path, "a lease")
    return ()


def _check_history(folder: Path, on_bytes: OnBytes) -> Iterator[Problem]:
    for path in record_paths(folder.name).values():
        on_bytes(path.stat().st_size)
    try:
        history = [*read_history(folder.name).values()]
        yield from _problems_of_published(folder.name, history)
    except StorageError as error:
        yield Problem(folder / error.file, error.what)
    yield from _unexpected_entries(folder, is_record)


def _problems_of_published(name: str, history: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    """Yield the runs of a history that are missing; and the published run if it is none of them."""
    runs = {str(each["run"]): each for each in history if each.get("run")}
    for run, each in runs.items():
        if not each.get("pruned") and saved_run_path(run) is None:
            yield Problem(
                run_folder(run), f"the run is missing, but the history of {name!r} has it"
            )
    if not any(each.get("state") == "published" and each.get("file") for each in history):
        return
    # A refresh that is under way, or was killed, has published the next run already.
    published, upcoming = model_hash(name), model_hash(refresh_run(name, len(runs) + 1))
    if not published:
        yield Problem(run_folder(name), "the published run is missing")
    elif published not in (*(each.get("model_hash") for each in history), upcoming):
        yield Problem(run_folder(name), "the published run is none of those in its history")


_CHECKS: dict[str, Check] = {
    "data set": partial(_check_store, _read_values),
    "run": _check_run,
    "history": _check_history,
}


def _unexpected_entries(folder: Path, expected: Callable[[str], bool]) -> Iterator[Problem]:
    """Yield the visible entries that we never write; hidden ones are locks and work in progress."""
    for path in visible_entries(folder):
        if not expected(path.name):
            yield Problem(path, "no stored item has this name")


def _files(root: Path) -> Iterator[Path]:
    """Yield all files and links below a folder; links are not followed."""
    return (each for each in sorted(root.rglob("*")) if each.is_file() or each.is_symlink())


def _inode(root: Path) -> int | None:
    """Return the inode of a folder, by which a replacement is noticed; None if it is missing."""
    return root.stat().st_ino if exists_settled(root) else None
