"""The search for the W of largest J: solver, engine, and finer engines where they are needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

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
from ism_dask.engines.operator import relative_residual
from ism_dask.linalg.null_space import RowSpace
from ism_dask.records.checkpoint import CheckpointedFit
from ism_dask.records.iteration import Solution, State
from ism_dask.records.stopping_rule import RESIDUAL, Stopping
from ism_dask.solvers import ISM, Solver
from ism_dask.solvers.ism import (
    continue_from,
    one_step_agrees,
    solution_at,
    state_at,
)
from ism_dask.solvers.lbfgs import Precondition, lbfgs_ascent
from ism_dask.solvers.scaled_hessian import inverse_gaps
from ism_dask.solvers.solver_log import SolverLog, with_log
from ism_dask.stationarity import with_true_residual
from ism_dask.status import Status

# The residual at which gradient steps end. It is below the one that `converged` allows, because
# single precision and the engine have a share in the residual, too.
_FINE = 0.4 * RESIDUAL
# The residual down to which single precision is of use, unless the engine approximates.
_ROUGH = 2e-3
# Gradient steps also end when J changes less, and sooner as single precision resolves J.
_STILL, _ROUGHLY_STILL = 1e-15, 1e-7


@dataclass(frozen=True)
class MultistartSearch:
    """The parameters of a search for the W of largest J.

    Attributes
    ----------
    engine : str or EngineOptions
        A name in `ENGINES`, "auto", or an engine with its options.
    stopping : Stopping
        Its `max_seconds` are the time limit of the whole search.
    solver : Solver
    on_iteration : callable, optional
        Called with the state after each iteration.
    """

    engine: str | EngineOptions
    stopping: Stopping
    solver: Solver = field(default_factory=ISM)
    on_iteration: Callable[[State], None] | None = field(default=None, repr=False)

    def run(
        self,
        problem: Problem,
        q: int,
        state: State | None = None,
        saved_fit: CheckpointedFit | None = None,
    ) -> Solution:
        """Return the solution, with W (d, q), from `state` or the spectral start.

        `saved_fit` saves each solver run.
        """
        saved_fit = CheckpointedFit() if saved_fit is None else saved_fit
        run = _SearchRun(self, problem, q, saved_fit, saved_fit.seconds, self.on_iteration)
        engines = as_engine(self.engine).engines(problem, q)
        return first_that_serves(engines, partial(run.solve_accurately, state=state))

    def under(self, problem: Problem, solution: Solution) -> Solution:
        """Return the W of a solution as one of another problem, where it need not be stationary."""
        W, status, history = solution.W, solution.status, solution.history

        def evaluate(engine: Engine) -> Solution:
            operator = PaddedOperator(engine, len(W) - problem.d)
            there = with_true_residual(engine, solution_at(operator, W, status, history))
            return replace(there, engine=engine.name, engine_note=engine.note)

        engines = as_engine(self.engine).engines(problem, W.shape[1])
        return first_that_serves(engines, evaluate)


@dataclass(frozen=True)
class _SearchRun:
    """One search with its problem.

    `began` is the fit's clock when the search began, in seconds; `watcher` is called with the
    states of the solver.
    """

    search: MultistartSearch
    problem: Problem
    q: int
    saved_fit: CheckpointedFit
    began: float
    watcher: Callable[[State], None] | None

    def solve_accurately(self, engine: Engine, state: State | None) -> Solution:
        """Return the solution by an engine that is accurate enough for the status "converged"."""
        solution = self._with_true_status(engine, state)
        while (finer := self._finer(engine, solution)) is not None:
            engine = finer
            try:
                solution = self._with_true_status(engine, continue_from(solution))
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
        return engine.finer() if insufficient and not self.time_is_up else None

    def _with_true_status(self, engine: Engine, state: State | None) -> Solution:
        operator = PaddedOperator(engine, _constant_directions(self.q))
        solution = with_true_residual(engine, self._solve_once(operator, state))
        if solution.status is Status.CONVERGED and solution.residual > RESIDUAL:
            solution = replace(solution, status=Status.APPROXIMATE)
        return replace(solution, engine=engine.name, engine_note=engine.note)

    def _solve_once(self, operator: PaddedOperator, state: State | None) -> Solution:
        """Return the solution of the solver, with gradient steps if it swings."""
        solver = self.search.solver
        solution = self._run_solver(solver.solve, operator, state, resumes=solver.resumes)
        # If Gamma has negative parts, J can rise without any dependence, by a W for which all rows
        # are dissimilar. Do not seek that maximum in runs that end by `tol`, before the last round.
        climbs = self.problem.gamma.is_psd or not self._is_published
        swings = solution.status is Status.SWINGS
        if climbs and swings and not self._finer(operator.engine, solution):
            return self._ascend(operator, solution)
        return solution

    @property
    def _is_published(self) -> bool:
        """Whether a number as `tol` ends the run."""
        return self.search.stopping.tol is not None

    def _ascend(self, operator: PaddedOperator, solution: Solution) -> Solution:
        """Return the solution of gradient steps, the first of them in the precision of the rows."""
        W = solution.W
        engine = operator.engine.steady(W[: self.problem.d])
        guess = None
        if not self._is_published:
            guess = inverse_gaps(operator.phi(W).phi, W, solution.eigenvalues)
        rest = _FINE if engine.approximate else _ROUGH
        climb, begun = partial(_climb, guess), len(solution.history)
        if engine.double is not engine and relative_residual(W, solution.product) > rest:
            rough = PaddedOperator(engine, _constant_directions(self.q), rough=True)
            roughly = with_log(climb, rest=rest, still=_ROUGHLY_STILL, begun=begun)
            solution = self._run_solver(roughly, rough, continue_from(solution), resumes=True)
            begun = len(solution.history)
        reached = solution.status is Status.CONVERGED
        if not reached or relative_residual(solution.W, solution.product) > _FINE:
            fully = with_log(climb, rest=_FINE, still=_STILL, begun=begun)
            steady = PaddedOperator(engine, _constant_directions(self.q))
            solution = self._run_solver(fully, steady, continue_from(solution), resumes=True)
        # Rounding may hide the last rise of J from the steps.
        ended = solution.status in (Status.MAX_ITER, Status.STALLED)
        if ended and one_step_agrees(operator, solution):
            return replace(solution, status=Status.CONVERGED)
        return solution

    def _run_solver(
        self,
        solve: Callable[..., Solution],
        operator: PaddedOperator,
        state: State | None,
        *,
        resumes: bool = False,
    ) -> Solution:
        """Return the solution by `solve`, continued from its saved state if it `resumes`."""
        stopping = self._stopping_now(state)

        def leg(known: State | None, tell: Callable[[State], None]) -> Solution:
            def note(state: State) -> None:
                if resumes:
                    tell(state)
                if self.watcher is not None:
                    self.watcher(state)

            return solve(operator, self.q, stopping, on_iteration=note, state=known or state)

        return self.saved_fit.run_or_restore(leg, _seconds_of(state))

    def _stopping_now(self, state: State | None = None) -> Stopping:
        """Return the stopping rule for a run that begins now, with the time left.

        The run counts the seconds in the history of `state`, which are past: add them.
        """
        stopping = self.search.stopping.after(self._seconds)
        if stopping.max_seconds is not None:
            stopping = replace(stopping, max_seconds=stopping.max_seconds + _seconds_of(state))
        return stopping

    @property
    def time_is_up(self) -> bool:
        """Whether the time limit allows no further run."""
        return self.search.stopping.time_is_up(self._seconds)

    @property
    def _seconds(self) -> float:
        return self.saved_fit.seconds - self.began


def padded_state(problem: Problem, W: Array) -> State:
    """Return the start at W (r, q), with 0 in the directions in which the rows are constant."""
    space = (problem.space or RowSpace(problem.d)).limited(_constant_directions(W.shape[1]))
    return state_at(np.pad(W, [(0, space.n_constant), (0, 0)]))


def _constant_directions(q: int) -> int:
    """Return how many constant directions W may use: its q columns, and one for the eigengap."""
    return q + 1


def solution_of_whole_space(problem: Problem, options: str | EngineOptions) -> Solution:
    """Return the solution with as many new features as `problem` has features.

    J is the same for every W, so that every W is a maximum. The W that is returned makes
    `W^T Phi W` diagonal. No direction is outside of W: the eigengap is the last eigenvalue minus
    zero, the eigenvalue of directions in which the rows are constant.
    """
    q, start = problem.d, state_at(np.eye(problem.d))

    def solve(engine: Engine) -> Solution:
        log = SolverLog(PaddedOperator(engine, 0), q, Stopping(), None, start)
        solution = with_true_residual(engine, log.ended(Status.CONVERGED))
        return replace(solution, engine=engine.name, engine_note=engine.note)

    return first_that_serves(as_engine(options).engines(problem, q), solve)


def _climb(precondition: Precondition | None, log: SolverLog) -> Solution:
    """Return the solution of L-BFGS, by which J rises in every step."""
    steps = lbfgs_ascent(log.evaluate, log.start, log.evaluation, precondition, log.memory)
    return log.ended(log.follow(steps))


def _seconds_of(state: State | None) -> float:
    return state.history[-1].seconds if state is not None and state.history else 0.0
