"""Open a table of any origin: files, or a frame or array in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from storage.tables.arrow_files import Types, open_columnar, open_text
from storage.tables.files import find_files
from storage.tables.frames import open_frame
from storage.tables.matrices import OPENERS, open_matrices
from storage.tables.schema import BOOLEAN, CATEGORY, NUMBER
from storage.tables.sources import Table, explain_arrow_errors

FORMATS: Mapping[str, Callable[..., Table]] = {
    ".csv": partial(open_text, delimiter=","),
    ".tsv": partial(open_text, delimiter="\t"),
    ".parquet": partial(open_columnar, file_format="parquet"),
    ".feather": partial(open_columnar, file_format="feather"),
    ".arrow": partial(open_columnar, file_format="feather"),
    **dict.fromkeys(OPENERS, open_matrices),
}


def open_table(source: Any, types: Types | None = None) -> Table:
    """Return a table from a path, address, glob, a list of these, or a frame or array in memory.

    Parameters
    ----------
    source : path, address, glob, sequence of these, frame or array
    types : mapping of name to pyarrow type, optional
        How columns of text files are to be read. Other formats have types of their own.

    Raises
    ------
    TableError
        If it is none of them, or cannot be opened.
    """
    if isinstance(source, str | Path) or _are_paths(source):
        files = find_files(source, FORMATS)
        with explain_arrow_errors(files.description):
            return FORMATS[files.suffix](files, types or {})
    return open_frame(source)


def text_types(kinds: Mapping[str, str], passed: Sequence[str]) -> dict[str, pa.DataType]:
    """Return the types in which text files are read, for columns of these kinds.

    The columns `passed` are read as texts, so that they pass through unchanged.
    """
    types = {NUMBER: pa.float64(), BOOLEAN: pa.bool_(), CATEGORY: pa.string()}
    features = {name: types[kind] for name, kind in kinds.items()}
    return {**features, **dict.fromkeys(passed, pa.string())}


def _are_paths(source: Any) -> bool:
    return isinstance(source, Sequence) and all(isinstance(each, str | Path) for each in source)
