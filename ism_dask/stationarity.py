"""How far a solution is from a stationary point of the true objective, not of its approximation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ism_dask._types import Array
from ism_dask.engines import Blocks, Engine, Exact, PaddedOperator
from ism_dask.engines.lowrank.base import LowRankEngine
from ism_dask.engines.operator import relative_residual
from ism_dask.engines.tile_walk import TileModel, gradient_stripe, project_piece
from ism_dask.linalg.eigen import rayleigh_ritz
from ism_dask.records.iteration import Solution
from ism_dask.rows import LoadedShard

# How far `W^T W` of a solution may be from the identity.
_ORTHONORMAL = 1e-10
# Up to here all pairs of rows are looked at: n^2 max(q, 10), where below ten columns the time
# goes into the kernel. At q = 10 this is 63,000 rows, some seconds on two cores.
BUDGET = 4e10
_LEAST_COLUMNS = 10
# By blocks up to here: J is wanted in double precision, and other blocks are nearly as good.
_BLOCKS_BUDGET = 1e10
# Beyond, a sample of rows is held against all rows, for about half of that time.
_SAMPLE_SHARE = 0.5
_SAMPLE_ROWS = (500, 5000)


def with_true_residual(engine: Engine, solution: Solution) -> Solution:
    """Return `solution` with J in double precision, and its residual under the true kernel.

    Where the engine approximates, that residual is taken over all pairs of rows as far as that is
    affordable. Beyond, a random sample of rows is held against all rows. A solution by blocks gets
    its J and eigenvalues from there, too, or from more and other blocks.
    """
    check_orthonormal(solution.W)
    if isinstance(engine, Blocks):
        return _by_more_pairs(engine, solution)
    if not solution.in_double:
        solution = _evaluated_again(_operator_of(engine, solution.W), solution)
    W, product, rows = solution.W, solution.product, engine.problem.shards.n_rows
    if engine.approximate:
        product, rows = _true_product(engine, W[: engine.problem.d], product)
    return replace(solution, residual=relative_residual(W, product), residual_rows=rows)


def _operator_of(engine: Engine, W: Array) -> PaddedOperator:
    """Return the operator whose W have as many rows as this one (r + s, q)."""
    return PaddedOperator(engine, len(W) - engine.problem.d)


def check_orthonormal(W: Array) -> None:
    """Raise a FloatingPointError where the columns of W (d, q) are not what every solver owes."""
    off = float(np.abs(W.T @ W - np.eye(W.shape[1])).max())
    if not off <= _ORTHONORMAL:
        raise FloatingPointError(
            f"the columns of W are off from orthonormal by {off:.1g}; expected at most "
            f"{_ORTHONORMAL:g}. This is an error of ism_dask: please report it with the data"
        )


def _evaluated_again(operator: PaddedOperator, solution: Solution) -> Solution:
    """Return `solution` with J, its bound, Phi W and the eigenvalues of another operator."""
    evaluation = operator.gradient(solution.W)
    following = float(solution.eigenvalues[-1]) - solution.eigengap
    W, values, product = rayleigh_ritz(solution.W, evaluation.matrix)
    return replace(
        solution,
        W=W,
        eigenvalues=values,
        eigengap=float(values[-1]) - following,
        objective=evaluation.objective,
        error=evaluation.error,
        standard_error=evaluation.standard_error,
        product=product,
        in_double=True,
    )


def _by_more_pairs(engine: Blocks, solution: Solution) -> Solution:
    """Return a solution by blocks with J, eigenvalues and residual by all pairs, or by other ones.

    Other blocks have no part in how W came about. Their noise is in the residual.
    """
    q = solution.W.shape[1]
    n, columns = engine.problem.shards.n_rows, max(q, _LEAST_COLUMNS)
    judged, rows = None, n
    if n**2 * columns <= _BLOCKS_BUDGET:
        try:
            exact = Exact(engine.problem, q)
            judged = _evaluated_again(_operator_of(exact, solution.W), solution)
        except MemoryError:
            pass  # tiles may need more than blocks did: the fit is not to be lost over that
    if judged is None:
        others = engine.others(BUDGET / (n * columns))
        judged = _evaluated_again(_operator_of(others, solution.W), solution)
        rows = round(others.partners)
    residual = relative_residual(judged.W, judged.product)
    return replace(judged, residual=residual, residual_rows=rows)


def _true_product(engine: Engine, W: Array, product: Array) -> tuple[Array, int]:
    """Return Phi W under the true kernel, and how many rows were held against all for it.

    Parameters
    ----------
    engine : Engine
    W : (d, q) array
    product : (r + s, q) array
        What the engine has for Phi W, with zeros where the rows are constant.
    """
    problem, q = engine.problem, W.shape[1]
    n, true = problem.shards.n_rows, product.copy()
    if n**2 * max(q, _LEAST_COLUMNS) <= BUDGET:
        try:
            exact = Exact(problem, q)
            true[: len(W)] = exact.product(W).matrix
            if not np.isfinite(true).all():  # beyond what single precision holds
                true[: len(W)] = exact.gradient(W).matrix
        except MemoryError:
            pass  # tiles may need more than landmarks did: the fit is not to be lost over that
        else:
            return true, n
    if not isinstance(engine.double, LowRankEngine):
        raise TypeError(f"no row by row account of Phi W from the engine {engine.name!r}")
    rows = _affordable_rows(n, q)
    true[: len(W)] += _correction(engine.double, W, rows)
    return true, rows


def _affordable_rows(n: int, q: int) -> int:
    least, most = _SAMPLE_ROWS
    return min(n, most, max(least, int(_SAMPLE_SHARE * BUDGET / (n * max(q, _LEAST_COLUMNS)))))


def _correction(engine: LowRankEngine, W: Array, rows: int) -> Array:
    """Return an unbiased estimate of the true Phi W less what `engine` has: (d, q).

    Each of some random rows is held against all rows. Only the difference is estimated, which is
    small, so that few rows tell it well.
    """
    problem = engine.problem
    n = problem.shards.n_rows
    rng = np.random.default_rng([problem.seed, n])
    points = problem.shards.derive(project_piece, W).settled()
    sample = points.pick(np.sort(rng.choice(n, rows, replace=False)))
    moved, degrees = points.through(W.shape[1]).fold(
        _sample_rows, sample.facts, TileModel(problem.kernel, problem.gamma, n)
    )
    true = moved + degrees[:, None] * sample.facts[-1]
    return (n / rows) * (sample.X.T @ (true - engine.moved(W, sample.X, sample.facts[0])))


def _sample_rows(
    piece: LoadedShard, facts: tuple[Array, ...], model: TileModel
) -> tuple[Array, Array]:
    """Return what the rows of a piece bring to `coupling * Psi Z` and the degrees of a sample.

    The sample, told by its facts, is the head of a stripe whose tail is the piece.
    """
    count = len(facts[-1])
    head, tail = LoadedShard(0, facts[-1], facts), LoadedShard(count, piece.X, piece.facts)
    both = replace(model, n_rows=count + len(piece.X))
    moved, degrees, _ = gradient_stripe(head, iter([tail]), both)
    return moved[:count], degrees[:count]
