"""GM: the trust-region solver of pymanopt on the Grassmann manifold, with exact Hessians.

Its models of J are preconditioned by the eigenvalues of Phi: J may be flat in some directions and
steep in others, and conjugate gradients would not end otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from benchmarks.paper.rival_log import Rival, RivalLog, TimeIsUpError
from ism_dask._types import Array
from ism_dask.engines.base import ProductEvaluation
from ism_dask.linalg.subspaces import tangent
from ism_dask.records.iteration import Solution
from ism_dask.status import Status

# The norm of the gradient at which pymanopt ends, relative to Phi W at the start. The `RivalLog`
# ends the run earlier, by the residual.
_LEAST_GRADIENT = 1e-10
# The most steps of conjugate gradients for one model of J: more solve the model to digits that
# it does not share with J, and take most of the time of some fits.
_INNER_STEPS = 50
# Differences of eigenvalues are taken to be at least this share of the largest difference.
_LEAST_GAP = 1e-3


@dataclass(frozen=True, kw_only=True)
class Grassmann(Rival):
    """GM; `max_iter` is the largest number of quadratic models, `max_seconds` the time limit."""

    max_iter: int = 500

    def search(self, log: RivalLog) -> Solution:
        """Return the solution of trust-region steps."""
        try:
            from pymanopt import Problem, function, manifolds  # noqa: PLC0415
            from pymanopt.optimizers import TrustRegions  # noqa: PLC0415
        except ImportError as error:
            raise ImportError(
                "`Grassmann` needs pymanopt, which is not installed: pip install pymanopt"
            ) from error
        if log.may_end_now:
            return log.ended(Status.CONVERGED)
        manifold, objective = manifolds.Grassmann(*log.start.shape), _Objective(log)
        numeric = function.numpy(manifold)
        problem = Problem(
            manifold,
            numeric(objective.cost),
            euclidean_gradient=numeric(objective.gradient),
            euclidean_hessian=numeric(objective.hessian),
            preconditioner=objective.precondition,
        )
        search = TrustRegions(
            max_iterations=log.max_iter,
            max_time=np.inf,  # the log checks the time limit, also within iterations
            min_gradient_norm=_LEAST_GRADIENT,
            verbosity=0,
        )
        return log.ended(_run(search, problem, log))


def _run(search: Any, problem: Any, log: RivalLog) -> Status:
    try:
        with np.errstate(invalid="raise"):
            search.run(problem, initial_point=log.start, maxinner=_INNER_STEPS)
    except (_Converged, FloatingPointError):
        # pymanopt divides by the slope, which is 0 where J is flat; `ended` checks the residual.
        return Status.CONVERGED
    except TimeIsUpError:
        return Status.OVER_CAP
    # Models without a step count as iterations, too: W may be stationary at the limit.
    return Status.CONVERGED if log.may_end_now else Status.MAX_ITER


class _Converged(Exception):  # noqa: N818 - nothing went wrong
    """Ends the search at a stationary W.

    Pymanopt's own criterion is the norm of the gradient, which rounding may keep above its limit.
    """


class _Objective:
    """What pymanopt minimises: -J, scaled so that all values are about 1."""

    def __init__(self, log: RivalLog) -> None:
        self._log = log
        self._point, self._evaluation = log.start, log.evaluation
        self._centre: Array | None = None  # where the preconditioner was computed
        self._scale = max(float(np.linalg.norm(log.evaluation.product)), np.finfo(float).tiny)

    def cost(self, W: Array) -> float:
        """Return the objective at W (d, q)."""
        return -0.5 * self._evaluate(W).objective / self._scale

    def gradient(self, W: Array) -> Array:
        """Return its gradient (d, q), and record a step: pymanopt asks once at each new point."""
        evaluation = self._evaluate(W)
        if not np.array_equal(W, self._log.state.W):
            self._log.note(W, evaluation)
            if self._log.may_end_at(evaluation.product, W):
                raise _Converged
        return np.asarray(-evaluation.product / self._scale)

    def hessian(self, W: Array, Z: Array) -> Array:
        """Return the derivative of the gradient along Z (d, q)."""
        return np.asarray(-self._log.curvature(W, Z) / self._scale)

    def precondition(self, W: Array, Z: Array) -> Array:
        """Return Z (d, q) times the inverse of the Hessian as far as Phi(W) gives it."""
        if self._centre is None or not np.array_equal(self._centre, W):
            self._centre, self._inverse = W, self._inverse_gaps(W)
        return self._scale * tangent(W, self._inverse(Z))

    def _inverse_gaps(self, W: Array) -> Callable[[Array], Array]:
        """Return the inverse of the Hessian near W as far as the eigenvalues of Phi tell it.

        It makes the slope a spectral step, to first order.
        """
        inside, rotation = scipy.linalg.eigh(W.T @ self._evaluate(W).product)
        basis = np.linalg.qr(W @ rotation, mode="complete")[0][:, W.shape[1] :]
        values, vectors = scipy.linalg.eigh(basis.T @ self._log.phi(W) @ basis)
        outside, gaps = basis @ vectors, np.abs(inside - values[:, None])
        largest = float(gaps.max())
        shares = largest / np.maximum(gaps, _LEAST_GAP * largest) - 1.0

        def precondition(Z: Array) -> Array:
            Z = Z @ rotation
            return np.asarray(Z + outside @ (shares * (outside.T @ Z))) / largest @ rotation.T

        return precondition

    def _evaluate(self, W: Array) -> ProductEvaluation:
        # Pymanopt computes the cost and then the gradient at the same point: evaluate it once.
        if self._point is not W and not np.array_equal(self._point, W):
            self._point, self._evaluation = W, self._log.evaluate(W)
        return self._evaluation
