"""Copy a table that is slow to read to disk, so that it is read only once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pyarrow as pa

from storage.atomic import explain_os_errors
from storage.tables.files import SourceFile
from storage.tables.sources import TableSource, explain_arrow_errors, is_piece


def copied_pieces(
    source: TableSource, columns: Sequence[str], folder: Path
) -> Iterator[TableSource]:
    """Copy these columns of a table to files in `folder`, and yield each as a piece of the table.

    A piece can be read while the next ones are copied.
    """
    schema = pa.schema([source.schema.field(name) for name in columns])
    batches = source.batches(columns)
    first = next(batches, None)
    for number in count():
        if first is None:
            return
        path = folder / f"rows-{number}.arrow"
        first = _copy(path, first, batches, schema)
        yield CopiedRows(path, schema, source.description)


def _copy(
    path: Path, first: pa.RecordBatch, others: Iterator[pa.RecordBatch], schema: pa.Schema
) -> pa.RecordBatch | None:
    """Write the rows of a piece to a file; return the first batch after them, None at the end."""
    batch: pa.RecordBatch | None = first
    rows = 0
    with explain_os_errors(path):
        sink = pa.OSFile(str(path), "wb")
    with sink:
        writer = pa.ipc.new_stream(sink, schema)
        while batch is not None and not is_piece(rows):
            with explain_os_errors(path):
                writer.write_batch(batch)
            rows += batch.num_rows
            batch = next(others, None)
        with explain_os_errors(path):
            writer.close()
    return batch


@dataclass(frozen=True, eq=False)
class CopiedRows:
    """A piece of a table, copied to a file in the stream format of Arrow.

    Attributes
    ----------
    path : Path
    schema : pyarrow.Schema
    description : str
        Of the table.
    """

    path: Path
    schema: pa.Schema
    description: str
    is_slow = False

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches with these columns."""
        names = list(columns)
        # Not memory-mapped: the pages would count as memory of the process.
        with explain_arrow_errors(self.description), pa.OSFile(str(self.path)) as file:
            for batch in pa.ipc.open_stream(file):
                yield batch.select(names)

    def versions(self) -> tuple[SourceFile, ...]:
        """Return nothing: the copy goes with the ingestion."""
        return ()

    def pieces(self) -> list[TableSource]:
        """Return the piece itself."""
        return [self]
