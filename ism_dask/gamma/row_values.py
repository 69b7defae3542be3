"""Check what a user gives for each row: features, labels and numbers, in arrays of any library.

Arrays of other libraries than NumPy, such as PyTorch, are taken as arrays of NumPy, and results are
given back on their device.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from datetime import date, time, timedelta
from numbers import Integral
from typing import Any

import numpy as np
from sklearn import get_config

from ism_dask._types import Array
from ism_dask.rows.execution import is_dask
from ism_dask.rows.raw import is_sparse

# Beyond this size, not all whole numbers are numbers in float64.
_EXACT = 2**53
# What is no number, nor a label. What NumPy would turn into a number without a word.
CONTAINERS = (dict, list, set, tuple)
_NO_REAL_NUMBERS = (
    date,
    time,
    timedelta,
    np.datetime64,
    np.timedelta64,
    complex,
    np.complexfloating,
)


def target_as_array(y: Any, name: str = "`y`") -> Array:
    """Return y as an array; NaN among strings stays NaN, which NumPy would make "nan".

    Masked values become None, which stands for a missing one.
    """
    # Arrays of pandas have a `_mask`, too.
    if isinstance(y, np.ma.MaskedArray) and np.ma.is_masked(y):
        mask, y = np.ma.getmaskarray(y), np.asarray(y.data, dtype=object)
        y[mask] = None
    given = array_of(name, y)
    if given.dtype.kind == "V":
        raise ValueError(
            f"{name} has records, of dtype {given.dtype}; give one of its fields, or several as "
            "the columns of an array"
        )
    if given.dtype.kind == "f" and given.dtype.itemsize > np.dtype(np.float64).itemsize:
        with np.errstate(over="ignore"):  # infinity is refused later
            return given.astype(np.float64)
    if given.dtype.kind not in "SUT":
        return given
    objects = np.asarray(y, dtype=object)
    if not all(isinstance(value, str | bytes) for value in objects.flat):
        return objects
    return objects.astype(str) if given.dtype.kind == "T" else given


def is_missing(values: Array) -> Array:
    """Return which values (n, ...) are NaN, None or the NA of pandas, as a boolean array."""
    if values.dtype.kind in "fmM":
        return np.isnan(values)
    if values.dtype.kind != "O":
        return np.zeros(values.shape, dtype=bool)
    # NA is recognised by the name of its type: pandas is not a dependency, and comparing NA with
    # itself yields neither True nor False.
    with np.errstate(invalid="ignore"):  # NumPy 2.5 warns where NaN is compared
        missing = [
            value is None or type(value).__name__ == "NAType" or bool(value != value)  # noqa: PLR0124
            for value in values.flat
        ]
    return np.array(missing, dtype=bool).reshape(values.shape)


def check_complete(what: str, values: Array) -> None:
    """Raise a ValueError that names `what` if values (n,) are missing in some rows."""
    gaps = np.flatnonzero(is_missing(values))
    if gaps.size:
        raise ValueError(
            f"{what} has no value in {gaps.size} of {len(values)} rows (NaN, None or pandas' NA), "
            f"the first number {gaps[0]}; drop these rows, or give them a class of their own"
        )


def distinct_labels(y: Array) -> tuple[Array, Array, Array]:
    """Return the distinct labels (c,), the index of each row's label (n,), and counts (c,)."""
    try:
        return np.unique(y, return_inverse=True, return_counts=True)
    except TypeError as error:
        raise ValueError(
            f"`y` has labels that cannot be compared with each other ({kinds_of(y)}); "
            "expected all strings or all numbers. Convert them to one type"
        ) from error


def kinds_of(values: Array) -> str:
    """Return a description of the types of values, for error messages."""
    if values.dtype.kind != "O":
        return f"dtype {values.dtype}"
    return "values of type " + ", ".join(sorted({type(value).__name__ for value in values.flat}))


def finite_numbers(y: Array) -> Array:
    """Return y of any shape in float64, or raise a ValueError."""
    given = np.asarray(y)
    try:
        with np.errstate(over="ignore"):
            numbers = given.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"`y` must be numbers where it is no labels; got {kinds_of(given)}: {error}. Labels "
            'are one for each row, a `y` of shape (n,), and go with target="classes"'
        ) from error
    if not np.isfinite(numbers).all():
        raise ValueError("`y` contains NaN or infinity; expected finite numbers below 1.8e308")
    return numbers


