"""The search for the W of largest J: engines in turn, spectral steps, then an ascent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask.engines import DeclinedError, Engine, EngineOptions, Problem, first_that_serves
from ism_dask.engines.base import PhiEvaluation, ProductEvaluation
from ism_dask.kernels.base import check_finite
from ism_dask.linalg.subspaces import RowSpace, most_constant
from ism_dask.records.checkpoint import CheckpointedFit
from ism_dask.records.iteration import RESIDUAL, Solution, State
from ism_dask.solvers.ascent import Precondition, ascend
from ism_dask.solvers.base import Solver, TimeLimit
from ism_dask.solvers.ism import ISM, solution_at
from ism_dask.stationarity import with_true_residual
from ism_dask.status import Status

# The residual at which gradient steps end. It is below the one that `converged` allows, because
# single precision and the engine have a share in the residual, too.
_FINE = 0.4 * RESIDUAL
# The residual down to which single precision is of use, unless the engine approximates.
_ROUGH = 2e-3
# Gradient steps also end when J changes less, and sooner as single precision resolves J.
_STILL, _ROUGHLY_STILL = 1e-15, 1e-7
# Differences of eigenvalues are taken to be at least this share of the largest difference.
_LEAST_GAP = 1e-3


class PaddedOperator:
    """Evaluates an engine for a W that may use directions in which the rows are constant.

    In these directions, `constant` of them at most, Phi is 0 and X W does not change. By the
    definition W uses them if every other direction would lower J. If `rough`, the gradient is
    computed in the precision of the rows, at half the cost.
    """

    def __init__(self, engine: Engine, constant: int, *, rough: bool = False) -> None:
        self.engine = engine
        self._gradient = engine.product if rough else engine.gradient
        space = engine.problem.space or RowSpace(engine.problem.d)
        self.space = space.limited(constant)

    def phi0(self) -> Array:
        """Return Phi0, the (r + s, r + s) matrix of the start."""
        return self._padded(self.engine.phi0(), self.space.size)

    def phi(self, W: Array) -> PhiEvaluation:
        """Return J and Phi (r + s, r + s) at W (r + s, k)."""
        evaluation = self.engine.phi(self._varying(W))
        return replace(evaluation, phi=self._padded(evaluation.phi, self.space.size))

    def gradient(self, W: Array) -> ProductEvaluation:
        """Return J and Phi W (r + s, k) at W (r + s, k)."""
        evaluation = self._gradient(self._varying(W))
        return replace(evaluation, product=self._padded(evaluation.product, W.shape[1]))

    def curvature(self, W: Array, Z: Array) -> Array:
        """Return the derivative of Phi(W) W (r + s, k) at W (r + s, k) along Z (r + s, k)."""
        curvature = self.engine.curvature(self._varying(W), self._varying(Z))
        return self._padded(curvature, Z.shape[1])

    def _varying(self, W: Array) -> Array:
        return W[: self.space.n_varying]

    def _padded(self, matrix: Array, columns: int) -> Array:
        """Return a matrix with zeros below and beside it: (r + s, columns)."""
        missing = self.space.size - len(matrix), columns - matrix.shape[1]
        return np.pad(matrix, [(0, missing[0]), (0, missing[1])]) if any(missing) else matrix


@dataclass(frozen=True)
class Search:
    """The parameters of a search for the W of largest J.

    The time limit is that of the whole fit. Each iteration is reported by `on_iteration`. The saved
    fit, if there is one, saves those of ISM and of the ascent after it.
    """

    engine: EngineOptions
    solver: Solver = field(default_factory=ISM)
    on_iteration: Callable[[State], None] | None = field(default=None, repr=False)
    time_limit: TimeLimit = field(default_factory=TimeLimit)
    saved_fit: CheckpointedFit | None = field(default=None, repr=False)

    def run(self, problem: Problem, q: int, state: State | None = None) -> Solution:
        """Return the solution, with W (d, q), from `state` or the spectral start."""
        engines = self.engine.engines(problem, q)
        return first_that_serves(engines, partial(self._solution, q=q, state=state))

    def under(self, problem: Problem, solution: Solution) -> Solution:
        """Return the W of a solution, evaluated for another problem; it need not be stationary."""
        W, status, history = solution.W, solution.status, solution.history

        def evaluate(engine: Engine) -> Solution:
            operator = PaddedOperator(engine, len(W) - problem.d)
            there = solution_at(operator, W, status, history, operator.phi(W))
            return with_true_residual(engine, there)

        return first_that_serves(self.engine.engines(problem, W.shape[1]), evaluate)

    def _solution(self, engine: Engine, q: int, state: State | None) -> Solution:
        """Return the solution by an engine that is accurate enough for the status "converged"."""
        solution = self._with_true_status(engine, q, state)
        while (finer := self._finer(engine, solution)) is not None:
            engine = finer
            continued = State.from_weights(solution.W, solution.eigenvalues, solution.history)
            try:
                solution = self._with_true_status(engine, q, continued)
            except DeclinedError:
                break
        return solution

    def _finer(self, engine: Engine, solution: Solution) -> Engine | None:
        """Return an engine that is nearer to the true kernel, if the solution needs one."""
        # Landmarks that change from W to W make J jump: an earlier W has a larger J than the last,
        # which is stationary, or W alternates between two.
        jumps = self._is_published or solution.history[-1].settled
        insufficient = solution.status in (Status.APPROXIMATE, Status.STALLED) or (
            engine.approximate and jumps and solution.status is Status.SWINGS
        )
        return engine.finer() if insufficient and not self.time_limit.is_over else None

    def _with_true_status(self, engine: Engine, q: int, state: State | None) -> Solution:
        """Return the solution by one engine, with the residual under the true kernel."""
        operator, limit = PaddedOperator(engine, most_constant(q)), self.time_limit
        if isinstance(self.solver, ISM):
            solution = self._by_spectral_steps(self.solver, operator, q, state)
        else:
            end = self.solver.solve(operator, q, limit, on_iteration=self.on_iteration, state=state)
            solution = solution_at(operator, end.W, end.status, end.history)
        solution = with_true_residual(engine, solution)
        if solution.status is Status.CONVERGED and solution.residual > RESIDUAL:
            return replace(solution, status=Status.APPROXIMATE)
        return solution

    def _by_spectral_steps(
        self, solver: ISM, operator: PaddedOperator, q: int, state: State | None
    ) -> Solution:
        """Return the solution of spectral steps, and of an ascent if they do not converge."""
        solution = solver.solve(
            operator,
            q,
            self.time_limit,
            on_iteration=self.on_iteration,
            state=state,
            saved_fit=self.saved_fit,
        )
        # If Gamma has negative parts, J can rise without any dependence, by a W for which all rows
        # are dissimilar. Do not seek that maximum in runs that end by `tol`, before the last round.
        climbs = operator.engine.problem.gamma.is_psd or not self._is_published
        swings = solution.status is Status.SWINGS
        if not climbs or not swings or self._finer(operator.engine, solution):
            return solution
        if self.time_limit.is_over:
            return replace(solution, status=Status.OVER_CAP)
        return self._ascend(operator, solution)

    def _ascend(self, operator: PaddedOperator, solution: Solution) -> Solution:
        """Return the solution of gradient steps, the first of them in the precision of the rows."""
        W, constant = solution.W, most_constant(solution.W.shape[1])
        engine = operator.engine.steady(W[: operator.space.n_varying])
        guess = None
        if not self._is_published:
            guess = inverse_gaps(operator.phi(W).phi, W, solution.eigenvalues)
        state = State.from_weights(W, solution.eigenvalues, solution.history)
        stages = [(PaddedOperator(engine, constant), _FINE, _STILL)]
        rest = _FINE if engine.approximate else _ROUGH
        if engine.double is not engine and solution.residual > rest:
            rough = PaddedOperator(engine, constant, rough=True)
            stages.insert(0, (rough, rest, _ROUGHLY_STILL))
        for stage, residual, still in stages:
            end = ascend(
                stage.gradient,
                state.W,
                guess,
                limit=residual,
                max_iter=self.solver.max_iter,
                time_limit=self.time_limit,
                state=state,
                saved_fit=self.saved_fit,
                on_iteration=self.on_iteration,
                still=still,
            )
            state = end.state
        status = end.status
        # Rounding may hide the last rise of J from the steps.
        if status in (Status.MAX_ITER, Status.STALLED) and end.residual <= RESIDUAL:
            status = Status.CONVERGED
        return solution_at(operator, state.best, status, state.history)

    @property
    def _is_published(self) -> bool:
        """Whether a number as `tol` ends the run."""
        return self.solver.tol is not None


def inverse_gaps(phi: Array, W: Array, eigenvalues: Array) -> Precondition:
    """Return the inverse of the Hessian of J near W (d, q) as far as Phi (d, d) tells it.

    It makes the slope a spectral step, to first order. W is rotated so that `W^T Phi W` is
    diagonal, with these eigenvalues (q,).
    """
    basis = np.linalg.qr(W, mode="complete")[0][:, W.shape[1] :]
    values, rotation = scipy.linalg.eigh(basis.T @ check_finite(phi) @ basis)
    outside, gaps = basis @ rotation, np.abs(eigenvalues - values[:, None])
    largest = float(gaps.max())
    shares = largest / np.maximum(gaps, _LEAST_GAP * largest) - 1.0

    def precondition(Z: Array) -> Array:
        return np.asarray(Z + outside @ (shares * (outside.T @ Z))) / largest

    return precondition
