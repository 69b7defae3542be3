"""Write batches of columns into a file or a folder, atomically; the suffix gives the format."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from storage.atomic import Workspace, explain_os_errors, open_replacement, sync, workspace
from storage.errors import TableError

_ARROW_WRITERS: Mapping[str, Callable[..., Any]] = {
    ".csv": pa.csv.CSVWriter,
    ".parquet": pa.parquet.ParquetWriter,
    ".feather": pa.ipc.new_file,
    ".arrow": pa.ipc.new_file,
}


def write_batches(path: Path, batches: Iterable[pa.RecordBatch]) -> None:
    """Write batches of one schema, at least one, into a file.

    An error leaves an earlier file as it was.
    """
    with _explained(path), open_replacement(path) as handle:
        fill_file(handle, path.suffix.lower(), batches)


def fill_file(handle: IO[bytes], suffix: str, batches: Iterable[pa.RecordBatch]) -> None:
    """Write batches, at least one, into an open file in the format of a suffix."""
    rest = iter(batches)
    first = next(rest)
    if suffix in _ARROW_WRITERS:
        with _ARROW_WRITERS[suffix](handle, first.schema) as writer:
            for batch in chain([first], rest):
                writer.write_batch(batch)
        return
    _check_decimals(first.schema, suffix)
    # The header has the number of rows, which is known in the end; there are few columns.
    rows = np.concatenate([_matrix(batch) for batch in chain([first], rest)])
    np.lib.format.write_array(handle, rows, allow_pickle=False)


@dataclass(frozen=True)
class PartWriter:
    """Writes files of a format into a folder that is being made, in any process."""

    space: Workspace
    suffix: str

    def write(self, name: str, batches: Iterable[pa.RecordBatch]) -> None:
        """Write batches, at least one, into the file `name`, which may have folders.

        A process that is killed leaves no part of a file: another one may write it again.
        """
        part = part_path(name, self.suffix)
        draft = self.space.folder / uuid.uuid4().hex
        with _explained(self.space.target):
            with draft.open("xb") as handle:
                fill_file(handle, self.suffix, batches)
            sync(draft)
            # The payload itself is not created again: without it, the work has been given up.
            for folder in reversed(part.parents[:-1]):
                (self.space.payload / folder).mkdir(exist_ok=True)
            draft.rename(self.space.payload / part)


@contextmanager
def new_folder(folder: Path, suffix: str) -> Iterator[PartWriter]:
    """Give what writes files of this format into a new folder; an error leaves none of them."""
    if folder.exists():  # its files could be those of the user
        raise TableError(f"{folder} exists already; remove it, or name a new folder")
    with _explained(folder), workspace(folder) as space:
        space.payload.mkdir()
        yield PartWriter(space, suffix)
        space.publish()


def part_path(name: str, suffix: str) -> PurePosixPath:
    """Return the path below its folder of the file that is written for a part of this name."""
    return PurePosixPath(name).with_suffix(suffix)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        with explain_os_errors(path):
            yield
    except pa.ArrowException as error:
        raise TableError(f"cannot write {path}: {error}") from error


def _matrix(batch: pa.RecordBatch) -> Any:
    return np.column_stack([column.to_numpy() for column in batch.columns])


def _check_decimals(schema: pa.Schema, suffix: str) -> None:
    """Raise a TableError for a column that an array of decimals cannot hold."""
    others = [each for each in schema if not pa.types.is_floating(each.type)]
    if others:
        raise TableError(
            f"{suffix} has decimals only, and the column {others[0].name!r} is {others[0].type}; "
            "write .parquet or .csv instead"
        )