def exceeds_float64(values: Array) -> bool:
    """Return whether values of any shape are whole numbers, some of them beyond 2^53."""
    if values.size == 0 or values.dtype.itemsize < np.dtype(np.float64).itemsize:
        return False
    if values.dtype.kind == "O":
        whole = all(isinstance(each, Integral) for each in values.flat)
    else:
        whole = values.dtype.kind in "iu"
    return whole and max(int(values.max()), -int(values.min())) > _EXACT


def near_zero(values: Array) -> Array:
    """Return numbers (n, t); whole ones beyond 2^53 minus the least of their column, exactly."""
    if not exceeds_float64(values):
        return values
    exact = values.astype(object)  # of integers of Python, which do not overflow
    above = np.asarray(exact - exact.min(axis=0))
    return above if exceeds_float64(above) else above.astype(np.float64)


def is_indicator(y: Array) -> bool:
    """Return whether labels y (n, t) are a matrix of 0 and 1."""
    return y.dtype.kind in "biuf" and bool(((y == 0) | (y == 1)).all())


def readable(X: Any) -> Any:
    """Return rows X (n, d) in memory, whose masked numbers become missing ones.

    Numbers of extended precision become those of float64. Raise a ValueError that names the columns
    that float64 cannot hold: texts, dates, and whole numbers too large to differ.
    """
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        X = np.ma.filled(X.astype(np.float64), np.nan)
    if isinstance(X, list | tuple):
        X = array_of("X", X)
    if hasattr(X, "dtypes"):
        _check_frame(X)
        return X
    if is_sparse(X) and X.format in {"dok", "lil"}:  # they have no array of their values
        X = X.tocsr()
    values = X.data if is_sparse(X) else X
    if isinstance(X, np.ndarray) and X.dtype.kind in "SU":
        X = values = X.astype(object)  # numbers in texts are numbers
    return X if not isinstance(values, np.ndarray) else _readable_array(X, values)


def _readable_array(X: Any, values: Array) -> Any:
    """Return an array or a sparse array X (n, d) with these values as real numbers of float64."""
    kind, extended = values.dtype.kind, values.dtype.itemsize > np.dtype(np.float64).itemsize
    advice = {
        "m": "Turn dates and durations into numbers, such as the days since the first",
        "c": "Give the real and the imaginary parts as columns of their own",
    }.get(kind.lower())
    if advice is not None:
        start = "Complex data not supported: " if kind == "c" else ""
        raise ValueError(f"{start}X must be of real numbers; got dtype {values.dtype}. {advice}")
    if kind == "O" and any(isinstance(each, CONTAINERS) for each in values.flat):
        raise TypeError(
            "X must have a number in each place: an argument must be a string or a real number, "
            f"but some are {kinds_of(values)}"
        )
    if X.ndim == 2 and (kind == "O" or exceeds_float64(values)):
        columns = X.tocsc() if is_sparse(X) else X
        named = ((f"number {j}", columns[:, [j]]) for j in range(X.shape[1]))
        _check_numeric([(name, each.data if is_sparse(X) else each[:, 0]) for name, each in named])
    with np.errstate(over="ignore"):  # infinity is refused later
        if kind == "O":
            return np.where(is_missing(X), np.nan, X).astype(np.float64)
        return X.astype(np.float64) if kind == "f" and extended else X


def array_of(name: str, values: Any) -> Array:
    """Return nested lists as an array, or raise a ValueError if rows have different lengths."""
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ValueError(
            f"{name} has rows of different lengths, or entries that are sequences; expected as "
            "many numbers in each row"
        ) from error


def _check_frame(X: Any) -> None:
    """Raise a ValueError if columns of a frame have equal names, or are no numbers of float64."""
    named = X.items() if hasattr(X, "items") else ((each.name, each) for each in X.iter_columns())
    columns = [(repr(name), np.asarray(column)) for name, column in named]
    twice = [name for name, count in Counter(name for name, _ in columns).items() if count > 1]
    if twice:
        raise ValueError(
            f"X has several columns of the name {twice[0]}; expected a name of its own for each. "
            "Rename them, or give `X.to_numpy()`"
        )
    _check_numeric(columns)


