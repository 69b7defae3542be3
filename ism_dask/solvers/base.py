"""What all solvers share: the options, the time limit, and the loop of steps that raise J."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from ism_dask._validation import check_choice, check_positive_int, positive_float
from ism_dask.engines.base import Operator
from ism_dask.records.checkpoint import CheckpointedFit
from ism_dask.records.iteration import Solution, State, Stopping
from ism_dask.status import Status


class TimeLimit:
    """A clock of one fit, with the seconds that it may take, and those before an interruption."""

    def __init__(
        self, max_seconds: float | None = None, saved_fit: CheckpointedFit | None = None
    ) -> None:
        self.max_seconds = max_seconds
        earlier = 0.0 if saved_fit is None else saved_fit.earlier_seconds
        self._began = time.perf_counter() - earlier

    @property
    def seconds(self) -> float:
        """Seconds since the fit began."""
        return time.perf_counter() - self._began

    @property
    def is_over(self) -> bool:
        """Whether the fit has taken all of its seconds."""
        return self.max_seconds is not None and self.seconds >= self.max_seconds


@dataclass(frozen=True, kw_only=True)
class Solver(Stopping):
    """The options of a solver.

    Estimators by dependence take any object of a subclass with `solve`. It gets their engine and
    start and returns a solution, of which they read W, status and history. `PredictiveIKDR` has
    steps of its own, and reads the two limits of an `Ascent`. Solvers end by the residual: with
    small steps the change of the eigenvalues, by which ISM may end, is small from the first on.

    Attributes
    ----------
    estimators : tuple of str
        The names of the estimators that the solver serves, by default of those by dependence.
    ends_stationary : bool
        Whether the W at which the solver ends of its own accord is to be stationary.
    """

    estimators: ClassVar[tuple[str, ...]] = (
        "SupervisedIKDR",
        "UnsupervisedIKDR",
        "SemiSupervisedIKDR",
        "AlternativeIKDR",
    )
    ends_stationary: ClassVar[bool] = True

    max_iter: int
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        check_positive_int("`max_iter`", self.max_iter)
        if self.max_seconds is not None:
            positive_float("`max_seconds`", self.max_seconds, "or None")

    def solve(
        self,
        operator: Operator,
        q: int,
        time_limit: TimeLimit,
        *,
        on_iteration: Callable[[State], None] | None = None,
        state: State | None = None,
    ) -> Solution:
        """Return the solution with W (d, q), from the spectral start or from `state`.

        Parameters
        ----------
        operator : Operator
            Computes J, Phi and Phi W.
        q : int
        time_limit : TimeLimit
            The clock of the fit. The solver ends once it is over, but takes one step in any case.
        on_iteration : callable, optional
            Called with the `State` after every iteration.
        state : State, optional
            A state whose W is the start, and whose history continues.
        """
        raise NotImplementedError


# The solvers by their names, which `ism_dask.solvers` enters.
SOLVERS: dict[str, type[Solver]] = {}


def as_solver(solver: str | Solver) -> Solver:
    """Return the solver with a name in `SOLVERS`, or an object with options as it is."""
    if isinstance(solver, Solver):
        return solver
    kind: Callable[[], Solver] = SOLVERS[check_choice("`solver`", solver, SOLVERS)]
    return kind()


def solver_name(solver: Solver) -> str:
    """Return the name of a solver in `SOLVERS`, or that of its class if it is none of these."""
    names = {kind: name for name, kind in SOLVERS.items()}
    return names.get(type(solver), type(solver).__name__)


def check_serves(solver: Solver, estimator: type) -> None:
    """Raise a ValueError unless a solver serves a class of estimators."""
    names = {each.__name__ for each in estimator.__mro__}
    if names.isdisjoint(solver.estimators):
        usual = [name for name, kind in SOLVERS.items() if names & {*kind.estimators}]
        raise ValueError(
            f"`solver`={solver_name(solver)!r} does not serve {estimator.__name__}; take "
            f"{' or '.join(map(repr, usual))}, or {' or '.join(solver.estimators)}, which it "
            "serves"
        )


class Method(Protocol):
    """A way to climb: where it begins, its next step, and when it has come to an end of its own."""

    def init(self, state: State) -> State:
        """Return the state from which the steps go on."""

    def terminate(self, state: State) -> Status | None:
        """Return how the run ends at a state, or None if it goes on."""

    def step(self, state: State) -> State | None:
        """Return the state after one more step, or None if no step raises J."""


def drive(
    method: Method,
    state: State,
    max_iter: int,
    time_limit: TimeLimit,
    on_iteration: Callable[[State], None] | None = None,
) -> tuple[State, Status]:
    """Return the last state of a run, and how it ended.

    A run continues from any of its states to the same bits. The history of `state` counts towards
    `max_iter`. The first step of a fit is taken in any case, since some W has to be returned.
    """
    state = method.init(state)
    while True:
        status = method.terminate(state)
        if status is not None:
            return state, status
        if state.iteration >= max_iter:
            return state, Status.MAX_ITER
        if state.history and time_limit.is_over:
            return state, Status.OVER_CAP
        following = method.step(state)
        if following is None:
            return state, Status.STALLED
        state = stamped(following, time_limit)
        if on_iteration is not None:
            on_iteration(state)


def stamped(state: State, time_limit: TimeLimit) -> State:
    """Return a state whose last record has the seconds since the fit began."""
    record = replace(state.history[-1], seconds=time_limit.seconds)
    return replace(state, history=(*state.history[:-1], record))
