"""Is all that is kept as it was written? Every file is read, and all that is wrong is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from storage.atomic import exists_settled, explain_os_errors, remove_leftovers
from storage.catalogue import DATASETS
from storage.checkpoints import CHECKPOINTS, NEWEST, Checkpoints
from storage.dataset import datasets_folder, open_dataset, stored_folders
from storage.dataset_info import folder_name
from storage.digest import ContentDigest
from storage.errors import DamagedStore, StorageError
from storage.manifest import MANIFEST, Manifest, bytes_at, check_bytes, damaged_store, read_manifest
from storage.models import load_model
from storage.paths import resolve_under
from storage.pieces import LEDGER, PieceStore, read_piece
from storage.records import read_sealed
from storage.runs import (
    LEASE,
    MODEL,
    REPORT,
    RESULTS,
    STALLED,
    read_record,
    run_names,
    runs_folder,
)

# A store that is replaced while it is read is read again, but not for ever.
_TRIES = 5

OnBytes = Callable[[int], None]
Read = Callable[[Path], object]


@dataclass(frozen=True)
class Problem:
    """A file that is not as it was written.

    Attributes
    ----------
    path : Path
    what : str
        What is wrong with it.
    """

    path: Path
    what: str

    def __str__(self) -> str:
        """Return it as a line."""
        return f"{self.path}: {self.what}"


# Yields what is wrong with what is at a path, if there is anything.
Seek = Callable[[Path, OnBytes], Iterator[Problem]]


@dataclass(frozen=True)
class StoredItem:
    """Something in the home that can be checked.

    Attributes
    ----------
    kind : str
        "data set" or "run".
    name : str
        That of its folder.
    path : Path
        The folder.
    """

    kind: str
    name: str
    path: Path

    @property
    def bytes(self) -> int:
        """Return the length of all its files together."""
        total = 0
        for each in _files(self.path):
            with suppress(OSError):  # gone by now
                total += each.lstat().st_size
        return total

    def problems(self, on_bytes: OnBytes = lambda _: None) -> Iterator[Problem]:
        """Yield all that is wrong with it.

        Parameters
        ----------
        on_bytes : callable
            Called with the length of each file that has been read.
        """
        yield from _found(self.path, _PROBLEMS[self.kind], on_bytes)


def stored_items() -> list[StoredItem]:
    """Return all that is in the home: data sets, and runs with whatever is kept of them."""
    folders = [runs_folder() / name for name in run_names()]
    for each in (datasets_folder(), *folders):
        if not each.is_symlink():
            remove_leftovers(each)  # what a writer that has died had set aside comes back
    runs = [each for each in folders if any(_visible(each))]
    return [
        *(StoredItem("data set", path.name, path) for path in stored_folders()),
        *(StoredItem("run", path.name, path) for path in runs),
    ]


def stored_items_named(name: str) -> list[StoredItem]:
    """Return what has that name: a run, a data set, or all splits of one that are stored."""
    spec = DATASETS.get(name)
    splits = {folder_name(name, split) for split in spec.splits} if spec else set()
    names = {"data set": {name, *splits}, "run": {name}}
    return [each for each in stored_items() if each.name in names[each.kind]]


def _dataset_problems(path: Path, on_bytes: OnBytes) -> Iterator[Problem]:
    yield from _store_problems(path, _read_values, on_bytes)


def _run_problems(folder: Path, on_bytes: OnBytes) -> Iterator[Problem]:
    # The report is made anew of the rest whenever it is asked for; the state of clusters is told
    # to people only.
    for part, read in _PARTS.items():
        yield from _found(folder / part, read, on_bytes)
    yield from _strangers(folder, {*_PARTS, REPORT, STALLED}.__contains__)


def _model_problems(path: Path, on_bytes: OnBytes) -> Iterator[Problem]:
    yield from _store_problems(path, load_model, on_bytes)


def _results_problems(path: Path, on_bytes: OnBytes) -> Iterator[Problem]:
    yield from _store_problems(path, read_record, on_bytes)


def _checkpoint_problems(folder: Path, on_bytes: OnBytes) -> Iterator[Problem]:
    checkpoints = Checkpoints(folder)
    for number in checkpoints.numbers:
        path = checkpoints.path(number)
        yield from _store_problems(path, lambda each: checkpoints.read(int(each.name)), on_bytes)
    yield from _pointer_problems(checkpoints)
    yield from _strangers(folder, lambda name: name == NEWEST or Checkpoints.is_number(name))


def _pointer_problems(checkpoints: Checkpoints) -> Iterator[Problem]:
    """Yield what is wrong with what names the newest, which is written after it."""
    try:
        pointed, numbers = checkpoints.pointed, checkpoints.numbers
        if pointed is None and numbers not in ([], [1]):
            yield Problem(checkpoints.folder / NEWEST, "it is missing, but checkpoints are there")
        # By now there may be newer ones, and this one may have been let go.
        gone = pointed is not None and not exists_settled(checkpoints.path(pointed))
        if pointed is not None and gone and checkpoints.pointed == pointed:
            yield Problem(checkpoints.path(pointed), "the newest checkpoint is missing")
    except DamagedStore as error:
        yield Problem(checkpoints.folder / NEWEST, error.what)


def _ledger_problems(folder: Path, on_bytes: OnBytes) -> Iterator[Problem]:
    for path in PieceStore(folder).entries:
        yield from _file_problems(path, read_piece, on_bytes)
    yield from _strangers(folder, lambda name: name.endswith(".json"))


def _lease_problems(path: Path, on_bytes: OnBytes) -> Iterator[Problem]:
    yield from _file_problems(path, lambda each: read_sealed(each, "a lease"), on_bytes)


_PARTS: dict[str, Seek] = {
    MODEL: _model_problems,
    RESULTS: _results_problems,
    CHECKPOINTS: _checkpoint_problems,
    LEDGER: _ledger_problems,
    LEASE: _lease_problems,
}
_PROBLEMS: dict[str, Seek] = {
    "data set": _dataset_problems,
    "run": _run_problems,
}


def _file_problems(path: Path, read: Read, on_bytes: OnBytes) -> Iterator[Problem]:
    """Yield what is wrong with a file that vouches for itself."""
    if not path.is_file():
        return
    on_bytes(path.stat().st_size)
    try:
        read(path)
    except FileNotFoundError:  # a run that goes on has no more use for it
        return
    except StorageError as error:
        yield _problem(path.parent, error)


def _store_problems(root: Path, read: Read, on_bytes: OnBytes) -> Iterator[Problem]:
    """Yield what is wrong with a store as it is now, be it replaced in the meantime."""
    found: list[Problem] = []
    for _ in range(_TRIES):
        before = _identity(root)
        found = [] if before is None else list(_once(root, read, on_bytes))
        if not found or _identity(root) == before:
            break
    yield from found


def _once(root: Path, read: Read, on_bytes: OnBytes) -> Iterator[Problem]:
    try:
        manifest = read_manifest(root)
    except DamagedStore as error:
        yield _problem(root, error)
        return
    unfit = list(_unfit(root, manifest, on_bytes))
    yield from unfit
    yield from _unlisted(root, manifest)
    if not unfit:
        try:
            read(root)
        except StorageError as error:
            yield _problem(root, error)


def _unfit(root: Path, manifest: Manifest, on_bytes: OnBytes) -> Iterator[Problem]:
    for name, entry in manifest.files.items():
        try:
            check_bytes(root, name, entry, bytes_at(root / name))
        except DamagedStore as error:
            yield _problem(root, error)
        on_bytes(entry.bytes)


def _unlisted(root: Path, manifest: Manifest) -> Iterator[Problem]:
    known = {MANIFEST, *manifest.files}
    for path in _files(root):
        if path.relative_to(root).as_posix() not in known:
            yield Problem(path, "no manifest lists it")


def _read_values(path: Path) -> None:
    """Read a data set; DamagedStore where its values are not those that it says it has."""
    data, digest = open_dataset(path), ContentDigest()
    for start in range(0, len(data.X), data.X.chunk_rows):
        digest.add(data.X.read(start, min(start + data.X.chunk_rows, len(data.X))))
    found = digest.finish(data.labels)
    if found != data.data_hash:
        raise damaged_store(
            path, MANIFEST, f"the values have the SHA-256 {found}, not its `data_hash`"
        )


def _strangers(folder: Path, known: Callable[[str], bool]) -> Iterator[Problem]:
    """Yield what nobody of us has put into a folder; hidden are locks and work in progress."""
    for path in _visible(folder):
        if not known(path.name):
            yield Problem(path, "nothing that is kept has this name")


def _visible(folder: Path) -> list[Path]:
    with explain_os_errors(folder, "read"):
        entries = folder.iterdir() if folder.is_dir() else ()
        return sorted(each for each in entries if each.name[0] != ".")


def _found(path: Path, sought: Seek, on_bytes: OnBytes) -> Iterator[Problem]:
    """Yield problems, and `path` itself where it may not be looked into or leads out."""
    try:
        yield from sought(resolve_under(path.parent, path.name), on_bytes)
    except StorageError as error:
        yield Problem(path, str(error))
    except OSError as error:
        yield Problem(path, f"cannot be read ({error.strerror or error})")


def _problem(root: Path, error: StorageError) -> Problem:
    if isinstance(error, DamagedStore) and error.file:
        return Problem(root / error.file, error.what)
    return Problem(root / "zarr.json", str(error))


def _files(root: Path) -> Iterator[Path]:
    """Yield all files below a folder; of links only themselves."""
    return (each for each in sorted(root.rglob("*")) if each.is_file() or each.is_symlink())


def _identity(root: Path) -> int | None:
    """Return what tells a folder from the one that replaces it; None for none."""
    return root.stat().st_ino if exists_settled(root) else None
