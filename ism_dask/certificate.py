"""How far a solution is from a stationary point of the true objective, not of its approximation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ism_dask.engines import Engine, Exact
from ism_dask.engines.factored import Factored
from ism_dask.engines.tiles import Model, gradient_stripe, projected
from ism_dask.shards import Piece
from ism_dask.solver import relative_residual
from ism_dask.states import Solution
from ism_dask.typing import Array

# Up to here all pairs of rows are looked at: n^2 max(q, 10), where below ten columns the time
# goes into the kernel. At q = 10 this is 63,000 rows, some seconds on two cores.
BUDGET = 4e10
_LEAST_COLUMNS = 10
# Beyond, a sample of rows is held against all rows, for about half of that time.
_SAMPLE_SHARE = 0.5
_SAMPLE_ROWS = (500, 5000)


@dataclass(frozen=True)
class Residual:
    """`||Phi W - W (W^T Phi W)|| / ||Phi W||`: 0 at a stationary point.

    Attributes
    ----------
    value : float
    rows : int
        How many rows were held against all rows under the true kernel: n, or a sample. For
        these Phi W is corrected from what the engine has to what is true.
    """

    value: float
    rows: int


def residual(engine: Engine, solution: Solution) -> Residual:
    """Return the residual of what `engine` came to, under the true kernel as far as affordable."""
    problem, W = engine.problem, solution.W
    n, q = problem.shards.n_rows, W.shape[1]
    if not engine.approximate:
        return Residual(relative_residual(W, solution.product), n)
    if n**2 * max(q, _LEAST_COLUMNS) <= BUDGET:
        try:
            return Residual(relative_residual(W, Exact(problem, q).gradient(W).matrix), n)
        except MemoryError:
            pass  # tiles may need more than landmarks did: the fit is not to be lost over that
    if not isinstance(engine, Factored):
        raise TypeError(f"no row by row account of Phi W from the engine {engine.name!r}")
    rows = _affordable_rows(n, q)
    product = solution.product + _correction(engine, W, rows)
    return Residual(relative_residual(W, product), rows)


def _affordable_rows(n: int, q: int) -> int:
    least, most = _SAMPLE_ROWS
    return min(n, most, max(least, int(_SAMPLE_SHARE * BUDGET / (n * max(q, _LEAST_COLUMNS)))))


def _correction(engine: Factored, W: Array, rows: int) -> Array:
    """Return an unbiased estimate of the true Phi W less what `engine` has: (d, q).

    Each of some random rows is held against all rows. Only the difference is estimated, which is
    small, so that few rows tell it well.
    """
    problem = engine.problem
    n = problem.shards.n_rows
    rng = np.random.default_rng([problem.seed, n])
    points = problem.shards.derive(projected, W).settled()
    sample = points.pick(np.sort(rng.choice(n, rows, replace=False)))
    moved, degrees = points.through(W.shape[1]).fold(
        _sample_rows, sample.facts, Model(problem.kernel, problem.gamma, n)
    )
    true = moved + degrees[:, None] * sample.facts[-1]
    return (n / rows) * (sample.X.T @ (true - engine.moved(W, sample.X, sample.facts[0])))


def _sample_rows(piece: Piece, facts: tuple[Array, ...], model: Model) -> tuple[Array, Array]:
    """Return what the rows of a piece bring to `coupling * Psi Z` and the degrees of a sample.

    The sample, told by its facts, is the head of a stripe whose tail is the piece.
    """
    count = len(facts[-1])
    head, tail = Piece(0, facts[-1], facts), Piece(count, piece.X, piece.facts)
    both = replace(model, n_rows=count + len(piece.X))
    moved, degrees, _ = gradient_stripe(head, iter([tail]), both)
    return moved[:count], degrees[:count]
