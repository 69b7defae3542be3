"""Distributions of columns, and how far the distribution of new rows is away from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DECILES = np.linspace(0.0, 1.0, 11)
# Values that move by less than this share of the deviation stay in their bin: else all rows of a
# column of few values would leave it at once.
_SLACK = 0.05
# A bin without rows counts as one with half a row: the index takes a logarithm.
_EMPTY = 0.5
# Chance moves the index by more than this number of its deviations in one of some thousand columns.
_DEVIATIONS = 4.0


@dataclass(frozen=True, eq=False)
class Distribution:
    """Shares of rows between the deciles of each column, and outside of its range.

    The `edges` (11, d) are the lowest value, the deciles and the highest value, with some slack.
    The `shares` (12, d) are those below the first edge, up to each next one, and above the last.
    """

    edges: NDArray[Any]
    shares: NDArray[Any]
    n_rows: int

    @classmethod
    def from_rows(cls, X: NDArray[Any]) -> Distribution:
        """Return the distribution of the columns of rows (n, d)."""
        edges = np.quantile(X, _DECILES, axis=0, method="inverted_cdf").astype(np.float64)
        slack = _SLACK * np.std(X, axis=0, dtype=np.float64)
        edges[0] = np.minimum(edges[0] - slack, np.nextafter(edges[0], -np.inf))
        edges[1:] += slack
        return cls(edges, _shares(X, edges), len(X))

    def instability(self, X: NDArray[Any]) -> NDArray[Any]:
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
        beyond: NDArray[Any] = np.maximum(index - chance * (1 / self.n_rows + 1 / len(X)), 0.0)
        return beyond


def _shares(X: NDArray[Any], edges: NDArray[Any]) -> NDArray[Any]:
    """Return the shares (12, d) of rows between edges (11, d)."""
    bins = len(edges) + 1
    counts = [
        np.bincount(np.searchsorted(limits, column), minlength=bins)
        for limits, column in zip(edges.T, np.asarray(X, dtype=np.float64).T, strict=True)
    ]
    return np.array(counts, dtype=np.float64).reshape(-1, bins).T / len(X)
