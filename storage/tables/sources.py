"""Tables that are read in record batches of bounded size: files, matrices and frames."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pa_dataset
import pyarrow.parquet as pq
from numpy.typing import NDArray

from storage.errors import TableError
from storage.tables.files import SourceFile, TableFiles

TEXT_SUFFIXES, PARQUET = (".csv", ".tsv"), ".parquet"
# Bytes that are read ahead for each column of a Parquet file.
_BUFFER_BYTES = 2**18
# A piece of a table has so many rows, or a few more: row groups of Parquet, or batches of texts.
_PIECE_ROWS = 2**16
# The most text of a column in a batch, which would be levels of 8,000 letters in each row.
_MOST_TEXT_BYTES = 2**30
# Bytes of a batch, by 8 for each cell.
_BATCH_BYTES = 2**23
# The columns in which pandas stores the index of a frame.
_INDEX = re.compile(r"__index_level_\d+__")
# What pyarrow says before the reason why it cannot open a file; the path is all that matters.
_WORDY = re.compile(r"Error creating dataset.*?input source '([^']*)': (?:Invalid: )?", re.DOTALL)
# How pyarrow words a cell that does not fit the type of its column.
_MISFIT = re.compile(r"column #?'?(.+?)'?: .*?conversion error to (.+?): invalid value '(.*)'")


class TableSource(Protocol):
    """A table that can be read several times, in batches, always in the same order of rows."""

    @property
    def description(self) -> str:
        """A description for people, such as the path."""

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""

    @property
    def is_slow(self) -> bool:
        """Whether a copy on disk would be much faster to read a second time."""

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches with these columns."""

    def versions(self) -> tuple[SourceFile, ...]:
        """Return the files with their versions; none for a frame in memory."""

    def pieces(self) -> Sequence[TableSource]:
        """Return tables whose rows, one after the other, are its rows.

        Those of files can be pickled.
        """


@contextmanager
def explain_arrow_errors(description: str, names: Sequence[str] = ()) -> Iterator[None]:
    """Turn an error of pyarrow, NumPy or the file system into a TableError that names the table."""
    try:
        yield
    except TableError:
        raise
    # pyarrow, NumPy and the libraries for remote places have many types of errors.
    except Exception as error:
        reason = _reason(error, names).removeprefix(f"{description}: ")
        raise TableError(f"cannot read {description}: {reason}") from error


@dataclass(frozen=True, eq=False)
class _InFiles:
    """A table in files."""

    files: TableFiles

    @property
    def description(self) -> str:
        """The path, or the first of several."""
        return path_for_messages(self.files)

    @property
    def is_slow(self) -> bool:
        """Whether they are texts or far away."""
        return self.files.suffix in TEXT_SUFFIXES or not self.files.is_local

    def versions(self) -> tuple[SourceFile, ...]:
        """Return the files with their versions."""
        return self.files.versions()


