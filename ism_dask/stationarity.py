"""Stationarity of a solution: its residual under the true kernel, not under an approximation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ism_dask._types import Array
from ism_dask.engines import Engine, ExactEngine
from ism_dask.engines.lowrank.landmark_engine import LandmarkEngine
from ism_dask.engines.tile_sums import gradient_of_pairs
from ism_dask.engines.tiles import PROJECTED, TileModel, with_projection
from ism_dask.gamma.base import GAMMA_FACTS
from ism_dask.linalg.subspaces import relative_residual
from ism_dask.records.iteration import Solution
from ism_dask.rows.raw import LoadedShard, RowFact
from ism_dask.status import Status

# The largest deviation of `W^T W` from the identity that a solution may have.
_ORTHONORMAL = 1e-10
# If Phi W is a smaller share of J than this, J does not depend on W except by rounding.
_FLAT = 1e-9
# The residual is taken over all pairs of rows while n^2 max(q, 10) is at most this; below ten
# columns the kernel takes most of the time. At q = 10 this is 63,000 rows, some seconds on two
# cores.
BUDGET = 4e10
_LEAST_COLUMNS = 10
# A fit that is over its time has a smaller budget, by this factor.
_SHARE_WHEN_LATE = 0.01
# Beyond the budget a sample of rows is compared with all rows, in about this share of that time.
_SAMPLE_SHARE = 0.5
_SAMPLE_ROWS = (500, 5000)


def is_flat(product: Array, objective: float) -> bool:
    """Return whether J, the `objective`, does not depend on W, of which `product` is Phi W."""
    return float(np.linalg.norm(product)) <= _FLAT * abs(objective)


def with_true_residual(engine: Engine, solution: Solution) -> Solution:
    """Return the solution by an engine with its residual under the true kernel.

    If the engine approximates, the residual is taken over all pairs of rows as long as that is
    affordable, and otherwise over a random sample of rows against all rows. After the time limit
    of a fit, little is affordable.
    """
    W, product, rows = solution.W, solution.product, engine.problem.shards.n_rows
    off = float(np.abs(W.T @ W - np.eye(W.shape[1])).max())
    if not off <= _ORTHONORMAL:
        raise FloatingPointError(
            f"the columns of W are off from orthonormal by {off:.1g}; expected at most "
            f"{_ORTHONORMAL:g}. This is an error of ism_dask: please report it with the data"
        )
    double = engine.double
    if double.approximate and isinstance(double, LandmarkEngine):
        exact = ExactEngine(engine.problem, W.shape[1])
        budget = BUDGET * (_SHARE_WHEN_LATE if solution.status is Status.OVER_CAP else 1.0)
        product, rows = _true_product(double, exact, W[: engine.problem.d], product, budget)
    report = replace(
        solution.report, engine=engine.name, engine_note=engine.note, residual_rows=rows
    )
    # The Phi W of a flat J is rounding, whose residual says nothing.
    if solution.status is Status.FLAT or is_flat(product, solution.objective):
        return replace(solution, status=Status.FLAT, residual=1.0, report=report)
    return replace(solution, residual=relative_residual(W, product), report=report)


def _true_product(
    engine: LandmarkEngine, exact: ExactEngine, W: Array, product: Array, budget: float
) -> tuple[Array, int]:
    """Return Phi W under the true kernel, and how many rows were compared with all rows for it.

    `product` (r + s, q) is Phi W by the engine that approximates, in double precision, with zeros
    for the directions in which the rows are constant.
    """
    n, q, true_product = engine.problem.shards.n_rows, W.shape[1], product.copy()
    if n**2 * max(q, _LEAST_COLUMNS) <= budget:
        try:
            true_product[: len(W)] = exact.product(W).product
            if not np.isfinite(true_product).all():  # single precision has overflowed
                true_product[: len(W)] = exact.gradient(W).product
        except MemoryError as error:
            # Fewer rows would do, but then free memory would decide which residual is stated.
            raise MemoryError(f"the residual under the true kernel: {error}") from error
        return true_product, n
    least, most = _SAMPLE_ROWS
    affordable = int(_SAMPLE_SHARE * budget / (n * max(q, _LEAST_COLUMNS)))
    rows = min(n, most, max(least, affordable))
    true_product[: len(W)] += _correction(engine, W, rows)
    return true_product, rows


def _correction(engine: LandmarkEngine, W: Array, rows: int) -> Array:
    """Return an unbiased estimate (d, q) of the true Phi W minus that of `engine`.

    A random sample of rows is compared with all rows. Only the difference is estimated. It is
    small, so that few rows estimate it well.
    """
    problem = engine.problem
    n = problem.shards.n_rows
    rng = np.random.default_rng([problem.seed, n])
    points = with_projection(problem.shards, W).persisted()
    sample = points.load_rows(np.sort(rng.choice(n, rows, replace=False)))
    psi_Z, degrees = points.fact_as_rows(PROJECTED, W.shape[1]).fold(
        _true_gradient_of_sample, sample.facts, TileModel(problem.kernel, problem.gamma, n)
    )
    true_rows = psi_Z + degrees[:, None] * sample.facts[PROJECTED]
    engine_rows = engine.product_rows(W, sample.X, sample.facts[GAMMA_FACTS])
    return (n / rows) * (sample.X.T @ (true_rows - engine_rows))


def _true_gradient_of_sample(
    shard: LoadedShard, facts: Mapping[RowFact, Array], model: TileModel
) -> tuple[Array, Array]:
    """Return the part of `coupling * Psi Z` and of the degrees of a sample that a shard adds.

    The sample, given by its facts, is the head of a stripe of tiles, and the shard is its tail.
    """
    Z = facts[PROJECTED]
    count = len(Z)
    head, tail = LoadedShard(0, Z, facts), LoadedShard(count, shard.X, shard.facts)
    stripe_model = replace(model, n_rows=count + len(shard.X))
    psi_Z, degrees, _ = gradient_of_pairs(head, iter([tail]), stripe_model)
    return psi_Z[:count], degrees[:count]
