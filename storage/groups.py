"""Zarr groups that are complete or absent when written, and checked byte by byte when read."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.store import ByteRequest
from zarr.codecs import Crc32cCodec, ZstdCodec
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import LocalStore

from storage.durable import explained
from storage.errors import DamagedStore
from storage.manifest import (
    AGAIN,
    FileEntry,
    Manifest,
    check_all,
    check_bytes,
    check_presence,
    damaged,
    read_manifest,
    write_manifest,
)
from storage.workspace import settle, workspace

Attributes = dict[str, Any]


def commit_group(
    target: Path,
    attributes: Attributes,
    fill: Callable[[zarr.Group], str],
    keep: Callable[[Path], bool] | None = None,
) -> None:
    """Build a group out of sight and put it at `target` in one step.

    Parameters
    ----------
    target : Path
        Folder to create or replace. On any failure what was there stays as it was.
    attributes : dict
        Plain JSON, kept with the group.
    fill : callable
        Writes the arrays into the group and returns the digest of their values.
    keep : callable, optional
        Asked under the lock; True leaves what is at `target` and drops the new group.
    """
    with workspace(target) as work, explained(target):
        group = zarr.create_group(LocalStore(work.payload), zarr_format=3, attributes=attributes)
        write_manifest(work.payload, fill(group))
        work.publish(keep)


def built_at(group: zarr.Group) -> Path:
    """Return the folder of a group that `commit_group` has given to be filled."""
    if not isinstance(group.store, LocalStore):
        raise TypeError(f"`group` is in a {type(group.store).__name__}; expected one on disk")
    return group.store.root


def create_array(
    group: zarr.Group, name: str, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: Any
) -> zarr.Array[Any]:
    """Create an empty array with the codecs that every array here has."""
    return group.create_array(
        name,
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        compressors=(ZstdCodec(level=3), Crc32cCodec()),
        fill_value=0,
        # Left out, a chunk of zeros and a lost chunk would look the same.
        config={"write_empty_chunks": True},
    )


def put_array(group: zarr.Group, name: str, values: NDArray[Any], longest: int = 2**20) -> None:
    """Write an array of any shape, cut along its first axis every `longest` rows."""
    chunks = (max(1, min(longest, len(values))), *(max(1, n) for n in values.shape[1:]))
    create_array(group, name, values.shape, chunks, values.dtype)[...] = values


def get_array(group: zarr.Group, name: str) -> NDArray[Any]:
    """Read a whole array of a group that `open_checked` gave."""
    found = group.get(name)
    if not isinstance(found, zarr.Array):
        raise DamagedStore(f"`{name}` in {group.store_path} is no Zarr array: {AGAIN}.")
    return np.asarray(found[...])


def open_checked(root: Path) -> tuple[Manifest, zarr.Group]:
    """Open a committed group: metadata are checked now, chunks when they are read."""
    try:
        return _open_checked(root)
    except DamagedStore:  # or replaced by a new one just now: that would be a good one
        settle(root)
        return _open_checked(root)


def _open_checked(root: Path) -> tuple[Manifest, zarr.Group]:
    """Open a group whose manifest, file lengths and metadata are in order."""
    manifest = read_manifest(root)
    check_presence(root, manifest)
    check_all(root, {k: v for k, v in manifest.files.items() if k.endswith("zarr.json")})
    try:
        store = CheckedStore(root, manifest.files)
        group = zarr.open_group(store, mode="r", zarr_format=3, use_consolidated=False)
    except FileNotFoundError as error:  # a manifest without a group
        raise damaged(root, "zarr.json", "it is no Zarr group") from error
    return manifest, group


def open_checked_array(root: Path, name: str, files: Mapping[str, FileEntry]) -> zarr.Array[Any]:
    """Open one array, given the manifest's entries for it."""
    try:
        return zarr.open_array(CheckedStore(root, files), path=name, mode="r", zarr_format=3)
    except FileNotFoundError as error:
        raise damaged(root, name, "it is no Zarr array") from error


class CheckedStore(LocalStore):
    """A read-only Zarr store that hands out no byte that the manifest does not vouch for.

    Zarr by itself reads a missing chunk as zeros. A file whose inode, times and length have not
    changed since it was last checked is not hashed again.
    """

    def __init__(self, root: Path, files: Mapping[str, FileEntry]) -> None:
        super().__init__(root, read_only=True)
        self._files = files
        self._checked: dict[str, tuple[int, ...]] = {}

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """Return the whole checked content of a file, or None for metadata that is not listed."""
        if byte_range is not None:
            raise NotImplementedError("parts of a chunk cannot be checked; read it whole")
        entry = self._files.get(key)
        if entry is None:
            if "c" in key.split("/"):
                raise damaged(self.root, key, "the manifest does not list it")
            return None
        data = await asyncio.to_thread(self._load, key, entry)
        return (prototype or default_buffer_prototype()).buffer.from_bytes(data)

    def _load(self, key: str, entry: FileEntry) -> bytes:
        """Read one file and check it against its entry."""
        stamp, data = _read(self.root / key)
        if data is None:  # the store may be in the middle of being replaced
            settle(self.root)
            stamp, data = _read(self.root / key)
        if data is None or self._checked.get(key) != stamp:
            check_bytes(self.root, key, entry, data)
            self._checked[key] = stamp
        return data or b""


def _read(path: Path) -> tuple[tuple[int, ...], bytes | None]:
    """Return the stamp and content of a file, None for one that cannot be read."""
    try:
        with path.open("rb") as handle:
            stat = os.fstat(handle.fileno())
            stamp = (stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size)
            return stamp, handle.read()
    except OSError:
        return (), None
