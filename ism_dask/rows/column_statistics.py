"""Means and deviations of the columns of shards, in one pass, for data of any scale."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ism_dask._types import Array
from ism_dask.rows.blocks import MANY_ROWS
from ism_dask.rows.raw import ColumnMoments, Standardisation
from ism_dask.rows.shards import Shards
from ism_dask.rows.tasks import LoadedShard, RowFact

# A variance differs from its largest value by rounding if the difference is at most this many
# roundings for each row.
_ROUNDINGS = 4
# More indicators than this are not compared with each other.
_MOST_INDICATORS = 1000
# Indicators depend on each other if a variance is a smaller share of the largest one.
_DEPENDENT = 1e-10
# The weight (b,) of each row, if rows do not count alike.
ROW_WEIGHTS = RowFact("weights")
# Numbers above this, or below its inverse, are scaled before their squares are summed.
_LARGE = 1e120
# The largest size of a column, whose inverse is the smallest one.
_LARGEST = 1e300


def standardisation_of(raw: Shards) -> Standardisation:
    """Return the mean and population deviation in one pass over the rows, summed in float64.

    Rows count by the fact `ROW_WEIGHTS`, if the shards have it.
    """
    columns: ColumnMoments = raw.in_double().fold(_column_moments)
    finite = np.isfinite(columns.low) & np.isfinite(columns.high)
    if not finite.all():
        bad = np.flatnonzero(~finite)
        raise ValueError(
            f"Input X contains NaN or infinity, in {len(bad)} columns, the first number {bad[0]}; "
            "fill them, as scikit-learn's SimpleImputer does, or drop these rows"
        )
    size = np.maximum(np.abs(columns.low), np.abs(columns.high))
    extreme = np.flatnonzero((size > _LARGEST) | ((size < 1 / _LARGEST) & (size > 0)))
    if extreme.size:
        j = extreme[0]
        raise ValueError(
            f"X has numbers up to {size[j]:.2g} in column number {j}; expected a largest one from "
            f"{1 / _LARGEST:g} to {_LARGEST:g}. Take another unit"
        )
    if ((size > _LARGE) | ((size < 1 / _LARGE) & (size > 0))).any():
        return _scaled_statistics(raw, size)
    return _standardisation(columns)


def in_least_precision(raw: Shards) -> Shards:
    """Return many rows in single precision if it holds all their numbers exactly.

    So the fit to bytes, and its time, do not depend on the type that they are stored as.
    """
    if raw.dtype == np.float32 or raw.n_rows < MANY_ROWS:
        return raw
    # Most rows that it does not hold show that in the first shard.
    is_exact = not any(each.fold(_rounded_in_single) for each in (raw.first(1), raw))
    return replace(raw, dtype=np.dtype(np.float32)) if is_exact else raw


def without_dependent_indicators(raw: Shards, affine: Standardisation) -> Standardisation:
    """Return the standardisation to the space that the rows span, if indicators are dependent.

    The indicators of all levels of a category sum to 1. In that direction the rows are constant,
    so that W could turn into it to scale features down. Weights in it would say nothing.
    """
    if affine.indicators is None:
        return affine
    indicators = np.flatnonzero(affine.varying & affine.indicators)
    if not 1 < len(indicators) <= _MOST_INDICATORS:
        return affine
    sums = raw.in_double().fold(_indicator_covariance, indicators) / raw.n_rows
    covariance = sums[:-1, :-1] - np.outer(sums[-1, :-1], sums[-1, :-1])
    scale = affine.scale[indicators]
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    dependent = values <= _DEPENDENT * values[-1]
    if not dependent.any():
        return affine
    varying = np.flatnonzero(affine.varying)
    others = np.eye(len(varying))[:, ~np.isin(varying, indicators)]
    spanned = np.zeros((len(varying), np.count_nonzero(~dependent)))
    spanned[np.isin(varying, indicators)] = vectors[:, ~dependent]
    return replace(affine, basis=np.hstack([others, spanned]))


def _indicator_covariance(piece: LoadedShard, columns: Array) -> Array:
    rows = np.column_stack([piece.X[:, columns], np.ones(len(piece.X))])
    return np.asarray(rows.T @ rows)


def check_range(affine: Standardisation) -> None:
    """Raise a ValueError for columns whose squares exceed the range of float64."""
    size = float(affine.scale[affine.varying].max(initial=0.0))
    if size and not 1 / _LARGE < size < _LARGE:
        raise ValueError(
            f"X has a column of deviation {size:.2g}; without standardising it must be from "
            f"{1 / _LARGE:g} to {_LARGE:g}. Take another unit, or standardize=True"
        )


@np.errstate(over="ignore")
def _rounded_in_single(piece: LoadedShard) -> int:
    return int(np.count_nonzero(piece.X.astype(np.float32) != piece.X))


def _scaled_statistics(raw: Shards, size: Array) -> Standardisation:
    """Return the statistics of columns whose squares would exceed the range of float64."""
    # Scaling by a power of two does not round.
    unit = np.ldexp(1.0, np.frexp(np.where(size > 0, size, 1.0))[1] - 1)
    scaling = Standardisation(np.zeros_like(unit), unit, np.ones(len(unit), dtype=bool))
    affine = _standardisation(raw.in_double().standardised(scaling).fold(_column_moments))
    scale = np.where(affine.varying, affine.scale * unit, 1.0)
    return Standardisation(affine.mean * unit, scale, affine.varying)


def _standardisation(columns: ColumnMoments) -> Standardisation:
    n, mean, variance = columns.n_rows, columns.mean, columns.squares / columns.weight
    # The variance of a constant column is rounding only: its mean times epsilon, squared.
    eps = np.finfo(np.float64).eps
    varies = (columns.high > columns.low) & (variance > (n * mean * eps) ** 2)
    # Columns that hold nothing but 0 and 1 have the variance `mean (1 - mean)`. Among the columns
    # from 0 to 1 it is the largest, which they alone have.
    has_largest = np.abs(variance - mean * (1 - mean)) <= _ROUNDINGS * n * eps
    indicators = np.asarray((columns.low == 0) & (columns.high == 1) & has_largest)
    return Standardisation(mean, np.where(varies, np.sqrt(variance), 1.0), varies, indicators)


# For columns that are not finite, `standardisation_of` raises one error.
@np.errstate(invalid="ignore", over="ignore")
def _column_moments(piece: LoadedShard) -> ColumnMoments:
    return ColumnMoments.from_rows(piece.X, piece.facts.get(ROW_WEIGHTS))
