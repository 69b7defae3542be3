"""Tables in text files (CSV, TSV): how a file is written is found by looking at its start."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as pa_dataset

from storage.errors import TableError
from storage.tables.arrow_files import (
    Types,
    check_one_type,
    dataset_table,
    open_dataset,
    types_by_file,
)
from storage.tables.files import NOT_UTF8, TableFiles
from storage.tables.schema import TableOptions, is_number
from storage.tables.sources import Table, default_names

# Bytes at the start of a file by which its encoding is known, and rows by which the rest is.
_START_BYTES, _START_ROWS = 2**20, 50
# Bytes of a block of a CSV file.
_BLOCK_BYTES = 2**22
# What separates columns, by name. Commas come last: they are in decimals and texts, too.
_DELIMITERS = {"\t": "tabs", ";": "semicolons", "|": "bars", ",": "commas"}
# How files begin that are no text, and what to do about them.
_NO_TEXT = {
    b"\x1f\x8b": "is packed by gzip; add .gz to its name",
    b"PK\x03\x04": "is a ZIP archive, as workbooks of Excel are; save its table as CSV",
}
_DECIMAL_COMMA, _DECIMAL_POINT = re.compile(r"[-+]?\d*,\d+"), re.compile(r"[-+]?\d*\.\d+")
# Dates as 2020-12-31 and as 31.12.2020, each with a time of the day or without.
_DATES = [pa_csv.ISO8601, "%d.%m.%Y", "%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M"]


@dataclass(frozen=True)
class Dialect:
    """How a text file is written."""

    delimiter: str
    decimal: str
    encoding: str
    names: tuple[str, ...] | None = None  # of the columns, if the first line does not have them

    @property
    def note(self) -> str:
        """What is unusual about it, in words; empty if nothing is."""
        notes = []
        if self.delimiter not in ",\t":
            name = _DELIMITERS.get(self.delimiter, repr(self.delimiter))
            notes.append(f"columns are separated by {name}")
        if self.decimal != ".":
            notes.append("decimals have commas")
        if self.encoding != "utf-8":
            notes.append(f"the encoding is {self.encoding}")
        if self.names is not None:
            notes.append("the first line has no names")
        return "; ".join(notes)

    def file_format(self, *, empty_lines: bool = False) -> pa_dataset.CsvFileFormat:
        """Return the format as pyarrow takes it; `empty_lines` is whether they are rows."""
        return pa_dataset.CsvFileFormat(
            parse_options=pa_csv.ParseOptions(
                delimiter=self.delimiter,
                newlines_in_values=True,
                ignore_empty_lines=not empty_lines,
            ),
            read_options=pa_csv.ReadOptions(
                block_size=_BLOCK_BYTES, encoding=self.encoding, column_names=self.names
            ),
            convert_options=pa_csv.ConvertOptions(
                # "NA" and the like are gaps among numbers, and texts among texts, as elsewhere.
                strings_can_be_null=False,
                decimal_point=self.decimal,
                timestamp_parsers=_DATES,
            ),
        )


def open_text(files: TableFiles, types: Types, options: TableOptions) -> Table:
    """Open text files; types that are not given are inferred from the first rows of each file.

    Whole numbers are read as float64, since a later row may have decimals. So is a column whose
    first rows are empty. If the first line has no names, the columns have those of `types`, in its
    order, if there are as many.
    """
    names = [name for name in types if name not in options.keep]
    start = files.start(_START_BYTES)
    _check_first_line(files, start)
    delimiter = "\t" if files.suffix == ".tsv" else ","
    dialect = find_dialect(start, options, delimiter, names)
    dataset = open_dataset(files, dialect.file_format())
    found = types_by_file(dataset)
    _check_header(files, list(found))
    fields = [pa.field(name, _common_type(name, found[name], types.get(name))) for name in found]
    folders = [field for field in dataset.schema if field.name not in found]
    # A row of one empty cell is an empty line, which is no row where there are more columns.
    text_format = dialect.file_format(empty_lines=len(found) == 1)
    dataset = open_dataset(files, text_format, pa.schema([*fields, *folders]))
    scan = text_format.default_fragment_scan_options
    return dataset_table(files, dataset, is_slow=True, scan=scan, note=dialect.note)


def find_dialect(
    start: bytes, options: TableOptions, delimiter: str = ",", names: Sequence[str] = ()
) -> Dialect:
    """Return how a file that begins with these bytes is written, where the options do not say.

    `delimiter` serves where none splits all rows alike; `names` are those that the columns have if
    the first line has none.
    """
    encoding = options.encoding or _encoding(start)
    text = start.decode(encoding, errors="ignore").removeprefix("\ufeff")
    if len(start) == _START_BYTES:
        text = text[: text.rfind("\n") + 1] or text  # the last line may be cut
    for mark in () if options.delimiter else _DELIMITERS:
        widths = {len(row) for row in _rows(text, mark)}
        if len(widths) == 1 and min(widths) > 1:  # it splits each row into as many columns
            delimiter = mark
            break
    delimiter = options.delimiter or delimiter
    first, *others = _rows(text, delimiter) or [[]]
    cells = [cell for row in others for cell in row]
    has_commas = delimiter != "," and any(map(_DECIMAL_COMMA.fullmatch, cells))
    is_comma = has_commas and not any(map(_DECIMAL_POINT.fullmatch, cells))
    decimal = options.decimal or ("," if is_comma else ".")
    numbers = [is_number(cell.replace(decimal, ".")) for cell in first]
    # Beside numbers, a text that comes again in its column is no name of it.
    repeats = (cell in below for cell, *below in zip(first, *others, strict=False))
    is_header = not any(numbers) or not all(map(max, numbers, repeats))
    # A frame whose columns have no names is written with their numbers.
    if is_header or first == [str(number) for number in range(len(first))]:
        return Dialect(delimiter, decimal, encoding)
    given = names if len(names) == len(first) else default_names(len(first))
    return Dialect(delimiter, decimal, encoding, tuple(given))


def _encoding(start: bytes) -> str:
    """Return the encoding of a file that begins with these bytes."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in start[:2]:  # half of a letter in ASCII
        return "utf-16-be" if start.startswith(b"\0") else "utf-16-le"
    for encoding in ("utf-8", "cp1252"):
        try:
            codecs.getincrementaldecoder(encoding)().decode(start)  # its end may be cut
        except UnicodeDecodeError:
            continue
        return encoding
    return "latin-1"