@dataclass(frozen=True, eq=False)
class FileSource(_InFiles):
    """Files that pyarrow reads: CSV, TSV, Parquet, Feather and Arrow.

    Attributes
    ----------
    files : TableFiles
    dataset : pyarrow.dataset.Dataset
    row_groups : tuple of int, optional
        Which row groups of a Parquet file it has. Default: all.
    """

    dataset: pa_dataset.Dataset
    row_groups: tuple[int, ...] | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        """Names and types of the columns; an index that pandas has stored is none."""
        return pa.schema(each for each in self.dataset.schema if not _INDEX.fullmatch(each.name))

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches with these columns; few are read ahead."""
        names = self.dataset.schema.names
        for fragment in self.dataset.get_fragments():
            folders = pa_dataset.get_partition_keys(fragment.partition_expression)
            stored = [name for name in columns if name not in folders]
            # An error names the file, not its folder.
            is_alone = self.files.folder is None and len(self.files.paths) == 1
            where = self.description if is_alone else fragment.path
            with explain_arrow_errors(where, names):
                if self.files.suffix == PARQUET and stored:
                    yield from self._parquet_batches(fragment, columns, stored, folders)
                else:
                    yield from fragment.to_batches(
                        schema=self.dataset.schema,
                        columns=list(columns),
                        batch_size=batch_rows(len(columns)),
                        batch_readahead=4,
                    )

    def _parquet_batches(
        self, fragment: Any, columns: Sequence[str], stored: list[str], folders: dict[str, Any]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a Parquet file in batches.

        A scan by pyarrow.dataset would decode a whole row group at once, which may be all rows.
        Texts come with a dictionary, so that their size is known before they are decoded.
        """
        fields = [self.schema.field(name) for name in columns]
        texts = [field.name for field in fields if field.name in stored and _is_text(field.type)]
        with fragment.filesystem.open_input_file(fragment.path) as file:
            parquet = pq.ParquetFile(
                file, pre_buffer=False, buffer_size=_BUFFER_BYTES, read_dictionary=texts
            )
            for batch in parquet.iter_batches(
                batch_rows(len(columns)),
                columns=stored,
                row_groups=self.row_groups,
                # Groups of rows are read side by side, each by one thread.
                use_threads=self.row_groups is None,
            ):
                for name in texts:
                    _check_decoded_bytes(name, batch.column(name), fragment.path)
                values = {name: batch.column(name) for name in stored}
                values |= {
                    name: pa.repeat(value, batch.num_rows) for name, value in folders.items()
                }
                yield pa.record_batch(
                    [values[field.name].cast(field.type) for field in fields],
                    schema=pa.schema(fields),
                )

    def parts(self) -> Iterator[tuple[str, FileSource]]:
        """Yield each file as a table of its own, with its path below their common folder."""
        for number, (path, name) in enumerate(self.files.names()):
            one = self.between(number, number + 1)
            yield name, FileSource(self.files.only(path), one.dataset)

    def between(self, start: int, stop: int) -> FileSource:
        """Return the table of the files from number `start` to before `stop`."""
        paths = self.files.paths[start:stop]
        fragments = {each.path: each for each in self.dataset.get_fragments()}
        some = pa_dataset.FileSystemDataset(
            [fragments[path] for path in paths],
            self.dataset.schema,
            self.dataset.format,
            self.dataset.filesystem,
        )
        return FileSource(replace(self.files, paths=paths), some)

    def pieces(self) -> list[FileSource]:
        """Return the files, and groups of rows of large Parquet files, as tables of their own."""
        files = [self.between(k, k + 1) for k in range(len(self.files.paths))]
        if self.files.suffix != PARQUET:
            return files
        with explain_arrow_errors(self.description):
            pieces = [piece for file in files for piece in file.groups_of_rows()]
        return pieces if len(pieces) > 1 else [self]

    def groups_of_rows(self) -> Iterator[FileSource]:
        """Yield a Parquet file in pieces of a few row groups."""
        (fragment,) = self.dataset.get_fragments()
        groups, rows = [], 0
        for group in fragment.row_groups:
            groups.append(group.id)
            rows += group.num_rows
            if is_piece(rows):
                yield replace(self, row_groups=tuple(groups))
                groups, rows = [], 0
        if groups:
            yield replace(self, row_groups=tuple(groups))


