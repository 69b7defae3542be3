"""DG: one column after the other, each climbing outside those before, which stay as they are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.operator import Evaluation, Operator
from ism_dask.records.iteration import Solution, State
from ism_dask.records.stopping import Stopping
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
    """Grow W by a column at a time; `max_iter` counts the steps of each."""
    trace = SolverLog(operator, q, stopping, on_iteration, state)
    # What it grew, and not the start, which may be better. Each column is best beside those
    # before it; all together need not be stationary.
    return trace.ended(_grown(trace, q, stopping), last=True, otherwise=Status.COLUMN_BY_COLUMN)


def _grown(trace: SolverLog, q: int, stopping: Stopping) -> Status:
    status = Status.CONVERGED
    W = trace.start[:, :0]
    try:
        for _ in range(q):
            W, settled = _with_column(trace, W, stopping)
            status = status if settled else Status.MAX_ITER
    except TimeIsUpError:
        return Status.OVER_CAP
    return status


def _with_column(trace: SolverLog, fixed: Array, stopping: Stopping) -> tuple[Array, bool]:
    """Return W (d, k + 1) made of `fixed` (d, k) and a column, and whether that has settled.

    The column is looked for in coordinates of what is outside of `fixed`, so that no rounding
    can lead it back.
    """
    trace.begin_anew()
    outside = np.linalg.qr(fixed, mode="complete")[0][:, fixed.shape[1] :]
    first = np.linalg.svd(outside.T @ trace.start, full_matrices=False)[0][:, :1]

    def whole(column: Array) -> Array:
        return np.hstack([fixed, outside @ column])

    def slope(evaluation: Evaluation) -> Array:
        return np.asarray(outside.T @ evaluation.matrix[:, -1:])

    now = trace.evaluate(whole(first))
    if trace.settled(slope(now), first):
        trace.note(whole(first), now)
        return whole(first), True
    climb = cayley_ascent(lambda column: trace.evaluate(whole(column)), slope, first, now)
    for steps, (column, evaluation) in enumerate(climb, start=1):
        trace.note(whole(column), evaluation)
        settled = trace.settled(slope(evaluation), column)
        if settled or steps >= stopping.max_iter:
            return whole(column), settled
    raise RuntimeError("a climb has no end of its own")
