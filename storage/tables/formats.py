"""Open a table of any origin: files, or a frame or array, in memory or computed in parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from storage.errors import TableError
from storage.tables.arrow_files import open_columnar, open_text
from storage.tables.files import explain_errors, find_files
from storage.tables.matrices import OPENERS, open_matrices
from storage.tables.schema import BOOLEAN, CATEGORY, NUMBER
from storage.tables.sources import Part, Table, batch_rows, matrix_table, spans

FORMATS: Mapping[str, Callable[..., Table]] = {
    ".csv": partial(open_text, delimiter=","),
    ".tsv": partial(open_text, delimiter="\t"),
    ".parquet": partial(open_columnar, file_format="parquet"),
    ".feather": partial(open_columnar, file_format="feather"),
    ".arrow": partial(open_columnar, file_format="feather"),
    **dict.fromkeys(OPENERS, open_matrices),
}
_TYPES = {NUMBER: pa.float64(), BOOLEAN: pa.bool_(), CATEGORY: pa.string()}


def open_table(
    source: Any, kinds: Mapping[str, str] | None = None, *, passed: Sequence[str] = ()
) -> Table:
    """Return a table from a path, address, glob, a list of these, or a frame or array in memory.

    Parameters
    ----------
    kinds : mapping of str to str, optional
        The kinds of columns that are known. Those of other columns of text files are inferred.
    passed : sequence of str
        Columns that are to pass through unchanged: text files have them as texts.

    Raises
    ------
    TableError
        If it is none of them, or cannot be opened.
    """
    given = source if isinstance(source, Sequence) and not isinstance(source, str) else [source]
    if not all(isinstance(each, str | Path) for each in given):
        return _open_frame(source)
    types = {name: _TYPES[kind] for name, kind in (kinds or {}).items()}
    types |= dict.fromkeys(passed, pa.string())
    files = find_files(source, FORMATS)
    with explain_errors(files.description):
        return FORMATS[files.suffix](files, types)


def _open_frame(frame: Any) -> Table:
    """Return the table of a frame or array; raise a TableError if its type is unknown."""
    description = f"the {type(frame).__name__}"
    loads = _frame_parts(frame)
    with explain_errors(description):
        first = loads[0]()
    is_lazy = len(loads) > 1
    schema = _widened(first.schema, loads[1:]) if is_lazy else first.schema.remove_metadata()
    if not is_lazy:
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
        return [partial(_computed_part, rows.blocks[k]) for k in range(rows.numblocks[0])]
    if hasattr(frame, "to_dask_dataframe") and frame.chunks:  # xarray, cut into chunks
        frame = frame.to_dask_dataframe()[list(frame.data_vars)]
    if hasattr(frame, "to_delayed"):  # Dask DataFrame
        return [partial(_computed_part, part) for part in frame.to_delayed()]
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


def _computed_part(part: Any) -> pa.Table:
    return _as_table(part.compute())


def _as_table(frame: Any) -> pa.Table:
    """Return a frame in memory as a pyarrow Table."""
    if isinstance(frame, pa.Table):
        return frame
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
