"""Rows in memory on which a fit makes its choices, and the settings that it chooses among."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import product
from typing import TypeVar

import numpy as np

from ism_dask._types import Array
from ism_dask.criteria.prediction import Block, RidgeRegression
from ism_dask.engines.blocks import BlocksInMemory
from ism_dask.gamma.row_values import repeated_rows
from ism_dask.kernels import Gaussian
from ism_dask.linalg.eigen import inverse_covariance
from ism_dask.rows.blocks import deal
from ism_dask.rows.execution import in_threads
from ism_dask.selection.rules import RULES
from ism_dask.selection.starts import START_NAMES, Starts
from ism_dask.solvers.ascent import ascend_roughly
from ism_dask.solvers.driver import TimeLimit
from ism_dask.solvers.lbfgs import Precondition

_Cell = TypeVar("_Cell")


@dataclass(frozen=True)
class Setting:
    """A kernel width, as a multiple of the kernel's own, and a ridge."""

    width: float
    ridge: float

    def times(self, width: float, ridge: float) -> Setting:
        """Return the setting with a width and a ridge that are these factors larger."""
        return Setting(
            float(np.clip(self.width * width, *RULES.width_limits)) if width != 1.0 else self.width,
            float(np.clip(self.ridge * ridge, *RULES.ridge_limits)),
        )


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows in memory, on which a fit makes its choices.

    Attributes
    ----------
    rows : Block
        Standardised rows in double precision, with their target and weights of mean 1.
    keys : (m,) array
        Numbers or classes by which rows of similar y are similar.
    regression : RidgeRegression
        With the kernel's own width; its ridge does not matter.
    width_is_free : bool
        Whether the width may be chosen.
    q : int
    seed : int
    time_limit : TimeLimit
        That of the fit: beyond it each climb takes one step.
    """

    rows: Block
    keys: Array
    regression: RidgeRegression
    width_is_free: bool
    q: int
    seed: int
    time_limit: TimeLimit = field(default_factory=TimeLimit)

    def part(self, numbers: Array) -> Sample:
        """Return the sample of some of the rows (k,), with starts of its own."""
        return Sample(
            self.rows.part(numbers),
            self.keys[numbers],
            self.regression,
            self.width_is_free,
            self.q,
            self.seed,
            self.time_limit,
        )

    def at(self, setting: Setting) -> RidgeRegression:
        """Return the regression with a width and a ridge."""
        return self.regression.with_width(setting.width, setting.ridge * self.kernel_size)

    @cached_property
    def kernel_size(self) -> float:
        """The mean kernel of a row with itself, which ridges are shares of."""
        X = self.rows.X
        Z = X * np.sqrt(self.q / X.shape[1])  # as long as the rows of X W are on average
        sizes = (
            weight * term.value(term.pairing.own(Z)).mean()
            for weight, term in self.regression.kernel.terms
        )
        return float(sum(sizes))

    @cached_property
    def blocks(self) -> BlocksInMemory:
        """The rows dealt into blocks."""
        return BlocksInMemory.dealt(self.rows, self.keys, self.seed)

    @property
    def avoids(self) -> bool:
        """Whether there is something that X W is not to predict."""
        signs = self.regression.signs
        return signs is not None and bool((signs < 0).any())

    @cached_property
    def explained_columns(self) -> Array:
        """The columns of Y (m, r) that X W is to predict."""
        signs = self.regression.signs
        return self.rows.Y if signs is None else self.rows.Y[:, signs > 0]

    @property
    def lengths(self) -> Array:
        """The squared length (m,) of what X W is to predict of each row."""
        return np.asarray((self.explained_columns**2).sum(axis=1))

    @cached_property
    def starts(self) -> Starts:
        """The candidate starts (d, q) by name."""
        weights = self.rows.weights
        rows = np.arange(self.rows.n_rows) if weights is None else repeated_rows(weights)
        return Starts(self.rows.X[rows], self.explained_columns[rows], self.keys[rows], self.q)

    @cached_property
    def start_settings(self) -> dict[str, Setting]:
        """The setting of the largest evidence for each start."""
        return {name: self.best_setting(self.starts[name]) for name in START_NAMES}

    @cached_property
    def best_starts(self) -> list[str]:
        """The names of the starts, that of the largest evidence first."""

        def evidence(name: str) -> float:
            return self.evidence(self.starts[name], self.start_settings[name])

        return sorted(START_NAMES, key=evidence, reverse=True)

    @cached_property
    def precondition(self) -> Precondition:
        """The function that multiplies a slope by the inverse covariance, with a ridge."""
        return inverse_covariance(self.rows.X.T @ self.rows.X / self.rows.n_rows)

    def climbed(self, W: Array, setting: Setting, steps: int) -> tuple[Array, float]:
        """Return W (d, q) and J after up to a number of steps."""
        evaluate = partial(self.blocks.explained, self.at(setting))
        return ascend_roughly(evaluate, W, self.precondition, steps, time_limit=self.time_limit)

    @cached_property
    def weight_cost(self) -> float:
        """By how much the log evidence rises by chance for each free weight of W.

        It is Schwarz's `log(n) / 2`, divided by the independent columns of y.
        """
        rank = int(np.linalg.matrix_rank(self.explained_columns))
        return float(np.log(self.rows.n_rows) / (2 * rank))

    def evidence(self, W: Array, setting: Setting) -> float:
        """Return the log marginal likelihood of a column of y at W (d, q)."""
        return self.blocks.evidence(self.at(setting), W)

    def objective(self, W: Array, setting: Setting) -> float:
        """Return J at W (d, q)."""
        return self.blocks.explained(self.at(setting), W).objective

    def best_setting(self, W: Array) -> Setting:
        """Return the setting of a grid with the largest evidence at W (d, q)."""
        row, column = RULES.first_cell
        widths, first = (
            (RULES.widths, (row, column)) if self.width_is_free else ((1.0,), (0, column))
        )
        grid = [[Setting(width, ridge) for ridge in RULES.ridges] for width in widths]
        return self.most_evident(W, grid, first)[0]

    def most_evident(
        self, W: Array, grid: Sequence[Sequence[Setting]], first: tuple[int, int]
    ) -> tuple[Setting, float]:
        """Return the setting of a grid with the largest evidence at W (d, q), and that evidence.

        The search begins in the row and the column `first`.
        """

        def evidence(settings: list[Setting]) -> list[float]:
            calls = [partial(self.evidence, W, each) for each in settings]
            return in_threads(calls, self.rows.n_rows)

        return climbed_grid(grid, evidence, first)


def share_explained(Z: Array, Y: Array, keys: Array) -> float:
    """Return the share of Y (n, r), centred, that rows Z (n, q) predict of each other.

    Each row is predicted by the others of its block, by a gaussian kernel ridge regression whose
    width and ridge have the largest evidence. `keys` (n,) deal the rows.
    """
    W = np.eye(Z.shape[1])
    some = deal(keys, -(-len(Z) // RULES.scoring_rows), 0)[0]
    regression = RidgeRegression(Gaussian().resolve(Z[some], 1.0), 1.0)
    sample = Sample(Block(Z, Y), keys, regression, True, Z.shape[1], 0)
    setting = sample.part(some).best_setting(W)
    losses = sample.blocks.leave_one_out(sample.at(setting), W)
    return 1.0 - float(losses.mean() / (Y**2).sum(axis=1).mean())


def climbed_grid(
    cells: Sequence[Sequence[_Cell]],
    values: Callable[[list[_Cell]], list[float]],
    first: tuple[int, int],
) -> tuple[_Cell, float]:
    """Return the cell of a grid that is better than its eight neighbours, and its value.

    Parameters
    ----------
    cells : sequence of sequences
        The rows of the grid.
    values : callable
        Returns the values of some cells; the larger is better.
    first : tuple of int
        The row and the column of the first cell.
    """
    known: dict[tuple[int, int], float] = {}
    here = first
    while True:
        near = [(here[0] + i, here[1] + j) for i, j in product((0, -1, 1), repeat=2)]
        near = [(i, j) for i, j in near if 0 <= i < len(cells) and 0 <= j < len(cells[0])]
        new = [each for each in near if each not in known]
        known.update(zip(new, values([cells[i][j] for i, j in new]), strict=True))
        best = max(near, key=known.__getitem__)
        if best == here:
            return cells[here[0]][here[1]], known[here]
        here = best
