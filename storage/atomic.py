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
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from storage.errors import StorageError

_FULL = "the disk or quota is full: free some space or set ISM_DASK_HOME to a larger disk"
_DENIED = "{} is not allowed there: change the permissions or set ISM_DASK_HOME elsewhere"
_DOING = {"read": "reading", "write": "writing"}
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

    `to` says what the block was about to do: read or write.
    """
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "check the disk and the folder, then try again")
        raise StorageError(
            f"could not {to} {path} ({error.strerror or error}; {_free(path)}): "
            f"{advice.format(_DOING[to])}."
        ) from error


def _free(path: Path) -> str:
    """Say how much space is left on the file system that would hold `path`."""
    for folder in (path, *path.parents):
        with suppress(OSError):  # what is not there, or may not be looked into
            return f"{shutil.disk_usage(folder).free / 2**20:.1f} MiB free"
    return "free space unknown"


def sync(path: Path) -> None:
    """Make the bytes of a file, or the entries of a folder, survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(path: Path) -> None:
    """Make a folder, with those above it, such that a power cut does not take them away."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for made in missing:
        sync(made.parent)


def write_synced(path: Path, text: str) -> None:
    """Write a text file and its folder entry through to the disk."""
    path.write_text(text, encoding="utf-8")
    sync(path)
    sync(path.parent)


def replace_synced(path: Path, text: str) -> None:
    """Put a text file in place of an earlier one, in one step and through to the disk."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.new")
    with explain_os_errors(path):
        try:
            write_synced(draft, text)
            draft.replace(path)
            sync(path.parent)
        finally:
            draft.unlink(missing_ok=True)


@contextmanager
def lock_file(path: Path, *, wait: bool = True) -> Iterator[IO[str]]:
    """Hold the lock file `path`; without `wait`, BlockingIOError when another holds it.

    The kernel drops the lock when its holder dies, so no stale lock can remain.
    """
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        try:
            yield handle
        finally:
            # Closing is not enough where a forked child holds a copy of the descriptor.
            fcntl.flock(handle, fcntl.LOCK_UN)


_HIDDEN = re.compile(r"\.(?P<target>.+)\.[0-9a-f]{32}")


@dataclass(frozen=True)
class Workspace:
    """A hidden folder next to `target`, on the same file system, locked while its maker lives.

    Attributes
    ----------
    target : Path
        What will be created or replaced.
    folder : Path
        Holds `payload` (the new thing), `old` (the replaced one, briefly) and `lock`.
    """

    target: Path
    folder: Path

    @property
    def payload(self) -> Path:
        """Return where the new file or folder is to be built."""
        return self.folder / "payload"

    def publish(self, keep: Callable[[Path], bool] | None = None) -> None:
        """Move `payload` to `target`, unless `keep(target)` says that what is there stays."""
        with explain_os_errors(self.target), _gate(self.target.parent):
            # Never asked about a missing target: looking for that one would wait for this lock.
            if keep is not None and self.target.exists() and keep(self.target):
                return
            if self.target.is_dir():  # a folder, unlike a file, cannot be renamed over
                self.target.rename(self.folder / "old")
            self.payload.rename(self.target)
            sync(self.target.parent)


@contextmanager
def workspace(target: Path) -> Iterator[Workspace]:
    """Make a workspace for `target` and remove it whatever happens; clear those of dead runs."""
    parent = target.parent
    folder = _hidden(target)
    with ExitStack() as held:
        with explain_os_errors(target):
            make_folder(parent)
            with _gate(parent):
                _sweep(parent)
                folder.mkdir()
                held.enter_context(lock_file(folder / "lock"))
        try:
            yield Workspace(target, folder)
        finally:
            with suppress(OSError), _gate(parent):
                _discard(folder, target)


def exists_settled(target: Path) -> bool:
    """Return whether `target` exists.

    When it seems not to, a swap under way is waited for, and one whose maker died is undone.
    """
    with explain_os_errors(target, "read"):
        if not target.exists():
            remove_leftovers(target.parent)
        return target.exists()


def remove_leftovers(parent: Path) -> None:
    """Clear away what those have left in `parent` who died while they built something there."""
    with suppress(OSError):  # in a folder that cannot be written nobody has left anything
        if parent.is_dir():
            with _gate(parent):
                _sweep(parent)


def remove_folder(path: Path) -> None:
    """Remove a folder, if it is there, and at no time let a part of it be taken for the whole."""
    hidden = _hidden(path)
    with explain_os_errors(path):
        if not path.exists():
            return
        with _gate(path.parent):
            path.rename(hidden)
    # Whoever dies here leaves what the next workspace beside it clears away.
    shutil.rmtree(hidden, ignore_errors=True)


def _hidden(target: Path) -> Path:
    return target.parent / f".{target.name}.{uuid.uuid4().hex}"


def _gate(parent: Path) -> AbstractContextManager[object]:
    """Let one process at a time create, swap or clear workspaces in `parent`."""
    return lock_file(parent / ".lock")


def _sweep(parent: Path) -> None:
    """Discard the workspaces in `parent` that no living process holds."""
    for folder in parent.iterdir():
        match = _HIDDEN.fullmatch(folder.name)
        if match and folder.is_dir() and not folder.is_symlink():
            with suppress(OSError), lock_file(folder / "lock", wait=False):
                _discard(folder, parent / match["target"])


def _discard(folder: Path, target: Path) -> None:
    """Remove a workspace; what it had set aside goes back if nothing took its place."""
    old = folder / "old"
    if old.exists() and not target.exists():
        old.rename(target)
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Write beside `path`, then rename over it once all bytes are on the disk."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with beside.open("xb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
