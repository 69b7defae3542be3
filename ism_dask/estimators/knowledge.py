"""What users say of rows, as the numbers that guides work with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import column_or_1d

from ism_dask.gamma import class_dependence
from ism_dask.typing import Array

_SCORES = ("auto", "classes", "linear")


def centred_labels(y: Any, n: int) -> Array:
    """Return one-hot labels less the share of each class: (n, c)."""
    labels = column_or_1d(_told(y, n), warn=True)
    known = class_dependence(labels)
    codes = known.facts[:, 0].astype(np.intp)
    Y = np.eye(int(codes.max()) + 1)[codes]
    return np.asarray(Y - Y.mean(axis=0))


@dataclass(frozen=True, eq=False)
class Known:
    """Scores of some rows.

    Attributes
    ----------
    scores : (n, t) array
        Centred over the rows that have any, NaN for the others: numbers of deviation 1, or
        one-hot classes.
    groups : (n,) array or None
        Where scores are classes, their numbers, and -1 for rows without.
    classes : (c,) array or None
        The classes.
    """

    scores: Array
    groups: Array | None = None
    classes: Array | None = None


def partial_scores(y: Any, n: int, target: str) -> Known:
    """Return what is known of n rows by y, where `target` says what y are."""
    if target not in _SCORES:
        raise ValueError(f"`target` must be one of {', '.join(_SCORES)}; got {target!r}")
    given = _told(y, n)
    missing = _missing(given)
    if missing.all():
        raise ValueError("`y` has no scores: every row is NaN; give some, or use UnsupervisedIKDR")
    flat = given.ndim == 1 and not type_of_target(given[~missing]).startswith("continuous")
    if target == "classes" or (target == "auto" and flat):
        return _classes(given, missing)
    numbers = given[~missing].astype(np.float64).reshape(int((~missing).sum()), -1)
    deviation = numbers.std(axis=0)
    if (deviation == 0).any():
        raise ValueError("`y` has a column of scores that are all equal; leave it out")
    return Known(_spread((numbers - numbers.mean(axis=0)) / deviation, ~missing))


def _classes(given: Array, missing: Array) -> Known:
    """Return labels of some rows; -1 is none, as elsewhere in scikit-learn."""
    unlabelled = missing | (np.isin(given, [-1]) if given.dtype.kind in "if" else missing)
    if unlabelled.all():
        raise ValueError("`y` has no labels: -1 stands for none")
    labels = given[~unlabelled]
    known = class_dependence(labels)
    groups = np.full(len(given), -1)
    groups[~unlabelled] = known.facts[:, 0]
    Y = centred_labels(labels, len(labels))
    return Known(_spread(Y, ~unlabelled), groups, known.classes)


def _spread(values: Array, where: Array) -> Array:
    """Return `values` (m, t) at the m rows `where` (n,) says, NaN at others."""
    rows = np.full((len(where), values.shape[1]), np.nan)
    rows[where] = values
    return rows


def _missing(given: Array) -> Array:
    """Return which rows (n,) have no score; one that is half told has none."""
    if given.dtype.kind == "f":
        return np.asarray(np.isnan(given).reshape(len(given), -1).any(axis=1))
    if given.dtype.kind == "O":
        gaps = np.frompyfunc(_is_gap, 1, 1)(given).astype(bool)
        return np.asarray(gaps.reshape(len(given), -1).any(axis=1))
    return np.zeros(len(given), dtype=bool)


def _is_gap(value: Any) -> bool:
    return value is None or value != value  # noqa: PLR0124  NaN alone is not itself


def _told(y: Any, n: int) -> Array:
    """Return y as an array with one row for each row of X."""
    given = np.asarray(y)
    if given.ndim == 0 or len(given) != n:
        raise ValueError(
            f"`y` must tell of each row of X: X has {n} rows, y has shape {given.shape}. Rows "
            "of which nothing is known get NaN"
        )
    if given.dtype.kind == "f" and np.isinf(given).any():
        raise ValueError("`y` contains infinity; expected numbers, or NaN where there are none")
    return given
