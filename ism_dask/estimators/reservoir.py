"""A random sample of the rows that came in blocks, of which some may be forgotten."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ism_dask._types import Array

# Rows that are held in memory. Of more rows, a random sample is held.
HELD_ROWS = 10_000


@dataclass(frozen=True, eq=False)
class Reservoir:
    """A random sample of weighted rows, by priorities (Duffield, Lund and Thorup 2007).

    A row of weight w has the priority `w / u` with a random u from 0 to 1, and the rows of largest
    priority are held. They count with the larger of w and the largest priority among the other
    rows; any sum over rows is then estimated without bias.

    Attributes
    ----------
    X : (m, d) array
    y : (m,) or (m, t) array
    weights, uniform : (m,) arrays
        w and u of each row.
    threshold : float
        The largest priority of a row that is not held, 0 if all are.
    n_rows : int
        The number of rows so far.
    total, squares : float
        The sums of the weights of all rows so far, and of their squares.
    """

    X: Array
    y: Array
    weights: Array
    uniform: Array
    threshold: float
    n_rows: int
    total: float
    squares: float

    @classmethod
    def of(cls, X: Array, y: Array, weights: Array, rng: np.random.Generator) -> Reservoir:
        """Return the rows of a block with their weights (n,)."""
        n, squares = len(X), float(weights @ weights)
        uniform = 1.0 - rng.random(n)
        return cls(X, y, weights, uniform, 0.0, n, float(weights.sum()), squares)

    def forgotten(self, share: float) -> Reservoir:
        """Return the rows with their weights reduced by a share."""
        rest = 1.0 - share
        return replace(
            self,
            weights=rest * self.weights,
            threshold=rest * self.threshold,
            total=rest * self.total,
            squares=rest**2 * self.squares,
        )

    def joined(self, other: Reservoir) -> Reservoir:
        """Return the rows of both; raise a ValueError if their y are of different kinds."""
        numeric = [each.y.dtype.kind in "biuf" for each in (self, other)]
        if numeric[0] != numeric[1] or self.y.shape[1:] != other.y.shape[1:]:
            raise ValueError(
                f"`y` of shape {other.y.shape} and dtype {other.y.dtype} does not go with that of "
                f"earlier calls, whose dtype is {self.y.dtype} and whose rows are of shape "
                f"{self.y.shape[1:]}; call `fit` to begin anew"
            )
        names = ("X", "y", "weights", "uniform")
        X, y, weights, uniform = (
            np.concatenate([getattr(self, name), getattr(other, name)]) for name in names
        )
        threshold = max(self.threshold, other.threshold)
        total, squares = self.total + other.total, self.squares + other.squares
        n_rows = self.n_rows + other.n_rows
        return Reservoir(X, y, weights, uniform, threshold, n_rows, total, squares)

    def limited(self) -> Reservoir:
        """Return at most as many rows as are held, those of largest priority, in their order."""
        priorities = self.weights / self.uniform
        ranks = np.argsort(-priorities, kind="stable")
        held, others = np.sort(ranks[:HELD_ROWS]), ranks[HELD_ROWS:]
        return replace(
            self,
            X=self.X[held],
            y=self.y[held],
            weights=self.weights[held],
            uniform=self.uniform[held],
            threshold=max(self.threshold, float(priorities[others].max(initial=0.0))),
        )

    @property
    def estimates(self) -> Array | None:
        """The weights (m,) with which the rows count; None if they count alike."""
        counts = np.maximum(self.weights, self.threshold)
        return None if np.ptp(counts) == 0 else counts

    @property
    def sampling_variance(self) -> float:
        """The variance of a mean over these rows around that over all rows so far.

        It is in units of the variance over rows: `1 / m - 1 / n` if all rows have one weight.
        """
        everywhere = self.squares / self.total**2
        return max(self.variance_held - everywhere, 0.0) if self.threshold else 0.0

    @property
    def variance_held(self) -> float:
        """The variance of a mean over these rows, in units of the variance over rows."""
        counts = np.maximum(self.weights, self.threshold)
        return float(counts @ counts) / float(counts.sum()) ** 2
