"""Read tables in record batches of bounded size: files of any known format, and frames."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as pa_dataset
from numpy.typing import NDArray

from storage.errors import TableError
from storage.tables.files import FoundFiles, SourceFile, find_files

# Bytes of a batch, by 8 for each cell; and of a block of a CSV file.
_BATCH_BYTES = 2**24
_BLOCK_BYTES = 2**22
# How pyarrow words a cell that does not fit the type of its column.
_MISFIT = re.compile(r"column #?'?(.+?)'?: .*?conversion error to (.+?): invalid value '(.*)'")


class TableSource(Protocol):
    """A table that can be read several times, in batches, always in the same order of rows."""

    @property
    def description(self) -> str:
        """A description for people, such as the path."""

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches with these columns."""

    def versions(self) -> tuple[SourceFile, ...]:
        """Return the files with their versions; none for a frame in memory."""


def open_table(source: Any) -> TableSource:
    """Return a table from a path, address, glob, a list of these, or a frame or array in memory.

    Raises
    ------
    TableError
        If it is none of them, or cannot be opened.
    """
    if isinstance(source, str | Path) or _are_paths(source):
        found = find_files(source, FORMATS)
        with explain_arrow_errors(_described(found)):
            return FORMATS[found.suffix](found)
    return FrameSource.of(source)


@contextmanager
def explain_arrow_errors(description: str) -> Iterator[None]:
    """Turn an error of pyarrow, NumPy or the file system into a TableError that names the table."""
    try:
        yield
    except TableError:
        raise
    # NumPy raises ValueError and EOFError for files that are cut short.
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        raise TableError(f"cannot read {description}: {_reason(error)}") from error


@dataclass(frozen=True, eq=False)
class FileSource:
    """Files that pyarrow reads: CSV, TSV, Parquet, Feather and Arrow.

    Attributes
    ----------
    found : FoundFiles
    dataset : pyarrow.dataset.Dataset
    """

    found: FoundFiles
    dataset: pa_dataset.Dataset

    @property
    def description(self) -> str:
        """The path, or the first of several."""
        return _described(self.found)

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        return self.dataset.schema

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches with these columns; few are read ahead."""
        with explain_arrow_errors(self.description):
            yield from self.dataset.to_batches(
                columns=list(columns),
                batch_size=batch_rows(len(columns)),
                batch_readahead=4,
                fragment_readahead=1,
            )

    def versions(self) -> tuple[SourceFile, ...]:
        """Return the files with their versions."""
        return self.found.versions()


@dataclass(frozen=True, eq=False)
class ArraySource:
    """Matrices in files: the columns are called `column_0`, `column_1` and so on.

    Attributes
    ----------
    found : FoundFiles
    arrays : tuple of arrays, each of shape (rows, d)
        Objects whose slices are read from disk when they are taken.
    """

    found: FoundFiles
    arrays: tuple[Any, ...]

    @property
    def description(self) -> str:
        """The path, or the first of several."""
        return _described(self.found)

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        first = self.arrays[0]
        kind = pa.from_numpy_dtype(first.dtype)
        return pa.schema([(f"column_{j}", kind) for j in range(first.shape[1])])

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches with these columns."""
        schema = self.schema
        wanted = [schema.get_field_index(name) for name in columns]
        fields = pa.schema([schema.field(j) for j in wanted])
        for array in self.arrays:
            step = batch_rows(array.shape[1])
            for start in range(0, array.shape[0], step):
                rows = np.asarray(array[start : start + step])
                yield pa.record_batch([pa.array(rows[:, j]) for j in wanted], schema=fields)

    def versions(self) -> tuple[SourceFile, ...]:
        """Return the files with their versions."""
        return self.found.versions()


