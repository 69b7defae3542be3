"""What users say of rows, as the numbers that guides work with."""

from __future__ import annotations

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


def partial_scores(y: Any, n: int, target: str) -> Array:
    """Return scores (n, t), centred over the rows that have any, NaN for the others.

    Numbers have deviation 1, classes are one-hot.
    """
    if target not in _SCORES:
        raise ValueError(f"`target` must be one of {', '.join(_SCORES)}; got {target!r}")
    given = _told(y, n)
    missing = _missing(given)
    if missing.all():
        raise ValueError("`y` has no scores: every row is NaN; give some, or use UnsupervisedIKDR")
    known = _numbers_of(given[~missing], target)
    scores = np.full((n, known.shape[1]), np.nan)
    scores[~missing] = known
    return scores


def _numbers_of(known: Array, target: str) -> Array:
    """Return scores of rows that have them, (m, t)."""
    is_classes = known.ndim == 1 and not type_of_target(known).startswith("continuous")
    if target == "classes" or (target == "auto" and is_classes):
        return _one_hot(known)
    numbers = known.astype(np.float64).reshape(len(known), -1)
    deviation = numbers.std(axis=0)
    if (deviation == 0).any():
        raise ValueError("`y` has a column of scores that are all equal; leave it out")
    return np.asarray((numbers - numbers.mean(axis=0)) / deviation)


def _one_hot(known: Array) -> Array:
    """Return centred one-hot labels of rows, of which -1 are none: NaN."""
    if known.dtype.kind in "if":
        unlabelled = known == -1
    else:
        unlabelled = np.zeros(len(known), dtype=bool)
    if unlabelled.all():
        raise ValueError("`y` has no labels: -1 stands for none")
    Y = centred_labels(known[~unlabelled], int((~unlabelled).sum()))
    rows = np.full((len(known), Y.shape[1]), np.nan)
    rows[~unlabelled] = Y
    return rows


def _missing(given: Array) -> Array:
    """Return which rows (n,) have no score; one that is half told has none."""
    if given.dtype.kind == "f":
        return np.isnan(given).reshape(len(given), -1).any(axis=1)
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