def _check_numeric(columns: list[tuple[str, Array]]) -> None:
    """Raise an error for columns with a name that hold no numbers, or too large ones."""
    bad = [name for name, column in columns if not _is_numeric(column)]
    if bad:
        more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
        raise ValueError(
            f"X has columns that are no numbers: {', '.join(bad[:5])}{more}. Encode texts with "
            "scikit-learn's OneHotEncoder or TargetEncoder, turn dates into numbers, or leave "
            "these columns out"
        )
    for name, column in columns:
        try:
            with np.errstate(over="ignore"):  # infinity is refused later
                rounded = column[~is_missing(column)].astype(np.float64)
        except OverflowError as error:
            raise ValueError(
                f"X has numbers beyond 1.8e308 in column {name}; expected those of float64. Take "
                "another unit, or leave the column out"
            ) from error
        if exceeds_float64(column) and len(np.unique(rounded)) < len(np.unique(column)):
            raise ValueError(
                f"X has whole numbers up to {column.max()} in column {name}, of which some become "
                "equal in float64; expected at most 2^53. Subtract the least of them, or leave the "
                "column out if it only numbers the rows"
            )


def _is_numeric(column: Array) -> bool:
    """Return whether the values (n,) that are not missing can be read as real numbers."""
    if column.dtype.kind != "O":
        return column.dtype.kind in "biuf"
    values = column[~is_missing(column)]
    if any(isinstance(each, _NO_REAL_NUMBERS) for each in values):
        return False
    try:
        with np.errstate(over="ignore"):
            values.astype(np.float64)
    except OverflowError:  # a number, but too large
        return True
    except (TypeError, ValueError):
        return False
    return True


def is_foreign(array: Any) -> bool:
    """Return whether something is an array in memory, but not one of NumPy."""
    if isinstance(array, np.ndarray | np.generic) or is_dask(array):
        return False
    return hasattr(array, "__array_namespace__") or _is_of_pytorch(array)


@dataclass(frozen=True)
class Device:
    """A device of an array library: the functions of the library, and its name of the device."""

    xp: Any
    device: Any

    @classmethod
    def of_array(cls, array: Any) -> Device | None:
        """Return the device of an array if scikit-learn is to dispatch on it.

        It is None for arrays of NumPy and Dask, and for what is no array.
        """
        if not get_config()["array_api_dispatch"] or not is_foreign(array):
            return None
        xp = sys.modules["torch"] if _is_of_pytorch(array) else array.__array_namespace__()
        device = cls(xp, array.device)
        try:
            xp.asarray(np.zeros(1), device=device.device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"{device.title} has no float64, in which a fit is computed; give arrays of NumPy"
            ) from error
        return device

    @property
    def title(self) -> str:
        """The library and the device in words."""
        return f"{self.xp.__name__.rpartition('.')[2]} on {self.device}"

    def put(self, array: Array) -> Any:
        """Return an array of NumPy as one on the device."""
        # PyTorch takes no negative strides, of single numbers either; it warns of read-only memory.
        takes = array.flags.writeable and min(array.strides, default=0) >= 0
        whole = np.asarray(array, order="C", copy=None if takes else True)
        return self.xp.asarray(whole, device=self.device)


def on_host(array: Any) -> Array:
    """Return an array of any library and device as one of NumPy."""
    if isinstance(array, np.ndarray | np.generic):
        return np.asarray(array)
    for copy_to_host in ("cpu", "get"):  # of PyTorch and of CuPy
        if hasattr(array, copy_to_host):
            return np.asarray(getattr(array, copy_to_host)())
    return np.array(np.from_dlpack(array, device="cpu"))


def on_this_host(array: Any) -> Any:
    """Return an array on which scikit-learn is to dispatch as one of NumPy; others unchanged."""
    return array if Device.of_array(array) is None else on_host(array)


def _is_of_pytorch(array: Any) -> bool:
    """Return whether something is a tensor of PyTorch, which has no `__array_namespace__`."""
    return type(array).__module__ == "torch" and hasattr(array, "__dlpack__")
