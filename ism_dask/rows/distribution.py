"""Moments and distributions of columns, and how far the distribution of new rows is away."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ism_dask._types import Array

_LEVELS = np.linspace(0.0, 1.0, 11)
# Values that move by less than this share of the deviation stay in their bin: else all rows of a
# column of few values would leave it at once.
_SLACK = 0.05
# A bin without rows counts as one with half a row: the index takes a logarithm.
_EMPTY = 0.5
# Chance moves the index by more than this number of its deviations in one of some thousand columns.
_DEVIATIONS = 4.0


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
    def from_rows(cls, X: Array, weights: Array | None = None) -> ColumnMoments:
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


@dataclass(frozen=True, eq=False)
class Distribution:
    """Shares of rows between the deciles of each column, and outside of its range.

    Attributes
    ----------
    edges : (11, d) array
        The lowest value, the deciles and the highest value, with some slack.
    shares : (12, d) array
        Of the rows below the first edge, up to each next one, and above the last.
    n_rows : int
    """

    edges: Array
    shares: Array
    n_rows: int

    @classmethod
    def from_rows(cls, X: Array) -> Distribution:
        """Return the distribution of the columns of rows (n, d)."""
        edges = np.quantile(X, _LEVELS, axis=0, method="inverted_cdf").astype(np.float64)
        slack = _SLACK * np.std(X, axis=0, dtype=np.float64)
        edges[0] = np.minimum(edges[0] - slack, np.nextafter(edges[0], -np.inf))
        edges[1:] += slack
        return cls(edges, _shares(X, edges), len(X))

    def instability(self, X: Array) -> Array:
        """Return the population stability index (d,) of other rows (m, d), beyond chance.

        It is the sum of `(a - e) log(a / e)` over the bins, where `e` is the share of these rows
        in a bin, and `a` that of the others. What few rows reach by chance is taken off.
        """
        expected, actual = self.shares, _shares(X, self.edges)
        used = (expected > 0) | (actual > 0)
        e = np.maximum(expected, _EMPTY / self.n_rows)
        a = np.maximum(actual, _EMPTY / len(X))
        index = np.where(used, (a - e) * np.log(a / e), 0.0).sum(axis=0)
        # About a chi-squared variable with a degree for each bin, for those outside, too.
        degrees = (expected > 0).sum(axis=0) + 1.0
        chance = degrees + _DEVIATIONS * np.sqrt(2 * degrees)
        beyond: Array = np.maximum(index - chance * (1 / self.n_rows + 1 / len(X)), 0.0)
        return beyond


def _shares(X: Array, edges: Array) -> Array:
    """Return the shares (12, d) of rows between edges (11, d)."""
    bins = len(edges) + 1
    counts = [
        np.bincount(np.searchsorted(limits, column), minlength=bins)
        for limits, column in zip(edges.T, np.asarray(X, dtype=np.float64).T, strict=True)
    ]
    return np.array(counts, dtype=np.float64).reshape(-1, bins).T / len(X)
