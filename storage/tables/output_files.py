"""Write batches of columns into a file or a folder, atomically; the suffix gives the format."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet
import zarr

from storage.atomic import explain_os_errors, open_replacement, sync, workspace
from storage.errors import TableError
from storage.tables.files import ZARR

Write = Callable[[pa.RecordBatch], None]
# Rows of a chunk of a Zarr array.
_ZARR_ROWS = 2**16
OpenWriter = Callable[[IO[bytes], pa.Schema], AbstractContextManager[Write]]


def write_batches(path: Path, batches: Iterator[pa.RecordBatch]) -> None:
    """Write batches of one schema into a file; an error leaves an earlier file as it was.

    Parameters
    ----------
    path : Path
        A file to create or replace, or a Zarr array to create.
    batches : iterator of RecordBatch
        At least one.
    """
    with _explained(path):
        if path.suffix.lower() == ZARR:
            _write_zarr(path, batches)
            return
        with open_replacement(path) as handle:
            _fill(handle, path.suffix.lower(), batches)


@dataclass(frozen=True)
class PartWriter:
    """Writes files of a folder that is being made; it can be pickled for other processes.

    Attributes
    ----------
    target : Path
        The folder.
    work : Path
        The folder of its workspace.
    payload : Path
        The folder in which the files are collected.
    suffix : str
        Of the format of the files.
    """

    target: Path
    work: Path
    payload: Path
    suffix: str

    def write(self, name: str, batches: Iterator[pa.RecordBatch]) -> None:
        """Write batches, at least one, into the file `name`, which may have folders.

        A process that is killed leaves no part of a file: another one may write it again.
        """
        part = part_path(name, self.suffix)
        draft = self.work / uuid.uuid4().hex
        with _explained(self.target):
            with draft.open("xb") as handle:
                _fill(handle, self.suffix, batches)
            sync(draft)
            # The payload itself is not created again: without it, the work has been given up.
            for folder in reversed(part.parents[:-1]):
                (self.payload / folder).mkdir(exist_ok=True)
            draft.rename(self.payload / part)


@contextmanager
def new_folder(folder: Path, suffix: str) -> Iterator[PartWriter]:
    """Give what writes files of this format into a new folder; an error leaves none of them."""
    check_new_folder(folder)
    with _explained(folder), workspace(folder) as space:
        space.payload.mkdir()
        yield PartWriter(folder, space.folder, space.payload, suffix)
        space.publish()


def part_path(name: str, suffix: str) -> PurePosixPath:
    """Return the path below its folder of the file that is written for a part of this name."""
    return PurePosixPath(name).with_suffix(suffix)


def check_new_folder(folder: Path) -> None:
    """Raise a TableError if a folder to create exists: its files could be those of the user."""
    if folder.exists():
        raise TableError(f"{folder} exists already; remove it, or name a new folder")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        with explain_os_errors(path):
            yield
    except pa.ArrowException as error:
        raise TableError(f"cannot write {path}: {error}") from error


def _fill(handle: IO[bytes], suffix: str, batches: Iterator[pa.RecordBatch]) -> None:
    first = next(batches)
    with WRITERS[suffix](handle, first.schema) as write:
        write(first)
        for batch in batches:
            write(batch)


def _write_zarr(path: Path, batches: Iterator[pa.RecordBatch]) -> None:
    """Write a Zarr array (n, columns), which grows by each batch; its names are an attribute."""
    check_new_folder(path)
    first = next(batches)
    _check_decimals(first.schema, ZARR)
    with workspace(path) as space:
        values = _matrix(first)
        array = zarr.create_array(
            space.payload,
            shape=values.shape,
            chunks=(_ZARR_ROWS, values.shape[1]),
            dtype=values.dtype,
        )
        array.attrs["columns"] = first.schema.names
        array[:] = values
        for batch in batches:
            array.append(_matrix(batch))
        space.publish()


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


@contextmanager
def _arrow_writer(
    handle: IO[bytes], schema: pa.Schema, open_writer: Callable[..., Any]
) -> Iterator[Write]:
    """Write by one of the writers of pyarrow, which are all used alike."""
    with open_writer(handle, schema) as writer:
        yield writer.write_batch


@contextmanager
def _npy_writer(handle: IO[bytes], schema: pa.Schema) -> Iterator[Write]:
    _check_decimals(schema, ".npy")
    parts: list[Any] = []

    def add(batch: pa.RecordBatch) -> None:
        parts.append(_matrix(batch))

    yield add
    # The header has the number of rows, which is known in the end; there are few columns.
    np.lib.format.write_array(handle, np.concatenate(parts), allow_pickle=False)


WRITERS: Mapping[str, OpenWriter] = {
    ".csv": partial(_arrow_writer, open_writer=pa.csv.CSVWriter),
    ".parquet": partial(_arrow_writer, open_writer=pa.parquet.ParquetWriter),
    ".feather": partial(_arrow_writer, open_writer=pa.ipc.new_file),
    ".arrow": partial(_arrow_writer, open_writer=pa.ipc.new_file),
    ".npy": _npy_writer,
}
