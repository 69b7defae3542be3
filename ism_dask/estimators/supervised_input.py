"""Check the rows and the target that a user gives to a supervised fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import (
    assert_all_finite,
    check_consistent_length,
    column_or_1d,
)

from ism_dask._types import Array
from ism_dask.estimators.base import IKDR
from ism_dask.estimators.partial_targets import target_as_array
from ism_dask.gamma.base import Dependence
from ism_dask.gamma.classes import check_labels
from ism_dask.gamma.targets import target_name
from ism_dask.gamma.weighted import check_weights, weighted_by_class
from ism_dask.rows.execution import is_dask
from ism_dask.rows.source import is_row_source

# dtype kinds of numbers and of labels that scikit-learn's validation returns unchanged if finite.
_UNCHANGED_NUMBERS, _UNCHANGED_LABELS = "iuf", "biufU"


@dataclass(frozen=True, eq=False)
class CheckedInput:
    """The input of a fit, checked and in an order of its own.

    Attributes
    ----------
    X : (n, d) rows
    y : (n,) or (n, t) array
    dependence : Dependence
        The dependence on y that W is to explain.
    weights : (n,) array or None
        The weights of the rows; None if all count alike.
    sampling_order : (n,) array or None
        The order in which rows that are not in memory are sampled.
    """

    X: Any
    y: Array
    dependence: Dependence
    weights: Array | None
    sampling_order: Array | None


def check_rows_and_target(estimator: IKDR, X: Any, y: Any) -> tuple[Any, Array]:
    """Return X (n, d) and y (n,) or (n, t) as arrays for a fit; raise a ValueError for misfits.

    It sets `n_features_in_` and `feature_names_in_` of the estimator.
    """
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None: give "
            "the labels or numbers that X W is to depend on"
        )
    y = column_target(y)
    if y.dtype.kind in "OmM":
        check_labels(y)
    if _needs_no_validation(X, y):
        estimator._set_n_features(X)
        return X, y
    if not (is_row_source(X) or is_dask(X)):
        multi_output = y.ndim == 2
        checks = {"ensure_min_samples": 2, "ensure_min_features": 2}
        return estimator._validated(X, y, dtype="numeric", multi_output=multi_output, **checks)
    if is_dask(X) and np.isnan(X.shape[0]):
        X = X.copy().compute_chunk_sizes()
    estimator._set_n_features(X)
    check_consistent_length(X, y)
    assert_all_finite(y, input_name="y")
    return X, y


def row_weights(
    y: Array, target: str, class_weight: dict[Any, float] | str | None, sample_weight: Any
) -> Array | None:
    """Return the weight (n,) of each row of y, from the weights of classes and of rows.

    None means that all rows count alike. `target` says how y is read, as in `SupervisedIKDR`.
    """
    weights = None if sample_weight is None else check_weights(sample_weight, len(y))
    if class_weight is None:
        return weights
    if target_name(y, target) != "classes":
        raise ValueError(
            f"`class_weight`={class_weight!r} is for classes, but `y` is read as numbers; give "
            "`sample_weight`, or target='classes'"
        )
    return weighted_by_class(y, class_weight, weights)


def _needs_no_validation(X: Any, y: Array) -> bool:
    """Return whether `validate_data` would return the arrays X (n, d) and y (n,) unchanged.

    Small fits would spend a fifth of their time in `validate_data`. All other input goes there,
    since it explains what is wrong.
    """
    if type(X) is not np.ndarray or X.ndim != 2 or y.ndim != 1 or len(X) != len(y):
        return False
    if X.dtype.kind not in _UNCHANGED_NUMBERS or y.dtype.kind not in _UNCHANGED_LABELS:
        return False
    return min(X.shape) > 1 and all(map(_has_finite_sum, (X, y)))


@np.errstate(over="ignore", invalid="ignore")
def _has_finite_sum(values: Array) -> bool:
    """Return whether the sum of the values is finite, which implies that all of them are.

    It is False, too, if all values are finite and only their sum overflows.
    """
    return values.dtype.kind != "f" or bool(np.isfinite(values.sum()))


def column_target(y: Any) -> Array:
    """Return y as an array; (n, 1) becomes (n,), with scikit-learn's warning."""
    labels = target_as_array(y)
    if labels.ndim == 1 and labels.dtype.kind in _UNCHANGED_LABELS:
        return np.ascontiguousarray(labels)
    return labels if labels.ndim == 2 and labels.shape[1] > 1 else column_or_1d(labels, warn=True)
