"""GM: a trust region on the Grassmann manifold, with exact second derivatives; by pymanopt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.operator import Evaluation, Operator
from ism_dask.records.iteration import Solution, State
from ism_dask.records.stopping import Stopping
from ism_dask.solvers.solver_log import SolverLog
from ism_dask.solvers.time_limit import TimeIsUpError
from ism_dask.status import Status

# Of the gradient, by the size of Phi W at the start. The trace looks at the residual before.
_LEAST_GRADIENT = 1e-10


def solve(
    operator: Operator,
    q: int,
    stopping: Stopping,
    *,
    on_iteration: Callable[[State], None] | None = None,
    state: State | None = None,
) -> Solution:
    """Climb by models of the second order; `max_iter` counts the models."""
    try:
        from pymanopt.optimizers import TrustRegions  # noqa: PLC0415
    except ImportError as error:
        raise ImportError(
            "`solver`='grassmann' needs pymanopt, which is not installed: "
            "pip install 'ism-dask[rivals]'"
        ) from error
    trace = SolverLog(operator, q, stopping, on_iteration, state)
    if trace.at_rest:
        return trace.ended(Status.CONVERGED)
    search = TrustRegions(
        max_iterations=stopping.max_iter,
        max_time=np.inf,  # the trace knows, and looks between iterations too
        min_gradient_norm=_LEAST_GRADIENT,
        verbosity=0,
    )
    return trace.ended(_searched(_Posed(trace), search))


def _searched(posed: _Posed, search: Any) -> Status:
    try:
        search.run(posed.problem(), initial_point=posed.trace.start)
    except TimeIsUpError:
        return Status.OVER_CAP
    except _Settled:
        return Status.CONVERGED
    # Models that led nowhere count, too.
    return Status.CONVERGED if posed.trace.at_rest else Status.MAX_ITER


class _Settled(Exception):  # noqa: N818 - nothing went wrong
    """There is nothing more to gain: pymanopt knows of gradients only, which rounding leaves."""


class _Posed:
    """The problem as pymanopt asks it: minus J, its derivatives, all of about the size of 1."""

    def __init__(self, trace: SolverLog) -> None:
        self.trace = trace
        self._at, self._evaluation = trace.start, trace.evaluation
        self._unit = max(float(np.linalg.norm(trace.evaluation.matrix)), np.finfo(float).tiny)

    def problem(self) -> Any:
        """Return it."""
        from pymanopt import Problem, function  # noqa: PLC0415
        from pymanopt.manifolds import Grassmann  # noqa: PLC0415

        manifold = Grassmann(*self.trace.start.shape)
        numeric = function.numpy(manifold)
        return Problem(
            manifold,
            numeric(self._cost),
            euclidean_gradient=numeric(self._gradient),
            euclidean_hessian=numeric(self._hessian),
        )

    def _cost(self, W: Array) -> float:
        return -0.5 * self._found(W).objective / self._unit

    def _gradient(self, W: Array) -> Array:
        found = self._found(W)
        self._note(W, found)
        return np.asarray(-found.matrix / self._unit)

    def _hessian(self, W: Array, Z: Array) -> Array:
        return np.asarray(-self.trace.curvature(W, Z) / self._unit)

    def _found(self, W: Array) -> Evaluation:
        # The cost is asked for where the gradient is, one after the other.
        if self._at is not W and not np.array_equal(self._at, W):
            self._at, self._evaluation = W, self.trace.evaluate(W)
        return self._evaluation

    def _note(self, W: Array, found: Evaluation) -> None:
        """Take note of a step: the gradient is asked for at points that were accepted, once."""
        if np.array_equal(W, self.trace.state.current.W):
            return
        self.trace.note(W, found)
        if self.trace.settled(found.matrix, W):
            raise _Settled
