"""Check what a user gives to a supervised fit: rows, y, weights, what to avoid, what is given."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import (
    assert_all_finite,
    check_consistent_length,
    column_or_1d,
)

from ism_dask._types import Array
from ism_dask.estimators.base import IKDR
from ism_dask.estimators.conditioning import rows_given
from ism_dask.estimators.partial_targets import target_as_array
from ism_dask.estimators.preparation import Prepared, prepare_rows
from ism_dask.estimators.row_order import row_order, sampling_order
from ism_dask.estimators.wide_rows import MOST_DENSE_COLUMNS, is_wide, prepare_wide
from ism_dask.gamma.base import Dependence
from ism_dask.gamma.classes import check_labels
from ism_dask.gamma.combined import avoiding
from ism_dask.gamma.labels import is_indicator
from ism_dask.gamma.residual import SideRegression, conditional
from ism_dask.gamma.side_information import SideInformation
from ism_dask.gamma.targets import target_dependence, target_name
from ism_dask.gamma.weighted import check_weights, weighted_by_class
from ism_dask.kernels import Kernel
from ism_dask.rows.blocks import MEMORY_BYTES
from ism_dask.rows.execution import is_dask
from ism_dask.rows.shards import ROWS_PER_SHARD, cut
from ism_dask.rows.source import is_row_source
from ism_dask.rows.sparse import SparseRows
from ism_dask.rows.standardise import tile_dtype

# dtype kinds of numbers and of labels that scikit-learn's validation returns unchanged if finite.
_UNCHANGED_NUMBERS, _UNCHANGED_LABELS = "iuf", "biufU"


@dataclass(frozen=True, eq=False)
class FitTarget:
    """What a fit is given of each row beside X.

    Attributes
    ----------
    y : (n,) or (n, t) array
    weights : (n,) array or None
    avoid : SideInformation or None
        What X W is not to depend on.
    given : SideInformation or None
        What X W is to explain y beyond.
    """

    y: Array
    weights: Array | None = None
    avoid: SideInformation | None = None
    given: SideInformation | None = None

    @classmethod
    def of(cls, y: Array, weights: Array | None, avoid: Any, given: Any) -> Self:
        """Return the checked arguments of `fit`, for a checked y and checked weights."""
        n = len(y)
        return cls(
            y,
            weights,
            None if avoid is None else SideInformation.of("avoid", avoid, n),
            None if given is None else SideInformation.of("given", given, n),
        )

    @property
    def sides(self) -> tuple[str, ...]:
        """Which of "avoid" and "given" there are."""
        both = {"avoid": self.avoid, "given": self.given}
        return tuple(name for name, side in both.items() if side is not None)

    def at(self, rows: Array) -> Self:
        """Return the same for some rows (k,), or for all in another order."""
        avoid, given = (each and each.at(rows) for each in (self.avoid, self.given))
        weights = None if self.weights is None else self.weights[rows]
        return replace(self, y=self.y[rows], weights=weights, avoid=avoid, given=given)

    @property
    def _keys(self) -> list[Array]:
        """The numbers by which equal rows of equal y are sorted."""
        sides = [each.sort_keys for each in (self.avoid, self.given) if each is not None]
        return sides if self.weights is None else [self.weights, *sides]

    def in_order(self, X: Any) -> tuple[Any, Self]:
        """Return X (n, d) and the target without rows of weight 0, in an order of their own."""
        counted = self
        if self.weights is not None and not is_row_source(X):
            rows = np.flatnonzero(self.weights)
            X, counted = X[rows], self.at(rows)
        order = row_order(X, counted.y, *counted._keys, unitless=True)
        return (X, counted) if order is None else (X[order], counted.at(order))

    def sampling_order(self, X: Any) -> Array | None:
        """Return the order (n,) of rows not in memory by which they are sampled, or None."""
        return sampling_order(X, self.y, *self._keys, unitless=True)

    def dependence(self, target: str, avoid_weight: float) -> Dependence:
        """Return the dependence to maximise, with y read as `target` says."""
        dependence = target_dependence(self.y, target, self.weights)
        if self.regression is not None:
            dependence = conditional(dependence, self.regression, self.weights)
        if self.avoid is not None:
            avoided = self.avoid.dependence(self.weights)
            dependence = avoiding(dependence, avoided, avoid_weight, self.weights)
        return dependence

    @cached_property
    def regression(self) -> SideRegression | None:
        """The regression on what is given, if something is."""
        if self.given is None:
            return None
        return SideRegression.of(self.given.dependence(self.weights), self.weights)


@dataclass(frozen=True, eq=False)
class CheckedInput:
    """The input of a fit, checked and in an order of its own.

    Attributes
    ----------
    X : (n, d) rows
    target : FitTarget
    dependence : Dependence
        The dependence that W is to explain.
    """

    X: Any
    target: FitTarget
    dependence: Dependence

    @cached_property
    def sampling_order(self) -> Array | None:
        """The order (n,) in which rows that are not in memory are sampled, if there is one."""
        return self.target.sampling_order(self.X)

    @property
    def is_wide(self) -> bool:
        """Whether X is sparse with too many columns for dense rows."""
        return is_wide(self.X)

    def check_dense(self, what: str, advice: str = "") -> None:
        """Raise a ValueError for sparse rows with too many columns; `what` needs dense ones."""
        if self.is_wide:
            raise ValueError(
                f"{what} needs dense rows, and the {self.X.shape[1]} columns of sparse X are too "
                f"many; expected at most {MOST_DENSE_COLUMNS}{advice}"
            )

    def prepared(
        self, kernel: Kernel, *, standardize: bool, whiten: bool, support: Array | None = None
    ) -> Prepared:
        """Return the rows as the solver takes them, minus what is given explains.

        A `support` (d,) limits them to the features for which it is true.
        """
        options: dict[str, Any] = {"standardize": standardize, "weights": self.target.weights}
        if self.is_wide:
            prepared: Prepared = prepare_wide(self.X, kernel, self.dependence, **options)
        else:
            prepared = prepare_rows(self.X, kernel, **options, support=support)
            prepared = replace(prepared, varying_only=support is not None)
        if self.target.regression is not None:
            self.check_dense("`given`")
            prepared = rows_given(prepared, self.target.regression)
        return prepared.whitened(self.target.weights) if whiten else prepared


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
        for column in y.reshape(len(y), -1).T:
            check_labels(column)
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


def rows_in_memory(X: Any) -> Any:
    """Return X (n, d) as an array in memory, unless it is too large, or sparse and wide.

    So a fit to few rows comes to the same bits wherever they are.
    """
    if isinstance(X, np.ndarray) or is_wide(X) or not is_small(X):
        return X
    with_few_columns = SparseRows(X, ROWS_PER_SHARD) if issparse(X) else X
    return cut(with_few_columns).rows(np.arange(X.shape[0]))


def is_small(X: Any) -> bool:
    """Return whether rows X (n, d) take little memory as an array."""
    return math.prod(X.shape) * tile_dtype(X.dtype).itemsize <= MEMORY_BYTES


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
    if issparse(y):
        y = _dense_indicator(y)
    labels = target_as_array(y)
    if labels.ndim == 1 and labels.dtype.kind in _UNCHANGED_LABELS:
        return np.ascontiguousarray(labels)
    return labels if labels.ndim == 2 and labels.shape[1] > 1 else column_or_1d(labels, warn=True)


def _dense_indicator(y: Any) -> Array:
    """Return a sparse indicator (n, t) of labels as a dense one."""
    values = np.asarray(y.data)
    if y.ndim != 2 or not is_indicator(values):
        raise ValueError(
            "a sparse `y` must be an indicator of labels, (n, t) of 0 and 1; give other targets as "
            "a dense array"
        )
    return np.asarray(y.astype(np.uint8).toarray())
