"""SM: uphill along the Stiefel manifold, by a curvilinear search."""

from __future__ import annotations

from collections.abc import Callable

from ism_dask.rivals.ascent import Pace, ascend
from ism_dask.rivals.trace import Trace
from ism_dask.solver import Operator
from ism_dask.states import RESIDUAL, Solution, State, Status, Stopping
from ism_dask.time_limit import TimeIsUpError

# Of the residual that counts as stationary: single precision, and the engine, have a share in it.
_CAUTION = 0.1
# The share of J below which it stands still, but for rounding.
_STILL = 1e-15
# Steps that stay on the hill on which they begin: where long ones lead hangs on rounding.
_CAREFUL = Pace(memory=0.0, turn=0.1)


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


def climb(
    operator: Operator,
    q: int,
    stopping: Stopping,
    *,
    on_iteration: Callable[[State], None] | None = None,
    state: State | None = None,
) -> Solution:
    """Climb from the W of `state`, whose history and count of iterations go on, to a standstill."""
    trace = Trace(
        operator, q, stopping, on_iteration, state, rest=_CAUTION * RESIDUAL, still=_STILL
    )
    return trace.ended(_climbed(trace, stopping, _CAREFUL))


def _climbed(trace: Trace, stopping: Stopping, pace: Pace = Pace()) -> Status:  # noqa: B008
    if trace.at_rest:
        return Status.CONVERGED
    climb = ascend(trace.evaluate, lambda each: each.matrix, trace.start, trace.evaluation, pace)
    try:
        for W, evaluation in climb:
            trace.note(W, evaluation)
            if trace.settled(evaluation.matrix, W):
                return Status.CONVERGED
            if trace.state.iteration >= stopping.max_iter:
                return Status.MAX_ITER
    except TimeIsUpError:
        pass
    return Status.OVER_CAP
