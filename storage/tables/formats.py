"""The formats of tables: how the files of each are opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as pa_dataset

from storage.errors import TableError
from storage.tables.files import FoundFiles, find_files
from storage.tables.sources import (
    ArraySource,
    FileSource,
    FrameSource,
    TableSource,
    explain_arrow_errors,
    path_for_messages,
)

# Bytes of a block of a CSV file.
_BLOCK_BYTES = 2**22


def open_table(source: Any) -> TableSource:
    """Return a table from a path, address, glob, a list of these, or a frame or array in memory.

    Raises
    ------
    TableError
        If it is none of them, or cannot be opened.
    """
    if isinstance(source, str | Path) or _are_paths(source):
        found = find_files(source, FORMATS)
        with explain_arrow_errors(path_for_messages(found)):
            return FORMATS[found.suffix](found)
    return FrameSource.of(source)


def _are_paths(source: Any) -> bool:
    return isinstance(source, Sequence) and all(isinstance(each, str | Path) for each in source)


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
