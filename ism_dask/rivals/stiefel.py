"""SM: uphill along the Stiefel manifold, by a curvilinear search."""

from __future__ import annotations

from collections.abc import Callable

from ism_dask.cap import OverCapError
from ism_dask.rivals.ascent import ascend
from ism_dask.rivals.trace import Trace
from ism_dask.solver import Operator
from ism_dask.states import Solution, State, Status, Stopping


def solve(
    operator: Operator,
    q: int,
    stopping: Stopping,
    *,
    on_iteration: Callable[[State], None] | None = None,
    state: State | None = None,
) -> Solution:
    """Climb from where the spectral method starts, or from the W of `state`."""
    trace = Trace(operator, q, stopping, on_iteration, state)
    return trace.ended(_climbed(trace, stopping))


def _climbed(trace: Trace, stopping: Stopping) -> Status:
    if trace.at_rest:
        return Status.CONVERGED
    climb = ascend(trace.evaluate, lambda each: each.matrix, trace.start, trace.evaluation)
    try:
        for W, evaluation in climb:
            trace.note(W, evaluation)
            if trace.settled(evaluation.matrix, W):
                return Status.CONVERGED
            if trace.state.iteration >= stopping.max_iter:
                return Status.MAX_ITER
    except OverCapError:
        pass
    return Status.OVER_CAP