@dataclass(frozen=True, eq=False)
class ArraySource(_InFiles):
    """Matrices in files: the columns are called `column_0`, `column_1` and so on.

    Attributes
    ----------
    files : TableFiles
    arrays : tuple of arrays, each of shape (rows, d)
        Objects whose slices are read from disk when they are taken.
    span : tuple of int, optional
        The first row of a single array that is in the table, and the one after the last. Default:
        all rows.
    """

    arrays: tuple[Any, ...]
    span: tuple[int, int] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Let another process open the files: pickled, some arrays are their rows, others fail."""
        return _opened_again, (self.files, self.span)

    @cached_property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        first = self.arrays[0]
        kind = pa.from_numpy_dtype(first.dtype.newbyteorder("="))
        return pa.schema([(f"column_{j}", kind) for j in range(first.shape[1])])

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches with these columns."""
        schema = self.schema
        wanted = [schema.get_field_index(name) for name in columns]
        fields = pa.schema([schema.field(j) for j in wanted])
        for array in self.arrays:
            step = batch_rows(array.shape[1])
            first, stop = self.span or (0, array.shape[0])
            for start in range(first, stop, step):
                rows = native(np.asarray(array[start : min(start + step, stop)]))
                yield pa.record_batch([pa.array(rows[:, j]) for j in wanted], schema=fields)

    def parts(self) -> Iterator[tuple[str, ArraySource]]:
        """Yield each file as a table of its own, with its path below their common folder."""
        for (path, name), array in zip(self.files.names(), self.arrays, strict=True):
            yield name, ArraySource(self.files.only(path), (array,))

    def between(self, start: int, stop: int) -> ArraySource:
        """Return the table of the files from number `start` to before `stop`."""
        files = replace(self.files, paths=self.files.paths[start:stop])
        return ArraySource(files, self.arrays[start:stop])

    def pieces(self) -> list[ArraySource]:
        """Return the files, and rows of large files, as tables of their own."""
        files = [self.between(k, k + 1) for k in range(len(self.arrays))]
        return [piece for file in files for piece in file.groups_of_rows()]

    def groups_of_rows(self) -> Iterator[ArraySource]:
        """Yield a single array in pieces, unless another process would have to read all of it."""
        (array,) = self.arrays
        if type(array) is np.ndarray:
            yield self
            return
        for span in spans(array.shape[0]):
            yield replace(self, span=span)


def _opened_again(files: TableFiles, span: tuple[int, int] | None) -> TableSource:
    from storage.tables.formats import FORMATS  # noqa: PLC0415 - it imports this module

    source = FORMATS[files.suffix](files, {})
    return replace(source, span=span) if isinstance(source, ArraySource) else source


def is_piece(rows: int) -> bool:
    """Return whether so many rows are enough for a piece of a table."""
    return rows >= _PIECE_ROWS


def spans(rows: int) -> Iterator[tuple[int, int]]:
    """Yield the first row of each piece of a table, and the one after its last."""
    for start in range(0, rows, _PIECE_ROWS):
        yield start, min(start + _PIECE_ROWS, rows)


def native(rows: NDArray[Any]) -> NDArray[Any]:
    """Return rows in the byte order of this machine, which pyarrow needs."""
    return rows.astype(rows.dtype.newbyteorder("="), copy=False)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _check_decoded_bytes(name: str, values: pa.DictionaryArray, path: str) -> None:
    """Raise a TableError if the texts of a batch would take too much memory.

    A text that many rows share is stored once, so that a small file may hold any amount of it.
    """
    lengths = pc.binary_length(values.dictionary)
    size = pc.sum(lengths.cast(pa.int64()).take(values.indices)).as_py() or 0
    if size > _MOST_TEXT_BYTES:
        raise TableError(
            f"the column {name!r} of {path} has {size / 2**30:.1f} GiB of text in "
            f"{len(values):,} rows; drop the column"
        )


def batch_rows(columns: int) -> int:
    """Return the number of rows of a batch, for a table with `columns` columns."""
    return max(256, min(2**17, _BATCH_BYTES // (8 * max(columns, 1))))


def path_for_messages(files: TableFiles) -> str:
    """Return the folder of a table, or its file, or the first file and the number of others."""
    if files.folder is not None:
        return files.folder
    first = files.paths[0]
    return first if len(files.paths) == 1 else f"{first} and {len(files.paths) - 1} more"


def _reason(error: Exception, names: Sequence[str]) -> str:
    misfit = _MISFIT.search(str(error))
    if misfit is None:
        return _WORDY.sub(r"\1: ", str(getattr(error, "strerror", None) or error))
    column, kind, value = misfit.groups()
    # The parser counts the columns of the file from 0.
    number = int(column) if column.isdigit() else len(names)
    name = names[number] if number < len(names) else column
    return (
        f"the column {name!r} has {value!r} among values of type {kind}; correct the value, "
        "or drop the column"
    )


def matrix_table(values: NDArray[Any], names: Sequence[str] | None = None) -> pa.Table:
    """Return a matrix (n, d) as a Table; without names, the columns are `column_0` and so on."""
    names = names or [f"column_{j}" for j in range(values.shape[1])]
    return pa.table([np.ascontiguousarray(column) for column in values.T], names=list(names))
