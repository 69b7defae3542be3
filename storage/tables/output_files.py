"""Write batches of columns into a file, atomically; its suffix gives the format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from storage.atomic import explain_os_errors, open_replacement
from storage.errors import TableError

_ARROW_WRITERS: Mapping[str, Callable[..., Any]] = {
    ".csv": pa.csv.CSVWriter,
    ".parquet": pa.parquet.ParquetWriter,
    ".feather": pa.ipc.new_file,
    ".arrow": pa.ipc.new_file,
}


def write_batches(path: Path, batches: Iterable[pa.RecordBatch]) -> None:
    """Write batches of one schema, at least one, into a file.

    An error leaves an earlier file as it was.
    """
    rest, suffix = iter(batches), path.suffix.lower()
    with _explained(path), open_replacement(path) as handle:
        first = next(rest)
        if suffix in _ARROW_WRITERS:
            with _ARROW_WRITERS[suffix](handle, first.schema) as writer:
                for batch in chain([first], rest):
                    writer.write_batch(batch)
            return
        _check_decimals(first.schema, suffix)
        # The header has the number of rows, which is known in the end; there are few columns.
        rows = np.concatenate([_matrix(batch) for batch in chain([first], rest)])
        np.lib.format.write_array(handle, rows, allow_pickle=False)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        with explain_os_errors(path):
            yield
    except pa.ArrowException as error:
        raise TableError(f"cannot write {path}: {error}") from error


def _matrix(batch: pa.RecordBatch) -> Any:
    return np.column_stack([column.to_numpy() for column in batch.columns])


def _check_decimals(schema: pa.Schema, suffix: str) -> None:
    """Raise a TableError for a column that an array of decimals cannot hold."""
    others = [each for each in schema if not pa.types.is_floating(each.type)]
    if others:
        raise TableError(
            f"{suffix} has decimals only, and the column {others[0].name!r} is {others[0].type}; "
            "write .parquet or .csv instead"
        )
