"""The formats of tables: how the files of each are opened."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as pa_dataset

from storage.errors import TableError
from storage.tables.files import TableFiles, find_files
from storage.tables.frames import FrameSource
from storage.tables.schema import BOOLEAN, CATEGORY, NUMBER
from storage.tables.sources import (
    ArraySource,
    FileSource,
    TableSource,
    explain_arrow_errors,
    path_for_messages,
)

# Bytes of a block of a CSV file.
_BLOCK_BYTES = 2**22

# An archive of NumPy is unpacked into memory.
_MOST_UNPACKED = 2**31

# The value of a hive folder whose rows have none.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"

# Types of columns that are known, by name; those of other columns of text files are inferred.
Types = Mapping[str, pa.DataType]


def open_table(source: Any, types: Types | None = None) -> TableSource:
    """Return a table from a path, address, glob, a list of these, or a frame or array in memory.

    Parameters
    ----------
    source : path, address, glob, sequence of these, frame or array
    types : mapping of name to pyarrow type, optional
        How columns of text files are to be read. Other formats have types of their own.

    Raises
    ------
    TableError
        If it is none of them, or cannot be opened.
    """
    if isinstance(source, str | Path) or _are_paths(source):
        files = find_files(source, FORMATS)
        with explain_arrow_errors(path_for_messages(files)):
            return FORMATS[files.suffix](files, types or {})
    return FrameSource.of(source)


def text_types(kinds: Mapping[str, str], passed: Sequence[str]) -> dict[str, pa.DataType]:
    """Return the types in which text files are read, for columns of these kinds.

    The columns `passed` are read as texts, so that they pass through unchanged.
    """
    types = {NUMBER: pa.float64(), BOOLEAN: pa.bool_(), CATEGORY: pa.string()}
    features = {name: types[kind] for name, kind in kinds.items()}
    return {**features, **dict.fromkeys(passed, pa.string())}


def _are_paths(source: Any) -> bool:
    return isinstance(source, Sequence) and all(isinstance(each, str | Path) for each in source)


def _open_columnar(files: TableFiles, _types: Types, file_format: str) -> FileSource:
    """Open Parquet or Feather files; raise a TableError unless their columns agree."""
    dataset = _open_dataset(files, file_format)
    parts = _columns_of_parts(dataset)
    for name in next(iter(parts.values())):
        kinds = {path: columns[name] for path, columns in parts.items()}
        path, first = next(iter(kinds.items()))
        for other_path, other in kinds.items():
            if other != first:
                raise _mixed_types(name, path, first, other_path, other)
    return FileSource(files, dataset)


def _open_text(files: TableFiles, types: Types, delimiter: str) -> FileSource:
    """Open CSV files; types that are not given are inferred from the first rows of each file.

    Whole numbers are read as float64, since a later row may have decimals. So is a column whose
    first rows are empty.
    """
    dataset = _open_dataset(files, _text_format(delimiter))
    parts = _columns_of_parts(dataset)
    names = list(next(iter(parts.values())))
    _check_header(files, names)
    fields = [
        pa.field(
            name,
            types[name] if name in types else _common_type(name, parts),
        )
        for name in names
    ]
    folders = [field for field in dataset.schema if field.name not in names]
    # A row of one empty cell is an empty line, which is no row where there are more columns.
    text_format = _text_format(delimiter, empty_lines=len(names) == 1)
    return FileSource(files, _open_dataset(files, text_format, pa.schema([*fields, *folders])))


def _columns_of_parts(dataset: pa_dataset.Dataset) -> dict[str, dict[str, pa.DataType]]:
    """Return the types of the columns of each file; raise a TableError if their names differ."""
    parts = {
        fragment.path: {field.name: field.type for field in fragment.physical_schema}
        for fragment in dataset.get_fragments()
    }
    path, first = next(iter(parts.items()))
    for other_path, other in parts.items():
        for has, columns, lacks, others in (
            (path, first, other_path, other),
            (other_path, other, path, first),
        ):
            name = next((each for each in columns if each not in others), None)
            if name is not None:
                raise TableError(f"{has} has the column {name!r}, which {lacks} lacks")
    return parts


def _common_type(name: str, parts: Mapping[str, Types]) -> pa.DataType:
    """Return the type that a column of CSV files has, from what its first rows in each file are."""
    kinds = {path: columns[name] for path, columns in parts.items()}
    given = {path: kind for path, kind in kinds.items() if not pa.types.is_null(kind)}
    numbers = [path for path, kind in given.items() if _is_numeric(kind)]
    if len(numbers) == len(given):
        return pa.float64()
    others = [path for path in given if path not in numbers]
    if numbers:
        number, other = numbers[0], others[0]
        raise _mixed_types(name, number, given[number], other, given[other])
    return given[others[0]] if len(set(given.values())) == 1 else pa.string()


def _mixed_types(
    name: str, path: str, kind: pa.DataType, other_path: str, other: pa.DataType
) -> TableError:
    return TableError(
        f"the column {name!r} is {other} in {other_path} and {kind} in {path}; expected one type"
    )


def _is_numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _check_header(files: TableFiles, names: Sequence[str]) -> None:
    """Raise a TableError if the header of CSV files has no names, or another separator."""
    if "" in names:
        raise TableError(
            f"column {names.index('') + 1} of {files.paths[0]} has no name; if it is the index "
            "of a frame, write the file without it (index=False)"
        )
    if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
        raise TableError(
            f"{files.paths[0]} has one column, {names[0]!r}; expected columns separated by commas "
            "(.csv) or tabs (.tsv)"
        )


def _text_format(delimiter: str, *, empty_lines: bool = False) -> pa_dataset.CsvFileFormat:
    return pa_dataset.CsvFileFormat(
        parse_options=pa_csv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=not empty_lines
        ),
        read_options=pa_csv.ReadOptions(block_size=_BLOCK_BYTES),
        # "NA" and the like are gaps among numbers, and texts among texts, as in other formats.
        convert_options=pa_csv.ConvertOptions(strings_can_be_null=False),
    )


def _open_dataset(
    files: TableFiles, file_format: Any, schema: pa.Schema | None = None
) -> pa_dataset.Dataset:
    """Open files as one data set; `key=value` folders below a given folder are columns."""
    partitioning = None
    if columns := _columns_of_folders(files):
        partitioning = pa_dataset.partitioning(pa.schema(columns), flavor="hive")
    return pa_dataset.dataset(
        list(files.paths),
        schema=schema,
        format=file_format,
        filesystem=None if files.is_local else files.filesystem,
        partitioning=partitioning,
        partition_base_dir=files.folder,
    )


def _columns_of_folders(files: TableFiles) -> list[pa.Field]:
    """Return the columns that `key=value` folders below the given one are.

    pyarrow alone would read 01 and 1 as one number.
    """
    values: dict[str, set[str]] = {}
    for _, name in files.names() if files.folder is not None else ():
        for key, is_pair, value in (part.partition("=") for part in PurePosixPath(name).parts[:-1]):
            if is_pair:
                values.setdefault(key, set()).add(value)
    return [
        pa.field(key, pa.int64() if all(map(_is_whole, found - {_NO_VALUE})) else pa.string())
        for key, found in values.items()
    ]


def _is_whole(text: str) -> bool:
    """Return whether a text is a whole number as it would be written, without further zeros."""
    return re.fullmatch(r"0|-?[1-9]\d{0,17}", text) is not None


def _open_npy(files: TableFiles, _types: Types) -> ArraySource:
    # Memory-mapped: the size in the header is checked against the length of the file, before any
    # memory is allocated.
    return _as_matrices(
        files, [np.load(path, mmap_mode="r", allow_pickle=False) for path in _local(files)]
    )


def _open_npz(files: TableFiles, _types: Types) -> ArraySource:
    arrays = []
    for path in _local(files):
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
            arrays.append(archive[names[0]])
    return _as_matrices(files, arrays)


def _open_zarr(files: TableFiles, _types: Types) -> ArraySource:
    import zarr  # noqa: PLC0415

    opened = [(path, zarr.open(path, mode="r")) for path in _local(files)]
    arrays = [
        _only_matrix(path, (array for _, array in each.arrays()))
        if isinstance(each, zarr.Group)
        else each
        for path, each in opened
    ]
    return _as_matrices(files, arrays)


def _open_hdf5(files: TableFiles, _types: Types) -> ArraySource:
    try:
        import h5py  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise TableError(
            f"{files.paths[0]} needs h5py, which is not installed: pip install 'ism-dask[hdf5]'"
        ) from error
    arrays = [_only_matrix(path, h5py.File(path, "r").values()) for path in _local(files)]
    return _as_matrices(files, arrays)


def _only_matrix(path: str, arrays: Iterable[Any]) -> Any:
    """Return the one array of two dimensions in a file; raise a TableError for another number."""
    matrices = [each for each in arrays if getattr(each, "ndim", 0) == 2]
    if len(matrices) != 1:
        raise TableError(f"{path} has {len(matrices)} matrices at its top; expected one")
    return matrices[0]


def _local(files: TableFiles) -> tuple[str, ...]:
    if not files.is_local:
        raise TableError(
            f"{files.paths[0]} is remote: {files.suffix} files are read from local folders only; "
            "copy it, or use Parquet"
        )
    return files.paths


def _is_real(dtype: np.dtype[Any]) -> bool:
    """Return whether numbers of this type are real, and of no more than 64 bits."""
    return dtype.kind in "biuf" and dtype.itemsize <= 8


def _as_matrices(files: TableFiles, arrays: Sequence[Any]) -> ArraySource:
    for path, array in zip(files.paths, arrays, strict=True):
        if array.ndim != 2 or not _is_real(array.dtype) or 0 in array.shape:
            raise TableError(
                f"{path} has an array of shape {array.shape} of {array.dtype}; expected rows and "
                "columns of real numbers"
            )
        if array.shape[1] != arrays[0].shape[1] or array.dtype != arrays[0].dtype:
            raise TableError(
                f"{path} has {array.shape[1]} columns of {array.dtype}, and {files.paths[0]} has "
                f"{arrays[0].shape[1]} of {arrays[0].dtype}; expected the same"
            )
    return ArraySource(files, tuple(arrays))


FORMATS: Mapping[str, Callable[[TableFiles, Types], TableSource]] = {
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
