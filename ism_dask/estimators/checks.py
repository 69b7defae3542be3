"""Check the rows that a user gives, and name the remedy for missing numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_array, check_X_y, get_tags
from sklearn.utils.validation import assert_all_finite, check_consistent_length

from ism_dask.gamma.row_values import readable
from ism_dask.rows.execution import is_dask
from ism_dask.rows.raw import MEMORY_NUMBERS, fits_memory, is_row_source, is_sparse

# Sparse rows with up to this many columns are made dense, a task's rows at a time.
MOST_SPARSE_COLUMNS = 2000


def row_source(X: Any) -> Any:
    """Return the rows of an opened data set; return anything else unchanged."""
    rows = getattr(X, "X", None)
    return rows if rows is not None and is_row_source(rows) else X


def is_lazy(X: Any) -> bool:
    """Return whether X (n, d) is a source of rows or a Dask array, whose rows are read later."""
    return is_dask(X) or is_row_source(X)


def check_rows(estimator: Any, X: Any, y: Any = None, **checks: Any) -> Any:
    """Return the rows X (n, d) of a fit, and y if it is given, as arrays; rows read later stay.

    Raise a ValueError if there are fewer than two rows or columns, or missing numbers.
    """
    if is_lazy(X):
        if is_dask(X) and np.isnan(X.shape[0]):
            X = X.copy().compute_chunk_sizes()
        check_lazy(X)
        if min(X.shape) < 2:
            raise ValueError(f"X must have 2 rows and 2 features or more; got shape {X.shape}")
        if y is None:
            return X
        check_consistent_length(X, y)
        assert_all_finite(y, input_name="y")
        return X, y
    X = readable(X)
    least = {"ensure_min_samples": 2, "ensure_min_features": 2}
    checks = {**array_checks(estimator), "dtype": "numeric", **least, **checks}
    with np.errstate(over="ignore", invalid="ignore"):  # sums of large numbers
        checked = check_array(X, **checks) if y is None else check_X_y(X, y, **checks)
    check_no_missing(checked if y is None else checked[0])
    return checked


def array_checks(estimator: Any) -> dict[str, Any]:
    """Return the options of scikit-learn's checks of rows, but for those of missing numbers."""
    sparse = "csr" if get_tags(estimator).input_tags.sparse else False
    return {"estimator": estimator, "accept_sparse": sparse, "ensure_all_finite": "allow-nan"}


def check_lazy(X: Any) -> None:
    """Raise a ValueError unless rows that are read later have columns (n, d) of real numbers."""
    if X.dtype.kind not in "biuf":
        raise ValueError(f"X must be of real numbers; got dtype {X.dtype}")
    if len(X.shape) != 2:
        raise ValueError(f"X must have rows and columns; got shape {X.shape}")


def check_no_missing(X: Any) -> None:
    """Raise a ValueError with advice if rows X (n, d) have NaN, the mark of a missing number."""
    with np.errstate(over="ignore", invalid="ignore"):
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


def rows_in_memory(X: Any, what: str) -> Any:
    """Return X (n, d) in memory and dense, unless it is too large; `what` needs dense rows.

    So a fit comes to the same bits wherever the rows are. Larger sparse rows with few columns are
    made dense in pieces; raise a ValueError for many columns.
    """
    if isinstance(X, np.ndarray):
        return X
    if fits_memory(X.shape):
        if is_sparse(X):
            return X.toarray()
        rows = readable(np.asarray(X.read(0, X.shape[0]) if is_row_source(X) else X))
        check_no_missing(rows)
        assert_all_finite(rows, input_name="X")
        return rows
    n, d = X.shape
    if is_sparse(X) and d > MOST_SPARSE_COLUMNS:
        raise ValueError(
            f"{what} needs dense rows, and {n:,} x {d:,} numbers are too many to make the sparse X "
            f"dense; expected at most {MOST_SPARSE_COLUMNS:,} columns, or {MEMORY_NUMBERS:,} "
            "numbers. Take fewer columns first, as by sklearn.decomposition.TruncatedSVD(100)"
        )
    return X
