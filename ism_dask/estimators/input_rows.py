"""Rows that a user gives: checked, their gaps filled, in memory, and in an order of their own.

That order depends neither on the order in which the rows come nor on rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.utils import check_array, get_tags
from sklearn.utils.validation import assert_all_finite

from ism_dask._types import Array
from ism_dask.gamma.row_values import near_zero, readable, target_as_array
from ism_dask.rows.execution import is_dask
from ism_dask.rows.raw import (
    MEMORY_NUMBERS,
    ROW_WEIGHTS,
    LoadedShard,
    as_dense,
    filled,
    fits_memory,
    is_row_source,
    is_sparse,
)
from ism_dask.rows.shards import cut
from ism_dask.threads import by_pieces, pieces

# What an estimator may do about gaps.
FILL_MEAN = "mean"
# The most columns with gaps that an error names.
_NAMED = 5
# Sparse rows with up to this many columns are made dense, a task's rows at a time.
MOST_SPARSE_COLUMNS = 2000
# Columns differ in the mean product of their values, from -1 to 1, which this factor spreads.
_SPREAD = 1e3
# Products of rows, and weights, are rounded to so many binary digits: their sums over two million
# rows are whole numbers that float64 holds.
_DIGITS = 16


def row_source(X: Any) -> Any:
    """Return the rows of an opened data set; return anything else unchanged."""
    rows = getattr(X, "X", None)
    return rows if rows is not None and is_row_source(rows) else X


def is_lazy(X: Any) -> bool:
    """Return whether X (n, d) is a source of rows or a Dask array, whose rows are read later."""
    return is_dask(X) or is_row_source(X)


def check_rows(estimator: Any, X: Any, **checks: Any) -> Any:
    """Return the rows X (n, d) of a fit as an array that may have gaps; rows read later stay.

    Raise a ValueError if there are fewer than two rows or columns.
    """
    if is_lazy(X):
        if is_dask(X) and np.isnan(X.shape[0]):
            X = X.copy().compute_chunk_sizes()
        check_lazy(X)
        if min(X.shape) < 2:
            raise ValueError(f"X must have 2 rows and 2 features or more; got shape {X.shape}")
        return X
    least = {"ensure_min_samples": 2, "ensure_min_features": 2}
    checks = {**array_checks(estimator), "dtype": "numeric", **least, **checks}
    with np.errstate(over="ignore", invalid="ignore"):  # sums of large numbers
        return check_array(readable(X), **checks)


def array_checks(estimator: Any) -> dict[str, Any]:
    """Return the options of scikit-learn's checks of rows, which let gaps pass."""
    sparse = "csr" if get_tags(estimator).input_tags.sparse else False
    return {"estimator": estimator, "accept_sparse": sparse, "ensure_all_finite": "allow-nan"}


def check_lazy(X: Any) -> None:
    """Raise a ValueError unless rows that are read later have columns (n, d) of real numbers."""
    if X.dtype.kind not in "biuf":
        raise ValueError(f"X must be of real numbers; got dtype {X.dtype}")
    if len(X.shape) != 2:
        raise ValueError(f"X must have rows and columns; got shape {X.shape}")


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
        assert_all_finite(rows, input_name="X", allow_nan=True)
        return rows
    n, d = X.shape
    if is_sparse(X) and d > MOST_SPARSE_COLUMNS:
        raise ValueError(
            f"{what} needs dense rows, and {n:,} x {d:,} numbers are too many to make the sparse X "
            f"dense; expected at most {MOST_SPARSE_COLUMNS:,} columns, or {MEMORY_NUMBERS:,} "
            "numbers. Take fewer columns first, as by sklearn.decomposition.TruncatedSVD(100)"
        )
    return X


def without_gaps(
    missing: str | None, X: Any, names: Sequence[str], counts: Array | None = None
) -> tuple[Any, dict[str, Array | None]]:
    """Return the rows X (n, d) of a fit without gaps, and the fitted attributes that tell of them.

    With `missing` "mean", the mean of its column is in each gap, over the rows that have a number,
    which count by `counts` (n,). Raise a ValueError that names columns for other gaps, but for
    those of rows that are read later.
    """
    if missing not in (None, FILL_MEAN):
        raise ValueError(f"`missing` must be {FILL_MEAN!r} or None; got {missing!r}")
    if missing is None:
        if not is_lazy(X):
            check_no_gaps(X, names)
        return X, {"gap_means_": None, "gap_counts_": None}
    facts = {ROW_WEIGHTS: np.ones(X.shape[0]) if counts is None else counts}
    if is_lazy(X):
        shards = cut(X).in_double().with_rows(*facts.popitem())
        totals, present, gaps = shards.fold(_sums_of_numbers)
    else:
        totals, present, gaps = _sums_of_numbers(LoadedShard(0, X, facts))
    if (empty := present == 0).any():
        raise ValueError(
            f"X has no number at all in {_listed(gaps * empty, names)}: there is no mean to fill "
            "these gaps with. Leave such columns out"
        )
    means = totals / present
    if gaps.any() and is_dask(X):
        X = X.rechunk({1: -1}).map_blocks(partial(filled, means=means), dtype=X.dtype)
    elif gaps.any() and not is_lazy(X):
        X = filled(X, means)
    return X, {"gap_means_": means, "gap_counts_": gaps.astype(np.intp)}


