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
        m = len(block)
        if not m:
            return
        values = block.astype(np.float64)
        mean = values.mean(axis=0)
        squares = ((values - mean) ** 2).sum(axis=0)
        low, high = values.min(axis=0), values.max(axis=0)
        if not self.rows:
            self._mean, self._squares, self._minimum, self._maximum = mean, squares, low, high
        else:
            # The parallel update of Chan, Golub and LeVeque: no cancellation.
            change, total = mean - self._mean, self.rows + m
            self._squares = self._squares + squares + change**2 * (self.rows * m / total)
            self._mean = self._mean + change * (m / total)
            self._minimum = np.minimum(self._minimum, low)
            self._maximum = np.maximum(self._maximum, high)
        self.rows += m

    def finish(self) -> FeatureStatistics:
        """Return the statistics of all rows that were added, of which there is at least one."""
        deviation = np.sqrt(self._squares / self.rows)
        return FeatureStatistics(self._mean, deviation, self._minimum, self._maximum)
