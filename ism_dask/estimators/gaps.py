"""Gaps in X, which are NaN: filled with the means of columns, or an error that names these."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask.estimators.input_rows import is_lazy
from ism_dask.rows.execution import is_dask
from ism_dask.rows.raw import (
    ROW_WEIGHTS,
    LoadedShard,
    as_dense,
    filled,
    is_row_source,
    is_sparse,
)
from ism_dask.rows.shards import cut

# What an estimator may do about gaps.
MEAN = "mean"
# The most columns that an error names.
_NAMED = 5


def check_missing(missing: Any) -> None:
    """Raise a ValueError if what an estimator is to do about gaps is not known."""
    if missing not in (None, MEAN):
        raise ValueError(f"`missing` must be 'mean' or None; got {missing!r}")


def names_of(X: Any) -> list[str]:
    """Return the names of the columns of a frame; an array has none."""
    return [*map(str, getattr(X, "columns", ()))]


def without_gaps(
    missing: str | None, X: Any, names: Sequence[str], weights: Array | None = None
) -> tuple[Any, dict[str, Array | None]]:
    """Return the rows X (n, d) of a fit without gaps, and the fitted attributes that tell of them.

    With `missing` "mean", the mean of its column is in each gap, over the rows that have a number,
    which count by their weights (n,). Raise a ValueError that names columns for other gaps, but for
    those in rows that are read later.
    """
    if missing is None:
        if not is_lazy(X):
            check_no_gaps(X, names)
        return X, {"gap_means_": None, "gap_counts_": None}
    counts = np.ones(X.shape[0]) if weights is None else weights
    if is_lazy(X):
        shards = cut(X).in_double().with_rows(ROW_WEIGHTS, counts)
        totals, present, gaps = shards.fold(_sums_of_shard)
    else:
        totals, present, gaps = _exact_sums(X, counts)
    if empty := np.flatnonzero(present == 0).tolist():
        raise ValueError(
            f"X has no number at all in {len(empty)} of {len(gaps)} columns, the first "
            f"{_listed(empty, names)}: there is no mean to fill gaps with. Leave these columns out"
        )
    if gaps.any() and is_row_source(X):
        raise ValueError(
            f"X has {int(gaps.sum()):,} gaps, and rows that are read from a store stay as they "
            "are; fill them at ingestion, as by `ism-dask ingest --missing mean`"
        )
    means = totals / present
    if gaps.any() and is_dask(X):
        X = X.rechunk({1: -1}).map_blocks(partial(filled, means=means), dtype=X.dtype)
    elif gaps.any():
        X = filled(X, means)
    return X, {"gap_means_": means, "gap_counts_": gaps.astype(np.intp)}


def complete(X: Any, means: Array | None, names: Sequence[str]) -> Any:
    """Return rows X (b, d) whose gaps have the means (d,) of a fit; without these, none may be."""
    if means is not None:
        return filled(X, means)
    check_no_gaps(X, names)
    return X


def check_no_gaps(X: Any, names: Sequence[str]) -> None:
    """Raise a ValueError with advice that counts the gaps of rows X (n, d), if there are any."""
    with np.errstate(over="ignore", invalid="ignore"):
        if X.dtype.kind != "f" or np.isfinite(X.sum()):  # a sum needs no (n, d) array of marks
            return
    if is_sparse(X):
        rows, columns = (each[np.isnan(X.data)] for each in X.tocoo().coords)
    else:
        rows, columns = np.nonzero(np.isnan(X))
    if not len(rows):
        return
    (n, d), cells = X.shape, np.bincount(columns)
    bad = np.flatnonzero(cells).tolist()
    raise ValueError(
        f"Input X contains NaN: {len(np.unique(rows))} of {n} rows have missing numbers, in "
        f"{len(bad)} of {d} columns with {len(rows):,} gaps, the first "
        f'{_listed(bad, names, cells)}. Fit with missing="mean", which fills them with the means '
        "of the fit, fill them in a pipeline with scikit-learn's SimpleImputer(add_indicator=True),"
        " KNNImputer or IterativeImputer, or drop these rows"
    )


def _listed(columns: Sequence[int], names: Sequence[str], cells: Array | None = None) -> str:
    """Return some columns by name, or by number, with how many of their cells are meant."""
    words = [repr(names[j]) if len(names) else f"number {j}" for j in columns[:_NAMED]]
    if cells is not None:
        words = [f"{word} ({cells[j]})" for word, j in zip(words, columns, strict=False)]
    more = f" and {len(columns) - _NAMED} more" if len(columns) > _NAMED else ""
    return ", ".join(words) + more


def _exact_sums(X: Any, weights: Array) -> tuple[Array, Array, Array]:
    """Return what `_sums_of_shard` does of rows in memory, the same bits for rows in any order."""
    totals, present, gaps = np.zeros((3, X.shape[1]))
    columns = X.tocsc() if is_sparse(X) else X
    for j in range(X.shape[1]):
        values = as_dense(columns[:, [j]])[:, 0].astype(np.float64)
        has = ~np.isnan(values)
        with suppress(OverflowError):  # such numbers are refused later
            totals[j] = math.fsum((weights[has] * values[has]).tolist())
        present[j], gaps[j] = math.fsum(weights[has].tolist()), np.count_nonzero(~has)
    return totals, present, gaps


def _sums_of_shard(piece: LoadedShard) -> tuple[Array, Array, Array]:
    """Return for each column the sum of its numbers, that of the weights of the rows, and gaps."""
    weights, has = piece.facts[ROW_WEIGHTS], ~np.isnan(piece.X)
    numbers = np.where(has, piece.X, 0.0)
    return weights @ numbers, weights @ has, np.count_nonzero(~has, axis=0).astype(np.float64)
