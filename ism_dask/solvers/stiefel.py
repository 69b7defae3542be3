"""SM: gradient ascent on the Stiefel manifold, by a curvilinear search or by L-BFGS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from ism_dask._types import Array
from ism_dask.engines.operator import Operator, ProductEvaluation
from ism_dask.records.iteration import Solution, State
from ism_dask.records.stopping_rule import RESIDUAL, Stopping
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
    """Return the solution of a curvilinear search from the spectral start, or from `state`."""
    log = SolverLog(operator, q, stopping, on_iteration, state)
    steps = cayley_ascent(log.evaluate, lambda each: each.product, log.start, log.evaluation)
    return log.ended(follow(log, steps, stopping))


def climb(
    operator: Operator,
    q: int,
    stopping: Stopping,
    *,
    on_iteration: Callable[[State], None] | None = None,
    state: State | None = None,
    precondition: Precondition | None,
    rest: float,
    still: float,
) -> Solution:
    """Return the solution of L-BFGS from the W of `state`, whose history and count continue.

    J rises in every step. `precondition` is a parameter of `lbfgs_ascent`, `rest` and `still` are
    parameters of `SolverLog`.
    """
    log = SolverLog(operator, q, stopping, on_iteration, state, rest=rest, still=still)
    steps = lbfgs_ascent(log.evaluate, log.start, log.evaluation, precondition)
    return log.ended(follow(log, steps, stopping))


# The residual at which a climb ends. It is below the one that `converged` allows, because single
# precision and the engine have a share in the residual, too.
FINE = 0.4 * RESIDUAL
# The residual down to which single precision is of use, unless the engine approximates.
ROUGH = 2e-3
# Until J no longer changes, and as far as single precision resolves J.
solve_fully = partial(climb, rest=FINE, still=1e-15)
solve_roughly = partial(climb, still=1e-7)


def follow(
    log: SolverLog, steps: Iterator[tuple[Array, ProductEvaluation]], stopping: Stopping
) -> Status:
    """Take the steps of an ascent until the log or the stopping rule ends it; return the status."""
    if log.may_end_now:
        return Status.CONVERGED
    try:
        for W, evaluation in steps:
            log.note(W, evaluation)
            if log.may_end_at(evaluation.product, W):
                return Status.CONVERGED
            if log.state.iteration >= stopping.max_iter:
                return Status.MAX_ITER
    except TimeIsUpError:
        return Status.OVER_CAP
    return Status.CONVERGED  # no step raises J any more; `ended` checks the residual
