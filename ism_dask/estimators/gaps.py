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
from ism_dask.rows.raw import ROW_WEIGHTS, LoadedShard, as_dense, filled, is_sparse
from ism_dask.rows.shards import cut

# What an estimator may do about gaps.
MEAN = "mean"
# The most columns that an error names.
_NAMED = 5


def without_gaps(
    missing: str | None, X: Any, names: Sequence[str], counts: Array | None = None
) -> tuple[Any, dict[str, Array | None]]:
    """Return the rows X (n, d) of a fit without gaps, and the fitted attributes that tell of them.

    With `missing` "mean", the mean of its column is in each gap, over the rows that have a number,
    which count by `counts` (n,). Raise a ValueError that names columns for other gaps, but for
    those of rows that are read later.
    """
    if missing not in (None, MEAN):
        raise ValueError(f"`missing` must be {MEAN!r} or None; got {missing!r}")
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
