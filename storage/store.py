"""Write Zarr groups atomically, and check every file against its digest when reading."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.store import (
    ByteRequest,
    OffsetByteRequest,
    RangeByteRequest,
    SuffixByteRequest,
)
from zarr.codecs import BytesCodec, Crc32cCodec, ZstdCodec
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import LocalStore

from storage.atomic import exists_settled, explain_os_errors, workspace
from storage.digest import arrays_digest
from storage.errors import DamagedStore, StorageError
from storage.manifest import (
    FileEntry,
    Manifest,
    check_all,
    check_bytes,
    check_presence,
    damaged_store,
    read_manifest,
    write_manifest,
)
from storage.records import dumps, loads

_T = TypeVar("_T")

# Rows of a chunk of an array that is read whole.
_CHUNK_ROWS = 2**20
_CODECS = (BytesCodec, ZstdCodec, Crc32cCodec)
# Whole numbers, such as pixels, become many times smaller. Measured numbers hardly do, and a high
# level would take most of the time of an ingestion.
_LEVEL, _LEVEL_OF_FLOATS = 3, -7


def commit_group(
    target: Path,
    version: int,
    record: Mapping[str, Any],
    fill: Callable[[zarr.Group], str],
    known: Mapping[str, FileEntry] | None = None,
) -> None:
    """Build a group in a hidden folder and rename it to `target` in one step.

    Parameters
    ----------
    target : Path
        Folder to create or replace. On any failure an existing one stays as it was.
    version : int
        The version of the format of `record` and arrays.
    record : Mapping
        Plain values, stored with the version as the attributes of the group.
    fill : callable
        Writes the arrays into the group and returns the digest of their values. It may add files
        that it has synced to `known`.
    known : mapping of str to FileEntry, optional
        Files that are on the disk already, with their entries: `fill` links them from another
        store, or has synced them.
    """
    # The record is a text because Zarr's own JSON has no NaN.
    attributes = {"format_version": version, "record": dumps(record)}
    with workspace(target) as work, explain_os_errors(target):
        group = zarr.create_group(LocalStore(work.payload), zarr_format=3, attributes=attributes)
        data_hash = fill(group)
        write_manifest(work.payload, data_hash, known or {})
        work.publish()


def folder_of(group: zarr.Group) -> Path:
    """Return the folder of a group that `commit_group` passes to `fill`."""
    if not isinstance(group.store, LocalStore):
        raise TypeError(f"`group` is in a {type(group.store).__name__}; expected one on disk")
    return group.store.root


def create_array(
    group: zarr.Group,
    name: str,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    dtype: Any,
    *,
    separator: Literal["/", "."] = "/",
) -> zarr.Array[Any]:
    """Create an empty array with the codecs that all our arrays have.

    With the separator "." its chunks are files of one folder, `c.0.0`, not of a folder each. To
    make, sync and remove hundreds of folders takes most of the time of a small addition.
    """
    level = _LEVEL_OF_FLOATS if np.dtype(dtype).kind == "f" else _LEVEL
    return group.create_array(
        name,
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        compressors=(ZstdCodec(level=level), Crc32cCodec()),
        fill_value=0,
        chunk_key_encoding={"name": "default", "separator": separator},
        # By default Zarr omits chunks of zeros, and a lost chunk would look like one.
        config={"write_empty_chunks": True},
    )


def put_array(group: zarr.Group, name: str, values: NDArray[Any]) -> None:
    """Write an array of any shape, in chunks of some rows."""
    chunks = (max(1, min(_CHUNK_ROWS, len(values))), *(max(1, n) for n in values.shape[1:]))
    create_array(group, name, values.shape, chunks, values.dtype)[...] = values


def put_arrays(group: zarr.Group, arrays: Mapping[str, NDArray[Any]]) -> str:
    """Write arrays by their names; return the digest of their values."""
    for name, values in arrays.items():
        put_array(group, name, values)
    return arrays_digest(arrays)


def array_names(manifest: Manifest) -> list[str]:
    """Return the sorted names of the arrays and groups in a committed group."""
    files = sorted(manifest.files)
    return [name.removesuffix("/zarr.json") for name in files if name.endswith("/zarr.json")]


def get_array(group: zarr.Group, name: str) -> NDArray[Any]:
    """Read a whole array of a group that `open_checked` returned."""
    store = group.store
    if not isinstance(store, CheckedStore):
        raise TypeError(f"`group` is in a {type(store).__name__}; expected one that checks")
    with explain_zarr_errors(store.root, name):
        return np.asarray(_open_array(store, name)[...])


def open_checked(root: Path, version: int) -> tuple[dict[str, Any], Manifest, zarr.Group]:
    """Open a committed group: its record, its manifest, and the group.

    Manifest, file lengths and metadata are checked now, chunks when they are read.

    Raises
    ------
    DamagedStore
        If one of them is not as it was written, or in the format of another version.
    """
    manifest = read_manifest(root)
    check_presence(root, manifest)
    check_all(root, {k: v for k, v in manifest.files.items() if k.endswith("zarr.json")})
    with explain_zarr_errors(root, "zarr.json"):
        store = CheckedStore(root, manifest.files)
        group = zarr.open_group(store, mode="r", zarr_format=3, use_consolidated=False)
        attributes = group.attrs.asdict()
        if attributes["format_version"] != version:
            raise damaged_store(
                root,
                "zarr.json",
                f"`format_version` is {attributes['format_version']!r}, this version of ism-dask "
                f"reads {version}. Upgrade the package, or make the store again",
            )
        return dict(loads(str(attributes["record"]))), manifest, group


def read_again_if_replaced(root: Path, read: Callable[[Path], _T]) -> _T:
    """Return what `read` returns, at a second attempt if the first finds the store damaged.

    Another process may have replaced the store meanwhile, and the new one may be good.
    """
    try:
        return read(root)
    except DamagedStore:
        exists_settled(root)
        return read(root)


def open_checked_array(root: Path, name: str, files: Mapping[str, FileEntry]) -> zarr.Array[Any]:
    """Open one array, given the manifest's entries for it."""
    with explain_zarr_errors(root, name):
        return _open_array(CheckedStore(root, files), name)