def check_no_gaps(X: Any, names: Sequence[str]) -> None:
    """Raise a ValueError with advice that counts the gaps of rows X (n, d), if there are any."""
    with np.errstate(over="ignore", invalid="ignore"):
        if X.dtype.kind != "f" or np.isfinite(X.sum()):  # a sum needs no (n, d) array of marks
            return
    if is_sparse(X):
        rows, columns = (each[np.isnan(X.data)] for each in X.tocoo().coords)
    else:
        rows, columns = np.nonzero(np.isnan(X))
    if len(rows):
        cells = np.bincount(columns, minlength=X.shape[1])
        raise ValueError(
            f"Input X contains NaN: {len(np.unique(rows))} of {X.shape[0]} rows have missing "
            f'numbers, in {_listed(cells, names)}. Fit with missing="mean", which fills them with '
            "the means of the fit, fill them in a pipeline with scikit-learn's "
            "SimpleImputer(add_indicator=True), KNNImputer or IterativeImputer, or drop these rows"
        )


def _listed(cells: Array, names: Sequence[str]) -> str:
    """Return in words in which columns the gaps are, and how many of its `cells` (d,) each has."""
    bad = np.flatnonzero(cells).tolist()
    first = [f"{repr(names[j]) if len(names) else f'number {j}'} ({cells[j]:.0f})" for j in bad]
    more = f" and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
    return (
        f"{len(bad)} of {len(cells)} columns with {cells.sum():,.0f} gaps, the first "
        f"{', '.join(first[:_NAMED])}{more}"
    )


def _sums_of_numbers(piece: LoadedShard) -> tuple[Array, Array, Array]:
    """Return for each column the sum of its numbers, that of the weights of their rows, and gaps.

    Each sum is rounded once, so that it is the same for rows in any order.
    """
    X: Any = piece.X
    columns = X.tocsc() if is_sparse(X) else X
    totals, present, gaps = np.zeros((3, X.shape[1]))
    for j in range(len(gaps)):
        values = as_dense(columns[:, [j]])[:, 0].astype(np.float64)
        has = ~np.isnan(values)
        counts = piece.facts[ROW_WEIGHTS][has]
        with suppress(OverflowError):  # such numbers are refused later
            totals[j] = math.fsum((counts * values[has]).tolist())
        present[j], gaps[j] = math.fsum(counts.tolist()), np.count_nonzero(~has)
    return totals, present, gaps


def row_order(
    X: Any, y: Any = None, weights: Array | None = None, sides: Sequence[Array] = ()
) -> Array | None:
    """Return an order (k,) of rows in memory that is the same however a table is written.

    Sums over rows in another order differ by rounding, which an iteration can amplify, so that a
    sorted table would give another answer. None means that the rows are streamed, or too large.

    It depends on neither the order of rows and columns, nor the units and signs of the columns, nor
    the names of classes. Exceptions are different rows that are equal up to rounding, and columns,
    or classes, whose values have the same distribution. Rows of weight 0 have no place in it.

    X (n, d) may be sparse. With weights (n,), a row of weight 2 counts as two rows. The sides
    (n, s) are classes and numbers that belong to the rows, as y (n,) or (n, t).
    """
    if not (isinstance(X, np.ndarray) or is_sparse(X)) or not fits_memory(X.shape):
        return None
    counts = np.ones(X.shape[0]) if weights is None else weights
    counted = np.flatnonzero(counts)
    if len(counted) < len(counts):
        y, counts = None if y is None else y[counted], counts[counted]
        X, sides = X[counted], [each[counted] for each in sides]
    X = np.ascontiguousarray(as_dense(X))  # sums round by how an array lies in memory
    classes = [np.zeros(len(X)) if y is None else _value_keys(y), *map(_value_keys, sides)]
    groups = [np.unique(each, return_inverse=True)[1] for each in classes]
    totals = [np.bincount(codes, counts)[codes] for codes in groups]
    keys, digests = _invariant_keys(X, counts, totals[0] / math.fsum(counts)), row_digests(X)
    # Sums over classes are in this order, so that they round alike however the rows come.
    first = np.lexsort([counts, digests, keys])
    # What the rows of a class have in common: their share of all rows, and their mean key.
    means = []
    for codes, total in zip(groups, totals, strict=True):
        # Differences from one of them: rows that are equal have their own key as the mean.
        base = keys[first][np.unique(codes[first], return_index=True)[1]][codes]
        sums = np.bincount(codes[first], (counts * (keys - base))[first])
        means.append(base + sums[codes] / total)
    # Copies of a row count as one row with the sum of their weights.
    copies = np.unique(digests, return_inverse=True)[1]
    for codes in groups:
        copies = np.unique(copies * len(X) + codes, return_inverse=True)[1]
    counts = np.bincount(copies, counts)[copies]
    order = np.lexsort([*reversed(classes), counts, digests, *reversed(means), keys])
    return counted[order]


