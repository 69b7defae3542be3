"""DG: one column after the other, each climbing outside those before, which stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ism_dask.cap import OverCapError
from ism_dask.rivals.ascent import ascend
from ism_dask.rivals.trace import Trace, completed
from ism_dask.solver import Evaluation, Operator
from ism_dask.states import Solution, State, Status, Stopping
from ism_dask.typing import Array


def solve(
    operator: Operator,
    q: int,
    stopping: Stopping,
    *,
    on_iteration: Callable[[State], None] | None = None,
    state: State | None = None,
) -> Solution:
    """Grow W by a column at a time; `max_iter` counts the steps of each."""
    trace = Trace(operator, q, stopping, on_iteration, state)
    # What it grew, and not the start, which may be better.
    return trace.ended(_grown(trace, q, stopping), last=True)


def _grown(trace: Trace, q: int, stopping: Stopping) -> Status:
    status = Status.CONVERGED
    W = trace.start[:, :0]
    try:
        for _ in range(q):
            W, settled = _with_column(trace, W, stopping)
            status = status if settled else Status.MAX_ITER
    except OverCapError:
        return Status.OVER_CAP
    return status


def _with_column(trace: Trace, fixed: Array, stopping: Stopping) -> tuple[Array, bool]:
    """Return W (d, k + 1) made of `fixed` (d, k) and a column, and whether that has settled."""
    count = fixed.shape[1]
    first = completed(fixed, trace.start)[:, count : count + 1]
    whole = partial(_beside, fixed)
    slope = partial(_outside, fixed)
    now = trace.evaluate(whole(first))
    if trace.settled(slope(now), first):
        trace.note(whole(first), now)
        return whole(first), True
    climb = ascend(lambda column: trace.evaluate(whole(column)), slope, first, now)
    for steps, (column, evaluation) in enumerate(climb, start=1):
        trace.note(whole(column), evaluation)
        settled = trace.settled(slope(evaluation), column)
        if settled or steps >= stopping.max_iter:
            return whole(column), settled
    raise RuntimeError("a climb has no end of its own")


def _beside(fixed: Array, column: Array) -> Array:
    return np.hstack([fixed, column])


def _outside(fixed: Array, evaluation: Evaluation) -> Array:
    """Return half of the slope of J by the last column (d, 1), less what leads to the others."""
    slope = evaluation.matrix[:, -1:]
    return np.asarray(slope - fixed @ (fixed.T @ slope))