@contextmanager
def explain_zarr_errors(root: Path, name: str) -> Iterator[None]:
    """Turn any error by which Zarr fails to read metadata or chunks into a DamagedStore."""
    try:
        yield
    except StorageError:
        raise
    # Zarr raises many types of errors for codecs, shapes and dtypes that we never write.
    except Exception as error:
        defect = f"Zarr cannot read it ({type(error).__name__}: {str(error)[:200]})"
        raise damaged_store(root, name, defect) from error


def _open_array(store: CheckedStore, name: str) -> zarr.Array[Any]:
    """Open an array; raise DamagedStore unless its layout is the one that `create_array` makes.

    It must have numbers, our codecs, and as many chunks as the manifest lists. Another layout might
    need any amount of memory, or decode to values that nobody has written.
    """
    array = zarr.open_array(store, path=name, mode="r", zarr_format=3)
    codecs = tuple(type(each) for each in array.metadata.codecs)  # type: ignore[union-attr]
    chunks = store.count(f"{name}/") - 1
    if codecs != _CODECS or array.dtype.kind not in "biuf" or array.nchunks != chunks:
        raise damaged_store(
            store.root,
            f"{name}/zarr.json",
            f"shape {array.shape} of {array.dtype} in {array.nchunks} chunks by "
            f"{', '.join(each.__name__ for each in codecs)}; {chunks} chunks are listed",
        )
    return array


class CheckedStore(LocalStore):
    """A read-only Zarr store that returns only bytes that agree with the manifest.

    Zarr by itself reads a missing chunk as zeros. A file whose inode, times and length have not
    changed since its last check is not hashed again.
    """

    def __init__(self, root: Path, files: Mapping[str, FileEntry]) -> None:
        super().__init__(root, read_only=True)
        self._files = files
        self._checked_stamps: dict[str, tuple[int, ...]] = {}

    def count(self, start: str) -> int:
        """Return the number of listed files whose names begin with `start`."""
        return sum(name.startswith(start) for name in self._files)

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """Return the checked content of a file, or None for metadata that is not listed."""
        return await asyncio.to_thread(self._checked_buffer, key, prototype, byte_range)

    def get_sync(
        self,
        key: str,
        *,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """Return the same as `get`, without an event loop."""
        return self._checked_buffer(key, prototype, byte_range)

    async def get_partial_values(
        self,
        prototype: BufferPrototype,
        key_ranges: Iterable[tuple[str, ByteRequest | None]],
    ) -> list[Buffer | None]:
        """Return parts of files; each file is read and checked whole."""
        return [await self.get(key, prototype, part) for key, part in key_ranges]

    async def exists(self, key: str) -> bool:
        """Return whether the manifest lists a file."""
        return key in self._files

    async def getsize(self, key: str) -> int:
        """Return the length that the manifest lists for a file."""
        if key not in self._files:
            raise FileNotFoundError(key)
        return self._files[key].bytes

    async def list(self) -> AsyncIterator[str]:
        """Yield the files that the manifest lists; strangers in the folder are not among them."""
        for key in self._files:
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield the listed files whose names begin with `prefix`."""
        for key in self._files:
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names of listed files and folders that are directly in a folder."""
        start = f"{prefix.strip('/')}/".lstrip("/")
        inside = (key[len(start) :] for key in self._files if key.startswith(start))
        for name in dict.fromkeys(key.split("/")[0] for key in inside):
            yield name

    def _checked_buffer(
        self, key: str, prototype: BufferPrototype | None, byte_range: ByteRequest | None
    ) -> Buffer | None:
        entry = self._files.get(key)
        if entry is None:
            if any(part.split(".")[0] == "c" for part in key.split("/")):
                raise damaged_store(self.root, key, "the manifest does not list it")
            return None
        data = _part(self._load(key, entry), byte_range)
        return (prototype or default_buffer_prototype()).buffer.from_bytes(data)

    def _load(self, key: str, entry: FileEntry) -> bytes:
        """Return the content of a file that matches its entry, else raise DamagedStore."""
        stamp, data = _read_stamped(self.root / key)
        if data is None:  # another process may be replacing the store
            exists_settled(self.root)
            stamp, data = _read_stamped(self.root / key)
        if data is None or self._checked_stamps.get(key) != stamp:
            check_bytes(self.root, key, entry, data)
            self._checked_stamps[key] = stamp
        return data or b""


def _part(data: bytes, byte_range: ByteRequest | None) -> bytes:
    """Return the part of `data` that Zarr requests, all of it for None."""
    if isinstance(byte_range, RangeByteRequest):
        return data[byte_range.start : byte_range.end]
    if isinstance(byte_range, OffsetByteRequest):
        return data[byte_range.offset :]
    if isinstance(byte_range, SuffixByteRequest):
        return data[-byte_range.suffix :] if byte_range.suffix else b""
    return data


def _read_stamped(path: Path) -> tuple[tuple[int, ...], bytes | None]:
    """Return the stamp (inode, times, length) and content of a file; None if it is unreadable."""
    try:
        with path.open("rb") as handle:
            stat = os.fstat(handle.fileno())
            stamp = (stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size)
            return stamp, handle.read()
    except OSError:
        return (), None
