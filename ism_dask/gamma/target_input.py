"""y as a user gives it, as an array of labels or numbers, one or several for each row."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import (
    assert_all_finite,
    check_array,
    check_consistent_length,
    column_or_1d,
)

from ism_dask._types import Array
from ism_dask.gamma.row_values import (
    CONTAINERS,
    check_complete,
    distinct_labels,
    kinds_of,
    on_this_host,
    readable,
    target_as_array,
)
from ism_dask.rows.raw import is_sparse


def rows_and_target(X: Any, y: Any, fewest: int) -> tuple[Array, Array]:
    """Return X (n, d) and y as arrays; raise a ValueError for less than the `fewest` rows."""
    X, y = map(on_this_host, (X, y))
    X = check_array(readable(X), ensure_min_samples=fewest, input_name="X")
    y = column_target(y, warn=False)
    check_consistent_length(X, y)
    return X, y


def column_target(y: Any, *, warn: bool = True) -> Array:
    """Return y as an array of labels or numbers; (n, 1) becomes (n,), with scikit-learn's warning.

    Raise a ValueError if labels are missing, or infinite.
    """
    if is_sparse(y):
        if y.ndim != 2 or not is_indicator(np.asarray(y.data)):
            raise ValueError(
                "a sparse `y` must be an indicator of labels, (n, t) of 0 and 1; give other "
                "targets as a dense array"
            )
        y = y.astype(np.uint8).toarray()
    labels = target_as_array(y)
    if not labels.ndim:
        raise ValueError(
            "`y` must have a label or a number for each row, of shape (n,), or (n, t) numbers; got "
            f"a {type(y).__name__}"
        )
    _check_labels(labels)
    if not (labels.ndim == 2 and labels.shape[1] > 1):
        labels = column_or_1d(labels, warn=warn)
    if labels.dtype.kind in "fOmM":
        for column in labels.reshape(len(labels), -1).T:
            check_complete("`y`", column)
            if column.dtype.kind != "f":  # numbers of float64 can be compared
                distinct_labels(column)
    with np.errstate(over="ignore", invalid="ignore"):  # sums of large numbers
        assert_all_finite(labels, input_name="y")
    return labels


def _check_labels(labels: Array) -> None:
    """Raise a ValueError unless y has an entry for each row that can be a label or a number."""
    if labels.size == 0:
        raise ValueError(f"`y` is empty, of shape {labels.shape}; expected a label for each row")
    if labels.dtype.kind == "c":
        raise ValueError(
            f"Complex data not supported: `y` must be labels or real numbers; got dtype "
            f"{labels.dtype}. Give the real and the imaginary part as two columns"
        )
    bad = labels.dtype.kind == "O" and any(isinstance(each, CONTAINERS) for each in labels.flat)
    if bad or any(isinstance(each, bytes) for each in labels.flat[:1]):
        raise ValueError(
            f"`y` has {kinds_of(labels)}; expected a string or a number in each place. Labels of "
            "bytes become strings by `y.astype(str)`"
        )


def is_indicator(y: Array) -> bool:
    """Return whether labels y (n, t) are a matrix of 0 and 1."""
    return y.dtype.kind in "biuf" and bool(((y == 0) | (y == 1)).all())
