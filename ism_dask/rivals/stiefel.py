"""SM: uphill along the Stiefel manifold, by a curvilinear search."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ism_dask.rivals.ascent import ascend
from ism_dask.rivals.quasi_newton import climb_by_curvature
from ism_dask.rivals.trace import Trace
from ism_dask.solver import Evaluation, Operator
from ism_dask.states import RESIDUAL, Solution, State, Status, Stopping
from ism_dask.time_limit import TimeIsUpError
from ism_dask.typing import Array

# Of the residual that counts as stationary: single precision, and the engine, have a share in it.
_CAUTION = 0.4
# The residual, and the share by which J changes, where single precision has done its part.
_NEAR, _NEARLY_STILL = 0.02, 1e-6
# The share of J below which it stands still, but for rounding.
_STILL = 1e-15


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
    steps = ascend(trace.evaluate, lambda each: each.matrix, trace.start, trace.evaluation)
    return trace.ended(_climbed(trace, steps, stopping))


def climb(
    operator: Operator,
    q: int,
    stopping: Stopping,
    *,
    on_iteration: Callable[[State], None] | None = None,
    state: State | None = None,
) -> Solution:
    """Climb from the W of `state`, whose history and count of iterations go on, to a standstill.

    J rises in every step, by L-BFGS.
    """
    trace = Trace(
        operator, q, stopping, on_iteration, state, rest=_CAUTION * RESIDUAL, still=_STILL
    )
    steps = climb_by_curvature(trace.evaluate, trace.start, trace.evaluation)
    return trace.ended(_climbed(trace, steps, stopping))


def approach(
    operator: Operator,
    q: int,
    stopping: Stopping,
    *,
    on_iteration: Callable[[State], None] | None = None,
    state: State | None = None,
) -> Solution:
    """Climb as `climb` does, until single precision cannot tell much more."""
    trace = Trace(operator, q, stopping, on_iteration, state, rest=_NEAR, still=_NEARLY_STILL)
    steps = climb_by_curvature(trace.evaluate, trace.start, trace.evaluation)
    return trace.ended(_climbed(trace, steps, stopping))


def _climbed(trace: Trace, steps: Iterator[tuple[Array, Evaluation]], stopping: Stopping) -> Status:
    if trace.at_rest:
        return Status.CONVERGED
    try:
        for W, evaluation in steps:
            trace.note(W, evaluation)
            if trace.settled(evaluation.matrix, W):
                return Status.CONVERGED
            if trace.state.iteration >= stopping.max_iter:
                return Status.MAX_ITER
    except TimeIsUpError:
        return Status.OVER_CAP
    return Status.CONVERGED  # no step raises J any more; the residual is looked at
