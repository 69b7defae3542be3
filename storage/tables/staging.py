"""Copy a table that is slow to read to disk, so that it is read only once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, count
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pa_dataset
from pyarrow.fs import LocalFileSystem

from storage.atomic import explain_os_errors
from storage.tables.arrow_files import FilePart
from storage.tables.columns import read_columns
from storage.tables.sources import Part, Table, is_piece


def copied_pieces(table: Table, kinds: Mapping[str, str], folder: Path) -> Iterator[Part]:
    """Copy the columns of these kinds to files in `folder`, and yield each as a piece of the table.

    A piece can be read while the next ones are copied.
    """
    batches = (read_columns(batch, kinds) for batch in table.batches(list(kinds)))
    for number, first in zip(count(), batches):
        path = folder / f"rows-{number}.arrow"
        rows = 0
        with explain_os_errors(path), pa.ipc.new_file(path, first.schema) as writer:
            for batch in chain([first], batches):
                writer.write_batch(batch)
                rows += batch.num_rows
                if is_piece(rows):
                    break
        fragment = pa_dataset.IpcFileFormat().make_fragment(str(path), LocalFileSystem())
        yield FilePart(fragment, first.schema)
