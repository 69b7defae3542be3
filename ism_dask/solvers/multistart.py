"""How the best W is looked for: the fixed point of an iteration is a local maximum, one of several.

Beside one run from the spectral start there are more starts, wider kernels to begin with, and
steps of the second order to end with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from ism_dask.engines import (
    DeclinedError,
    Engine,
    PaddedOperator,
    Problem,
    candidate_engines,
    first_that_serves,
)
from ism_dask.linalg.row_space import RowSpace
from ism_dask.records.checkpoint import CheckpointedFit
from ism_dask.records.iteration import Solution, State
from ism_dask.records.stopping import HORIZON, RESIDUAL, Stopping
from ism_dask.solvers import APPROACH, CLIMB, SOLVERS, Solver
from ism_dask.solvers.ism import continue_from, one_step_agrees, restart_from, solve, state_at
from ism_dask.solvers.lbfgs import Precondition
from ism_dask.solvers.local_maximum import verify_maximum
from ism_dask.solvers.second_order import refine_by_newton
from ism_dask.solvers.time_limit import TimeIsUpError, TimeLimited
from ism_dask.stationarity import with_true_residual
from ism_dask.status import Status

# What eigenvalues may change by where a W is only to begin with.
_LOOSE = 0.03
# The same, where that W is all but the last one.
_COARSE = 1e-4
# How much wider kernels are, one after the other, before they are as wide as asked.
_WIDER = (4.0, 2.0, 1.4)
# Products of one Phi above which a W that was chosen already is left by fewer spectral steps.
_COSTLY, _SHORT_HORIZON = 2e8, 2
# How often an iteration may go on from a W that is found beside the one it ended at. Each raises J.
_DETOURS = 20


@dataclass(frozen=True)
class MultistartSearch:
    """A way to look for the W of largest J.

    Attributes
    ----------
    engine : str
        A name in `ENGINES`, or "auto".
    stopping : Stopping
        Its `max_seconds` are for all of it.
    solver : Solver
    n_init : int
        Starts: the spectral one, and so many less one drawn at random. ISM takes all to a loose
        tolerance, and `solver` the one with the largest J to the end.
    continuation : bool
        Whether to begin with kernels of larger width.
    refine : bool
        Whether to end with steps of the second order.
    precondition : callable, optional
        Where a selection chose the W to begin with: multiplies slopes of J by a guess of the
        inverse curvature. Then ISM begins with steps along the slope, which end at the nearest
        maximum: spectral steps may leave for another. And W keeps to the directions in which the
        rows vary.
    on_iteration : callable, optional
        Called with the state after each iteration of the last run, which all others lead to.
    """

    engine: str
    stopping: Stopping
    solver: Solver = SOLVERS["ism"]
    n_init: int = 1
    continuation: bool = False
    refine: bool = False
    precondition: Precondition | None = None
    on_iteration: Callable[[State], None] | None = field(default=None, repr=False)

    @property
    def chosen(self) -> bool:
        """Whether a selection chose the W to begin with."""
        return self.precondition is not None

    @property
    def climbs(self) -> bool:
        """Whether it begins with steps along the slope, from a W that a selection chose."""
        return self.chosen and self.solver.by_change and self.stopping.tol is None

    def run(
        self,
        problem: Problem,
        q: int,
        state: State | None = None,
        saved_fit: CheckpointedFit | None = None,
    ) -> tuple[Engine, Solution]:
        """Return W (d, q), from `state` on if there is one, and the engine that it came by.

        What looks further than one run from there never returns less than that run: both are
        solved to the end. The `saved_fit` takes each run of a solver as a leg.
        """
        saved_fit = CheckpointedFit() if saved_fit is None else saved_fit
        run = _SearchRun(self, problem, q, saved_fit, saved_fit.seconds)
        looks_further = self.continuation or self.n_init > 1
        watcher = None if looks_further else self.on_iteration
        found = [run.attempted(problem, partial(run.solved, state=state, watcher=watcher))]
        if looks_further and not run.time_is_up:
            found.append(self._further(run, problem, state))
        # Of equals the later one, which was told of.
        return max(reversed(found), key=lambda pair: pair[1].objective)

    def _further(
        self, run: _SearchRun, problem: Problem, state: State | None
    ) -> tuple[Engine, Solution]:
        """Return what wider kernels, or random starts, lead to."""
        wider_state = state
        for wider in self._wider(problem):
            _, solution = run.attempted(wider, partial(run.loosely, state=wider_state))
            wider_state = restart_from(solution)
        return run.attempted(problem, partial(run.from_the_best, state=wider_state))

    def _wider(self, problem: Problem) -> Iterator[Problem]:
        """Return the problem with kernels of larger width, where it has one."""
        for factor in _WIDER if self.continuation else ():
            kernel = problem.kernel.widened(factor)
            if kernel != problem.kernel:
                yield replace(problem, kernel=kernel)


@dataclass(frozen=True)
class _SearchRun:
    """One search, which began so many seconds after the fit."""

    search: MultistartSearch
    problem: Problem
    q: int
    saved_fit: CheckpointedFit
    began: float

    def attempted(
        self, problem: Problem, work: Callable[[Engine], tuple[Engine, Solution]]
    ) -> tuple[Engine, Solution]:
        """Return what `work` makes of the first engine that does not decline on the way."""
        engines = candidate_engines(self.search.engine, problem, self.q, climbs=self.search.chosen)
        return first_that_serves(engines, work)

    def loosely(self, engine: Engine, state: State | None) -> tuple[Engine, Solution]:
        """Return a W to begin with: by ISM whatever the solver, for it is near in a few turns."""
        loose = SOLVERS["ism"].stopping(_LOOSE, max_seconds=self._left().max_seconds)
        operator = PaddedOperator(engine, self._constant)
        solution = self.saved_fit.run_or_restore(
            lambda known, tell: solve(
                operator, self.q, loose, on_iteration=tell, state=known or state
            )
        )
        return engine, solution

    def from_the_best(self, engine: Engine, state: State | None) -> tuple[Engine, Solution]:
        """Return what the best of some starts leads to, the given one among them."""
        if self.search.n_init > 1:
            tried = [] if state is None else [self.loosely(engine, state)[1]]
            for start in self._random_starts():
                if tried and self.time_is_up:
                    break
                tried.append(self.loosely(engine, start)[1])
            state = restart_from(max(tried, key=lambda solution: solution.objective))
        return self.solved(engine, state, self.search.on_iteration)

    def solved(
        self, engine: Engine, state: State | None, watcher: Callable[[State], None] | None
    ) -> tuple[Engine, Solution]:
        """Return what the solver comes to, as near to the true kernel as its claim asks."""
        kept: tuple[Engine, Solution] | None = None
        state = self._coarsely(engine, state)
        while True:
            try:
                solution = self._complete(engine, state, watcher)
            except DeclinedError:
                if kept is None:
                    raise
                return kept
            kept = engine, solution
            finer = self._finer(engine, solution)
            if finer is None:
                return kept
            engine, state = finer, continue_from(solution)

    def _coarsely(self, engine: Engine, state: State | None) -> State | None:
        """Return a W to begin with by fewer rows, where the engine has a part that sees those."""
        chosen = state is not None and self.search.climbs and not state.history
        coarse = engine.coarser() if state is None or chosen else None
        if coarse is None:
            return state
        first = self._coarsely(coarse, state)
        operator = PaddedOperator(coarse, self._constant)
        if first is not None and chosen:
            return restart_from(self._climbed(operator, first, None))
        stopping = SOLVERS["ism"].stopping(_COARSE, max_seconds=self._left().max_seconds)

        def leg(known: State | None, tell: Callable[[State], None]) -> Solution:
            return solve(operator, self.q, stopping, on_iteration=tell, state=known or first)

        return restart_from(self.saved_fit.run_or_restore(leg))

    def _finer(self, engine: Engine, solution: Solution) -> Engine | None:
        """Return an engine that is nearer to the true kernel, where the solution calls for it."""
        # Another choice of landmarks makes a jump of J, and a swing of W.
        short = solution.status in (Status.APPROXIMATE, Status.STALLED) or (
            engine.approximate and solution.status is Status.SWINGS
        )
        return engine.finer() if short and not self.time_is_up else None

    def _complete(
        self, engine: Engine, state: State | None, watcher: Callable[[State], None] | None
    ) -> Solution:
        solution = with_true_residual(engine, self._verified(engine, state, watcher))
        if solution.status is Status.CONVERGED and solution.residual > RESIDUAL:
            return replace(solution, status=Status.APPROXIMATE)
        return solution

    def _verified(
        self, engine: Engine, state: State | None, watcher: Callable[[State], None] | None
    ) -> Solution:
        """Return what the solver comes to, and goes on to as long as a way up leads on."""
        operator = PaddedOperator(engine, self._constant)
        for _ in range(_DETOURS):
            solution = self._solved_once(operator, state, watcher)
            if not self.search.solver.by_change or solution.status is not Status.CONVERGED:
                return solution
            try:
                limited = TimeLimited(operator, self._left())
                verdict = verify_maximum(limited, solution, self._horizon)
            except TimeIsUpError:
                return replace(solution, status=Status.OVER_CAP)
            if verdict.better is None:
                certain = verdict.certain or self.search.climbs
                return solution if certain else replace(solution, status=Status.LOCAL)
            state = continue_from(solution, verdict.better)
        return replace(solution, status=Status.MAX_ITER)

    def _solved_once(
        self,
        operator: PaddedOperator,
        state: State | None,
        watcher: Callable[[State], None] | None,
    ) -> Solution:
        """Return what the solver comes to, by steps along the slope and refinement if need be."""
        if state is not None and self.search.climbs:
            solution = self._climbed(operator, state, watcher)
            if solution.status not in (Status.MAX_ITER, Status.STALLED):
                return self._refined(operator, solution)
            # Where an engine's J jumps from W to W no step may raise it; spectral steps go on.
            state = continue_from(solution)
        solution = self._followed(self.search.solver, operator, state, watcher)
        # Where Gamma has negative parts, J has no need of dependence to rise: a W of which all
        # rows are unlike does as well. Its maximum is nothing to be sought before the end.
        climbs = self.problem.gamma.is_psd or self.search.stopping.tol is None
        swings = solution.status is Status.SWINGS
        if climbs and swings and not self._finer(operator.engine, solution):
            solution = self._climbed(operator, continue_from(solution), watcher)
        return self._refined(operator, solution)

    @property
    def _constant(self) -> int:
        """How many constant directions W may use: its q columns, and one for the eigengap.

        None where W was chosen by its neighbours. Under a width below the one of largest J, J
        rises where W turns into directions that are constant: that scales the features down, and
        says nothing of y.
        """
        return 0 if self.search.chosen else self.q + 1

    @property
    def _horizon(self) -> int:
        """How many spectral steps are worth looking ahead by.

        Each costs n^2 d. From a W that was chosen by its neighbours, among several widths, they
        lead to a higher maximum only by chance.
        """
        size = self.problem.shards.n_rows**2 * self.problem.d
        return _SHORT_HORIZON if self.search.climbs and size > _COSTLY else HORIZON

    def _climbed(
        self, operator: PaddedOperator, state: State, watcher: Callable[[State], None] | None
    ) -> Solution:
        """Return what steps along the slope come to, the first ones in the rows' precision."""
        engine = operator.engine
        rough = PaddedOperator(engine, self._constant, rough=True)
        W = state.current.W[: engine.problem.d]
        noise = engine.resolution(W)
        uphill = partial(self._followed, precondition=self.search.precondition)
        if noise > RESIDUAL:
            # Steps that gain less than the error of J may lead anywhere along a ridge.
            still = engine.value(W).standard_error
            solution = uphill(APPROACH, rough, state, watcher, rest=noise, still=still)
            ended = solution.status in (Status.MAX_ITER, Status.OVER_CAP)
            return solution if ended else replace(solution, status=Status.APPROXIMATE)
        if engine.double is not engine:
            state = continue_from(uphill(APPROACH, rough, state, watcher))
        solution = uphill(CLIMB, operator, state, watcher)
        if solution.status is Status.MAX_ITER and one_step_agrees(operator, solution):
            return replace(solution, status=Status.CONVERGED)
        return solution

    def _refined(self, operator: PaddedOperator, solution: Solution) -> Solution:
        """Return the solution after steps of the second order, if they are wanted."""
        if not self.search.refine or solution.status is Status.OVER_CAP:
            return solution
        return refine_by_newton(operator, solution, self._left())

    def _followed(
        self,
        solver: Solver,
        operator: PaddedOperator,
        state: State | None,
        watcher: Callable[[State], None] | None,
        **options: Any,
    ) -> Solution:
        """Return what a solver comes to, from where it is known to have been if it can."""
        stopping = self._left(state)

        def leg(known: State | None, tell: Callable[[State], None]) -> Solution:
            def note(state: State) -> None:
                if solver.resumes:
                    tell(state)
                if watcher is not None:
                    watcher(state)

            return solver.solve(
                operator,
                self.q,
                stopping,
                on_iteration=note,
                state=known or state,
                **options,
            )

        return self.saved_fit.run_or_restore(leg, _seconds_of(state))

    def _random_starts(self) -> Iterator[State]:
        space = (self.problem.space or RowSpace(self.problem.d)).limited(self._constant)
        for number in range(1, self.search.n_init):
            rng = np.random.default_rng([self.problem.seed, number])
            W = np.linalg.qr(rng.normal(size=(self.problem.d, self.q)))[0]
            yield state_at(np.pad(W, [(0, space.n_constant), (0, 0)]))

    def _left(self, state: State | None = None) -> Stopping:
        """Return when to stop what begins now, at `state`, whose seconds count already."""
        left = self.search.stopping.after(self._seconds)
        if left.max_seconds is not None:
            left = replace(left, max_seconds=left.max_seconds + _seconds_of(state))
        return left

    @property
    def time_is_up(self) -> bool:
        """Whether no run may begin any more."""
        return self.search.stopping.time_is_up(self._seconds)

    @property
    def _seconds(self) -> float:
        return self.saved_fit.seconds - self.began


def _seconds_of(state: State | None) -> float:
    return state.history[-1].seconds if state is not None and state.history else 0.0