@dataclass(frozen=True, eq=False)
class FrameSource:
    """A frame or array in memory, or lazily computed in parts.

    Attributes
    ----------
    kind : str
        Its type, for messages.
    schema : pyarrow.Schema
    parts : sequence of callables
        Each returns a part of the rows as a pyarrow Table.
    """

    kind: str
    schema: pa.Schema
    parts: Sequence[Callable[[], pa.Table]]

    @classmethod
    def of(cls, frame: Any) -> FrameSource:
        """Return the source of a frame; raise a TableError if its type is unknown."""
        kind = type(frame).__name__
        parts = _frame_parts(frame)
        try:
            first = parts[0]()
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise TableError(f"cannot read the {kind}: {error}") from error
        return cls(kind, first.schema.remove_metadata(), [lambda: first, *parts[1:]])

    @property
    def description(self) -> str:
        """The type of the frame."""
        return f"the {self.kind}"

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches with these columns."""
        names = list(columns)
        fields = pa.schema([self.schema.field(name) for name in names])
        with explain_arrow_errors(self.description):
            for part in self.parts:
                table = part().select(names).cast(fields)
                yield from table.to_batches(max_chunksize=batch_rows(len(names)))

    def versions(self) -> tuple[SourceFile, ...]:
        """Return nothing: a frame in memory has no files."""
        return ()


def batch_rows(columns: int) -> int:
    """Return how many rows a batch has, for a table of so many columns."""
    return max(256, min(2**17, _BATCH_BYTES // (8 * max(columns, 1))))


def _are_paths(source: Any) -> bool:
    return isinstance(source, Sequence) and all(isinstance(each, str | Path) for each in source)


def _described(found: FoundFiles) -> str:
    if found.folder is not None:
        return found.folder
    first = found.paths[0]
    return first if len(found.paths) == 1 else f"{first} and {len(found.paths) - 1} more"


def _reason(error: Exception) -> str:
    misfit = _MISFIT.search(str(error))
    if misfit is None:
        return str(getattr(error, "strerror", None) or error)
    column, kind, value = misfit.groups()
    return (
        f"the column {column} has {value!r}, where its first rows have {kind}; correct the "
        "value, or drop the column"
    )


def _open_dataset(
    found: FoundFiles, file_format: Any, schema: pa.Schema | None = None
) -> pa_dataset.Dataset:
    """Open files as one data set; `key=value` folders below a given folder are columns."""
    partitioning = None
    if found.folder is not None:
        partitioning = pa_dataset.partitioning(flavor="hive")
    return pa_dataset.dataset(
        list(found.paths),
        schema=schema,
        format=file_format,
        filesystem=None if found.is_local else found.filesystem,
        partitioning=partitioning,
        partition_base_dir=found.folder,
    )


def _open_columnar(found: FoundFiles, file_format: str) -> FileSource:
    """Open Parquet or Feather files; raise a TableError unless their schemas agree."""
    dataset = _open_dataset(found, file_format)
    for fragment in dataset.get_fragments():
        _check_same_columns(dataset.schema, fragment.physical_schema, found.paths[0], fragment.path)
    return FileSource(found, dataset)


def _check_same_columns(first: pa.Schema, other: pa.Schema, path: str, other_path: str) -> None:
    for field in other:
        index = first.get_field_index(field.name)
        if index < 0:
            raise TableError(f"{other_path} has the column {field.name!r}, which {path} lacks")
        if first.field(index).type != field.type:
            raise TableError(
                f"the column {field.name!r} is {field.type} in {other_path} and "
                f"{first.field(index).type} in {path}; expected one type"
            )


def _open_text(found: FoundFiles, delimiter: str) -> FileSource:
    """Open CSV files; the types are inferred from the first rows of the first file.

    Whole numbers are read as float64, since a later row may have decimals. So is a column whose
    first rows are empty.
    """
    text_format = _text_format(delimiter)
    inferred = _open_dataset(found, text_format).schema
    repeated = sorted({name for name in inferred.names if inferred.names.count(name) > 1})
    if repeated:
        raise TableError(f"the header of {found.paths[0]} has {repeated[0]!r} more than once")
    fields = [
        field.with_type(pa.float64()) if _may_widen(field.type) else field for field in inferred
    ]
    return FileSource(found, _open_dataset(found, text_format, pa.schema(fields)))


def _may_widen(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_null(kind))


def _text_format(delimiter: str) -> pa_dataset.CsvFileFormat:
    return pa_dataset.CsvFileFormat(
        parse_options=pa_csv.ParseOptions(delimiter=delimiter),
        read_options=pa_csv.ReadOptions(block_size=_BLOCK_BYTES),
        convert_options=pa_csv.ConvertOptions(strings_can_be_null=True),
    )


def _open_npy(found: FoundFiles) -> ArraySource:
    # Memory-mapped: the size in the header is checked against the length of the file, before any
    # memory is allocated.
    return _as_matrices(found, [np.load(path, mmap_mode="r") for path in _local(found)])


def _open_npz(found: FoundFiles) -> ArraySource:
    arrays = []
    for path in _local(found):
        with np.load(path, allow_pickle=False) as archive:
            names = archive.files
            if len(names) != 1:
                raise TableError(f"{path} has the arrays {', '.join(names)}; expected one")
            arrays.append(archive[names[0]])
    return _as_matrices(found, arrays)


def _open_zarr(found: FoundFiles) -> ArraySource:
    import zarr  # noqa: PLC0415

    return _as_matrices(found, [zarr.open_array(path, mode="r") for path in _local(found)])


def _open_hdf5(found: FoundFiles) -> ArraySource:
    try:
        import h5py  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise TableError(
            f"{found.paths[0]} needs h5py, which is not installed: pip install 'ism-dask[hdf5]'"
        ) from error
    arrays = []
    for path in _local(found):
        file = h5py.File(path, "r")
        matrices = [each for each in file.values() if getattr(each, "ndim", 0) == 2]
        if len(matrices) != 1:
            raise TableError(f"{path} has {len(matrices)} matrices at its top; expected one")
        arrays.append(matrices[0])
    return _as_matrices(found, arrays)


def _local(found: FoundFiles) -> tuple[str, ...]:
    if not found.is_local:
        raise TableError(
            f"{found.paths[0]} is remote: {found.suffix} files are read from local folders only; "
            "copy it, or use Parquet"
        )
    return found.paths


def _as_matrices(found: FoundFiles, arrays: Sequence[Any]) -> ArraySource:
    for path, array in zip(found.paths, arrays, strict=True):
        if array.ndim != 2 or array.dtype.kind not in "biuf" or 0 in array.shape:
            raise TableError(
                f"{path} has an array of shape {array.shape} of {array.dtype}; expected rows and "
                "columns of real numbers"
            )
        if array.shape[1] != arrays[0].shape[1] or array.dtype != arrays[0].dtype:
            raise TableError(
                f"{path} has {array.shape[1]} columns of {array.dtype}, and {found.paths[0]} has "
                f"{arrays[0].shape[1]} of {arrays[0].dtype}; expected the same"
            )
    return ArraySource(found, tuple(arrays))


FORMATS: Mapping[str, Callable[[FoundFiles], TableSource]] = {
    ".csv": partial(_open_text, delimiter=","),
    ".tsv": partial(_open_text, delimiter="\t"),
    ".parquet": partial(_open_columnar, file_format="parquet"),
    ".feather": partial(_open_columnar, file_format="feather"),
    ".arrow": partial(_open_columnar, file_format="feather"),
    ".npy": _open_npy,
    ".npz": _open_npz,
    ".zarr": _open_zarr,
    ".h5": _open_hdf5,
    ".hdf5": _open_hdf5,
}


def _frame_parts(frame: Any) -> list[Callable[[], pa.Table]]:
    """Return functions that give the parts of a frame as pyarrow Tables, in order of rows."""
    if hasattr(frame, "dask") and hasattr(frame, "blocks"):  # Dask array
        rows = frame.rechunk({1: -1})
        return [partial(_computed_part, rows.blocks[k]) for k in range(rows.numblocks[0])]
    if hasattr(frame, "to_delayed"):  # Dask DataFrame
        return [partial(_computed_part, part) for part in frame.to_delayed()]
    return [partial(_as_table, frame)]


def _computed_part(part: Any) -> pa.Table:
    return _as_table(part.compute())


def _as_table(frame: Any) -> pa.Table:
    """Return a frame in memory as a pyarrow Table."""
    if isinstance(frame, pa.Table):
        return frame
    if hasattr(frame, "to_dataframe"):  # xarray
        frame = frame.to_dataframe()
    if hasattr(frame, "iloc"):  # pandas; its index is no column
        return pa.Table.from_pandas(frame, preserve_index=False)
    if hasattr(frame, "__arrow_c_stream__"):  # polars and others
        return pa.table(frame)
    values = np.asarray(frame)
    if values.ndim != 2:
        raise TableError(
            f"a {type(frame).__name__} is no table; expected a path, a frame or a matrix"
        )
    return matrix_table(values)


def matrix_table(values: NDArray[Any], prefix: str = "column_") -> pa.Table:
    """Return a matrix (n, d) as a Table, whose columns have `prefix` and their number as name."""
    names = [f"{prefix}{j}" for j in range(values.shape[1])]
    return pa.table([np.ascontiguousarray(column) for column in values.T], names=names)
