"""Rows of a stored data set, read in ranges by any process that is given this small object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from storage.manifest import FileEntry, Manifest, check_all, damaged_store
from storage.store import name_damaged_store, open_checked_array


@dataclass(frozen=True)
class ZarrRows:
    """A matrix on disk, cut by rows. Pickles to a path and digests; opens itself where it lands.

    Attributes
    ----------
    root : str
        Folder of the store.
    array : str
        Name of the array in it.
    digest : str
        Digest of the store's manifest: two equal objects read equal rows.
    shape : tuple of int
        (n, d).
    dtype : numpy.dtype
        As stored.
    chunk_rows : int
        Rows per chunk; reading whole chunks costs least.
    files : Mapping[str, FileEntry]
        What the manifest says of the array's files.
    """

    root: str
    array: str
    digest: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    chunk_rows: int
    files: Mapping[str, FileEntry] = field(repr=False, compare=False)

    @classmethod
    def of(cls, root: Path, manifest: Manifest, array: str) -> ZarrRows:
        """Describe a two-dimensional array of the store at `root`."""
        files = {k: v for k, v in manifest.files.items() if k.startswith(f"{array}/")}
        found = open_checked_array(root, array, files)
        if found.ndim != 2 or found.chunks[1] != max(1, found.shape[1]):
            raise damaged_store(
                root, f"{array}/zarr.json", f"shape {found.shape} in chunks {found.chunks}"
            )
        n, d = found.shape
        path = str(root.resolve())
        return cls(path, array, manifest.digest, (n, d), found.dtype, found.chunks[0], files)

    @property
    def ndim(self) -> int:
        """Return 2."""
        return 2

    def __len__(self) -> int:
        return self.shape[0]

    def __dask_tokenize__(self) -> tuple[str, str, str]:
        """Let Dask name tasks by what identifies the rows, not by every digest."""
        return (self.root, self.array, self.digest)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Read rows start to stop (not included).

        Returns
        -------
        ndarray of shape (stop - start, d)
            In the stored dtype, C order, the caller's own.

        Raises
        ------
        DamagedStore
            When a file that holds these rows is missing or altered.
        """
        if not 0 <= start <= stop <= len(self):
            raise IndexError(
                f"`start`, `stop` are {start}, {stop}; expected 0 <= start <= stop <= {len(self)}."
            )
        if start == stop:
            return np.empty((0, self.shape[1]), self.dtype)
        chunks = f"{self.array}/c/{start // self.chunk_rows} to {(stop - 1) // self.chunk_rows}"
        with name_damaged_store(Path(self.root), chunks):
            return np.ascontiguousarray(_open(self)[start:stop])

    def verify(self) -> None:
        """Read every file of the array and compare it with the manifest, whatever was cached."""
        check_all(Path(self.root), self.files)


@lru_cache(maxsize=64)
def _open(rows: ZarrRows) -> zarr.Array[Any]:
    """Open the array once per process."""
    return open_checked_array(Path(rows.root), rows.array, rows.files)
