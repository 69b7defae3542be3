"""y as a user gives it, as an array: one or several labels or numbers, or scores of some rows."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from numbers import Real
from typing import Any, TypeVar

import numpy as np
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import (
    assert_all_finite,
    check_array,
    check_consistent_length,
    column_or_1d,
)

from ism_dask._types import Array
from ism_dask._validation import check_choice
from ism_dask.gamma.embedding_guides import AvoidGuide, ScoreGuide
from ism_dask.gamma.row_values import (
    CONTAINERS,
    check_complete,
    distinct_labels,
    finite_numbers,
    is_indicator,
    is_missing,
    kinds_of,
    on_this_host,
    readable,
    target_as_array,
)
from ism_dask.gamma.targets import class_dependence, standardise_target
from ism_dask.rows.raw import is_sparse

_Read = TypeVar("_Read")


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


def rows_with_target(y: Any) -> tuple[Any, Array]:
    """Return the y of the rows that have one, and which rows (n,) these are.

    Rows without have NaN, None or pandas' NA in each column of y. Raise a ValueError if all rows
    do, or if some have a part of their columns.
    """
    values = np.zeros(y.shape[0]) if is_sparse(y) else np.atleast_1d(target_as_array(y))
    missing = is_missing(values)
    if not missing.any():
        return y, np.ones(len(values), dtype=bool)
    missing = missing.reshape(len(values), -1)
    n, lacks_all = len(missing), missing.all(axis=1)
    if lacks_all.all():
        raise ValueError(
            f"`y` has no value in {n} of {n} rows (NaN, None or pandas' NA); give those of some "
            "rows, or take UnsupervisedIKDR"
        )
    partly = np.flatnonzero(missing.any(axis=1) & ~lacks_all)
    if partly.size:
        raise ValueError(
            f"`y` has values in a part of its columns in {len(partly)} of {n} rows, the first "
            f"number {partly[0]}; expected all columns, or none (NaN, None or pandas' NA), and "
            "then the row counts as one without y. Complete these rows, or fit fewer columns"
        )
    given = values[~lacks_all]
    # Of objects such as [1.5, None], those that are left may be plain numbers.
    given = target_as_array(given.tolist()) if given.dtype.kind == "O" else given
    return given, np.logical_not(lacks_all)


def labels_to_avoid(y: Any, n: int, mu: float) -> AvoidGuide:
    """Return the guide for one clustering y (n,), or for t clusterings, the columns of y (n, t)."""

    def centred_labels(column: Array) -> Array:
        check_complete("`y`", column)
        return class_dependence(column).factor

    given = _target_array(y, n, "Each row needs a label to avoid")
    factors = _by_column(given.ravel() if given.shape[1:] == (1,) else given, centred_labels)
    clusterings = np.repeat(np.arange(len(factors)), [factor.shape[1] for factor in factors])
    return AvoidGuide(np.column_stack(factors), mu, clusterings=clusterings)


def partial_scores(y: Any, n: int, target: str, mu: float = 1.0) -> ScoreGuide:
    """Return the guide for the scores of n rows in y; each column is that of one expert.

    `target` says how columns are read, `mu` is the weight of each expert. A single column (n, 1)
    leads to a warning, as elsewhere in scikit-learn.
    """
    check_choice("`target`", target, ("auto", "classes", "linear"))
    given = _target_array(y, n, "Rows of which nothing is known get NaN")
    if given.shape[1:] == (1,):
        given = column_or_1d(given, warn=True)
    read = _by_column(given, partial(_expert_scores, target=target))
    scores = [values for values, _ in read]
    experts = np.repeat(np.arange(len(scores)), [values.shape[1] for values in scores])
    return ScoreGuide(np.hstack(scores), mu, experts=experts, classes=read[0][1])


def _expert_scores(column: Array, target: str) -> tuple[Array, Array | None]:
    """Return the scores (n, t) in a column (n,), NaN for rows without, and the classes, if any."""
    missing = is_missing(column)
    if missing.all():
        raise ValueError(
            "`y` has no scores: every row is NaN, None or pandas' NA; give some, leave the column "
            "out, or use UnsupervisedIKDR"
        )
    values, classes = column[~missing], None
    is_numbers = target == "linear" or (target == "auto" and is_continuous(values))
    if not is_numbers and column.dtype.kind in "ifO":
        missing[~missing] = values == -1  # which is no label, as in scikit-learn
        if missing.all():
            raise ValueError(
                "`y` has no labels: -1 stands for none, and so do NaN, None and pandas' NA; give "
                "some, or use UnsupervisedIKDR"
            )
    values = column[~missing]
    if is_numbers:
        scores = standardise_target(values)
    else:
        scores, classes = class_dependence(values).factor, np.unique(values)
    rows = np.full((len(column), scores.shape[1]), np.nan)
    rows[~missing] = scores
    return rows, classes


def is_continuous(values: Array) -> bool:
    """Return whether the scores (m,), none missing, are numbers that are not all whole."""
    kind = values.dtype.kind
    if kind == "f" or (kind == "O" and all(isinstance(each, Real | Decimal) for each in values)):
        values = finite_numbers(values)
    if values.dtype.kind != "f":
        return False
    with np.errstate(invalid="ignore"):  # scikit-learn casts to int64: 1e200 does not fit
        return bool(type_of_target(values).startswith("continuous"))


def _by_column(given: Array, read: Callable[[Array], _Read]) -> list[_Read]:
    """Return what is read of each column (n,) of y; errors name the column if y has several."""
    parts = []
    for number, column in enumerate(given.reshape(len(given), -1).T):
        try:
            parts.append(read(column))
        except ValueError as error:
            if given.ndim == 1:
                raise
            name = f"column {number} of `y`"
            raise ValueError(str(error).replace("`y`", name, 1)) from error
    return parts


def _target_array(y: Any, n: int, advice: str) -> Array:
    """Return y as an array (n,) or (n, t); raise a ValueError that ends with advice for others."""
    given = target_as_array(y)
    if given.ndim == 0 or len(given) != n:
        raise ValueError(
            f"`y` must tell of each row of X: X has {n} rows, y has shape {given.shape}. {advice}"
        )
    if given.ndim > 2 or given.shape[1:] == (0,):
        raise ValueError(
            f"`y` must have the shape ({n},), or ({n}, t) with t columns of scores, 1 or more; "
            f"got {given.shape}"
        )
    if given.dtype.kind == "c":
        raise ValueError(f"`y` must be labels or real numbers; got dtype {given.dtype}")
    return given
