"""Read a table that is slow to read only once: keep a copy of its rows on disk meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from storage.atomic import explain_os_errors, workspace
from storage.tables.files import SourceFile
from storage.tables.sources import TableSource, explain_arrow_errors


@contextmanager
def staged(source: TableSource, target: Path) -> Iterator[TableSource]:
    """Give a table that the block may read again fast, whatever it is read from.

    A copy of a table that is slow to read lies in a workspace of `target`, which goes with the
    block, and with the process.
    """
    if not source.is_slow:
        yield source
        return
    with workspace(target) as work:
        yield StagedSource(source, work.folder / "rows.arrow")


class StagedSource:
    """A table whose first pass writes a copy to disk, which later passes read.

    Parameters
    ----------
    source : TableSource
    path : Path
        The copy, in the stream format of Arrow.
    """

    is_slow = False

    def __init__(self, source: TableSource, path: Path) -> None:
        self._source = source
        self._path = path
        self._columns: frozenset[str] = frozenset()

    @property
    def description(self) -> str:
        """The description of the table."""
        return self._source.description

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        return self._source.schema

    def versions(self) -> tuple[SourceFile, ...]:
        """Return the files with their versions, as they are now."""
        return self._source.versions()

    def pieces(self) -> list[TableSource]:
        """Return the table itself: its copy is on this machine."""
        return [self]

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches with these columns."""
        if columns and self._columns.issuperset(columns):
            yield from self._copied(columns)
        else:
            yield from self._copying(columns)

    def _copying(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of the table, and write each."""
        self._columns = frozenset()
        schema = pa.schema([self.schema.field(name) for name in columns])
        with explain_os_errors(self._path):
            sink = pa.OSFile(str(self._path), "wb")
        with sink:
            writer = pa.ipc.new_stream(sink, schema)
            for batch in self._source.batches(columns):
                with explain_os_errors(self._path):
                    writer.write_batch(batch)
                yield batch
            with explain_os_errors(self._path):
                writer.close()
        self._columns = frozenset(columns)

    def _copied(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        names = list(columns)
        # Not memory-mapped: the pages would count as memory of the process.
        with explain_arrow_errors(self.description), pa.OSFile(str(self._path)) as file:
            for batch in pa.ipc.open_stream(file):
                yield batch.select(names)
