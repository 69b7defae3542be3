"""Write files and folders so that a crash leaves the old or the new one, never a part.

A workspace builds a file or folder beside its target and swings it into place with one rename.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ism_dask.words import byte_size
from storage.errors import StorageError
from storage.paths import home

# Mode of the home, and of folders with logs, links and keys.
PRIVATE = 0o700
_FULL = "the disk or quota is full: free some space, or use a larger disk (home: ISM_DASK_HOME)"
_DENIED = "{} is not allowed there: allow it, or use another folder (home: ISM_DASK_HOME)"
_ADVICE = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: _FULL,
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EROFS: _DENIED,
}


@contextmanager
def explain_os_errors(path: Path, to: str = "write") -> Iterator[None]:
    """Turn an OSError of the block into a StorageError with the path, free space and advice.

    `to` is the operation of the block: "read" or "write".
    """
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "check the disk and the folder, then try again")
        raise StorageError(
            f"could not {to} {path} ({error.strerror or error}; {_free_space(path)}): "
            f"{advice.format('writing' if to == 'write' else 'reading')}."
        ) from error


def _free_space(path: Path) -> str:
    """Return the free space, in words, of the file system that would hold `path`."""
    for folder in (path, *path.parents):
        with suppress(OSError):  # missing or not accessible: try its parent
            return f"{byte_size(shutil.disk_usage(folder).free)} free"
    return "free space unknown"


def sync(path: Path) -> None:
    """Flush a file's bytes, or a folder's entries, to disk, so that they survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(path: Path, *, private: bool = False) -> None:
    """Create a folder and its missing parents, and sync them so that they survive a power cut.

    Only its owner may read the home, and a `private` folder.
    """
    with explain_os_errors(path):
        missing = [each for each in (path, *path.parents) if not each.exists()]
        for each in reversed(missing):
            is_private = each.absolute() == home().absolute() or (private and each == path)
            each.mkdir(mode=PRIVATE if is_private else 0o777, exist_ok=True)
            sync(each.parent)
        if not path.is_dir():  # an error: it is a file
            path.mkdir()
        if private and path.stat().st_uid == os.getuid():
            path.chmod(PRIVATE)


@contextmanager
def open_replacement(path: Path) -> Iterator[IO[bytes]]:
    """Open a file beside `path`; rename it over `path` once all its bytes are on disk.

    Files that dead processes were to rename over `path` are removed first.
    """
    with suppress(OSError):  # a folder that cannot be listed
        _remove_dead(path.parent, path.name)
    with _locked_file(path) as handle:
        beside = Path(handle.name)
        try:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
        sync(path.parent)


def _locked_file(target: Path) -> IO[bytes]:
    """Open a new hidden file beside `target`, which is locked until it is closed."""
    while True:
        handle = _hidden_path(target).open("xb")
        with suppress(OSError):  # a file system without locks, on which no file counts as dead
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle.fileno()).st_nlink:
            return handle
        handle.close()  # another process took it for a dead one's before it was locked


def replace_synced(path: Path, text: str) -> None:
    """Write a text file, or replace it in one step, and sync it to disk."""
    with explain_os_errors(path), open_replacement(path) as handle:
        handle.write(text.encode())


@contextmanager
def lock_file(path: Path, *, wait: bool = True) -> Iterator[IO[str]]:
    """Lock the file `path` during the block; raise BlockingIOError if it is taken and not `wait`.

    The kernel releases the lock when its process dies, so no stale lock can remain.
    """
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        try:
            yield handle
        finally:
            # Closing is not enough if a forked child has a copy of the descriptor.
            fcntl.flock(handle, fcntl.LOCK_UN)


# The lock by which one process at a time makes or removes workspaces in a folder.
_LOCK = ".lock"
_HIDDEN = re.compile(r"\.(?P<target>.+)\.[0-9a-f]{32}")


@dataclass(frozen=True)
class Workspace:
    """A hidden folder next to `target`, on the same file system, locked while its process lives.

    It holds `payload` (what is to take the place of `target`), `old` (the target, briefly) and
    `lock`.
    """

    target: Path
    folder: Path

    @property
    def payload(self) -> Path:
        """Return the path at which to build the new file or folder."""
        return self.folder / "payload"

    def publish(self) -> None:
        """Move `payload` to `target`, in the place of what is there."""
        with explain_os_errors(self.target), lock_file(self.target.parent / _LOCK):
            if self.target.is_dir():  # a folder, unlike a file, cannot be renamed over
                self.target.rename(self.folder / "old")
            self.payload.rename(self.target)
            sync(self.target.parent)


@contextmanager
def workspace(target: Path) -> Iterator[Workspace]:
    """Make a workspace for `target`, and remove it after the block even if the block raises.

    Workspaces of dead processes beside it are removed first.
    """
    parent = target.parent
    folder = _hidden_path(target)
    with ExitStack() as locks:
        with explain_os_errors(target):
            make_folder(parent)
            with lock_file(parent / _LOCK):
                _remove_dead(parent)
                folder.mkdir()
                locks.enter_context(lock_file(folder / "lock"))
        try:
            yield Workspace(target, folder)
        finally:
            with suppress(OSError), lock_file(parent / _LOCK):
                _remove_workspace(folder, target)


def exists_settled(target: Path) -> bool:
    """Return whether `target` exists.

    If it seems missing, the function waits for a swap under way, and undoes a swap whose process
    died.
    """
    with explain_os_errors(target, "read"):
        if not target.exists():
            remove_leftovers(target.parent)
        return target.exists()


def visible_entries(folder: Path) -> list[Path]:
    """Return the entries of a folder, sorted; hidden ones are locks and work in progress.

    A folder that does not exist has none.
    """
    with explain_os_errors(folder, "read"):
        entries = folder.iterdir() if folder.is_dir() else ()
        return sorted(each for each in entries if each.name[0] != ".")


def remove_leftovers(parent: Path) -> None:
    """Remove what processes that died were writing in `parent`, and undo their swaps."""
    # A folder that is missing, or cannot be written, has nothing of them.
    with suppress(OSError), lock_file(parent / _LOCK):
        _remove_dead(parent)


def remove_folder(path: Path) -> None:
    """Remove a folder, if it exists, atomically: readers see all of it or nothing."""
    with explain_os_errors(path):
        if path.exists():
            with workspace(path) as work, lock_file(path.parent / _LOCK):
                path.rename(work.payload)


def _hidden_path(target: Path) -> Path:
    return target.parent / f".{target.name}.{uuid.uuid4().hex}"


def _remove_dead(parent: Path, name: str | None = None) -> None:
    """Remove workspaces and new files in `parent` that no process, of any machine, has locked.

    With a `name`, only those of this target are removed.
    """
    for each in parent.iterdir():
        match = _HIDDEN.fullmatch(each.name)
        if not match or name not in (None, match["target"]) or each.is_symlink():
            continue
        lock = each / "lock" if each.is_dir() else each
        with suppress(OSError), lock_file(lock, wait=False):
            if lock == each:
                each.unlink()
            else:
                _remove_workspace(each, parent / match["target"])


def _remove_workspace(folder: Path, target: Path) -> None:
    """Remove a workspace; move its `old` back to `target` if nothing took its place."""
    old = folder / "old"
    if old.exists() and not target.exists():
        old.rename(target)
    # Under another name, processes that still write by the paths of the workspace find nothing.
    removed = folder.rename(_hidden_path(target))
    shutil.rmtree(removed, ignore_errors=True)
