"""SM: uphill along the Stiefel manifold, by a curvilinear search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from ism_dask._types import Array
from ism_dask.engines.operator import Evaluation, Operator
from ism_dask.records.iteration import Solution, State
from ism_dask.records.stopping import RESIDUAL, Stopping
from ism_dask.solvers.cayley_ascent import cayley_ascent
from ism_dask.solvers.lbfgs import Precondition, lbfgs_ascent
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
    """Climb from where the spectral method starts, or from the W of `state`."""
    trace = SolverLog(operator, q, stopping, on_iteration, state)
    steps = cayley_ascent(trace.evaluate, lambda each: each.matrix, trace.start, trace.evaluation)
    return trace.ended(_climbed(trace, steps, stopping))


def climb(
    operator: Operator,
    q: int,
    stopping: Stopping,
    *,
    on_iteration: Callable[[State], None] | None = None,
    state: State | None = None,
    rest: float,
    still: float,
    precondition: Precondition | None = None,
) -> Solution:
    """Climb from the W of `state`, whose history and count of iterations go on, by L-BFGS.

    J rises in every step. `rest` and `still` are those of `Trace`, `precondition` is that of
    `climb_by_curvature`.
    """
    trace = SolverLog(operator, q, stopping, on_iteration, state, rest=rest, still=still)
    steps = lbfgs_ascent(trace.evaluate, trace.start, trace.evaluation, precondition)
    return trace.ended(_climbed(trace, steps, stopping))


# To a standstill: single precision, and the engine, have a share in the residual, too.
solve_fully = partial(climb, rest=0.4 * RESIDUAL, still=1e-15)
# To where single precision has done its part.
solve_roughly = partial(climb, rest=2e-3, still=1e-7)


def _climbed(
    trace: SolverLog, steps: Iterator[tuple[Array, Evaluation]], stopping: Stopping
) -> Status:
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
