"""Column means and standard deviations in one pass over blocks of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Moments:
    """Moments of `count` rows, float64, each array of shape (d,).

    Attributes
    ----------
    count : int
        Number of rows.
    mean : ndarray
        Column means.
    squares : ndarray
        Sums of squared deviations from the mean.
    low, high : ndarray
        Column minima and maxima: equal ones mark a constant column exactly.
    """

    count: int
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @classmethod
    def of(cls, block: NDArray[Any]) -> Moments:
        """Return the moments of one block, shape (rows, d), in two passes."""
        rows = block.astype(np.float64)
        mean = rows.mean(axis=0)
        low, high = rows.min(axis=0), rows.max(axis=0)
        rows -= mean
        # The second term takes out what rounding left in the mean.
        squares = (rows**2).sum(axis=0) - rows.sum(axis=0) ** 2 / len(rows)
        return cls(len(rows), mean, np.maximum(squares, 0.0), low, high)

    def merge(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows together (Chan, Golub, LeVeque)."""
        count = self.count + other.count
        step = other.mean - self.mean
        return Moments(
            count,
            self.mean + step * (other.count / count),
            self.squares + other.squares + step**2 * (self.count * (other.count / count)),
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )

    def standardisation(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return mean and population standard deviation; a constant column has scale 1."""
        constant = self.low == self.high
        scale = np.sqrt(self.squares / self.count)
        return (
            np.where(constant, self.low, self.mean),
            np.where(constant | (scale == 0.0), 1.0, scale),
        )