def _value_keys(y: Any) -> Array:
    """Return a number (n,) for each row of y (n,) or (n, t), the same for equal rows."""
    target = near_zero(target_as_array(y))
    if target.dtype.kind not in "biuf":
        target = np.unique(target.astype(str), return_inverse=True)[1].reshape(target.shape)
    return row_digests(target.reshape(len(target), -1))


def in_given_order(values: Array, order: Array | None) -> Array:
    """Return values (k, ...) of rows in an order (k,), in the order in which they were given."""
    return values if order is None else values[np.argsort(order)]


def distinct_rows(X: Any) -> tuple[Array, Array]:
    """Return the indices (k,) of rows of X (n, d) that all differ, and which is equal to each row.

    Both are in an order that depends neither on the order of the rows nor on the units and the
    order of the columns; that of sparse rows depends on the columns. The second (n,) holds indices
    into the first.
    """
    _, first, of_each = np.unique(row_digests(X), return_index=True, return_inverse=True)
    if is_sparse(X) and not (X[first[of_each]] != X).nnz:
        return first, of_each
    dense = as_dense(X)
    if not all(
        np.array_equal(dense[run], dense[first[of_each[run]]]) for run in pieces(len(dense))
    ):
        # Different rows with one digest are rare.
        _, first, of_each = np.unique(dense, axis=0, return_index=True, return_inverse=True)
    if is_sparse(X):
        return first, of_each
    counts = np.zeros(len(X))
    counts[first] = 1.0
    keys = _invariant_keys(X, counts, np.zeros(len(X)))[first]
    order = np.argsort(keys, kind="stable")
    return first[order], np.argsort(order)[of_each]


def _invariant_keys(X: Array, counts: Array, shifts: Array) -> Array:
    """Return keys (n,) of rows X (n, d) that depend on neither units, signs nor order of columns.

    Each column has a weight that its values decide, by their products with a function of the rows
    that treats all columns alike. That function is even in each column, from its middle, and the
    product is odd, so that a column and its negative give the same keys, to the last bit. Rows
    count in them by `counts` (n,); `shifts` (n,) tell rows apart that X does not.
    """
    lowest, highest = (each.astype(np.float64) for each in (X.min(axis=0), X.max(axis=0)))
    middle = 0.5 * lowest + 0.5 * highest
    with np.errstate(over="ignore"):
        ranges = highest - lowest
    # The order does not tell extreme numbers apart.
    usable = (ranges > np.finfo(float).tiny) & np.isfinite(ranges)
    middle, scales = np.where(usable, middle, 0.0), np.zeros(X.shape[1])
    scales[usable] = 1.0 / ranges[usable]

    # Sums of whole numbers are the same in any order, those of weights and of copies, too.
    whole = np.rint(np.ldexp(counts, _DIGITS - np.frexp(counts.max())[1]))

    def product(piece: slice) -> Array:
        scaled = (X[piece] - middle) * scales
        even = np.ldexp(np.cos((scaled**2).sum(axis=1) + shifts[piece]), _DIGITS)
        return whole[piece] @ np.rint(np.multiply(scaled, even[:, None], out=scaled), out=scaled)

    products = np.ldexp(sum(by_pieces(product, len(X))), -_DIGITS)
    weights = scales * np.sin(_SPREAD * products / whole.sum())

    def key(piece: slice) -> Array:
        # Each row is summed by itself: a product of matrices rounds by where the row is.
        return ((X[piece] - middle) * weights).sum(axis=1)

    return np.concatenate(by_pieces(key, len(X)))


def row_digests(rows: Any) -> Array:
    """Return a 64-bit digest (n,) of each of the numeric rows (n, d), which may be sparse."""
    if is_sparse(rows):
        bits = csr_array((_mixed_bits(rows.data), rows.indices, rows.indptr), shape=rows.shape)
        return np.asarray(bits @ _odd_numbers(rows.shape[1]))

    def digest(piece: slice) -> Array:
        return np.asarray(_mixed_bits(rows[piece]) @ _odd_numbers(rows.shape[1]))

    return np.concatenate([np.empty(0, np.uint64), *by_pieces(digest, rows.shape[0])])


def _mixed_bits(numbers: Array) -> Array:
    # Adding 0 makes -0 and 0 the same. Whole numbers as floats have nonzero bits only at the upper
    # end: these are shifted down before the multiplication by odd numbers, which wraps around.
    bits = (np.ascontiguousarray(numbers, dtype=np.float64) + 0.0).view(np.uint64)
    bits ^= bits >> np.uint64(32)
    return bits


@lru_cache(maxsize=8)
def _odd_numbers(count: int) -> Array:
    """Return random odd numbers (count,), the same on every call."""
    return np.random.default_rng(0).integers(2**63, size=count, dtype=np.uint64) * 2 + 1
