"""Rows in memory on which a fit makes its choices, and the settings that it chooses among."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import product

import numpy as np

from ism_dask._types import Array
from ism_dask.criteria.prediction import RidgeRegression, RowsInMemory
from ism_dask.gamma.base import repeated_rows
from ism_dask.kernels import Gaussian
from ism_dask.linalg.eigen import inverse_covariance
from ism_dask.rows.raw import deal
from ism_dask.selection.rules import RULES, Factors
from ism_dask.selection.starts import START_NAMES, starts_by_name
from ism_dask.solvers.ascent import Precondition, ascend_roughly
from ism_dask.solvers.base import TimeLimit
from ism_dask.threads import in_threads


@dataclass(frozen=True)
class Setting:
    """A width, in units of the kernel's own, and a ridge, in units of its mean diagonal."""

    width: float
    ridge: float

    def times(
        self, width: float, ridge: float, least_ridge: float = RULES.ridge_limits[0]
    ) -> Setting:
        """Return the setting with these factors, within the limits of `RULES`."""
        return Setting(
            float(np.clip(self.width * width, *RULES.width_limits)) if width != 1.0 else self.width,
            float(np.clip(self.ridge * ridge, least_ridge, RULES.ridge_limits[1])),
        )


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows in memory, on which a fit makes its choices.

    The rows are standardised, in double precision, with their target and weights of mean 1; rows of
    similar y have similar keys (m,). The base regression has the kernel's own width, and its ridge
    does not matter. Beyond the time limit of the fit each climb takes one step.

    A fold has the training rows, and some of the starts alone; `unseen` are the held-out rows, and
    `fitted` the W (d, q) so far, first the best start.
    """

    rows: RowsInMemory
    keys: Array
    base: RidgeRegression
    width_is_free: bool
    q: int
    seed: int
    time_limit: TimeLimit = field(default_factory=TimeLimit)
    start_names: tuple[str, ...] = START_NAMES
    unseen: RowsInMemory | None = None
    fitted: list[Array] = field(default_factory=list)

    def part(self, numbers: Array) -> Sample:
        """Return the sample of some of the rows (k,), with starts of its own."""
        return replace(self, rows=self.rows.part(numbers), keys=self.keys[numbers], fitted=[])

    def without(self, held_out: Array, start_names: tuple[str, ...]) -> Sample:
        """Return the fold of the other rows than some (k,), which are held out."""
        fold = self.part(np.setdiff1d(np.arange(self.rows.n_rows), held_out))
        return replace(fold, start_names=start_names, unseen=self.rows.part(held_out))

    def losses(self, predicted: Array | float) -> Array:
        """Return the losses (2, m) of the held-out rows, of which something is predicted.

        The second ones are those of what X W is not to predict.
        """
        assert self.unseen is not None
        return self.unseen.weighted(self.base.sums((self.unseen.Y - predicted) ** 2))

    def regression(self, setting: Setting) -> RidgeRegression:
        """Return the regression with a width and a ridge."""
        kernel, width = self.base.kernel, setting.width
        kernel = kernel if width == 1.0 else kernel.widened(width)
        return replace(self.base, kernel=kernel, ridge=setting.ridge * self.kernel_size)

    @cached_property
    def kernel_size(self) -> float:
        """The mean kernel of a row with itself, which ridges are shares of."""
        X = self.rows.X
        Z = X * np.sqrt(self.q / X.shape[1])  # as long as the rows of X W are on average
        return float(np.average(self.base.kernel.own(Z), weights=self.rows.weights))

    @property
    def avoids(self) -> bool:
        """Whether there is something that X W is not to predict."""
        return self.base.signs is not None and bool((self.base.signs < 0).any())

    @cached_property
    def explained_columns(self) -> Array:
        """The columns of Y (m, r) that X W is to predict."""
        signs = self.base.signs
        return self.rows.Y if signs is None else self.rows.Y[:, signs > 0]

    @cached_property
    def starts(self) -> dict[str, Array]:
        """The candidate starts (d, q) by name."""
        weights = self.rows.weights
        rows = np.arange(self.rows.n_rows) if weights is None else repeated_rows(weights)
        X, Y, keys = self.rows.X[rows], self.explained_columns[rows], self.keys[rows]
        return starts_by_name(X, Y, keys, self.q, self.start_names)

    @cached_property
    def start_settings(self) -> dict[str, tuple[Setting, float]]:
        """For each start the setting of its largest evidence, and that; the best start first.

        After the time limit it is the first start alone.
        """
        names = self.start_names[:1] if self.time_limit.is_over else self.start_names
        settings = {name: self.best_setting(self.starts[name]) for name in names}
        return dict(sorted(settings.items(), key=lambda item: item[1][1], reverse=True))

    @cached_property
    def precondition(self) -> Precondition:
        """The function that multiplies a slope by the inverse covariance, with a ridge."""
        return inverse_covariance(self.rows.X)

    @cached_property
    def weight_cost(self) -> float:
        """By how much the log evidence has to rise for each free weight of W.

        It is Schwarz's `log(n) / 2`, divided by the independent columns of y.
        """
        rank = int(np.linalg.matrix_rank(self.explained_columns))
        return float(np.log(self.rows.n_rows) / (2 * rank))

    def climbed(self, W: Array, regression: RidgeRegression, steps: int) -> tuple[Array, float]:
        """Return W (d, q) and J after up to a number of steps on the sample."""
        evaluate = partial(regression.explained, self.rows)
        return ascend_roughly(evaluate, W, self.precondition, steps, time_limit=self.time_limit)

    def objective(self, W: Array, setting: Setting) -> float:
        """Return J at W (d, q)."""
        return self.regression(setting).explained(self.rows, W).objective

    def leave_one_out(self, W: Array, setting: Setting) -> Array:
        """Return the squared error (n,) with which the others predict each row.

        The others are the rows of other groups, if there are groups.
        """
        return self.regression(setting).leave_one_out(self.rows, W)

    def evidence(self, W: Array, setting: Setting) -> float:
        """Return the log marginal likelihood of a column of y at W (d, q)."""
        return self.regression(setting).evidence(self.rows, W)

    def best_setting(self, W: Array, near: Setting | None = None) -> tuple[Setting, float]:
        """Return the setting of largest evidence at W (d, q), and that: of all, or near one."""

        def evidences(settings: list[Setting]) -> list[float]:
            calls = [partial(self.evidence, W, each) for each in settings]
            return in_threads(calls, self.rows.n_rows)

        if near is not None:
            return self.best_of_grid(evidences, near, RULES.near_widths, RULES.near_ridges)
        usual = Setting(1.0, 1.0), RULES.widths, RULES.ridges
        return self.best_of_grid(evidences, *usual, first=RULES.first_factors)

    def best_of_grid(
        self,
        values: Callable[[list[Setting]], list[float]],
        near: Setting,
        widths: Factors,
        ridges: Factors,
        *,
        first: tuple[float, float] = (1.0, 1.0),
        least_ridge: float = RULES.ridge_limits[0],
    ) -> tuple[Setting, float]:
        """Return the setting of a grid that is better than its eight neighbours, and its value.

        `values` returns the values of some settings, the larger the better; those of the grid are
        `near` times factors. The search begins at the factors `first`; a width that is not free has
        the factor 1 alone. After the time limit it ends there.
        """
        width, ridge = first if self.width_is_free else (1.0, first[1])
        widths = widths if self.width_is_free else (1.0,)
        if self.time_limit.is_over:
            widths, ridges = (width,), (ridge,)
        grid = {
            (i, j): near.times(widths[i], ridges[j], least_ridge)
            for i, j in product(range(len(widths)), range(len(ridges)))
        }
        here, value_at = (widths.index(width), ridges.index(ridge)), dict[tuple[int, int], float]()
        while True:
            around = [(here[0] + i, here[1] + j) for i, j in product((0, -1, 1), repeat=2)]
            cells = [cell for cell in around if cell in grid]
            new = [cell for cell in cells if cell not in value_at]
            value_at.update(zip(new, values([grid[cell] for cell in new]), strict=True))
            best = max(cells, key=value_at.__getitem__)
            if best == here:
                return grid[here], value_at[here]
            here = best


def share_explained(Z: Array, Y: Array, keys: Array) -> float:
    """Return the share of Y (n, r), centred, that rows Z (n, q) predict of each other.

    Each row is predicted by the others of its part, by a gaussian kernel ridge regression whose
    width and ridge have the largest evidence. `keys` (n,) deal the rows into parts.
    """
    W = np.eye(Z.shape[1])
    parts = deal(keys, max(1, round(len(Z) / RULES.stages[0])), 0)
    regression = RidgeRegression(Gaussian().resolve(Z[parts[0]], 1.0), 1.0)
    sample = Sample(RowsInMemory(Z, Y), keys, regression, True, Z.shape[1], 0)
    setting, _ = sample.part(parts[0]).best_setting(W)
    calls = [partial(sample.part(part).leave_one_out, W, setting) for part in parts]
    losses = np.concatenate(in_threads(calls, len(Z)))
    return 1.0 - float(losses.mean() / (Y**2).sum(axis=1).mean())
