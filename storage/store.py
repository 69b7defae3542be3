"""Write Zarr groups atomically, and check every file against its digest when reading.

Equal values have equal digests, however they are compressed.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.store import ByteRequest
from zarr.codecs import BytesCodec, Crc32cCodec, ZstdCodec
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import LocalStore, MemoryStore

from storage.atomic import exists_settled, explain_os_errors, workspace
from storage.errors import DamagedStore, StorageError
from storage.manifest import (
    FileEntry,
    Manifest,
    check_bytes,
    check_presence,
    checked_bytes,
    damaged_store,
    read_manifest,
    read_regular,
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
    target: Path, version: int, record: Mapping[str, Any], fill: Callable[[zarr.Group], str]
) -> None:
    """Build a group in a hidden folder and rename it to `target` in one step.

    Parameters
    ----------
    target : Path
        Folder to create or replace. On any failure an existing one stays as it was.
    version, record : int, Mapping
        The version of the format, and plain values, stored as the attributes of the group.
    fill : callable
        Writes the arrays into the group and returns the digest of their values.
    """
    # The record is a text because Zarr's own JSON has no NaN.
    attributes = {"format_version": version, "record": dumps(record)}
    with workspace(target) as work, explain_os_errors(target):
        group = zarr.create_group(LocalStore(work.payload), zarr_format=3, attributes=attributes)
        write_manifest(work.payload, fill(group))
        work.publish()


def chunk_digest(chunk: NDArray[Any]) -> bytes:
    """Return the SHA-256 of the rows of a chunk, shape (rows, d)."""
    return hashlib.sha256(little_endian_bytes(chunk)).digest()


def chunked_digest(
    X: Any, chunk_rows: int, digests: Iterable[bytes], labels: Mapping[str, NDArray[Any]]
) -> str:
    """Return the SHA-256 of the digests of the chunks of X, in their order, and of its labels.

    It depends on the chunks, whose digests can be computed side by side, and not on their
    compression. Of X, only `shape` and `dtype` are read.
    """
    rows, columns = X.shape
    header = f"X {X.dtype.newbyteorder('<').str} {columns} by {chunk_rows}\n"
    found = hashlib.sha256(header.encode())
    for each in digests:
        found.update(each)
    found.update(f"\nrows {rows}\n".encode())
    _add_arrays(found, labels)
    return found.hexdigest()


def arrays_digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the SHA-256 of arrays of any shape, and of their names."""
    found = hashlib.sha256()
    _add_arrays(found, arrays)
    return found.hexdigest()


def _add_arrays(found: Any, arrays: Mapping[str, NDArray[Any]]) -> None:
    for name, values in sorted(arrays.items()):
        header = f"array {name} {values.dtype.newbyteorder('<').str} {values.shape}\n"
        found.update(header.encode())
        found.update(little_endian_bytes(values))


def little_endian_bytes(values: NDArray[Any]) -> memoryview:
    """Return the values as C-ordered little-endian bytes, without a copy where possible."""
    dtype = values.dtype.newbyteorder("<")
    return np.ascontiguousarray(values, dtype=dtype).reshape(-1).data


def create_array(
    group: zarr.Group, name: str, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: Any
) -> zarr.Array[Any]:
    """Create an empty array with the codecs that all our arrays have.

    Its chunks are files of one folder, `c.0.0`, not of a folder each, which would have to be made,
    synced and removed.
    """
    level = _LEVEL_OF_FLOATS if np.dtype(dtype).kind == "f" else _LEVEL
    return group.create_array(
        name,
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        compressors=(ZstdCodec(level=level), Crc32cCodec()),
        fill_value=0,
        chunk_key_encoding={"name": "default", "separator": "."},
        # By default Zarr omits chunks of zeros, and a lost chunk would look like one.
        config={"write_empty_chunks": True},
    )


def put_array(group: zarr.Group, name: str, values: NDArray[Any]) -> None:
    """Write an array of any shape, in chunks of some rows."""
    chunks = (max(1, min(_CHUNK_ROWS, len(values))), *(max(1, n) for n in values.shape[1:]))
    create_array(group, name, values.shape, chunks, values.dtype)[...] = values


