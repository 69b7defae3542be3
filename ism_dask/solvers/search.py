"""The search for the W of largest J: engines in turn, spectral steps, then an ascent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask.engines import (
    DeclinedError,
    Engine,
    EngineOptions,
    PaddedOperator,
    Problem,
    as_engine,
    first_that_serves,
)
from ism_dask.engines.operator import check_finite
from ism_dask.linalg.null_space import RowSpace
from ism_dask.records.checkpoint import CheckpointedFit
from ism_dask.records.iteration import Solution, State
from ism_dask.records.stopping_rule import RESIDUAL, Stopping
from ism_dask.solvers.ascent import AscentResult, ascend
from ism_dask.solvers.driver import TimeLimit, drive
from ism_dask.solvers.ism import SpectralSteps, solution_at, spectral_state
from ism_dask.solvers.lbfgs import Precondition
from ism_dask.solvers.options import ISM, Solver
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


@dataclass(frozen=True)
class Search:
    """The parameters of a search for the W of largest J.

    Attributes
    ----------
    engine : str or EngineOptions
        A name in `ENGINES`, "auto", or an engine with its options.
    solver : Solver
    on_iteration : callable, optional
        Called with the state after each iteration.
    time_limit : TimeLimit
        That of the whole fit.
    """

    engine: str | EngineOptions
    solver: Solver = field(default_factory=ISM)
    on_iteration: Callable[[State], None] | None = field(default=None, repr=False)
    time_limit: TimeLimit = field(default_factory=TimeLimit)

    def run(
        self,
        problem: Problem,
        q: int,
        state: State | None = None,
        saved_fit: CheckpointedFit | None = None,
    ) -> Solution:
        """Return the solution, with W (d, q), from `state` or the spectral start.

        `saved_fit` saves each run of a solver.
        """
        run = _Run(self, problem, q, CheckpointedFit() if saved_fit is None else saved_fit)
        engines = as_engine(self.engine).engines(problem, q)
        return first_that_serves(engines, partial(run.solve, state=state))

    def under(self, problem: Problem, solution: Solution) -> Solution:
        """Return the W of a solution as one of another problem, where it need not be stationary."""
        W, status, history = solution.W, solution.status, solution.history

        def evaluate(engine: Engine) -> Solution:
            operator = PaddedOperator(engine, len(W) - problem.d)
            there = solution_at(operator, W, status, history, operator.phi(W))
            return with_true_residual(engine, there)

        return first_that_serves(as_engine(self.engine).engines(problem, W.shape[1]), evaluate)


@dataclass(frozen=True)
class _Run:
    """One search with its problem."""

    search: Search
    problem: Problem
    q: int
    saved_fit: CheckpointedFit

    def solve(self, engine: Engine, state: State | None) -> Solution:
        """Return the solution by an engine that is accurate enough for the status "converged"."""
        solution = self._with_true_status(engine, state)
        while (finer := self._finer(engine, solution)) is not None:
            engine = finer
            continued = State.at(solution.W, solution.eigenvalues, solution.history)
            try:
                solution = self._with_true_status(engine, continued)
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
        return engine.finer() if insufficient and not self.search.time_limit.is_over else None

    def _with_true_status(self, engine: Engine, state: State | None) -> Solution:
        """Return the solution by one engine, with the residual under the true kernel."""
        operator = PaddedOperator(engine, _constant_directions(self.q))
        solver, search = self.search.solver, self.search
        if isinstance(solver, ISM):
            solution = self._by_spectral_steps(operator, state)
        else:
            end = solver.solve(
                operator,
                self.q,
                self._stopping_of_others(state),
                on_iteration=search.on_iteration,
                state=state,
            )
            solution = solution_at(operator, end.W, end.status, end.history)
        solution = with_true_residual(engine, solution)
        if solution.status is Status.CONVERGED and solution.residual > RESIDUAL:
            return replace(solution, status=Status.APPROXIMATE)
        return solution

    def _by_spectral_steps(self, operator: PaddedOperator, state: State | None) -> Solution:
        """Return the solution of spectral steps, and of an ascent if they do not converge."""
        saved, save = self.saved_fit.next_run()
        stopping, time_limit = self.search.solver.stopping, self.search.time_limit
        if saved is None:
            saved = spectral_state(operator, self.q) if state is None else state
        steps = SpectralSteps(operator, self.q, stopping, time_limit)
        ended = drive(steps, saved, stopping.max_iter, time_limit, self._watched(save))
        solution = steps.solution(*ended)
        # If Gamma has negative parts, J can rise without any dependence, by a W for which all rows
        # are dissimilar. Do not seek that maximum in runs that end by `tol`, before the last round.
        climbs = self.problem.gamma.is_psd or not self._is_published
        swings = solution.status is Status.SWINGS
        if climbs and swings and not self._finer(operator.engine, solution):
            return self._ascend(operator, solution)
        return solution

    def _ascend(self, operator: PaddedOperator, solution: Solution) -> Solution:
        """Return the solution of gradient steps, the first of them in the precision of the rows."""
        W, constant = solution.W, _constant_directions(self.q)
        engine = operator.engine.steady(W[: self.problem.d])
        guess = None
        if not self._is_published:
            guess = inverse_gaps(operator.phi(W).phi, W, solution.eigenvalues)
        state = State.at(W, solution.eigenvalues, solution.history)
        rest = _FINE if engine.approximate else _ROUGH
        if engine.double is not engine and solution.residual > rest:
            rough = PaddedOperator(engine, constant, rough=True)
            state = self._climbed(rough, state, guess, rest, _ROUGHLY_STILL).state
        result = self._climbed(PaddedOperator(engine, constant), state, guess, _FINE, _STILL)
        status = result.status
        # Rounding may hide the last rise of J from the steps.
        if status in (Status.MAX_ITER, Status.STALLED) and result.residual <= RESIDUAL:
            status = Status.CONVERGED
        return solution_at(operator, result.state.best.W, status, result.state.history)

    def _climbed(
        self,
        operator: PaddedOperator,
        state: State,
        guess: Precondition | None,
        rest: float,
        still: float,
    ) -> AscentResult:
        """Return the result of an ascent down to a residual, or until J is still."""
        saved, save = self.saved_fit.next_run()
        return ascend(
            operator.gradient,
            state.current.W,
            guess,
            limit=lambda _: rest,
            max_iter=self.search.solver.max_iter,
            time_limit=self.search.time_limit,
            state=state,
            saved=saved,
            on_iteration=self._watched(save),
            still=still,
        )

    def _watched(self, save: Callable[[State], None]) -> Callable[[State], None]:
        """Return what is called after each iteration: it saves the state and reports it."""
        watch = self.search.on_iteration

        def note(state: State) -> None:
            save(state)
            if watch is not None:
                watch(state)

        return note

    def _stopping_of_others(self, state: State | None) -> Stopping:
        """Return the stopping rule for a solver that counts the seconds of its history."""
        left, earlier = self.search.time_limit.seconds_left, 0.0
        if state is not None and state.history:
            earlier = state.history[-1].seconds
        max_seconds = None if left is None else left + earlier
        return replace(self.search.solver.stopping, max_seconds=max_seconds)

    @property
    def _is_published(self) -> bool:
        """Whether a number as `tol` ends the run."""
        return self.search.solver.stopping.tol is not None


def padded_state(problem: Problem, W: Array) -> State:
    """Return the start at W (r, q), with 0 in the directions in which the rows are constant."""
    space = (problem.space or RowSpace(problem.d)).limited(_constant_directions(W.shape[1]))
    return State.at(np.pad(W, [(0, space.n_constant), (0, 0)]))


def _constant_directions(q: int) -> int:
    """Return how many constant directions W may use: its q columns, and one for the eigengap."""
    return q + 1


def solution_of_whole_space(problem: Problem, options: str | EngineOptions) -> Solution:
    """Return the solution with as many new features as `problem` has features.

    J is the same for every W, so that every W is a maximum. The W that is returned makes
    `W^T Phi W` diagonal. No direction is outside of W: the eigengap is the last eigenvalue minus
    zero, the eigenvalue of directions in which the rows are constant.
    """

    def solve(engine: Engine) -> Solution:
        W, operator = np.eye(problem.d), PaddedOperator(engine, 0)
        end = ascend(operator.gradient, W, limit=lambda _: RESIDUAL, max_iter=1)
        return with_true_residual(engine, solution_at(operator, W, end.status, end.state.history))

    return first_that_serves(as_engine(options).engines(problem, problem.d), solve)


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
