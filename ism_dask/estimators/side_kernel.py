"""The kernel of side information y for an unfolding: read like a target, or given as a factor."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import assert_all_finite, check_consistent_length

from ism_dask._types import Array
from ism_dask.estimators.pose import column_target
from ism_dask.gamma.classes import check_labels
from ism_dask.gamma.targets import TARGETS
from ism_dask.gamma.thin_factors import factor_of_target
from ism_dask.rows.sparse import is_sparse
from ism_dask.unfolding.side_information import FactorKernel, NoSideKernel, SideKernel

# y as a thin factor of its kernel.
_FACTOR = "factor"
# The largest entry of a factor, at least; fourth powers of the inverse have to be finite.
_SMALLEST = 1e-50
SIDE_TARGETS = ("auto", *TARGETS, _FACTOR)


def checked_side(y: Any, n: int, target: str) -> Array | None:
    """Return y (n,) or (n, t) as an array; raise a ValueError if it does not fit n rows."""
    if y is None:
        if target != "auto":
            raise ValueError(
                f"`target` is {target!r}, but `y` is None; expected y, or target='auto' for an "
                "unfolding without y"
            )
        return None
    given = _as_factor(y) if target == _FACTOR else column_target(y)
    if given.dtype.kind in "OmM":
        for column in given.reshape(len(given), -1).T:
            check_labels(column)
    check_consistent_length(np.empty(n), given)
    assert_all_finite(given, input_name="y")
    return given


def side_kernel(n: int, y: Array | None, target: str) -> SideKernel:
    """Return the centred kernel of y (n,) or (n, t) of n rows; without y, the centred identity."""
    if y is None:
        return NoSideKernel(np.ones(n))
    if target == _FACTOR:
        return FactorKernel(y - y.mean(axis=0))
    rng = np.random.default_rng(0)  # a gaussian kernel draws nothing
    return FactorKernel(factor_of_target(y, target, "gaussian", rng))


def _as_factor(y: Any) -> Array:
    """Return a thin factor y (n,) or (n, r) as columns of float64."""
    try:
        factor = np.asarray(y.toarray() if is_sparse(y) else y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`y` must be numbers where `target` is 'factor'; got {np.asarray(y).dtype} values"
        ) from error
    factor = factor.reshape(len(factor), -1)
    assert_all_finite(factor, input_name="y")
    if not np.ptp(factor, axis=0).any():
        raise ValueError(
            "each column of `y` is constant, so that its centred kernel is 0; expected a factor "
            "that differs between rows, or y=None"
        )
    largest = float(np.abs(factor).max())
    if not _SMALLEST < largest < 1.0 / _SMALLEST:
        raise ValueError(
            f"the largest entry of `y` is {largest:.3g}; expected {_SMALLEST:g} to "
            f"{1.0 / _SMALLEST:g}. Divide `y` by it: coordinates stay the same"
        )
    return factor