def open_checked(root: Path, version: int) -> tuple[dict[str, Any], Manifest]:
    """Return the record of a committed group, as it was written, and its manifest.

    File lengths and metadata are checked now, chunks when they are read. Raise DamagedStore if one
    is not as it was written, or in the format of another version.
    """
    manifest = read_manifest(root)
    check_presence(root, manifest)
    metadata = {name: entry for name, entry in manifest.files.items() if name.endswith("zarr.json")}
    texts = {name: checked_bytes(root, name, entry) for name, entry in metadata.items()}
    with reading(root, "zarr.json"):
        attributes = loads(texts["zarr.json"])["attributes"]
        check_version(root, "zarr.json", attributes["format_version"], version)
        return dict(loads(attributes["record"])), manifest


def check_version(root: Path, file: str, found: object, version: int) -> None:
    """Raise DamagedStore unless a file of a store has the version of the format that we read."""
    if found != version:
        what = f"`format_version` is {found!r}, this version of ism-dask reads {version}. Upgrade"
        raise damaged_store(root, file, f"{what} the package, or make it again")


def read_again(root: Path, read: Callable[[], _T]) -> _T:
    """Return what `read` returns of a store, if need be at a second attempt.

    Another process may have replaced a store that is found damaged, and the new one may be good.
    """
    try:
        return read()
    except DamagedStore:
        exists_settled(root)
        return read()


def open_checked_array(root: Path, name: str, files: Mapping[str, FileEntry]) -> zarr.Array[Any]:
    """Open an array, given the manifest's entries for it.

    Raise DamagedStore unless its layout is the one that `create_array` makes: numbers, our codecs,
    and as many chunks as the manifest lists. Another layout might need any amount of memory, or
    decode to values that nobody has written.
    """
    with reading(root, name):
        array = zarr.open_array(CheckedStore(root, files), path=name, mode="r", zarr_format=3)
        codecs = tuple(type(each) for each in array.metadata.codecs)  # type: ignore[union-attr]
        chunks = sum(each.startswith(f"{name}/") for each in files) - 1
        if codecs != _CODECS or array.dtype.kind not in "biuf" or array.nchunks != chunks:
            raise damaged_store(
                root,
                f"{name}/zarr.json",
                f"shape {array.shape} of {array.dtype} in {array.nchunks} chunks by "
                f"{', '.join(each.__name__ for each in codecs)}; {chunks} chunks are listed",
            )
        return array


def read_array(root: Path, name: str, files: Mapping[str, FileEntry]) -> NDArray[Any]:
    """Read a whole array; raise DamagedStore if it is not as it was written."""
    with reading(root, name):
        return np.asarray(open_checked_array(root, name, files)[...])


@contextmanager
def reading(root: Path, name: str) -> Iterator[None]:
    """Turn any error by which a file of a store cannot be read in the block into a DamagedStore."""
    try:
        yield
    except StorageError:
        raise
    # Zarr raises many types of errors for codecs, shapes and dtypes that we never write.
    except Exception as error:
        defect = f"it cannot be read ({type(error).__name__}: {str(error)[:200]})"
        raise damaged_store(root, name, defect) from error


class CheckedStore(MemoryStore):
    """A read-only Zarr store that returns only bytes that agree with the manifest.

    Zarr by itself reads a missing chunk as zeros.
    """

    def __init__(self, root: Path, files: Mapping[str, FileEntry]) -> None:
        super().__init__(_CheckedFiles(root, files), read_only=True)

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """Return what `get_sync` returns, while the event loop goes on."""
        return await asyncio.to_thread(
            self.get_sync, key, prototype=prototype, byte_range=byte_range
        )


class _CheckedFiles(dict[str, Buffer]):
    """The content of files, which are read and checked when they are requested, and not retained.

    A file whose inode, times and length have not changed since its last check is not hashed again.
    """

    def __init__(self, root: Path, files: Mapping[str, FileEntry]) -> None:
        super().__init__()
        self._root, self._files = root, files
        self._checked_stamps: dict[str, tuple[int, ...]] = {}

    def __missing__(self, key: str) -> Buffer:
        entry = self._files.get(key)
        if entry is None:
            if any(part.split(".")[0] == "c" for part in key.split("/")):
                raise damaged_store(self._root, key, "the manifest does not list it")
            raise KeyError(key)
        stamp, data = read_regular(self._root / key)
        if data is None:  # another process may be replacing the store
            exists_settled(self._root)
            stamp, data = read_regular(self._root / key)
        if data is None or self._checked_stamps.get(key) != stamp:
            check_bytes(self._root, key, entry, data)
            self._checked_stamps[key] = stamp
        return default_buffer_prototype().buffer.from_bytes(data or b"")
