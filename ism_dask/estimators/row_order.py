"""An order of rows that depends neither on the order they come in nor on rounding."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask.estimators.partial_targets import target_as_array
from ism_dask.rows.blocks import fits_memory
from ism_dask.rows.sparse import is_sparse

# Rows that are read at a time: in double precision they are larger.
_ROWS_AT_ONCE = 8192


def row_order(X: Any, y: Any = None, *others: Array, unitless: bool = False) -> Array | None:
    """Return an order (n,) of rows in memory that does not depend on the order they come in.

    If `unitless`, it does not depend on the units of the columns either, but for rows that are
    equal up to rounding.
    y (n,) or (n, t) and others, numbers such as weights (n,), belong to the rows.

    Sums over rows in another order differ by rounding, which an iteration can amplify, so that a
    sorted table would give another answer. None means that the rows are streamed, or too large.
    """
    if not (isinstance(X, np.ndarray) or is_sparse(X)) or not fits_memory(X.shape):
        return None
    X = X.toarray() if is_sparse(X) else X
    keys = [_digests(X)]
    if y is not None:
        target = target_as_array(y)
        if target.dtype.kind not in "biuf":
            target = np.unique(target.astype(str), return_inverse=True)[1].reshape(target.shape)
        keys.insert(0, _digests(target.reshape(len(X), -1)))
    keys = [*(_digests(each.reshape(len(X), -1)) for each in others), *keys]
    return np.lexsort([*keys, _unitless_keys(X, np.arange(len(X)))] if unitless else keys)


def in_given_order(values: Array, order: Array | None) -> Array:
    """Return values (n, ...) of rows in an order, in the order in which the rows were given."""
    if order is None:
        return values
    given = np.empty_like(values)
    given[order] = values
    return given


def distinct_rows(X: Array) -> tuple[Array, Array]:
    """Return the indices (k,) of rows of X (n, d) that all differ, and which is equal to each row.

    Both are in an order that depends neither on the order of the rows nor on the units of the
    columns. The second (n,) holds indices into the first.
    """
    first, of_each = _distinct(X)
    keys = _unitless_keys(X, first)
    order = np.argsort(keys, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[of_each]


def _unitless_keys(X: Array, rows: Array) -> Array:
    """Return keys (k,) of rows (k,) of X (n, d) that do not depend on the units of the columns."""
    with np.errstate(over="ignore"):  # the order of extreme numbers may depend on their units
        ranges = X.max(axis=0).astype(np.float64) - X.min(axis=0)
    varying, weights = ranges > 0, np.zeros(X.shape[1])
    weights[varying] = np.random.default_rng(0).normal(size=varying.sum()) / ranges[varying]
    pieces = (rows[start : start + _ROWS_AT_ONCE] for start in _starts(rows))
    # Each row is summed by itself: a product of matrices rounds by where the row is.
    return np.concatenate([(X[piece] * weights).sum(axis=1) for piece in pieces])


def _distinct(X: Array) -> tuple[Array, Array]:
    """Return the indices (k,) of rows of X (n, d) that all differ, and which is equal to each."""
    _, first, of_each = np.unique(_digests(X), return_index=True, return_inverse=True)
    runs = (slice(start, start + _ROWS_AT_ONCE) for start in _starts(X))
    if all(np.array_equal(X[run], X[first[of_each[run]]]) for run in runs):
        return first, of_each
    # Different rows with one digest are rare.
    return np.unique(X, axis=0, return_index=True, return_inverse=True)[1:]


def _digests(rows: Array) -> Array:
    """Return a 64-bit digest (n,) of each of the numeric rows (n, d)."""
    pieces = [_digests_of_piece(rows[start : start + _ROWS_AT_ONCE]) for start in _starts(rows)]
    return np.concatenate([np.empty(0, np.uint64), *pieces])


def _starts(rows: Array) -> range:
    """Return where the pieces of rows begin that are read at once."""
    return range(0, len(rows), _ROWS_AT_ONCE)


def _digests_of_piece(rows: Array) -> Array:
    # Adding 0 makes -0 and 0 the same. Whole numbers as floats have nonzero bits only at the upper
    # end: these are shifted down before the multiplication by odd numbers, which wraps around.
    bits = (np.ascontiguousarray(rows, dtype=np.float64) + 0.0).view(np.uint64)
    bits ^= bits >> np.uint64(32)
    return np.asarray(bits @ _odd_numbers(bits.shape[1]))


@lru_cache(maxsize=8)
def _odd_numbers(count: int) -> Array:
    """Return random odd numbers (count,), the same on every call."""
    return np.random.default_rng(0).integers(2**63, size=count, dtype=np.uint64) * 2 + 1
