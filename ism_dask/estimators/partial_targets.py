"""Convert y to arrays: scores that some rows may lack, and labels to avoid, which none may lack."""

from __future__ import annotations

from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import column_or_1d

from ism_dask._types import Array
from ism_dask._validation import check_choice
from ism_dask.gamma.base import centred_by
from ism_dask.gamma.embedding_guides import AvoidGuide, ScoreGuide
from ism_dask.gamma.labels import class_dependence
from ism_dask.gamma.row_values import check_complete, finite_numbers, is_missing, target_as_array
from ism_dask.gamma.targets import standardise_target

_SCORES = ("auto", "classes", "linear")
_MISSING_ADVICE = "Rows of which nothing is known get NaN"
_AVOID_ADVICE = "Each row needs a label to avoid"


def labels_to_avoid(y: Any, n: int, mu: float, weights: Array | None = None) -> AvoidGuide:
    """Return the guide for one clustering y (n,), or for t clusterings, the columns of y (n, t).

    Rows count by their weights (n,), if there are some.
    """
    given = _target_array(y, n, _AVOID_ADVICE, warn=False)
    factors = []
    for number, column in enumerate(given.reshape(n, -1).T):
        try:
            factors.append(centred_labels(column, n, weights))
        except ValueError as error:
            if given.ndim == 1:
                raise
            raise ValueError(f"column {number} of the clusterings to avoid: {error}") from error
    sizes = [factor.shape[1] for factor in factors]
    clusterings = np.repeat(np.arange(len(sizes)), sizes)
    return AvoidGuide(np.column_stack(factors), mu, clusterings=clusterings)


def centred_labels(y: Any, n: int, weights: Array | None = None) -> Array:
    """Return one-hot labels minus the share of each class, by weights (n,) of rows: (n, c)."""
    labels = _one_column(_target_array(y, n, _AVOID_ADVICE))
    check_complete("`y`", labels)
    return _centred_factor(labels, weights)


def partial_scores(
    y: Any, n: int, target: str, mu: float = 1.0, weights: Array | None = None
) -> ScoreGuide:
    """Return the scores of n rows in y; each column is that of one expert.

    `target` says how columns are read, `mu` is the weight of each expert.
    Rows count by their weights (n,), if there are some.
    """
    check_choice("`target`", target, _SCORES)
    given = _target_array(y, n, _MISSING_ADVICE)
    columns = given.reshape(n, -1).T
    read = []
    for number, column in enumerate(columns):
        try:
            read.append(_expert_scores(column, target, weights))
        except ValueError as error:
            if given.ndim == 1:
                raise
            name = f"column {number} of `y`"
            raise ValueError(str(error).replace("`y`", name, 1)) from error
    scores = [values for values, _ in read]
    experts = np.repeat(np.arange(len(scores)), [values.shape[1] for values in scores])
    return ScoreGuide(np.hstack(scores), mu, experts=experts, classes=read[0][1])


def _expert_scores(column: Array, target: str, weights: Array | None) -> tuple[Array, Array | None]:
    """Return the scores (n, t) in a column (n,), NaN for rows without, and the classes, if any."""
    missing = is_missing(column)
    if weights is not None:
        missing |= weights == 0
    if missing.all():
        raise ValueError(
            "`y` has no scores: every row is NaN, None or pandas' NA; give some, leave the column "
            "out, or use UnsupervisedIKDR"
        )
    values = column[~missing]
    counts = None if weights is None else weights[~missing]
    if target == "linear" or (target == "auto" and is_continuous(values)):
        return _fill_rows(standardise_target(values, counts), ~missing), None
    unlabelled = missing.copy()
    if column.dtype.kind in "ifO":
        unlabelled[~missing] = values == -1  # which is no label, as in scikit-learn
    if unlabelled.all():
        raise ValueError(
            "`y` has no labels: -1 stands for none, and so do NaN, None and pandas' NA; give "
            "some, or use UnsupervisedIKDR"
        )
    labels, counts = column[~unlabelled], None if weights is None else weights[~unlabelled]
    return _fill_rows(_centred_factor(labels, counts), ~unlabelled), np.unique(labels)


def _centred_factor(labels: Array, weights: Array | None) -> Array:
    """Return one-hot labels of rows (m,) minus their means by weights (m,): (m, c)."""
    factor = class_dependence(labels, weights).factor
    return factor if weights is None else centred_by(factor, weights)


def is_continuous(values: Array) -> bool:
    """Return whether the scores (m,), none missing, are numbers that are not all whole."""
    if values.dtype.kind == "O" and all(isinstance(value, Real | Decimal) for value in values):
        values = finite_numbers(values)
    if values.dtype.kind != "f":
        return False
    with np.errstate(invalid="ignore"):  # scikit-learn casts to int64: 1e200 does not fit
        return bool(type_of_target(values).startswith("continuous"))


def _fill_rows(values: Array, has_scores: Array) -> Array:
    """Return an (n, t) array with `values` (m, t) at the m rows of a mask (n,), NaN elsewhere."""
    rows = np.full((len(has_scores), values.shape[1]), np.nan)
    rows[has_scores] = values
    return rows


def rows_without_score(given: Array) -> Array:
    """Return which rows (n,) have no score; a row with a missing column has none."""
    return np.asarray(is_missing(given).reshape(len(given), -1).any(axis=1))


def _target_array(y: Any, n: int, advice: str, *, warn: bool = True) -> Array:
    """Return y as an array (n,) or (n, t), t > 1; errors on its length end with `advice`.

    If `warn`, a single column (n, 1) leads to a warning, as elsewhere in scikit-learn.
    """
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
    if given.dtype.kind in "cV":
        raise ValueError(f"`y` must be labels or real numbers; got dtype {given.dtype}")
    _check_no_infinity(given, advice)
    return np.asarray(column_or_1d(given, warn=warn)) if given.shape[1:] == (1,) else given


def _one_column(given: Array) -> Array:
    """Return `given`; raise a ValueError unless it has the shape (n,), as labels have."""
    if given.ndim != 1:
        raise ValueError(
            f"`y` must be one label for each row, of shape ({len(given)},), where it is taken as "
            f"classes; got shape {given.shape}. Give one of the columns"
        )
    return given


def _check_no_infinity(given: Array, advice: str) -> None:
    """Raise a ValueError if a number of `given` is infinite, or too large for float64."""
    if given.dtype.kind == "O":
        infinite = any(isinstance(value, float) and np.isinf(value) for value in given.flat)
    else:
        infinite = given.dtype.kind == "f" and bool(np.isinf(given).any())
    if infinite:
        raise ValueError(f"`y` contains infinity; expected finite numbers below 1.8e308. {advice}")
