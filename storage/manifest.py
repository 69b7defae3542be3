"""The manifest of a store lists its files with their lengths and digests.

It is written last, so that a store with a manifest is complete.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath

from storage.atomic import replace_synced, sync
from storage.errors import DamagedStore
from storage.records import LARGEST, loads, to_sealed_json

MANIFEST = "manifest.json"
FORMAT = 1
# Threads that read files for their digests.
_THREADS = 2


@dataclass(frozen=True)
class FileEntry:
    """Length in bytes and SHA-256 of one file."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The list of all files of a store but the manifest itself.

    Attributes
    ----------
    files : Mapping[str, FileEntry]
        By path relative to the store, with forward slashes.
    data_hash : str
        Digest of the values, which does not depend on their compression.
    """

    files: Mapping[str, FileEntry]
    data_hash: str

    @property
    def total_bytes(self) -> int:
        """Return the total length of all files."""
        return sum(entry.bytes for entry in self.files.values())

    @property
    def digest(self) -> str:
        """Return the digest of the whole manifest."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def text(self) -> str:
        """The manifest as JSON with its own digest, which reveals damage to it."""
        # Written out: `asdict` takes long for thousands of files.
        files = {
            name: {"bytes": entry.bytes, "sha256": entry.sha256}
            for name, entry in self.files.items()
        }
        return to_sealed_json({"format": FORMAT, "data_hash": self.data_hash, "files": files})


def write_manifest(root: Path, data_hash: str) -> None:
    """Sync every file under `root` to the disk, then write the manifest that lists them."""
    paths = sorted(root.rglob("*"))
    files = {path.relative_to(root).as_posix(): path for path in paths if path.is_file()}
    with ThreadPoolExecutor(_THREADS) as pool:
        entries = dict(zip(files, pool.map(_synced_entry, files.values()), strict=True))
        list(pool.map(sync, (path for path in paths if path.is_dir())))
    replace_synced(root / MANIFEST, Manifest(entries, data_hash).text)


def _synced_entry(path: Path) -> FileEntry:
    """Sync a file to the disk, and return its entry."""
    with path.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
        os.fsync(handle.fileno())
    return FileEntry(path.stat().st_size, digest)


def read_manifest(root: Path) -> Manifest:
    """Return the manifest of a store; raise DamagedStore if it is missing or altered."""
    try:
        manifest = _manifest_of((root / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        what = "it is missing, as in a folder that is no store, or whose writing was cut off"
        raise damaged_store(root, MANIFEST, what) from error
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise damaged_store(root, MANIFEST, f"it is unreadable ({error})") from error
    if manifest is None:
        what = f"it does not agree with its own digest, or is not of format {FORMAT}"
        raise damaged_store(root, MANIFEST, what)
    return manifest


# A store is opened several times in a run; to check thousands of files takes 30 ms each time.
@lru_cache(maxsize=8)
def _manifest_of(text: str) -> Manifest | None:
    """Return the manifest with this text, None if the text does not agree with its own digest."""
    record = loads(text)
    files = {name: FileEntry(**entry) for name, entry in record["files"].items()}
    for path in map(PurePosixPath, files):  # of a manifest that may come from an untrusted source
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"it lists {str(path)!r}, outside the store")
    manifest = Manifest(files, record["data_hash"])
    lengths = [entry.bytes for entry in manifest.files.values()]
    are_lengths = all(type(each) is int and 0 <= each < LARGEST for each in lengths)
    if not isinstance(manifest.data_hash, str) or not are_lengths:
        raise TypeError("another type of hash, or no length")
    # Byte for byte, so that no flipped bit passes.
    return manifest if text == manifest.text else None


def check_presence(root: Path, manifest: Manifest) -> None:
    """Raise DamagedStore unless every file exists with its listed length; reads no content."""
    for name, entry in manifest.files.items():
        try:
            status = (root / name).stat()
            # The read of a pipe or a device might not end.
            length = status.st_size if stat.S_ISREG(status.st_mode) else None
        except (OSError, ValueError):  # missing, or no valid file name
            length = None
        _check_length(root, name, length, entry)


def checked_bytes(root: Path, name: str, entry: FileEntry) -> bytes:
    """Return the content of a file; raise DamagedStore if it differs from its entry."""
    _, data = read_regular(root / name)
    check_bytes(root, name, entry, data)
    return data or b""


def read_regular(path: Path) -> tuple[tuple[int, ...], bytes | None]:
    """Return the stamp (inode, times, length) and content of a file; None if it is unreadable."""
    try:
        if not path.is_file():  # the read of a pipe or a device might not end
            return (), None
        with path.open("rb") as handle:
            status = os.fstat(handle.fileno())
            stamp = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
            return stamp, handle.read()
    except (OSError, ValueError):  # missing, or no valid file name
        return (), None


def check_bytes(root: Path, name: str, entry: FileEntry, data: bytes | None) -> None:
    """Raise DamagedStore unless `data` matches the manifest entry; None means no file."""
    _check_length(root, name, None if data is None else len(data), entry)
    if hashlib.sha256(data or b"").hexdigest() != entry.sha256:
        raise damaged_store(root, name, "its SHA-256 is not the one in the manifest")


def _check_length(root: Path, name: str, length: int | None, entry: FileEntry) -> None:
    if length is None:
        raise damaged_store(root, name, "the file is missing or unreadable")
    if length != entry.bytes:
        raise damaged_store(root, name, f"{length} bytes, expected {entry.bytes}")


def damaged_store(root: Path, name: str, what: str) -> DamagedStore:
    """Return the error for a damaged file of a store; `what` is the defect."""
    return DamagedStore(
        f"`{name}` in {root} is damaged: {what}. "
        "If it was replaced since it was opened, open it again; else a data set: ingest it again "
        "with --force (force=True); a model: fit and save it again.",
        name,
        what,
    )
