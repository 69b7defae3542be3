"""Tables in files that pyarrow reads: CSV, TSV, Parquet, Feather and Arrow."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, count
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.dataset as pa_dataset
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from storage.atomic import explain_os_errors
from storage.errors import TableError
from storage.tables.encoding import read_columns
from storage.tables.files import TableFiles
from storage.tables.sources import Part, Read, Table, batch_rows, is_piece

# Bytes of a block of a CSV file.
_BLOCK_BYTES = 2**22
# Bytes that are read ahead for each column of a Parquet file.
_BUFFER_BYTES = 2**18
# The most text of a column in a batch, which would be levels of 8,000 letters in each row.
_MOST_TEXT_BYTES = 2**30
# The columns in which pandas stores the index of a frame.
_INDEX = re.compile(r"__index_level_\d+__")
# The value of a hive folder whose rows have none.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"

# Types of columns that are known, by name; those of other columns of text files are inferred.
Types = Mapping[str, pa.DataType]


def _read_fragment(
    fragment: pa_dataset.Fragment, schema: pa.Schema, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in batches; few are read ahead."""
    yield from fragment.to_batches(
        schema=schema, columns=columns, batch_size=batch_rows(len(columns)), batch_readahead=4
    )


def _read_parquet(
    fragment: pa_dataset.ParquetFileFragment,
    schema: pa.Schema,
    row_groups: list[int] | None,
    columns: list[str],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a Parquet file, or of some of its row groups, in batches.

    A scan by pyarrow.dataset would decode a whole row group at once, which may be all rows. Texts
    come with a dictionary, so that their size is known before they are decoded. Columns that the
    file lacks are those of its `key=value` folders.
    """
    folders = pa_dataset.get_partition_keys(fragment.partition_expression)
    fields = [schema.field(name) for name in columns]
    stored = [field for field in fields if field.name not in folders]
    if not stored:
        some = fragment if row_groups is None else fragment.subset(row_group_ids=row_groups)
        yield from _read_fragment(some, schema, columns)
        return
    texts = [field.name for field in stored if _is_text(field.type)]
    with fragment.filesystem.open_input_file(fragment.path) as file:
        parquet = pq.ParquetFile(
            file, pre_buffer=False, buffer_size=_BUFFER_BYTES, read_dictionary=texts
        )
        for batch in parquet.iter_batches(
            batch_rows(len(columns)),
            columns=[field.name for field in stored],
            row_groups=row_groups,
            # Groups of rows are read side by side, each by one thread.
            use_threads=row_groups is None,
        ):
            for name in texts:
                _check_decoded_bytes(name, batch.column(name), fragment.path)
            values = {key: pa.repeat(value, batch.num_rows) for key, value in folders.items()}
            values |= {field.name: batch.column(field.name) for field in stored}
            yield pa.record_batch(
                [values[field.name].cast(field.type) for field in fields], schema=pa.schema(fields)
            )


def _split_parquet(fragment: pa_dataset.ParquetFileFragment, schema: pa.Schema) -> list[Read]:
    """Return what reads a few row groups each of a Parquet file."""
    pieces: list[list[int]] = []
    rows = 0
    for group in fragment.row_groups:
        if not pieces or is_piece(rows):
            pieces.append([])
            rows = 0
        pieces[-1].append(group.id)
        rows += group.num_rows
    return [partial(_read_parquet, fragment, schema, groups) for groups in pieces]


def _part(fragment: pa_dataset.Fragment, schema: pa.Schema) -> Part:
    """Return the part of a table with this schema that has the rows of a file."""
    if not isinstance(fragment, pa_dataset.ParquetFileFragment):
        return Part(fragment.path, schema, partial(_read_fragment, fragment, schema))
    read = partial(_read_parquet, fragment, schema, None)
    return Part(fragment.path, schema, read, partial(_split_parquet, fragment, schema))


def open_columnar(files: TableFiles, _types: Types, file_format: str) -> Table:
    """Open Parquet or Feather files; raise a TableError unless their columns agree."""
    dataset = _open_dataset(files, file_format)
    for name, kinds in _types_by_file(dataset).items():
        _check_one_type(name, kinds)
    return _table(files, dataset, is_slow=not files.is_local)


def open_text(files: TableFiles, types: Types, delimiter: str) -> Table:
    """Open CSV files; types that are not given are inferred from the first rows of each file.

    Whole numbers are read as float64, since a later row may have decimals. So is a column whose
    first rows are empty.
    """
    dataset = _open_dataset(files, _text_format(delimiter))
    found = _types_by_file(dataset)
    _check_header(files, list(found))
    fields = [
        pa.field(name, types[name] if name in types else _common_type(name, kinds))
        for name, kinds in found.items()
    ]
    folders = [field for field in dataset.schema if field.name not in found]
    # A row of one empty cell is an empty line, which is no row where there are more columns.
    text_format = _text_format(delimiter, empty_lines=len(found) == 1)
    dataset = _open_dataset(files, text_format, pa.schema([*fields, *folders]))
    return _table(files, dataset, is_slow=True)


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
        yield _part(fragment, first.schema)


def _table(files: TableFiles, dataset: pa_dataset.Dataset, *, is_slow: bool) -> Table:
    schema = pa.schema(field for field in dataset.schema if not _INDEX.fullmatch(field.name))
    fragments = {each.path: each for each in dataset.get_fragments()}
    parts = tuple(_part(fragments[path], schema) for path in files.paths)
    return Table(files.description, schema, parts, files, is_slow)


def _types_by_file(dataset: pa_dataset.Dataset) -> dict[str, Types]:
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


def _common_type(name: str, kinds: Types) -> pa.DataType:
    """Return the type that a column of CSV files has, from what its first rows in each file are."""
    given = {path: kind for path, kind in kinds.items() if not pa.types.is_null(kind)}
    numeric = [
        path
        for path, kind in given.items()
        if pa.types.is_integer(kind) or pa.types.is_floating(kind)
    ]
    if len(numeric) == len(given):
        return pa.float64()
    others = {path: kind for path, kind in given.items() if path not in numeric}
    if numeric:
        _check_one_type(name, {numeric[0]: given[numeric[0]], **others})
    kind, *rest = set(others.values())
    return pa.string() if rest else kind


def _check_one_type(name: str, kinds: Types) -> None:
    """Raise a TableError if a column has not the same type in each file."""
    (path, first), *rest = kinds.items()
    for other_path, other in rest:
        if other != first:
            raise TableError(
                f"the column {name!r} is {other} in {other_path} and {first} in {path}; expected "
                "one type"
            )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _check_header(files: TableFiles, names: Sequence[str]) -> None:
    """Raise a TableError if the header of CSV files has no names, or another separator."""
    if "" in names:
        raise TableError(
            f"column {names.index('') + 1} of {files.paths[0]} has no name; if it is the index "
            "of a frame, write the file without it (index=False)"
        )
    if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
        raise TableError(
            f"{files.paths[0]} has one column, {names[0]!r}; expected columns separated by commas "
            "(.csv) or tabs (.tsv)"
        )


def _text_format(delimiter: str, *, empty_lines: bool = False) -> pa_dataset.CsvFileFormat:
    return pa_dataset.CsvFileFormat(
        parse_options=pa_csv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=not empty_lines
        ),
        read_options=pa_csv.ReadOptions(block_size=_BLOCK_BYTES),
        # "NA" and the like are gaps among numbers, and texts among texts, as in other formats.
        convert_options=pa_csv.ConvertOptions(strings_can_be_null=False),
    )


def _open_dataset(
    files: TableFiles, file_format: Any, schema: pa.Schema | None = None
) -> pa_dataset.Dataset:
    """Open files as one data set; `key=value` folders below a given folder are columns."""
    partitioning = None
    if columns := _columns_of_folders(files):
        partitioning = pa_dataset.partitioning(pa.schema(columns), flavor="hive")
    return pa_dataset.dataset(
        list(files.paths),
        schema=schema,
        format=file_format,
        filesystem=None if files.is_local else files.filesystem,
        partitioning=partitioning,
        partition_base_dir=files.folder,
    )


def _columns_of_folders(files: TableFiles) -> list[pa.Field]:
    """Return the columns that `key=value` folders below the given one are.

    pyarrow alone would read 01 and 1 as one number.
    """
    values: dict[str, set[str]] = {}
    for name in files.names() if files.folder is not None else ():
        for key, is_pair, value in (part.partition("=") for part in PurePosixPath(name).parts[:-1]):
            if is_pair:
                values.setdefault(key, set()).add(value)
    return [
        pa.field(key, pa.int64() if all(map(_is_whole, found - {_NO_VALUE})) else pa.string())
        for key, found in values.items()
    ]


def _is_whole(text: str) -> bool:
    """Return whether a text is a whole number as it would be written, without further zeros."""
    return re.fullmatch(r"0|-?[1-9]\d{0,17}", text) is not None


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
