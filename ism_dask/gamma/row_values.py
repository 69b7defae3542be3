"""Check what a user gives for each row: features, labels, numbers, and weights.

A row of weight 2 counts as two equal rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import date, time, timedelta
from numbers import Integral, Real
from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask._validation import check_choice
from ism_dask.rows.raw import is_sparse

# Beyond this size, not all whole numbers are numbers in float64.
_EXACT = 2**53
# Weights whose largest is within this power of two of 1 stay as they are.
_USUAL_EXPONENT = 100
# All rows together must count by this share of the one that counts most.
_LEAST_OTHERS = 1e-6
# Rows of whole weights are repeated in a sample, up to this sum of the weights.
_MOST_REPEATED = 10**6
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
    return np.asarray(exact - exact.min(axis=0))


def check_weights(weights: Any, n_rows: int, name: str = "`sample_weight`") -> Array:
    """Return weights (n,) of rows as float64; raise a ValueError if they are none.

    Weights of an extreme unit are returned in another one, so that their products and sums are
    numbers: W does not depend on the unit.
    """
    given = array_of(name, weights)
    if np.ma.is_masked(weights):
        raise ValueError(f"{name} has masked numbers; give these rows the weight 0")
    try:
        with np.errstate(over="ignore"):  # infinity is refused below
            casting: Any = "safe" if given.dtype.kind in "cmM" else "unsafe"
            numbers = given.astype(np.float64, casting=casting)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{name} must be real numbers, one for each row; got dtype {given.dtype}"
        ) from error
    if numbers.shape != (n_rows,):
        raise ValueError(
            f"{name} has shape {numbers.shape}; expected ({n_rows},), one for each row"
        )
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} contains NaN or infinity; give these rows the weight 0")
    if (numbers < 0).any():
        row = int(np.flatnonzero(numbers < 0)[0])
        raise ValueError(f"{name} is {numbers[row]:g} in row {row}; expected numbers from 0 up")
    if not numbers.any():
        raise ValueError(f"every {name} is zero; expected some above 0")
    top = int(numbers.argmax())
    others = np.delete(numbers, top)
    if others.any() and float((others / numbers[top]).sum()) < _LEAST_OTHERS:
        raise ValueError(
            f"{name} is {numbers[top]:g} in row {top}, so much that all other rows together count "
            "nothing beside it; expected weights by which several rows count"
        )
    # All of these together would be lost in the sum of the weights.
    numbers[numbers < np.finfo(np.float64).eps / n_rows * numbers[top]] = 0.0
    exponent = int(np.frexp(numbers.max())[1])
    return numbers if abs(exponent) <= _USUAL_EXPONENT else np.ldexp(numbers, -exponent)


def weighted_by_class(
    y: Array, class_weight: Mapping[Any, Any] | str, weights: Array | None
) -> Array:
    """Return the weights (n,) of rows with labels y (n,), multiplied by the weights of classes.

    "balanced" gives all classes the same sum of weights; all together count as before.
    """
    classes, codes = np.unique(y, return_inverse=True)
    weights = np.ones(len(y)) if weights is None else weights
    if isinstance(class_weight, str):
        check_choice("`class_weight`", class_weight, ["balanced"])
        sums = np.bincount(codes, weights)
        counted = sums > 0
        shares = np.zeros(len(classes))
        shares[counted] = weights.sum() / (counted.sum() * sums[counted])
        return np.asarray(shares[codes] * weights)
    if not isinstance(class_weight, Mapping):
        raise ValueError(  # noqa: TRY004
            f"`class_weight` must be a dict of the weights of classes, or 'balanced'; got "
            f"{class_weight!r}"
        )
    unknown = [label for label in class_weight if label not in classes.tolist()]
    if unknown:
        raise ValueError(
            f"`class_weight` has {unknown[0]!r}, which is no class of `y`; the classes are "
            f"{classes.tolist()}"
        )
    for label, weight in class_weight.items():
        if not (isinstance(weight, Real) and float(weight) >= 0):
            raise ValueError(
                f"`class_weight` is {weight!r} for the class {label!r}; expected numbers from 0 up"
            )
    given = np.array([class_weight.get(label, 1.0) for label in classes.tolist()])
    return check_weights(given[codes] * weights, len(y), "`class_weight`")


def repeated_rows(weights: Array) -> Array:
    """Return ascending indices (m,) of rows, each as often as its weight says.

    If the weights are no whole numbers, or large ones, there are as many indices as rows, and a
    row has its share of them, rounded up or down.
    """
    total = weights.sum()
    if (weights == np.floor(weights)).all() and total <= _MOST_REPEATED:
        return np.repeat(np.arange(len(weights)), weights.astype(np.intp))
    ends = np.cumsum(weights)
    positions = (np.arange(len(weights)) + 0.5) * (ends[-1] / len(weights))
    return np.searchsorted(ends, positions, side="right")


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
    values = X.data if is_sparse(X) else X
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
