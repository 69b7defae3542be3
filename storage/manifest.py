"""The list of a store's files with their digests, written last: the mark of completeness."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from typing import Any

from storage.atomic import sync, write_synced
from storage.digest import sha256_file
from storage.errors import DamagedStore
from storage.records import digest_of, loads, to_sealed_json

MANIFEST = "manifest.json"
FORMAT = 1
AGAIN = "a data set: ingest it again with --force (force=True); a model: fit and save it again"


@dataclass(frozen=True)
class FileEntry:
    """Length in bytes and SHA-256 of one file."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """Every file of a store but the manifest itself.

    Attributes
    ----------
    files : Mapping[str, FileEntry]
        By path relative to the store, with forward slashes.
    data_hash : str
        Digest of the values, whatever their compression and chunks.
    """

    files: Mapping[str, FileEntry]
    data_hash: str

    @property
    def digest(self) -> str:
        """Return the digest of the whole manifest."""
        return digest_of(self._body())

    @property
    def total_bytes(self) -> int:
        """Return the length of all files together."""
        return sum(entry.bytes for entry in self.files.values())

    def to_text(self) -> str:
        """Return the manifest as JSON with its own digest, so that it vouches for itself too."""
        return to_sealed_json(self._body())

    def _body(self) -> dict[str, Any]:
        files = {name: asdict(entry) for name, entry in self.files.items()}
        return {"format": FORMAT, "data_hash": self.data_hash, "files": files}


def write_manifest(root: Path, data_hash: str) -> Manifest:
    """Sync every file under `root` to the disk, then write the manifest that lists them."""
    files = {}
    for path in sorted(root.rglob("*")):
        if path.is_file():
            entry = FileEntry(path.stat().st_size, sha256_file(path))
            files[path.relative_to(root).as_posix()] = entry
        sync(path)
    manifest = Manifest(files, data_hash)
    write_synced(root / MANIFEST, manifest.to_text())
    return manifest


def read_manifest(root: Path) -> Manifest:
    """Read the manifest of a store, or raise DamagedStore."""
    path = root / MANIFEST
    try:
        text = path.read_text(encoding="utf-8")
        found = loads(text)
        manifest = Manifest(
            {_inside(name): FileEntry(**entry) for name, entry in found["files"].items()},
            found["data_hash"],
        )
        sound = text == manifest.to_text()  # byte for byte, so that no flipped bit passes
    except FileNotFoundError as error:
        raise _no_manifest(
            path,
            "is missing; expected the manifest that completes a store. This is no store, or its "
            "writing was cut off",
        ) from error
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _no_manifest(path, f"is unreadable ({error})") from error
    if not sound:
        raise _no_manifest(
            path, f"does not agree with its own digest, or is not of format {FORMAT}"
        )
    return manifest


def check_presence(root: Path, manifest: Manifest) -> None:
    """Raise DamagedStore unless every file is there with its right length: cheap, no reading."""
    for name, entry in manifest.files.items():
        found = _length(root / name)
        if found != entry.bytes:
            raise damaged_store(root, name, _lengths(found, entry.bytes))


def check_all(root: Path, files: Mapping[str, FileEntry]) -> None:
    """Read the files and raise DamagedStore for the first that is not as listed."""
    for name, entry in files.items():
        check_bytes(root, name, entry, bytes_at(root / name))


def check_bytes(root: Path, name: str, entry: FileEntry, data: bytes | None) -> None:
    """Raise DamagedStore unless `data`, None for no file, is what the manifest says."""
    found = None if data is None else len(data)
    if data is None or found != entry.bytes:
        raise damaged_store(root, name, _lengths(found, entry.bytes))
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise damaged_store(root, name, "its SHA-256 is not the one in the manifest")


def bytes_at(path: Path) -> bytes | None:
    """Return the content of a file, None for one that cannot be read."""
    try:
        return path.read_bytes()
    except (OSError, ValueError):  # not there, or no name of a file
        return None


def damaged_store(root: Path, name: str, what: str) -> DamagedStore:
    """Return the error that names one bad file of a store."""
    return DamagedStore(
        f"`{name}` in {root} is damaged: {what}. "
        f"If it was replaced since it was opened, open it again; else {AGAIN}.",
        name,
        what,
    )


def _no_manifest(path: Path, what: str) -> DamagedStore:
    return DamagedStore(f"{path} {what}: {AGAIN}.", path.name, what)


def _length(path: Path) -> int | None:
    """Return the length of a file, None for one that cannot be read."""
    try:
        found = path.stat()
    except (OSError, ValueError):  # not there, or no name of a file
        return None
    return found.st_size if S_ISREG(found.st_mode) else None


def _lengths(found: int | None, expected: int) -> str:
    """Say how the length of a file differs."""
    return (
        "the file is missing or unreadable"
        if found is None
        else f"{found} bytes, expected {expected}"
    )


def _inside(name: str) -> str:
    """Refuse a path that leads out of the store: a manifest may come from anywhere."""
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        raise ValueError(f"it lists {name!r}, outside the store")
    return name
