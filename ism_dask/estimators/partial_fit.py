"""Fits to rows that come in blocks, of which some may be forgotten."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state

from ism_dask._types import Array
from ism_dask.blas_threads import single_threaded_blas
from ism_dask.engines import Problem
from ism_dask.engines.row_variance import relative_row_variance
from ism_dask.estimators.base import IKDR
from ism_dask.estimators.supervised_input import check_rows_and_target, row_weights
from ism_dask.gamma.targets import target_dependence
from ism_dask.rows.shards import cut

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
    def of(cls, X: Array, y: Array, rng: np.random.Generator) -> Reservoir:
        """Return the rows of a block, each of weight 1."""
        n = len(X)
        return cls(X, y, np.ones(n), 1.0 - rng.random(n), 0.0, n, float(n), float(n))

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
        """Return the rows of both."""
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


class PartialFit(IKDR):
    """Gives a supervised estimator the method `partial_fit`."""

    target: str
    whiten: bool
    class_weight: dict[Any, float] | str | None
    _reservoir: Reservoir | None
    _slope_noise: float | None

    @abstractmethod
    def _fit_to(self, X: Any, y: Any, sample_weight: Any) -> Self:
        """Learn the projection from rows X (n, d)."""

    def partial_fit(self, X: Any, y: Any, *, forgetting: float = 0.0) -> Self:
        """Learn the projection from the rows of all calls since the last `fit`.

        Up to 10,000 rows it is the fit to all of them. Of more, it is the fit to a random sample of
        10,000, and `sampling_error_` is the residual that W is then expected to have under all
        rows. With `warm_start`, each call continues at the last W, which is faster.

        Parameters
        ----------
        X : (n, d) array or frame
            A block of rows. The first one needs rows of two classes or more.
        y : (n,) labels, or (n,) or (n, t) numbers
        forgetting : float, default 0.0
            The share, from 0 to below 1, by which this call reduces the weight of each earlier
            row. With 0.1, the rows of ten calls ago count a third.

        Returns
        -------
        The estimator itself.
        """
        if not 0 <= forgetting < 1:
            raise ValueError(f"`forgetting` must be a number from 0 to below 1; got {forgetting!r}")
        if self.whiten:
            raise ValueError("`partial_fit` states no error for whitened features; unset `whiten`")
        earlier: Reservoir | None = getattr(self, "_reservoir", None)
        names = vars(self).get("feature_names_in_")
        if earlier is not None:
            X = self._validated(X, dtype=[np.float64, np.float32], reset=False)
        X, y = check_rows_and_target(self, X, y)
        names = vars(self).get("feature_names_in_") if earlier is None else names
        block = Reservoir.of(np.asarray(X), y, self._draws(earlier))
        held = (block if earlier is None else earlier.forgotten(forgetting).joined(block)).limited()
        self._fit_to(held.X, held.y, held.estimates)
        if names is not None:
            self.feature_names_in_ = names
        self._reservoir = held
        self.n_samples_seen_ = held.n_rows
        self.sampling_error_ = self._sampling_error(held)
        return self

    def _draws(self, earlier: Reservoir | None) -> np.random.Generator:
        """Return the random numbers of a block, which differ from call to call."""
        calls = 0 if earlier is None else earlier.n_rows
        seed = check_random_state(self.random_state or 0).randint(2**31)
        return np.random.default_rng([seed, calls])

    def _sampling_error(self, held: Reservoir) -> float:
        """Return the residual that W is expected to have under all rows, as a sample was fitted."""
        variance = held.sampling_variance
        if not variance:
            return 0.0
        if self._slope_noise is not None:
            return min(float(self._slope_noise * np.sqrt(variance / held.variance_held)), 1.0)
        weights = row_weights(held.y, self.target, self.class_weight, held.estimates)
        dependence = target_dependence(held.y, self.target, weights)
        rows, W = (held.X - self.mean_) / self.scale_, self.components_.T
        with single_threaded_blas():
            problem = Problem.from_dependence(cut(rows), self.kernel_, dependence)
            by_rows = relative_row_variance(problem, W)
        # The mean contribution of a row has each of its pairs from both sides, so that its variance
        # is four times that of the projection of a U-statistic.
        return min(float(np.sqrt(by_rows * variance)), 1.0)
