"""Positions of rows beside those of a fit, in the units of X."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np

from ism_dask._types import Array
from ism_dask.estimators.checks import check_finite_block
from ism_dask.estimators.row_order import distinct_rows
from ism_dask.unfolding.extension import LocalExtension
from ism_dask.unfolding.neighbour_search import ExactSearch, neighbour_search

# Rows with larger numbers, in units of those of the fit, have distances whose squares overflow.
_FARTHEST = 1e150


@dataclass(frozen=True, eq=False)
class RowUnits:
    """A shift of rows, the scale of each column, and a power of 2 by which all are divided.

    Distances are then neither lost beside the mean, nor too large or small for fourth powers.

    Attributes
    ----------
    offset, scale : (d,) arrays
        In the precision of the rows.
    exponent : int
    """

    offset: Array
    scale: Array
    exponent: int

    @classmethod
    def of(cls, rows: Array, scale: Array) -> Self:
        """Return the units of rows (n, d), or raise a ValueError if all of them are equal."""
        if len(rows) < 2:
            raise ValueError(
                "all rows of X are equal; expected rows at different distances from each other"
            )
        kind = precision(rows)
        offset = rows.mean(axis=0, dtype=np.float64).astype(kind)
        units = cls(offset, scale.astype(kind), 0)
        return replace(units, exponent=int(np.frexp(np.abs(units.scaled(rows)).max())[1]))

    def scaled(self, X: Array) -> Array:
        """Return rows X (b, d) shifted and scaled, in the precision of the rows of the fit."""
        apart = (X.astype(self.offset.dtype) - self.offset) / self.scale
        return np.ldexp(apart, -self.exponent)

    def small(self, embedding: Array) -> Array:
        """Return coordinates (b, q) divided by the power of 2, in double precision."""
        return np.ldexp(embedding.astype(np.float64), -self.exponent)


@dataclass(frozen=True, eq=False)
class Placement:
    """Places rows by their neighbours among the rows of a fit.

    Attributes
    ----------
    units : RowUnits
    extension : LocalExtension
        In these units.
    """

    units: RowUnits
    extension: LocalExtension

    @classmethod
    def beside(
        cls,
        X: Array,
        scale: Array,
        embedding: Array,
        corrections: Array | None,
        *,
        n_neighbors: int,
        exact: bool,
        seed: int,
    ) -> Self:
        """Return the placement of a fit to rows X (n, d) with the coordinates (n, q).

        `scale` (d,) are the units of its columns. `corrections` (n, q) are those of the fit.
        `exact` says whether the fit has compared each row with all others, `seed` is that of an
        approximate search.
        """
        first, _ = distinct_rows(X)
        units = RowUnits.of(X[first], scale)
        rows = units.scaled(X[first])
        among = ExactSearch.among if exact else partial(neighbour_search, seed=seed)
        corrections = None if corrections is None else units.small(corrections[first])
        positions = units.small(embedding[first])
        return cls(units, LocalExtension(among(rows, n_neighbors), rows, positions, corrections))

    def __call__(self, X: Array) -> Array:
        """Return the coordinates (b, q) of finite rows X (b, d), in the precision of X.

        Those of rows that are too far from the rows of the fit for their distance are NaN.
        """
        check_finite_block(X)
        with np.errstate(over="ignore", invalid="ignore"):
            rows = self.units.scaled(X)
            near = np.abs(rows).max(axis=1) < _FARTHEST
        placed = np.full((len(X), self.extension.positions.shape[1]), np.nan)
        if near.any():
            placed[near] = np.ldexp(self.extension(rows[near]), self.units.exponent)
        return placed.astype(precision(X), copy=False)


def precision(X: Array) -> np.dtype[np.floating]:
    """Return the dtype of coordinates of X: single precision for single precision, else double."""
    return np.dtype(np.float32 if X.dtype == np.float32 else np.float64)
