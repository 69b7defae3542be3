"""Write batches of columns into a file, atomically; its suffix gives the format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
    try:
        with explain_os_errors(path), open_replacement(path) as handle:
            first = next(rest)
            if suffix in _ARROW_WRITERS:
                with _ARROW_WRITERS[suffix](handle, first.schema) as writer:
                    for batch in chain([first], rest):
                        writer.write_batch(batch)
                return
            for field in first.schema:
                if not pa.types.is_floating(field.type):
                    raise TableError(
                        f"{suffix} has decimals only, and the column {field.name!r} is "
                        f"{field.type}; write .parquet or .csv instead"
                    )
            # The header has the number of rows, which is known in the end; there are few columns.
            columns = pa.Table.from_batches(chain([first], rest)).columns
            rows = np.column_stack([column.to_numpy() for column in columns])
            np.lib.format.write_array(handle, rows, allow_pickle=False)
    except pa.ArrowException as error:
        raise TableError(f"cannot write {path}: {error}") from error
