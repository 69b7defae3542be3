"""GM: the trust-region solver of pymanopt on the Grassmann manifold, with exact Hessians."""

from __future__ import annotations

from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.operator import ProductEvaluation
from ism_dask.records.iteration import Solution
from ism_dask.solvers.solver_log import SolverLog
from ism_dask.solvers.time_limit import TimeIsUpError
from ism_dask.status import Status

# The norm of the gradient at which pymanopt ends, relative to Phi W at the start. The `SolverLog`
# ends the run earlier, by the residual.
_LEAST_GRADIENT = 1e-10


def solve(log: SolverLog) -> Solution:
    """Return the solution of trust-region steps; `max_iter` counts the quadratic models."""
    try:
        from pymanopt.optimizers import TrustRegions  # noqa: PLC0415
    except ImportError as error:
        raise ImportError(
            "`solver`='grassmann' needs pymanopt, which is not installed: "
            "pip install 'ism-dask[rivals]'"
        ) from error
    if log.may_end_now:
        return log.ended(Status.CONVERGED)
    search = TrustRegions(
        max_iterations=log.max_iter,
        max_time=np.inf,  # the log checks the time limit, also within iterations
        min_gradient_norm=_LEAST_GRADIENT,
        verbosity=0,
    )
    return log.ended(_run(_PymanoptProblem(log), search))


def _run(posed: _PymanoptProblem, search: Any) -> Status:
    try:
        with np.errstate(invalid="raise"):
            search.run(posed.problem(), initial_point=posed.trace.start)
    except FloatingPointError:
        # pymanopt divides by the slope, which is 0 where J is flat; `ended` checks the residual.
        return Status.CONVERGED
    except TimeIsUpError:
        return Status.OVER_CAP
    except _Converged:
        return Status.CONVERGED
    # Models without a step count as iterations, too: W may be stationary at the limit.
    return Status.CONVERGED if posed.trace.may_end_now else Status.MAX_ITER


class _Converged(Exception):  # noqa: N818 - nothing went wrong
    """Ends the search at a stationary W.

    Pymanopt's own criterion is the norm of the gradient, which rounding may keep above its limit.
    """


class _PymanoptProblem:
    """The problem as pymanopt poses it: minimise -J, scaled so that all values are about 1."""

    def __init__(self, trace: SolverLog) -> None:
        self.trace = trace
        self._point, self._evaluation = trace.start, trace.evaluation
        self._scale = max(float(np.linalg.norm(trace.evaluation.product)), np.finfo(float).tiny)

    def problem(self) -> Any:
        """Return the problem as an object of pymanopt."""
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
        return -0.5 * self._evaluate(W).objective / self._scale

    def _gradient(self, W: Array) -> Array:
        evaluation = self._evaluate(W)
        self._note(W, evaluation)
        return np.asarray(-evaluation.product / self._scale)

    def _hessian(self, W: Array, Z: Array) -> Array:
        return np.asarray(-self.trace.curvature(W, Z) / self._scale)

    def _evaluate(self, W: Array) -> ProductEvaluation:
        # Pymanopt computes the cost and then the gradient at the same point: evaluate it once.
        if self._point is not W and not np.array_equal(self._point, W):
            self._point, self._evaluation = W, self.trace.evaluate(W)
        return self._evaluation

    def _note(self, W: Array, evaluation: ProductEvaluation) -> None:
        """Record a step: pymanopt computes the gradient once at each point that it accepts."""
        if np.array_equal(W, self.trace.state.current.W):
            return
        self.trace.note(W, evaluation)
        if self.trace.may_end_at(evaluation.product, W):
            raise _Converged
