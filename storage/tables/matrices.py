"""Matrices in files as tables: NPY, NPZ, Zarr and HDF5."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from storage.errors import TableError
from storage.tables.files import ZARR, TableFiles, explain_errors, format_suffix
from storage.tables.sources import Part, Read, Table, batch_rows, matrix_table, spans

# An archive of NumPy is unpacked into memory.
_MOST_UNPACKED = 2**31


@dataclass(frozen=True)
class _MatrixFile:
    """A file with a matrix; the columns are called `column_0`, `column_1` and so on."""

    path: str

    def __reduce__(self) -> tuple[Any, ...]:
        """Let another process open the file: pickled, some arrays are their rows, others fail."""
        return type(self), (self.path,)

    @cached_property
    def array(self) -> Any:
        """The matrix (rows, d), whose slices are read from disk when they are taken."""
        with explain_errors(self.path):
            array = OPENERS[format_suffix(self.path)](self.path)
        is_real = array.dtype.kind in "biuf" and array.dtype.itemsize <= 8
        if array.ndim != 2 or not is_real or 0 in array.shape:
            raise TableError(
                f"{self.path} has an array of shape {array.shape} of {array.dtype}; "
                "expected rows and columns of real numbers"
            )
        return array

    def read(self, first: int, stop: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows from number `first` to before `stop`, in batches with these columns."""
        step = batch_rows(self.array.shape[1])
        for start in range(first, stop, step):
            rows = matrix_table(np.asarray(self.array[start : min(start + step, stop)]))
            yield from rows.select(columns).to_batches()

    def split(self) -> list[Read]:
        """Return what reads some rows each; another process would have to unpack all of an NPZ."""
        rows = self.array.shape[0]
        ranges = [(0, rows)] if type(self.array) is np.ndarray else spans(rows)
        return [partial(self.read, start, stop) for start, stop in ranges]

    def part(self) -> Part:
        """Return the part of a table that has its rows."""
        schema = matrix_table(np.asarray(self.array[:1])).schema
        return Part(self.path, schema, partial(self.read, 0, self.array.shape[0]), self.split)


def open_matrices(files: TableFiles, _types: object) -> Table:
    """Open files with a matrix each; raise a TableError unless these have the same columns."""
    if not files.is_local:
        raise TableError(
            f"{files.paths[0]} is remote: {files.suffix} files are read from local folders only; "
            "copy it, or use Parquet"
        )
    parts = tuple(_MatrixFile(path).part() for path in files.paths)
    schema = parts[0].schema
    for part in parts:
        if part.schema != schema:
            raise TableError(
                f"{part.description} has {len(part.schema)} columns of {part.schema.types[0]}, and "
                f"{files.paths[0]} has {len(schema)} of {schema.types[0]}; expected the same"
            )
    return Table(files.description, schema, parts, files)


def _open_npy(path: str) -> Any:
    # Memory-mapped: the size in the header is checked against the length of the file, before any
    # memory is allocated.
    return np.load(path, mmap_mode="r", allow_pickle=False)


def _open_npz(path: str) -> Any:
    with np.load(path, allow_pickle=False) as archive:
        names = archive.files
        if len(names) != 1:
            raise TableError(f"{path} has the arrays {', '.join(names)}; expected one")
        size = archive.zip.getinfo(f"{names[0]}.npy").file_size
        if size > _MOST_UNPACKED:
            raise TableError(
                f"{path} takes {size / 2**30:.1f} GiB unpacked; save it as .npy, which is read "
                "in parts"
            )
        return archive[names[0]]


def _open_zarr(path: str) -> Any:
    import zarr  # noqa: PLC0415

    opened = zarr.open(path, mode="r")
    if isinstance(opened, zarr.Group):
        return _only_matrix(path, (array for _, array in opened.arrays()))
    return opened


def _open_hdf5(path: str) -> Any:
    try:
        import h5py  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise TableError(
            f"{path} needs h5py, which is not installed: pip install 'ism-dask[hdf5]'"
        ) from error
    return _only_matrix(path, h5py.File(path, "r").values())


def _only_matrix(path: str, arrays: Iterable[Any]) -> Any:
    """Return the one array of two dimensions in a file; raise a TableError for another number."""
    matrices = [each for each in arrays if getattr(each, "ndim", 0) == 2]
    if len(matrices) != 1:
        raise TableError(f"{path} has {len(matrices)} matrices at its top; expected one")
    return matrices[0]


OPENERS: Mapping[str, Callable[[str], Any]] = {
    ".npy": _open_npy,
    ".npz": _open_npz,
    ZARR: _open_zarr,
    ".h5": _open_hdf5,
    ".hdf5": _open_hdf5,
}
