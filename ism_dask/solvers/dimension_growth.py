"""DG, dimension growth: W column by column, each climbing in the complement of those before."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.operator import Operator, ProductEvaluation
from ism_dask.records.iteration import Solution, State
from ism_dask.records.stopping_rule import Stopping
from ism_dask.solvers.cayley_ascent import cayley_ascent
from ism_dask.solvers.solver_log import SolverLog
from ism_dask.solvers.time_limit import TimeIsUpError
from ism_dask.status import Status


def solve(
    operator: Operator,
    q: int,
    stopping: Stopping,
    *,
    on_iteration: Callable[[State], None] | None = None,
    state: State | None = None,
) -> Solution:
    """Return a W that grows by one column at a time; `max_iter` counts the steps of each column."""
    log = SolverLog(operator, q, stopping, on_iteration, state)
    # Return the W that has grown and not the best one, which may be the start. Each column is
    # optimal beside those before it; all together need not be stationary.
    return log.ended(_grow(log, q, stopping), last=True, otherwise=Status.COLUMN_BY_COLUMN)


def _grow(log: SolverLog, q: int, stopping: Stopping) -> Status:
    status = Status.CONVERGED
    W = log.start[:, :0]
    try:
        for _ in range(q):
            W, converged = _with_new_column(log, W, stopping)
            status = status if converged else Status.MAX_ITER
    except TimeIsUpError:
        return Status.OVER_CAP
    return status


def _with_new_column(log: SolverLog, fixed: Array, stopping: Stopping) -> tuple[Array, bool]:
    """Return W (d, k + 1), `fixed` (d, k) with a new column, and whether that column converged.

    The climb uses coordinates of the orthogonal complement of `fixed`, so that rounding cannot lead
    the column back into the span of `fixed`.
    """
    log.begin_subproblem()
    complement = np.linalg.qr(fixed, mode="complete")[0][:, fixed.shape[1] :]
    first = np.linalg.svd(complement.T @ log.start, full_matrices=False)[0][:, :1]

    def whole(column: Array) -> Array:
        return np.hstack([fixed, complement @ column])

    def slope(evaluation: ProductEvaluation) -> Array:
        return np.asarray(complement.T @ evaluation.product[:, -1:])

    now = log.evaluate(whole(first))
    if log.may_end_at(slope(now), first):
        log.note(whole(first), now)
        return whole(first), True
    climb = cayley_ascent(lambda column: log.evaluate(whole(column)), slope, first, now)
    for steps, (column, evaluation) in enumerate(climb, start=1):
        log.note(whole(column), evaluation)
        converged = log.may_end_at(slope(evaluation), column)
        if converged or steps >= stopping.max_iter:
            return whole(column), converged
    raise RuntimeError("a climb has no end of its own")
