"""Refuse rows with missing numbers, and name the imputers that fill them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import assert_all_finite

from ism_dask._types import Array
from ism_dask.rows.sparse import is_sparse


def check_no_missing(X: Any) -> None:
    """Raise a ValueError with advice if rows X (n, d) have NaN, the mark of a missing number."""
    if X.dtype.kind != "f" or np.isfinite(X.sum()):  # a sum needs no (n, d) array of marks
        return
    if is_sparse(X):
        gaps = np.isnan(X.data)
        rows, columns = (np.unique(each[gaps]) for each in X.tocoo().coords)
    else:
        gaps = np.isnan(X)
        rows, columns = (np.flatnonzero(gaps.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return
    raise ValueError(
        f"Input X contains NaN: {len(rows)} of {X.shape[0]} rows have missing numbers, in "
        f"{len(columns)} of {X.shape[1]} columns, the first number {columns[0]}. Fill "
        "them in a pipeline, with scikit-learn's SimpleImputer(add_indicator=True), KNNImputer or "
        "IterativeImputer, or drop these rows"
    )


def check_finite_block(X: Array) -> None:
    """Raise a ValueError if a block (b, d) of a lazy array, checked nowhere else, is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        check_no_missing(X)
    assert_all_finite(X, input_name="X")
