"""Check the rows that a user gives, and name the remedy for missing numbers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from sklearn.utils import check_array, check_X_y, get_tags
from sklearn.utils.validation import assert_all_finite, check_consistent_length

from ism_dask._types import Array
from ism_dask.gamma.row_values import are_merged, exceeds_float64, is_missing
from ism_dask.linalg.arrays import namespace, on_host
from ism_dask.rows.blocks import MEMORY_NUMBERS, fits_memory
from ism_dask.rows.devices import Device
from ism_dask.rows.execution import is_dask
from ism_dask.rows.source import is_row_source, is_sparse

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
    checked = check_array(X, **checks) if y is None else check_X_y(X, y, **checks)
    check_no_missing(checked if y is None else checked[0])
    return checked


def readable(X: Any) -> Any:
    """Return rows X (n, d) in memory, whose masked numbers become missing ones.

    Numbers of extended precision become those of float64. Raise a ValueError that names the columns
    that float64 cannot hold: texts, dates, and whole numbers too large to differ.
    """
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        return np.ma.filled(X.astype(np.float64), np.nan)
    if hasattr(X, "dtypes"):
        _check_frame(X)
    elif isinstance(X, np.ndarray):
        if X.dtype.kind in "mM":
            raise ValueError(
                f"X must be of real numbers; got dtype {X.dtype}. Turn dates and durations into "
                "numbers, such as the days since the first"
            )
        if X.ndim == 2 and exceeds_float64(X):
            _check_distinct([(f"number {j}", column) for j, column in enumerate(X.T)])
        if X.dtype.kind == "f" and X.dtype.itemsize > np.dtype(np.float64).itemsize:
            with np.errstate(over="ignore"):  # infinity is refused later
                return X.astype(np.float64)
    return X


def _check_frame(X: Any) -> None:
    """Raise a ValueError if columns of a frame have equal names, or are no numbers of float64."""
    named = X.items() if hasattr(X, "items") else ((each.name, each) for each in X.iter_columns())
    columns = [(repr(name), np.asarray(column)) for name, column in named]
    twice = [name for name, count in Counter(name for name, _ in columns).items() if count > 1]
    if twice:
        raise ValueError(
            f"X has several columns of the name {twice[0]}; expected a name of its own for each. "
            "Rename them, or give `X.to_numpy()`"
        )
    bad = [name for name, column in columns if not _is_numeric(column)]
    if bad:
        more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
        raise ValueError(
            f"X has columns that are no numbers: {', '.join(bad[:5])}{more}. Encode texts with "
            "scikit-learn's OneHotEncoder or TargetEncoder, turn dates into numbers, or leave "
            "these columns out"
        )
    _check_distinct(columns)


def _check_distinct(columns: list[tuple[str, Array]]) -> None:
    """Raise a ValueError if whole numbers of a column with a name become equal in float64."""
    for name, column in columns:
        if are_merged(column):
            raise ValueError(
                f"X has whole numbers up to {column.max()} in column {name}, of which some become "
                "equal in float64; expected at most 2^53. Subtract the least of them, or leave the "
                "column out if it only numbers the rows"
            )


def _is_numeric(column: Array) -> bool:
    """Return whether the values (n,) that are not missing can be read as numbers."""
    if column.dtype.kind != "O":
        return column.dtype.kind in "biufc"
    try:
        column[~is_missing(column)].astype(np.float64)
    except (TypeError, ValueError):
        return False
    return True


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
    if Device.of_array(X) is not None:
        xp = namespace(X)
        if bool(xp.isfinite(xp.sum(X))):
            return
        X = on_host(X)
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


def check_dense(X: Any, what: str) -> None:
    """Raise a ValueError if sparse rows are too large to be dense; `what` needs dense ones.

    Rows with few columns are made dense in pieces, however many they are.
    """
    n, d = X.shape
    if is_sparse(X) and d > MOST_SPARSE_COLUMNS and not fits_memory((n, d)):
        raise ValueError(
            f"{what} needs dense rows, and {n:,} x {d:,} numbers are too many to make the sparse X "
            f"dense; expected at most {MOST_SPARSE_COLUMNS:,} columns, or {MEMORY_NUMBERS:,} "
            "numbers. Take fewer columns first, as by sklearn.decomposition.TruncatedSVD(100)"
        )