def _rows(text: str, delimiter: str) -> list[list[str]]:
    """Return the first rows of a text, none if it cannot be parsed."""
    try:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        return list(islice(filter(None, rows), _START_ROWS))
    except csv.Error:
        return []


def _common_type(name: str, kinds: Types, known: pa.DataType | None) -> pa.DataType:
    """Return the type of a column: by its first rows in each file, unless one is known, no date."""
    given = {path: kind for path, kind in kinds.items() if not pa.types.is_null(kind)}
    if known is not None and not (given and pa.types.is_date(known)):
        return known
    if any(map(pa.types.is_binary, given.values())):
        raise ValueError(NOT_UTF8)  # `explain_errors` says what helps
    numeric = (pa.types.is_integer, pa.types.is_floating)
    plain = {
        path: pa.float64() if any(is_kind(kind) for is_kind in numeric) else kind
        for path, kind in given.items()
    }
    different = set(plain.values()) or {pa.float64()}
    if pa.float64() in different:
        check_one_type(name, plain)
    return different.pop() if len(different) == 1 else pa.string()


def _check_first_line(files: TableFiles, start: bytes) -> None:
    """Raise a TableError if a file that begins so has no line, or a huge one, or is no text."""
    if not start.strip():
        raise TableError(f"{files.paths[0]} is empty")
    for mark, what in _NO_TEXT.items():
        if start.startswith(mark):
            raise TableError(f"{files.paths[0]} {what}")
    line_end = re.compile(b"[\\n\\r]")
    if line_end.search(start) or len(start) < _START_BYTES:
        return
    if not line_end.search(files.start(_BLOCK_BYTES)):
        raise TableError(
            f"the first line of {files.paths[0]} is longer than {_BLOCK_BYTES / 2**20:.0f} MiB; "
            "expected a row for each line. A table of so many columns can be read as Parquet"
        )


def _check_header(files: TableFiles, names: Sequence[str]) -> None:
    """Raise a TableError if the header has a column without a name, or another separator."""
    if "" in names:
        raise TableError(
            f"column {names.index('') + 1} of {files.paths[0]} has no name; if it is the index "
            "of a frame, write the file without it (index=False)"
        )
    if len(names) == 1 and any(mark in names[0] for mark in _DELIMITERS):
        raise TableError(
            f"{files.paths[0]} has one column, {names[0]!r}: another mark separates its cells, or "
            "its rows have not all as many; name the mark with --delimiter (delimiter=)"
        )
