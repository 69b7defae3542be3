"""A table consists of parts, which yield record batches of bounded size and are worked on at once.

The results of work on the parts come in their order.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from storage.tables.files import SourceFile, TableFiles, explain_errors

# Rows of a part of a table, or a few more: row groups of Parquet, or batches of texts.
_PIECE_ROWS = 2**16
# Bytes of a batch, by 8 for each cell.
_BATCH_BYTES = 2**23

Piece = TypeVar("Piece")
Result = TypeVar("Result")
OnRows = Callable[[int], None]

# Each takes some 200 MB for pages, batches and chunks of a table with 100 columns, and an ingestion
# is to need less than 1 GB. More cores are for a cluster.
_MOST_THREADS = 2
# The most results that may wait for an earlier one, if they are small.
_MOST_WAITING = 1000

# Yields rows, in batches of bounded size, with the columns of the names that it is called with.
Read: TypeAlias = Callable[[list[str]], Iterable[pa.RecordBatch]]


@dataclass(frozen=True, eq=False)
class Part:
    """Rows of a table that can be read several times, always in the same order.

    Parts of files can be pickled.
    """

    description: str  # for people, such as the path
    schema: pa.Schema
    read: Read

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches with these columns."""
        with explain_errors(self.description, self.schema.names):
            yield from self.read(list(columns))


@dataclass(frozen=True, eq=False)
class Table:
    """A table of any origin, with a description and a schema like those of its parts."""

    description: str
    schema: pa.Schema
    parts: tuple[Part, ...]  # each has some of the rows, in their order: a text file has one
    files: TableFiles | None = None  # None for a frame
    is_slow: bool = False  # whether a copy on disk would be much faster to read a second time
    note: str = ""  # what is unusual about how its files are written

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches with these columns."""
        for part in self.parts:
            yield from part.batches(columns)

    def versions(self) -> tuple[SourceFile, ...]:
        """Return the files with their present versions; none for a frame."""
        return self.files.versions() if self.files is not None else ()


def is_piece(rows: int) -> bool:
    """Return whether this number of rows is enough for a part of a table."""
    return rows >= _PIECE_ROWS


def spans(rows: int) -> Iterator[tuple[int, int]]:
    """Yield the first row of each part of a table, and the one after its last."""
    for start in range(0, rows, _PIECE_ROWS):
        yield start, min(start + _PIECE_ROWS, rows)


def batch_rows(columns: int) -> int:
    """Return the number of rows of a batch, for a table with `columns` columns."""
    return max(256, min(2**17, _BATCH_BYTES // (8 * max(columns, 1))))


def default_names(columns: int) -> list[str]:
    """Return the names of columns that have none: `column_0` and so on."""
    return [f"column_{number}" for number in range(columns)]


def matrix_table(values: NDArray[Any], names: Sequence[str] | None = None) -> pa.Table:
    """Return a matrix (n, d) as a Table; without names, the columns are `column_0` and so on."""
    # pyarrow needs the byte order of this machine.
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    columns = [np.ascontiguousarray(column) for column in values.T]
    return pa.table(columns, names=list(names or default_names(len(columns))))


def threads_of_this_process() -> Executor:
    """Return threads for the cores.

    NumPy, pyarrow, compression and digests release the lock of the interpreter.
    """
    cores = len(os.sched_getaffinity(0))
    return ThreadPoolExecutor(min(cores, _MOST_THREADS), thread_name_prefix="piece")


def map_in_order(
    executor: Executor,
    work: Callable[[Piece], Result],
    pieces: Iterable[Piece],
    most_waiting: int = _MOST_WAITING,
) -> Iterator[Result]:
    """Yield the result of `work` for each piece, in order.

    Unlike `Executor.map`, it takes the next piece while the first ones are at work already, yields
    a result as soon as it is there, and does not run ahead of a caller that is slow: at most
    `most_waiting` pieces are at work or have results that wait.
    """
    waiting: deque[Future[Result]] = deque()
    try:
        for piece in pieces:
            waiting.append(executor.submit(work, piece))
            while waiting and (waiting[0].done() or len(waiting) >= most_waiting):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for each in waiting:
            each.cancel()


def work_on_rows(
    work: Callable[..., Any], pieces: Iterable[Any], executor: Executor | None, on_rows: OnRows
) -> Iterator[Any]:
    """Yield the result of `work`, which has `rows`, for each piece of a table, in order.

    `on_rows` is called with the number of rows that are done. Without an executor, threads of this
    process do the work.
    """
    done = 0
    with threads_of_this_process() if executor is None else nullcontext(executor) as workers:
        for result in map_in_order(workers, work, pieces):
            done += result.rows
            on_rows(done)
            yield result
