"""Open a table of any origin: files, or a frame or array, in memory or computed in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from storage.errors import TableError
from storage.tables.arrow_files import open_columnar
from storage.tables.files import TableFiles, explain_errors, find_files
from storage.tables.schema import BOOLEAN, CATEGORY, NUMBER, TableOptions
from storage.tables.sources import Part, Read, Table, batch_rows, matrix_table, spans
from storage.tables.text_files import open_text

_TYPES = {NUMBER: pa.float64(), BOOLEAN: pa.bool_(), CATEGORY: pa.string()}


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
    types = {name: _TYPES[kind] for name, kind in (kinds or {}).items() if kind in _TYPES}
    types |= dict.fromkeys(options.keep, pa.string())
    files = find_files(source)
    with explain_errors(files.description):
        return FORMATS[files.suffix](files, types, options)


def _open_frame(frame: Any) -> Table:
    """Return the table of a frame or array; raise a TableError if its type is unknown."""
    description = f"the {type(frame).__name__}"
    loads = _frame_parts(frame)
    with explain_errors(description):
        first = loads[0]()
    is_lazy = len(loads) > 1
    if is_lazy:
        schema = _widened(first.schema, loads[1:])
    else:
        schema = first.schema.remove_metadata()
        loads = [partial(first.slice, start, stop - start) for start, stop in spans(len(first))]
    reads = [partial(_read_frame, load, schema) for load in loads]
    parts = tuple(Part(description, schema, read) for read in reads)
    return Table(description, schema, parts, is_slow=is_lazy)


def _read_frame(
    load: Callable[[], pa.Table], schema: pa.Schema, columns: list[str]
) -> list[pa.RecordBatch]:
    """Return the rows of a frame that `load` returns as a pyarrow Table."""
    fields = pa.schema([schema.field(name) for name in columns])
    rows = load().select(columns).cast(fields)
    return list(rows.to_batches(max_chunksize=batch_rows(len(columns))))


def _frame_parts(frame: Any) -> list[Callable[[], pa.Table]]:
    """Return functions that give the parts of a frame as pyarrow Tables, in order of rows."""
    if hasattr(frame, "dask") and hasattr(frame, "blocks"):  # Dask array
        rows = frame.rechunk({1: -1})
        return [partial(_as_table, rows.blocks[k]) for k in range(rows.numblocks[0])]
    if hasattr(frame, "to_dask_dataframe") and frame.chunks:  # xarray, cut into chunks
        frame = frame.to_dask_dataframe()[list(frame.data_vars)]
    if hasattr(frame, "to_delayed"):  # Dask DataFrame
        return [partial(_as_table, part) for part in frame.to_delayed()]
    return [partial(_as_table, frame)]


def _widened(first: pa.Schema, others: Sequence[Callable[[], pa.Table]]) -> pa.Schema:
    """Return a schema that the parts of a frame fit: whole numbers may be decimals in a later part.

    The type of a column that is empty in the first part is that of the first part that has values.
    """
    fields = {field.name: field.type for field in first}
    for part in others:
        if not any(map(pa.types.is_null, fields.values())):
            break
        for field in part().schema:
            if pa.types.is_null(fields.get(field.name, pa.float64())):
                fields[field.name] = field.type
    return pa.schema(
        (name, pa.float64() if pa.types.is_integer(kind) or pa.types.is_null(kind) else kind)
        for name, kind in fields.items()
    )


def _as_table(frame: Any) -> pa.Table:
    """Return a frame in memory, or a part that is computed, as a pyarrow Table."""
    if hasattr(frame, "dask"):
        frame = frame.compute()
    if hasattr(frame, "to_dataframe") and hasattr(frame, "data_vars"):  # an xarray Dataset
        frame = frame.to_dataframe()
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
    return matrix_table(values, _column_names(frame))


def _column_names(matrix: Any) -> list[str] | None:
    """Return the names of the columns of an xarray matrix, None for a matrix that has none."""
    coordinates = getattr(matrix, "coords", {})
    column = matrix.dims[1] if coordinates else ""
    return [str(each) for each in coordinates[column].values] if column in coordinates else None


@dataclass(frozen=True)
class _MatrixFile:
    """A file of NumPy with a matrix; the columns are called `column_0`, `column_1` and so on."""

    path: str

    def __reduce__(self) -> tuple[Any, ...]:
        """Let another process open the file: pickled, an array would be its rows."""
        return type(self), (self.path,)

    @cached_property
    def array(self) -> Any:
        """The matrix (rows, d), whose slices are read from disk when they are taken."""
        # Memory-mapped: the size in the header is checked against the length of the file, before
        # any memory is allocated.
        with explain_errors(self.path):
            array = np.lib.format.open_memmap(self.path, mode="r")
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
        """Return what reads some rows each."""
        return [partial(self.read, start, stop) for start, stop in spans(len(self.array))]

    def part(self) -> Part:
        """Return the part of a table that has its rows."""
        schema = matrix_table(np.asarray(self.array[:1])).schema
        return Part(self.path, schema, partial(self.read, 0, len(self.array)), self.split)


def _open_matrices(files: TableFiles, _types: object, _options: object) -> Table:
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


FORMATS: Mapping[str, Callable[..., Table]] = {
    ".csv": partial(open_text, delimiter=","),
    ".tsv": partial(open_text, delimiter="\t"),
    ".parquet": partial(open_columnar, file_format="parquet"),
    ".feather": partial(open_columnar, file_format="feather"),
    ".arrow": partial(open_columnar, file_format="feather"),
    ".npy": _open_matrices,
}
