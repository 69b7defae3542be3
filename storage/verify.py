"""Verify data sets, runs and histories: read every file, and report all that is damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.atomic import exists_settled, remove_leftovers, visible_entries
from storage.checkpoints import NEWEST, Checkpoints, checkpoint_key
from storage.dataset import datasets_folder, open_dataset, stored_folders
from storage.digest import ContentDigest, chunk_digest, chunked_digest
from storage.errors import DamagedStore, StorageError
from storage.manifest import MANIFEST, Manifest, bytes_at, check_bytes, damaged_store, read_manifest
from storage.models import load_model
from storage.partial_results import PARTIAL, PartialResults
from storage.paths import resolve_under
from storage.records import read_sealed
from storage.refreshes import (
    HISTORY,
    LOCK,
    read_history,
    refresh_run,
    refreshed_names,
    refreshes_folder,
)
from storage.runs import (
    LEASE,
    MODEL,
    REPORT,
    RESULTS,
    STALLED,
    model_hash,
    read_record,
    run_folder,
    run_names,
    runs_folder,
    saved_run_path,
)

# How often a store is read at most if another process replaces it during each reading.
_TRIES = 5

OnBytes = Callable[[int], None]
ReadStore = Callable[[Path], object]


@dataclass(frozen=True)
class Problem:
    """A file that is not as it was written.

    Attributes
    ----------
    path : Path
    what : str
        The defect.
    """

    path: Path
    what: str

    def __str__(self) -> str:
        """Return path and defect in one line."""
        return f"{self.path}: {self.what}"


# Yields the problems of the file or folder at a path.
FindProblems = Callable[[Path, OnBytes], Iterator[Problem]]


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
        """Yield all problems of the item.

        Parameters
        ----------
        on_bytes : callable
            Called with the length of each file that has been read.
        """
        yield from _problems_at(self.path, _PROBLEMS[self.kind], on_bytes)


def stored_items() -> list[StoredItem]:
    """Return all data sets, runs that have any file, and histories of refreshes.

    Unfinished runs are among them. Leftovers of dead writers are removed first.
    """
    folders = [runs_folder() / name for name in run_names()]
    for each in (datasets_folder(), *folders):
        if not each.is_symlink():
            remove_leftovers(each)  # restores what a dead writer had set aside
    runs = [each for each in folders if any(visible_entries(each))]
    return [
        *(StoredItem("data set", path.name, path) for path in stored_folders()),
        *(StoredItem("run", path.name, path) for path in runs),
        *(StoredItem("history", name, refreshes_folder() / name) for name in refreshed_names()),
    ]


def _dataset_problems(path: Path, on_bytes: OnBytes) -> Iterator[Problem]:
    yield from _store_problems(path, _read_values, on_bytes)


def _run_problems(folder: Path, on_bytes: OnBytes) -> Iterator[Problem]:
    # Two entries are not checked: each request rebuilds the report from the rest, and only people
    # read the dumps of stalled Dask clusters.
    for part, find_problems in _PARTS.items():
        yield from _problems_at(folder / part, find_problems, on_bytes)
    yield from _unexpected_entries(folder, {*_PARTS, REPORT, STALLED}.__contains__)


def _model_problems(path: Path, on_bytes: OnBytes) -> Iterator[Problem]:
    yield from _store_problems(path, load_model, on_bytes)


def _results_problems(path: Path, on_bytes: OnBytes) -> Iterator[Problem]:
    yield from _store_problems(path, read_record, on_bytes)


def _partial_problems(folder: Path, on_bytes: OnBytes) -> Iterator[Problem]:
    results = PartialResults(folder)
    keys = results.keys()
    for key in keys:
        yield from _problems_at(folder / key, _partial_result_problems, on_bytes)
    yield from _newest_problems(Checkpoints(results))
    yield from _unexpected_entries(folder, lambda name: (folder / name).is_dir())


def _partial_result_problems(path: Path, on_bytes: OnBytes) -> Iterator[Problem]:
    results = PartialResults(path.parent)
    yield from _store_problems(path, lambda each: results.read(each.name), on_bytes)


def _newest_problems(checkpoints: Checkpoints) -> Iterator[Problem]:
    """Yield the problem if the newest checkpoint, or its number, which is saved next, is missing.

    Damage to either is reported with that of the other results.
    """
    with suppress(DamagedStore):
        newest, numbers = checkpoints.newest_number, checkpoints.numbers
        if newest is None and numbers not in ([], [1]):
            path = checkpoints.results.path(NEWEST)
            yield Problem(path, "it is missing, but checkpoints are there")
        # A running fit may have saved newer ones meanwhile and removed this one: the number is
        # read again.
        path = checkpoints.results.path(checkpoint_key(newest or 0))
        if newest and not exists_settled(path) and checkpoints.newest_number == newest:
            yield Problem(path, "the newest checkpoint is missing")


def _lease_problems(path: Path, on_bytes: OnBytes) -> Iterator[Problem]:
    yield from _file_problems(path, lambda each: read_sealed(each, "a lease"), on_bytes)


def _history_problems(folder: Path, on_bytes: OnBytes) -> Iterator[Problem]:
    on_bytes((folder / HISTORY).stat().st_size)
    try:
        yield from _problems_of_published(folder.name, read_history(folder.name))
    except StorageError as error:
        what = error.what if isinstance(error, DamagedStore) else str(error)
        yield Problem(folder / HISTORY, what)
    yield from _unexpected_entries(folder, {HISTORY, LOCK}.__contains__)


def _problems_of_published(name: str, history: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    """Yield the runs of a history that are missing; and the published run if it is none of them."""
    runs = {str(each["run"]): each for each in history if "run" in each}
    kept = {run: each["model_hash"] for run, each in runs.items() if not each.get("pruned")}
    for run in kept:
        if saved_run_path(run) is None:
            yield Problem(
                run_folder(run), f"the run is missing, but the history of {name!r} has it"
            )
    if not any(each.get("state") == "published" for each in runs.values()):
        return
    # A refresh that is under way, or was killed, has published the next run already.
    published, upcoming = model_hash(name), model_hash(refresh_run(name, len(runs) + 1))
    if not published:
        yield Problem(run_folder(name), "the published run is missing")
    elif published not in (*kept.values(), upcoming):
        yield Problem(run_folder(name), "the published run is none of those in its history")


_PARTS: dict[str, FindProblems] = {
    MODEL: _model_problems,
    RESULTS: _results_problems,
    PARTIAL: _partial_problems,
    LEASE: _lease_problems,
}
_PROBLEMS: dict[str, FindProblems] = {
    "data set": _dataset_problems,
    "run": _run_problems,
    "history": _history_problems,
}


def _file_problems(path: Path, read: ReadStore, on_bytes: OnBytes) -> Iterator[Problem]:
    """Yield the problem of a file that contains its own digest, if it has one."""
    if not path.is_file():
        return
    on_bytes(path.stat().st_size)
    try:
        read(path)
    except FileNotFoundError:  # a running process has removed it meanwhile
        return
    except StorageError as error:
        yield _problem_of(path.parent, error)


def _store_problems(root: Path, read: ReadStore, on_bytes: OnBytes) -> Iterator[Problem]:
    """Yield the problems of a store; if another process replaces it meanwhile, of the new one."""
    problems: list[Problem] = []
    for _ in range(_TRIES):
        before = _inode(root)
        problems = [] if before is None else list(_problems_of_reading(root, read, on_bytes))
        if not problems or _inode(root) == before:
            break
    yield from problems


def _problems_of_reading(root: Path, read: ReadStore, on_bytes: OnBytes) -> Iterator[Problem]:
    try:
        manifest = read_manifest(root)
    except DamagedStore as error:
        yield _problem_of(root, error)
        return
    damaged = list(_damaged_files(root, manifest, on_bytes))
    yield from damaged
    yield from _unlisted_files(root, manifest)
    if not damaged:
        try:
            read(root)
        except StorageError as error:
            yield _problem_of(root, error)


def _damaged_files(root: Path, manifest: Manifest, on_bytes: OnBytes) -> Iterator[Problem]:
    for name, entry in manifest.files.items():
        try:
            check_bytes(root, name, entry, bytes_at(root / name))
        except DamagedStore as error:
            yield _problem_of(root, error)
        on_bytes(entry.bytes)


def _unlisted_files(root: Path, manifest: Manifest) -> Iterator[Problem]:
    listed = {MANIFEST, *manifest.files}
    for path in _files(root):
        if path.relative_to(root).as_posix() not in listed:
            yield Problem(path, "no manifest lists it")


def _read_values(path: Path) -> None:
    """Read a whole data set; raise DamagedStore unless its values have the recorded digest."""
    data = open_dataset(path)
    X = data.X
    chunks = (
        X.read(start, min(start + X.chunk_rows, len(X))) for start in range(0, len(X), X.chunk_rows)
    )
    if "chunk_digests/zarr.json" in read_manifest(path).files:
        digests = map(chunk_digest, chunks)
        data_hash = chunked_digest(X, X.chunk_rows, digests, data.labels)
    else:
        digest = ContentDigest()
        for chunk in chunks:
            digest.add(chunk)
        data_hash = digest.finish(data.labels)
    if data_hash != data.data_hash:
        raise damaged_store(
            path, MANIFEST, f"the values have the SHA-256 {data_hash}, not its `data_hash`"
        )


def _unexpected_entries(folder: Path, expected: Callable[[str], bool]) -> Iterator[Problem]:
    """Yield the visible entries that we never write; hidden ones are locks and work in progress."""
    for path in visible_entries(folder):
        if not expected(path.name):
            yield Problem(path, "no stored item has this name")


def _problems_at(path: Path, find_problems: FindProblems, on_bytes: OnBytes) -> Iterator[Problem]:
    """Yield the problems at `path`; also `path` itself if it is unreadable or leads out."""
    try:
        yield from find_problems(resolve_under(path.parent, path.name), on_bytes)
    except StorageError as error:
        yield Problem(path, str(error))
    except OSError as error:
        yield Problem(path, f"cannot be read ({error.strerror or error})")


def _problem_of(root: Path, error: StorageError) -> Problem:
    if isinstance(error, DamagedStore) and error.file:
        return Problem(root / error.file, error.what)
    return Problem(root / "zarr.json", str(error))


def _files(root: Path) -> Iterator[Path]:
    """Yield all files and links below a folder; links are not followed."""
    return (each for each in sorted(root.rglob("*")) if each.is_file() or each.is_symlink())


def _inode(root: Path) -> int | None:
    """Return the inode of a folder, by which a replacement is noticed; None if it is missing."""
    return root.stat().st_ino if exists_settled(root) else None
