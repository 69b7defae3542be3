"""Write batches of columns into a file, atomically; its suffix gives the format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from storage.atomic import explain_os_errors, open_replacement
from storage.errors import TableError

Write = Callable[[pa.RecordBatch], None]
OpenWriter = Callable[[IO[bytes], pa.Schema], AbstractContextManager[Write]]


def write_batches(path: Path, batches: Iterator[pa.RecordBatch]) -> None:
    """Write batches of one schema into a file; an error leaves an earlier file as it was.

    Parameters
    ----------
    path : Path
        A file to create or replace.
    batches : iterator of RecordBatch
        At least one.
    """
    first = next(batches)
    open_writer = WRITERS[path.suffix.lower()]
    try:
        with (
            explain_os_errors(path),
            open_replacement(path) as handle,
            open_writer(handle, first.schema) as write,
        ):
            write(first)
            for batch in batches:
                write(batch)
    except pa.ArrowException as error:
        raise TableError(f"cannot write {path}: {error}") from error


@contextmanager
def _arrow_writer(
    handle: IO[bytes], schema: pa.Schema, open_writer: Callable[..., Any]
) -> Iterator[Write]:
    """Write by one of the writers of pyarrow, which are all used alike."""
    with open_writer(handle, schema) as writer:
        yield writer.write_batch


@contextmanager
def _npy_writer(handle: IO[bytes], schema: pa.Schema) -> Iterator[Write]:
    others = [each for each in schema if not pa.types.is_floating(each.type)]
    if others:
        raise TableError(
            f"an .npy file has decimals only, and the column {others[0].name!r} is "
            f"{others[0].type}; write .parquet or .csv instead"
        )
    parts: list[Any] = []

    def add(batch: pa.RecordBatch) -> None:
        parts.append(np.column_stack([column.to_numpy() for column in batch.columns]))

    yield add
    # The header has the number of rows, which is known in the end; there are few columns.
    np.lib.format.write_array(handle, np.concatenate(parts), allow_pickle=False)


WRITERS: Mapping[str, OpenWriter] = {
    ".csv": partial(_arrow_writer, open_writer=pa.csv.CSVWriter),
    ".parquet": partial(_arrow_writer, open_writer=pa.parquet.ParquetWriter),
    ".feather": partial(_arrow_writer, open_writer=pa.ipc.new_file),
    ".arrow": partial(_arrow_writer, open_writer=pa.ipc.new_file),
    ".npy": _npy_writer,
}
