"""Tables in files that pyarrow reads: Parquet, Feather and Arrow, and what text files share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pa_dataset
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from storage.atomic import explain_os_errors
from storage.errors import TableError
from storage.tables.encoding import read_columns
from storage.tables.files import TableFiles
from storage.tables.sources import Part, Table, batch_rows, is_piece

# Bytes that are read ahead for each column of a Parquet file.
_BUFFER_BYTES = 2**18
# The most text of a column in a batch, which would be levels of 8,000 letters in each row.
_MOST_TEXT_BYTES = 2**30
# The columns in which pandas stores the index of a frame.
_INDEX = re.compile(r"__index_level_\d+__")

# Types of columns that are known, by name; those of other columns of text files are inferred.
Types = Mapping[str, pa.DataType]


def _read_fragment(
    fragment: pa_dataset.Fragment, schema: pa.Schema, scan: Any, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in batches; few are read ahead.

    `scan` has the encoding of a text file, which a fragment loses when it is pickled.
    """
    batches = fragment.to_batches(
        schema=schema,
        columns=columns,
        batch_size=batch_rows(len(columns)),
        batch_readahead=4,
        fragment_scan_options=scan,
    )
    # Arrow's own files are used as they are: offsets in them may lead anywhere in memory.
    as_stored = isinstance(fragment.format, pa_dataset.IpcFileFormat)
    for batch in batches:
        if as_stored:
            batch.validate(full=True)
        yield batch


def _read_parquet(
    fragment: pa_dataset.ParquetFileFragment,
    schema: pa.Schema,
    row_groups: list[int],
    columns: list[str],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some row groups of a Parquet file in batches.

    A scan by pyarrow.dataset would decode a whole row group at once, which may be all rows. Texts
    come with a dictionary, so that their size is known before they are decoded. Columns that the
    file lacks are those of its `key=value` folders.
    """
    folders = pa_dataset.get_partition_keys(fragment.partition_expression)
    fields = [schema.field(name) for name in columns]
    stored = [field for field in fields if field.name not in folders]
    texts = [field.name for field in stored if field.type in (pa.string(), pa.large_string())]
    with fragment.filesystem.open_input_file(fragment.path) as file:
        parquet = pq.ParquetFile(
            file, pre_buffer=False, buffer_size=_BUFFER_BYTES, read_dictionary=texts
        )
        for batch in parquet.iter_batches(
            batch_rows(len(columns)),
            columns=[field.name for field in stored],
            row_groups=row_groups,
        ):
            for name in texts:
                _check_decoded_bytes(name, batch.column(name), fragment.path)
            values = {key: pa.repeat(value, batch.num_rows) for key, value in folders.items()}
            values |= {field.name: batch.column(field.name) for field in stored}
            yield pa.record_batch(
                [values[field.name].cast(field.type) for field in fields], schema=pa.schema(fields)
            )


def _parts(fragment: pa_dataset.Fragment, schema: pa.Schema, scan: Any = None) -> Iterator[Part]:
    """Yield the parts of a table that have the rows of a file, of Parquet a few row groups each."""
    if not isinstance(fragment, pa_dataset.ParquetFileFragment):
        yield Part(fragment.path, schema, partial(_read_fragment, fragment, schema, scan))
        return
    pieces: list[list[int]] = [[]]
    rows = 0
    for group in fragment.row_groups:
        if is_piece(rows):
            pieces.append([])
            rows = 0
        pieces[-1].append(group.id)
        rows += group.num_rows
    for groups in pieces:
        yield Part(fragment.path, schema, partial(_read_parquet, fragment, schema, groups))


def open_columnar(files: TableFiles) -> Table:
    """Open Parquet or Feather files; raise a TableError unless their columns agree."""
    dataset = open_dataset(files, "parquet" if files.suffix == ".parquet" else "feather")
    for name, kinds in types_by_file(dataset).items():
        check_one_type(name, kinds)
    return dataset_table(files, dataset, is_slow=not files.is_local)


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
        yield from _parts(fragment, first.schema)


def dataset_table(
    files: TableFiles,
    dataset: pa_dataset.Dataset,
    *,
    is_slow: bool,
    scan: Any = None,
    note: str = "",
) -> Table:
    """Return the table of files that were opened as a data set."""
    schema = pa.schema(field for field in dataset.schema if not _INDEX.fullmatch(field.name))
    fragments = {each.path: each for each in dataset.get_fragments()}
    parts = (part for path in files.paths for part in _parts(fragments[path], schema, scan))
    return Table(files.description, schema, tuple(parts), files, is_slow, note)


def types_by_file(dataset: pa_dataset.Dataset) -> dict[str, Types]:
    """Return the type of each column in each file; raise a TableError if a file lacks one."""
    columns = {each.path: each.physical_schema for each in dataset.get_fragments()}
    path, first = next(iter(columns.items()))
    for other_path, other in columns.items():
        for name in sorted({*first.names} ^ {*other.names}):
            has, lacks = (path, other_path) if name in first.names else (other_path, path)
            raise TableError(f"{has} has the column {name!r}, which {lacks} lacks")
    return {
        name: {path: schema.field(name).type for path, schema in columns.items()}
        for name in first.names
    }


def check_one_type(name: str, kinds: Types) -> None:
    """Raise a TableError if a column has not the same type in each file; there may be none."""
    (path, first), *rest = kinds.items() or [("", None)]
    for other_path, other in rest:
        if other != first:
            raise TableError(
                f"the column {name!r} is {other} in {other_path} and {first} in {path}; expected "
                "one type"
            )


def open_dataset(
    files: TableFiles, file_format: Any, schema: pa.Schema | None = None
) -> pa_dataset.Dataset:
    """Open files as one data set; `key=value` folders below a given folder are columns."""
    opened = partial(
        pa_dataset.dataset,
        list(files.paths),
        schema=schema,
        format=file_format,
        filesystem=None if files.is_local else files.filesystem,
        partition_base_dir=files.folder,
    )
    if files.folder is None:
        return opened()
    dataset, below = opened(partitioning="hive"), len(files.folder)
    # As numbers, 01 and 1 would be one.
    texts = {key for path in files.paths for key in re.findall(r"([^/=]+)=0\d+/", path[below:])}
    if not texts:
        return dataset
    folders = [
        field.with_type(pa.string()) if field.name in texts else field
        for field in dataset.partitioning.schema
    ]
    return opened(partitioning=pa_dataset.partitioning(pa.schema(folders), flavor="hive"))


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
