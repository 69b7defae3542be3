"""Small promises about the disk: bytes that stay, locks, and errors a person can act on."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
def explained(path: Path, to: str = "write") -> Iterator[None]:
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
    with explained(path):
        try:
            write_synced(draft, text)
            draft.replace(path)
            sync(path.parent)
        finally:
            draft.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[IO[str]]:
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
