"""Open a table of any origin: files, or a frame or array."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from storage.errors import TableError
from storage.tables.arrow_files import open_columnar
from storage.tables.files import COLUMNAR, TableFiles, explain_errors, find_files
from storage.tables.schema import BOOLEAN, CATEGORY, DATE, NUMBER, TableOptions
from storage.tables.sources import Part, Table, batch_rows, matrix_table, spans
from storage.tables.text_files import open_text

_TYPES = {NUMBER: pa.float64(), BOOLEAN: pa.bool_(), CATEGORY: pa.string(), DATE: pa.date32()}


def open_table(
    source: Any, options: TableOptions | None = None, kinds: Mapping[str, str] | None = None
) -> Table:
    """Return a table from a path, address, glob, a list of these, or a frame or array in memory.

    `kinds` are those of the columns that are known; those of other columns of text files are
    inferred, but for those to pass through unchanged, which are texts. Raise a TableError for
    another source, or one that cannot be opened.
    """
    given = source if isinstance(source, Sequence) and not isinstance(source, str) else [source]
    if not all(isinstance(each, str | Path) for each in given):
        return _open_frame(source)
    options = options or TableOptions()
    types = {name: _TYPES[kind] for name, kind in (kinds or {}).items()}
    types |= dict.fromkeys(options.keep, pa.string())
    files = find_files(source)
    with explain_errors(files.description):
        if files.suffix == ".npy":
            return _open_matrices(files)
        is_columnar = files.suffix in COLUMNAR
        return open_columnar(files) if is_columnar else open_text(files, types, options)


def _open_frame(frame: Any) -> Table:
    """Return the table of a frame or array; raise a TableError if its type is unknown."""
    description = f"the {type(frame).__name__}"
    with explain_errors(description):
        rows = _as_table(frame)
    schema = rows.schema.remove_metadata()
    slices = (rows.slice(start, stop - start) for start, stop in spans(len(rows)))
    parts = tuple(Part(description, schema, partial(_read_frame, each)) for each in slices)
    return Table(description, schema, parts)


def _read_frame(rows: pa.Table, columns: list[str]) -> list[pa.RecordBatch]:
    return list(rows.select(columns).to_batches(max_chunksize=batch_rows(len(columns))))


def _as_table(frame: Any) -> pa.Table:
    """Return a frame or a matrix as a pyarrow Table; one of Dask is computed."""
    if hasattr(frame, "data_vars") or len(getattr(frame, "coords", ())):  # xarray, with names
        frame = frame.to_pandas()
    if hasattr(frame, "compute"):
        frame = frame.compute()
    if hasattr(frame, "iloc") and hasattr(frame, "columns"):  # pandas; its index is no column
        return pa.Table.from_pandas(frame, preserve_index=False)
    if hasattr(frame, "collect_schema") and hasattr(frame, "collect"):  # polars, eager or lazy
        frame = frame.lazy().collect()
    if hasattr(frame, "__arrow_c_stream__") and (
        hasattr(frame, "columns") or hasattr(frame, "schema")
    ):
        return pa.table(frame)
    if isinstance(frame, np.ma.MaskedArray):
        frame = np.ma.filled(frame.astype(np.float64), np.nan)
    values = np.asarray(frame)
    if values.ndim != 2:
        raise TableError(
            f"a {type(frame).__name__} is no table; expected a path, a frame or a matrix"
        )
    return matrix_table(values)


def _open_matrix(path: str) -> NDArray[Any]:
    """Return the matrix (rows, d) of a file of NumPy, whose rows are read when they are taken.

    The size in its header is checked against the length of the file, before memory is allocated.
    """
    with explain_errors(path):
        array = np.lib.format.open_memmap(path, mode="r")
    is_real = array.dtype.kind in "biuf" and array.dtype.itemsize <= 8
    if array.ndim != 2 or not is_real or 0 in array.shape:
        raise TableError(
            f"{path} has an array of shape {array.shape} of {array.dtype}; "
            "expected rows and columns of real numbers"
        )
    return array


def _read_matrix(path: str, first: int, stop: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a matrix from number `first` to before `stop`, in batches."""
    array = _open_matrix(path)
    step = batch_rows(array.shape[1])
    for start in range(first, stop, step):
        rows = matrix_table(np.asarray(array[start : min(start + step, stop)]))
        yield from rows.select(columns).to_batches()


def _open_matrices(files: TableFiles) -> Table:
    """Open files with a matrix each; raise a TableError unless these have the same columns.

    The columns are called `column_0`, `column_1` and so on.
    """
    if not files.is_local:
        raise TableError(
            f"{files.paths[0]} is remote: {files.suffix} files are read from local folders only; "
            "copy it, or use Parquet"
        )
    parts: list[Part] = []
    for path in files.paths:
        array = _open_matrix(path)
        schema = matrix_table(np.asarray(array[:1])).schema
        first = parts[0].schema if parts else schema
        if schema != first:
            raise TableError(
                f"{path} has {len(schema)} columns of {schema.types[0]}, and {files.paths[0]} has "
                f"{len(first)} of {first.types[0]}; expected the same"
            )
        for start, stop in spans(len(array)):
            parts.append(Part(path, schema, partial(_read_matrix, path, start, stop)))
    return Table(files.description, parts[0].schema, tuple(parts), files)
