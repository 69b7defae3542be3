"""`ZarrRows`, a small picklable object by which any process reads rows of a stored data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from storage.manifest import FileEntry, Manifest, checked_bytes, damaged_store
from storage.store import open_checked_array, reading


@dataclass(frozen=True)
class ZarrRows:
    """A matrix on disk, chunked by rows.

    It pickles to a path and digests; the process that unpickles it opens the array.

    Attributes
    ----------
    root : str
        Folder of the store.
    digest : str
        Digest of the store's manifest: two equal objects read equal rows.
    shape : tuple of int
        (n, d).
    dtype : numpy.dtype
        As stored.
    chunk_rows : int
        Rows per chunk; reading whole chunks costs least.
    files : Mapping[str, FileEntry]
        The manifest's entries for the array's files.
    """

    root: str
    digest: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    chunk_rows: int
    files: Mapping[str, FileEntry] = field(repr=False, compare=False)

    @classmethod
    def of(cls, root: Path, manifest: Manifest) -> ZarrRows:
        """Return the handle of X of the data set at `root`."""
        files = {k: v for k, v in manifest.files.items() if k.startswith("X/")}
        opened = open_checked_array(root, "X", files)
        if opened.ndim != 2 or opened.chunks[1] != max(1, opened.shape[1]):
            raise damaged_store(
                root, "X/zarr.json", f"shape {opened.shape} in chunks {opened.chunks}"
            )
        n, d = opened.shape
        path = str(root.resolve())
        return cls(path, manifest.digest, (n, d), opened.dtype, opened.chunks[0], files)

    @property
    def ndim(self) -> int:
        """Return 2."""
        return 2

    def __len__(self) -> int:
        return self.shape[0]

    def __dask_tokenize__(self) -> tuple[str, str]:
        """Return what identifies the rows, so that Dask need not hash every file's digest."""
        return (self.root, self.digest)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Read the rows from `start` up to, but not including, `stop`.

        Returns
        -------
        ndarray of shape (stop - start, d)
            A copy in the stored dtype and C order, which the caller may change.

        Raises
        ------
        DamagedStore
            If a file that holds these rows is missing or altered.
        """
        if not 0 <= start <= stop <= len(self):
            raise IndexError(
                f"`start`, `stop` are {start}, {stop}; expected 0 <= start <= stop <= {len(self)}."
            )
        if start == stop:
            return np.empty((0, self.shape[1]), self.dtype)
        chunks = f"X/c/{start // self.chunk_rows} to {(stop - 1) // self.chunk_rows}"
        with reading(Path(self.root), chunks):
            return np.ascontiguousarray(_open(self)[start:stop])

    def verify(self) -> None:
        """Raise DamagedStore unless every file of the array, read anew, matches the manifest."""
        for name, entry in self.files.items():
            checked_bytes(Path(self.root), name, entry)


@lru_cache(maxsize=64)
def _open(rows: ZarrRows) -> zarr.Array[Any]:
    """Return the opened array; each process opens it once."""
    return open_checked_array(Path(rows.root), "X", rows.files)
