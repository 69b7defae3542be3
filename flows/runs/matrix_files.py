"""Read and write matrices in .csv and .npy files, for the command `transform`."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from flows.errors import FlowError, SettingsError
from storage.atomic import open_replacement
from storage.models import SavedTransformer
from storage.tables.files import COLUMNAR, ZARR
from storage.tables.schema import is_number

Array = NDArray[Any]
_Format = TypeVar("_Format")


@dataclass(frozen=True, eq=False)
class Matrix:
    """A matrix of shape (n, d), and the names of its columns if the file has a header."""

    values: Array
    columns: tuple[str, ...] | None = None

    def without(self, names: Collection[str]) -> Matrix:
        """Return the matrix without the columns of these names."""
        columns = self.columns or ()
        others = [j for j, name in enumerate(columns) if name not in names]
        if len(others) == len(columns):
            return self
        return Matrix(self.values[:, others], tuple(columns[j] for j in others))


def fitted_labels(model: SavedTransformer) -> tuple[str, ...]:
    """Return the labels that a model knows of, which a file with further rows may have as well."""
    fitted = str(model.metrics.get("label") or "").split(",")
    names = (*fitted, *model.metrics.get("nmi", {}))
    return tuple(name for name in names if name and name not in (model.feature_names or ()))


def read_matrix(path: Path) -> Matrix:
    """Read a .csv or .npy file; pickles, which could run code, are refused."""
    read = _by_suffix("file", path, _READERS)
    try:
        matrix = read(path)
    # NumPy raises a dozen kinds of error for files that are not what they claim to be.
    except Exception as error:
        reason = getattr(error, "strerror", None) or error
        raise FlowError(f"cannot read {path}: {reason}") from error
    _check_numbers(path, matrix.values)
    return matrix


def check_output_format(path: Path) -> None:
    """Raise SettingsError unless the suffix of `path` is that of a format we can write.

    A Zarr array, or a folder without a suffix, must be new.
    """
    if path.suffix.lower() not in ("", ZARR):
        _by_suffix("out", path, _WRITERS)
    elif path.exists():
        raise SettingsError(f"`out` is {str(path)!r}, which exists; remove it, or name a new one")


def write_matrix(path: Path, values: Array, names: Sequence[str]) -> None:
    """Write a matrix with named columns in the format of `path`, whole or not at all."""
    if path.suffix.lower() == ZARR:
        _write_zarr(path, values, names)
        return
    write = _by_suffix("out", path, _WRITERS)
    try:
        with open_replacement(path) as handle:
            write(handle, values, names)
    except OSError as error:
        raise FlowError(
            f"cannot write {path}: {error.strerror or error}; choose another place, or make room"
        ) from error


def columns_in_order(matrix: Matrix, names: tuple[str, ...] | None) -> Array:
    """Return the values with their columns in the order of `names`.

    Raises
    ------
    FlowError
        When the header of the file does not name each of them once, and nothing else.
    """
    advice = "; name each of them once, or leave the header out"
    order = column_order(matrix.columns, names, "the header", advice)
    return matrix.values if order is None else matrix.values[:, order]


def column_order(
    given: tuple[str, ...] | None, expected: tuple[str, ...] | None, source: str, advice: str = ""
) -> list[int] | None:
    """Return the numbers of the columns in the order of a model, None if they are in order.

    Raises
    ------
    FlowError
        Unless `given` has each name of `expected` once, and nothing else.
    """
    if given is None or expected is None or given == expected:
        return None
    if sorted(given) != sorted(expected):
        missing = sorted(set(expected) - set(given))
        unknown = sorted(set(given) - set(expected))
        raise FlowError(
            f"{source} does not name the {len(expected)} features of the model: missing "
            f"{_first_few(missing)}, unknown {_first_few(unknown)}{advice}"
        )
    return [given.index(name) for name in expected]


def values_too_large(rows: int, first: int, source: str) -> FlowError:
    """Return the error for rows whose projection overflows; `first` counts from 0."""
    return FlowError(
        f"{rows:,} rows of {source}, the first number {first + 1:,}, hold values too large to "
        "project; correct them or leave these rows out"
    )


def _by_suffix(name: str, path: Path, formats: Mapping[str, _Format]) -> _Format:
    if path.suffix.lower() not in formats:
        raise SettingsError(
            f"`{name}` is {str(path)!r}; expected a file name that ends in {' or '.join(formats)}"
        )
    return formats[path.suffix.lower()]


def _read_npy(path: Path) -> Matrix:
    # Memory-mapped first: NumPy then checks the size in the header against the length of the file,
    # before any memory is allocated.
    with np.errstate(over="raise"):
        return Matrix(np.array(np.lib.format.open_memmap(path, mode="r")))


def _read_csv(path: Path) -> Matrix:
    with path.open(newline="", encoding="utf-8-sig") as handle:
        names = _header(next(csv.reader(handle), []))
        if names is None:
            handle.seek(0)
        with warnings.catch_warnings():
            # NumPy warns of a file without rows; `_check_numbers` raises an error for it.
            warnings.simplefilter("ignore")
            rows = np.loadtxt(handle, delimiter=",", comments=None, quotechar='"', ndmin=2)
    if names is not None and rows.size and rows.shape[1] != len(names):
        raise ValueError(f"its header names {len(names)} columns, its rows have {rows.shape[1]}")
    return Matrix(rows, names)


def _header(first: list[str]) -> tuple[str, ...] | None:
    """Return the column names in the first line of a file, or None if it holds numbers."""
    numbers = [is_number(text) for text in first]
    if numbers and all(numbers):
        return None
    if any(numbers) or not first:
        word = first[numbers.index(False)] if first else ""
        raise ValueError(f"its first line is neither names nor numbers: it has {word!r}")
    return tuple(name.strip() for name in first)


def _write_npy(handle: IO[bytes], values: Array, _names: Sequence[str]) -> None:
    np.lib.format.write_array(handle, values, allow_pickle=False)


def _write_csv(handle: IO[bytes], values: Array, names: Sequence[str]) -> None:
    np.savetxt(handle, values, delimiter=",", header=",".join(names), comments="", fmt="%.17g")


def _write_zarr(path: Path, values: Array, names: Sequence[str]) -> None:
    # They import pyarrow, an extra, which the other formats do not need.
    from storage.tables.output_files import write_batches  # noqa: PLC0415
    from storage.tables.sources import matrix_table  # noqa: PLC0415

    write_batches(path, matrix_table(values, names).to_batches())


def _write_table(handle: IO[bytes], values: Array, names: Sequence[str], suffix: str) -> None:
    # They import pyarrow, an extra, which the other formats do not need.
    from storage.tables.output_files import fill_file  # noqa: PLC0415
    from storage.tables.sources import matrix_table  # noqa: PLC0415

    fill_file(handle, suffix, matrix_table(values, names).to_batches())


_READERS: dict[str, Callable[[Path], Matrix]] = {".csv": _read_csv, ".npy": _read_npy}
_WRITERS: dict[str, Callable[[IO[bytes], Array, Sequence[str]], None]] = {
    ".csv": _write_csv,
    ".npy": _write_npy,
    **{suffix: partial(_write_table, suffix=suffix) for suffix in COLUMNAR},
}


def _check_numbers(path: Path, values: Array) -> None:
    if values.ndim != 2 or values.dtype.kind not in "biuf" or 0 in values.shape:
        raise FlowError(
            f"{path} holds an array of shape {values.shape} of {values.dtype}; expected rows and "
            "columns of real numbers"
        )
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        row, column = bad[0]
        raise FlowError(
            f"{path} has NaN or infinity in {len(bad)} places, the first in row {row + 1}, column "
            f"{column + 1}; fill or drop these rows first"
        )


def _first_few(names: list[str]) -> str:
    return ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "") or "none"
