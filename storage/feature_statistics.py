"""Mean, deviation and range of the new features over the rows that a model was fitted to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class FeatureStatistics:
    """Statistics of each new feature over rows.

    Attributes
    ----------
    mean, deviation, minimum, maximum : ndarray of shape (q,)
    """

    mean: NDArray[Any]
    deviation: NDArray[Any]
    minimum: NDArray[Any]
    maximum: NDArray[Any]

    def to_array(self) -> NDArray[Any]:
        """Return the statistics as rows of one array (4, q)."""
        return np.stack([self.mean, self.deviation, self.minimum, self.maximum])


class RunningStatistics:
    """Statistics over rows that come in blocks; sums are float64, about the mean so far."""

    def __init__(self) -> None:
        self.rows = 0
        self._mean = self._squares = np.zeros(0)
        self._minimum = self._maximum = np.zeros(0)

    def add(self, block: NDArray[Any]) -> None:
        """Add the next rows (m, q)."""
        if not len(block):
            return
        values = block.astype(np.float64)
        new = RunningStatistics()
        new.rows, new._mean = len(block), values.mean(axis=0)
        new._squares = ((values - new._mean) ** 2).sum(axis=0)
        new._minimum, new._maximum = values.min(axis=0), values.max(axis=0)
        self.merge(new)

    def merge(self, other: RunningStatistics) -> None:
        """Add the rows that the statistics of a later part of the rows were made from."""
        if not other.rows:
            return
        if not self.rows:
            self.rows, self._mean, self._squares = other.rows, other._mean, other._squares
            self._minimum, self._maximum = other._minimum, other._maximum
            return
        # The parallel update of Chan, Golub and LeVeque: no cancellation.
        change, total = other._mean - self._mean, self.rows + other.rows
        between = change**2 * (self.rows * other.rows / total)
        self._squares = self._squares + other._squares + between
        self._mean = self._mean + change * (other.rows / total)
        self._minimum = np.minimum(self._minimum, other._minimum)
        self._maximum = np.maximum(self._maximum, other._maximum)
        self.rows = total

    def finish(self) -> FeatureStatistics:
        """Return the statistics of all rows that were added, of which there is at least one."""
        deviation = np.sqrt(self._squares / self.rows)
        return FeatureStatistics(self._mean, deviation, self._minimum, self._maximum)
