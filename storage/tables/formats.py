"""Open a table of any origin: files, or a frame or array in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from storage.tables.arrow_files import open_columnar, open_text
from storage.tables.files import explain_errors, find_files
from storage.tables.frames import open_frame
from storage.tables.matrices import OPENERS, open_matrices
from storage.tables.schema import BOOLEAN, CATEGORY, NUMBER
from storage.tables.sources import Table

FORMATS: Mapping[str, Callable[..., Table]] = {
    ".csv": partial(open_text, delimiter=","),
    ".tsv": partial(open_text, delimiter="\t"),
    ".parquet": partial(open_columnar, file_format="parquet"),
    ".feather": partial(open_columnar, file_format="feather"),
    ".arrow": partial(open_columnar, file_format="feather"),
    **dict.fromkeys(OPENERS, open_matrices),
}
_TYPES = {NUMBER: pa.float64(), BOOLEAN: pa.bool_(), CATEGORY: pa.string()}


def open_table(
    source: Any, kinds: Mapping[str, str] | None = None, *, passed: Sequence[str] = ()
) -> Table:
    """Return a table from a path, address, glob, a list of these, or a frame or array in memory.

    Parameters
    ----------
    source : path, address, glob, sequence of these, frame or array
    kinds : mapping of str to str, optional
        The kinds of columns that are known. Those of other columns of text files are inferred.
    passed : sequence of str
        Columns that are to pass through unchanged: text files have them as texts.

    Raises
    ------
    TableError
        If it is none of them, or cannot be opened.
    """
    if not (isinstance(source, str | Path) or _are_paths(source)):
        return open_frame(source)
    types = {name: _TYPES[kind] for name, kind in (kinds or {}).items()}
    types |= dict.fromkeys(passed, pa.string())
    files = find_files(source, FORMATS)
    with explain_errors(files.description):
        return FORMATS[files.suffix](files, types)


def _are_paths(source: Any) -> bool:
    return isinstance(source, Sequence) and all(isinstance(each, str | Path) for each in source)
