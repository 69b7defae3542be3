"""How the best W is looked for: the fixed point of an iteration is a local maximum, one of several.

Beside one run from the spectral start there are more starts, wider kernels to begin with, and
steps of the second order to end with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from ism_dask.engines import Engine, Problem, attempt, candidates
from ism_dask.journal import Journal
from ism_dask.refinement import refined
from ism_dask.rivals import SOLVERS, Solver
from ism_dask.solver import resumed, solve
from ism_dask.states import Candidate, Solution, State, Status, Stopping
from ism_dask.typing import Array

# What eigenvalues may change by where a W is only to begin with.
_LOOSE = 0.03
# How much wider kernels are, one after the other, before they are as wide as asked.
_WIDER = (4.0, 2.0, 1.4)


@dataclass(frozen=True)
class Search:
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
    on_iteration : callable, optional
        Called with the state after each iteration of the last run, which all others lead to.
    """

    engine: str
    stopping: Stopping
    solver: Solver = SOLVERS["ism"]
    n_init: int = 1
    continuation: bool = False
    refine: bool = False
    on_iteration: Callable[[State], None] | None = field(default=None, repr=False)

    def run(
        self, problem: Problem, q: int, state: State | None = None, journal: Journal | None = None
    ) -> tuple[Engine, Solution]:
        """Return W (d, q), from `state` on if there is one, and the engine that it came by.

        The `journal` takes each run of a solver as a leg.
        """
        journal = Journal() if journal is None else journal
        run = _Run(self, problem, q, journal, journal.seconds)
        for wider in self._wider(problem):
            _, solution = run.attempted(wider, partial(run.loosely, state=state))
            state = resumed(solution)
        return run.attempted(problem, partial(run.to_the_end, state=state))

    def _wider(self, problem: Problem) -> Iterator[Problem]:
        """Return the problem with kernels of larger width, where it has one."""
        for factor in _WIDER if self.continuation else ():
            kernel = problem.kernel.widened(factor)
            if kernel != problem.kernel:
                yield replace(problem, kernel=kernel)


@dataclass(frozen=True)
class _Run:
    """One search, which began so many seconds after the fit."""

    search: Search
    problem: Problem
    q: int
    journal: Journal
    began: float

    def attempted(
        self, problem: Problem, work: Callable[[Engine], Solution]
    ) -> tuple[Engine, Solution]:
        engines = candidates(self.search.engine, problem, self.q)
        return attempt(engines, lambda engine: (engine, work(engine)))

    def loosely(self, engine: Engine, state: State | None) -> Solution:
        """Return a W to begin with: by ISM whatever the solver, for it is near in a few turns."""
        stopping = self._left(self.search.stopping)
        loose = SOLVERS["ism"].stopping(_LOOSE, max_seconds=stopping.max_seconds)
        return self.journal.leg(
            lambda known, tell: solve(
                engine, self.q, loose, on_iteration=tell, state=known or state
            )
        )

    def to_the_end(self, engine: Engine, state: State | None) -> Solution:
        state = self._best(engine, state)
        stopping = self._left(self.search.stopping)
        solution = self.journal.leg(partial(self._followed, engine, stopping, state))
        if not self.search.refine or solution.status is Status.OVER_CAP:
            return solution
        return refined(engine, solution, self._left(self.search.stopping))

    def _followed(
        self,
        engine: Engine,
        stopping: Stopping,
        state: State | None,
        known: State | None,
        tell: Callable[[State], None],
    ) -> Solution:
        """Return what the solver comes to, from where it is known to have been if it can."""
        solver, watcher = self.search.solver, self.search.on_iteration

        def told(state: State) -> None:
            if solver.resumes:
                tell(state)
            if watcher is not None:
                watcher(state)

        return solver.solve(engine, self.q, stopping, on_iteration=told, state=known or state)

    def _best(self, engine: Engine, state: State | None) -> State | None:
        if self.search.n_init == 1:
            return state
        tried = [self.loosely(engine, state)]
        for start in self._random_starts():
            if self.search.stopping.over_cap(self._seconds):
                break
            tried.append(self.loosely(engine, start))
        return resumed(max(tried, key=lambda solution: solution.objective))

    def _random_starts(self) -> Iterator[State]:
        for number in range(1, self.search.n_init):
            rng = np.random.default_rng([self.problem.seed, number])
            yield _at(np.linalg.qr(rng.normal(size=(self.problem.d, self.q)))[0])

    def _left(self, stopping: Stopping) -> Stopping:
        # Where Gamma has negative parts, J has no need of dependence to rise: a W of which all
        # rows are unlike does as well. Its maximum is nothing to be sought at all costs.
        return replace(stopping.after(self._seconds), shifts=self.problem.gamma.definite)

    @property
    def _seconds(self) -> float:
        return self.journal.seconds - self.began


def _at(W: Array) -> State:
    """Return the state that begins with W (d, q), of which nothing is known."""
    return State.begun(Candidate(W, np.zeros(W.shape[1]), 0.0, -np.inf))
