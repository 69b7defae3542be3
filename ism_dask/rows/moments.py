"""Means, squared deviations and ranges of columns, of rows that are merged part by part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ism_dask._types import Array


@dataclass(frozen=True, eq=False)
class ColumnMoments:
    """Moments of the columns of rows; the sum of two is that of all their rows.

    Attributes
    ----------
    n_rows : int
    weight : float
        Of all rows together.
    mean : (d,) array
    squares : (d,) array
        Sums of squared deviations from the mean.
    low, high : (d,) array
        The range: they are equal exactly for a constant column.
    """

    n_rows: int
    weight: float
    mean: Array
    squares: Array
    low: Array
    high: Array

    @property
    def deviation(self) -> Array:
        """The standard deviation of each column, (d,)."""
        return np.sqrt(self.squares / self.weight)

    @classmethod
    def of(cls, X: Array, weights: Array | None = None) -> ColumnMoments:
        """Return the moments of rows X (b, d) in float64, with weights (b,) if they differ."""
        X = X.astype(np.float64, copy=False)
        low, high = X.min(axis=0), X.max(axis=0)
        weights = np.ones(len(X)) if weights is None else weights
        total = float(weights.sum())
        shares = weights / (total or 1.0)
        mean = shares @ X
        # The mean of the deviations is the rounding error of the mean.
        mean += shares @ (X - mean)
        return cls(len(X), total, mean, weights @ (X - mean) ** 2, low, high)

    def __add__(self, other: ColumnMoments) -> ColumnMoments:
        """Return the moments of both sets of rows together."""
        # Deviations from means (Chan, Golub and LeVeque), as sums of squares would lose digits.
        weight = self.weight + other.weight
        share = other.weight / weight if weight else 0.0
        difference = other.mean - self.mean
        mean = self.mean + difference * share
        between = difference**2 * (self.weight * other.weight / weight if weight else 0.0)
        return ColumnMoments(
            self.n_rows + other.n_rows,
            weight,
            mean,
            self.squares + other.squares + between,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )
