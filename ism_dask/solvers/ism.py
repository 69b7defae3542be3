"""The Iterative Spectral Method: W becomes the leading eigenvectors of Phi(W) until it stays.

The solver knows neither Dask nor storage. What it iterates on is an `Operator`; who watches or
keeps the iterations is a callback.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.operator import (
    DOUBLE_NOISE,
    Evaluation,
    Operator,
    check_finite,
    relative_residual,
    space_of,
)
from ism_dask.linalg.eigen import (
    Spectrum,
    determined_eigenvectors,
    largest_eigenvalue_outside,
    leading_eigenpairs,
    rayleigh_ritz,
    subspace_sine,
)
from ism_dask.records.iteration import Candidate, Record, Solution, State, relative_change
from ism_dask.records.stopping import RESIDUAL, Stopping, is_stationary
from ism_dask.status import Status

# Two J of an approximation are equal where they are closer than a quarter of the bound on their
# error, and than this share. Errors vary from one W to the next by a tenth of the bound to a
# thousandth; where the bound is wide it says nothing of that.
_TIE = 1e-4
# The residual at which other solvers than ISM end.
SOLVER_TOLERANCE = 1e-6
# The size of Phi W, as a share of J, below which J does not depend on W but for rounding.
_FLAT = 1e-9
# The residual at which W is a stationary point whatever ended the iteration.
_AT_POINT = 1e-10


@dataclass(frozen=True)
class _Point:
    """A W with J and Phi there, or Phi W alone."""

    W: Array
    evaluation: Evaluation

    @property
    def is_whole(self) -> bool:
        """Whether all of Phi is known."""
        return self.evaluation.matrix.shape != self.W.shape

    @property
    def product(self) -> Array:
        """Phi W (d, q)."""
        matrix = self.evaluation.matrix
        return matrix @ self.W if self.is_whole else matrix

    @property
    def residual(self) -> float:
        """How far W is from a stationary point, 0 to 1."""
        return relative_residual(self.W, self.product)


def solve(
    operator: Operator,
    q: int,
    stopping: Stopping,
    *,
    on_iteration: Callable[[State], None] | None = None,
    state: State | None = None,
) -> Solution:
    """Iterate from the spectral start, or from `state`, until `stopping` is met.

    Parameters
    ----------
    operator : Operator
    q : int
        Columns of W.
    stopping : Stopping
    on_iteration : callable, optional
        Called with the `State` after every iteration.
    state : State, optional
        Where an earlier run was; the answer is then the same, bit for bit.
    """
    run = _Run(operator, q, stopping)
    state = spectral_state(operator, q) if state is None else state
    # The time before a run was cut off counts.
    earlier = state.history[-1].seconds if state.history else 0.0
    started = time.perf_counter() - earlier
    if state.history and run.is_over(state):
        return run.solution(state)
    point = _Point(state.current.W, operator.phi(state.current.W))
    if not np.isfinite(state.current.objective):
        state = _with_objective(state, point.evaluation.objective)
    while True:
        spectrum = run.step(point)
        iteration, seconds = state.iteration + 1, time.perf_counter() - started
        change = relative_change(spectrum.values, state.current.eigenvalues)
        angle = subspace_sine(state.current.W, spectrum.vectors)
        met = stopping.tol_is_met(change, angle)
        # The last W needs no d x d matrix: J and the residual come from a cheaper pass.
        last = met or stopping.is_spent(iteration, seconds)
        evaluate = operator.gradient if last else operator.phi
        tried = _Point(spectrum.vectors, evaluate(spectrum.vectors))
        slack = _slack(tried.evaluation)
        record = Record(
            iteration=iteration,
            objective=tried.evaluation.objective,
            eigenvalues=tuple(spectrum.values.tolist()),
            change=change,
            angle=angle,
            seconds=time.perf_counter() - started,
            ascent=tried.evaluation.objective >= state.current.objective - slack,
            settled=met,
            residual=tried.residual,
        )
        if not last and run.stays(tried):
            record = replace(record, settled=True)
        state = _advanced(state, spectrum, record, slack)
        if on_iteration is not None:
            on_iteration(state)
        if run.is_over(state):
            return run.solution(state, tried)
        point = tried


@dataclass(frozen=True)
class _Run:
    """What stays the same in all iterations of a run."""

    operator: Operator
    q: int
    stopping: Stopping

    def step(self, point: _Point) -> Spectrum:
        """Return the eigenpairs that W becomes."""
        return leading_eigenpairs(
            check_finite(point.evaluation.matrix),
            self.q,
            guess=point.W,
            noise=point.evaluation.noise,
            space=space_of(self.operator),
        )

    def stays(self, point: _Point) -> bool:
        """Return whether W is stationary, where that is what ends the iteration."""
        if self.stopping.tol is not None or point.residual > RESIDUAL:
            return False
        return is_stationary(
            point.residual,
            subspace_sine(point.W, self.step(point).vectors),
            float(np.linalg.norm(point.product)),
            point.evaluation.objective,
        )

    def is_over(self, state: State) -> bool:
        """Return whether no iteration follows."""
        reached = self.stopping.reached(state.history[-1])
        return reached or self.stopping.is_stuck(state.history)

    def solution(self, state: State, tried: _Point | None = None) -> Solution:
        """Return the best W; `tried` is the last one, if that is known."""
        best = state.best
        published = self.stopping.tol is not None
        point = tried if tried is not None and tried.W is best.W else None
        # By the published rule W has the eigengap of the Phi that it was made of, else of its own.
        # In either case all comes from one kind of pass: a run that was cut off has the same bits.
        if point is None or point.is_whole == published:
            evaluate = self.operator.gradient if published else self.operator.phi
            point = _Point(best.W, evaluate(best.W))
        W, values, product = rayleigh_ritz(best.W, point.product)
        following = best.following
        if not published or not np.isfinite(following):
            following = self._following(point)
        return Solution(
            W=W,
            eigenvalues=values,
            eigengap=float(values[-1]) - following,
            objective=point.evaluation.objective,
            error=point.evaluation.error,
            product=product,
            n_iter=state.iteration,
            status=self._status(state, point),
            history=state.history,
            in_double=point.evaluation.noise <= DOUBLE_NOISE,
        )

    def _following(self, point: _Point) -> float:
        """Return the largest eigenvalue of Phi outside of W."""
        evaluation = point.evaluation if point.is_whole else self.operator.phi(point.W)
        return largest_eigenvalue_outside(evaluation.matrix, point.W)

    def _status(self, state: State, point: _Point) -> Status:
        record = state.history[-1]
        if np.linalg.norm(point.product) <= _FLAT * abs(point.evaluation.objective):
            return Status.FLAT
        published = self.stopping.tol is not None
        if record.settled and (published or state.best is state.current):
            near = point.residual <= (RESIDUAL if self.stopping.claims_convergence else _AT_POINT)
            return Status.CONVERGED if near else Status.TOLERANCE
        if self.stopping.is_spent(record.iteration, record.seconds):
            spent = record.iteration >= self.stopping.max_iter
            return Status.MAX_ITER if spent else Status.OVER_CAP
        return Status.SWINGS


def one_step_agrees(operator: Operator, solution: Solution) -> bool:
    """Return whether one spectral step tells nothing against a claim that W is stationary.

    Where the step would leave W, because Phi has a larger eigenvalue outside of W than within, it
    tells nothing at all: `verify` looks further ahead there.
    """
    if relative_residual(solution.W, solution.product) > RESIDUAL:
        return False
    if solution.eigengap < 0:
        return True
    point = _Point(solution.W, operator.phi(solution.W))
    return _Run(operator, solution.W.shape[1], Stopping(None)).stays(point)


def spectral_state(operator: Operator, q: int) -> State:
    """Return the state before the first iteration: the leading eigenvectors of Phi0.

    Where Phi0 determines fewer than q of them (c classes give it rank c - 1), only those are
    taken: the others would be rounding noise, and the first iteration finds q in any case.
    """
    phi0 = check_finite(operator.phi0())
    values, W = determined_eigenvectors(phi0, q)
    if not W.shape[1]:
        W = leading_eigenpairs(phi0, q, space=space_of(operator)).vectors
    return State.begun(Candidate(W, values, np.nan, -np.inf))


def spectral_start(operator: Operator, q: int) -> Array:
    """Return the q leading eigenvectors (d, q) of Phi0."""
    return leading_eigenpairs(check_finite(operator.phi0()), q, space=space_of(operator)).vectors


def state_at(W: Array) -> State:
    """Return the state that begins with W (d, q), of which nothing is known."""
    return State.begun(Candidate(W, np.zeros(W.shape[1]), np.nan, -np.inf))


def restart_from(solution: Solution) -> State:
    """Return the state that begins with the W of a solution of a problem that has changed."""
    return State.begun(Candidate(solution.W, solution.eigenvalues, np.nan, -np.inf))


def continue_from(solution: Solution, W: Array | None = None) -> State:
    """Return the state that goes on from a solution, or from another W (d, q) in its place."""
    W = solution.W if W is None else W
    start = Candidate(W, solution.eigenvalues, np.nan, -np.inf)
    last = replace(solution.history[-1], settled=False)
    return State(solution.n_iter, start, start, (*solution.history[:-1], last))


def _with_objective(state: State, objective: float) -> State:
    """Return a state that begins, with J at its W."""
    current = replace(state.current, objective=objective)
    # The start is a candidate for the best only where it has all q columns.
    if current.W.shape[1] < len(current.eigenvalues):
        return replace(state, current=current)
    return replace(state, current=current, best=current, peak=objective)


def _advanced(state: State, spectrum: Spectrum, record: Record, slack: float) -> State:
    tried = Candidate(spectrum.vectors, spectrum.values, spectrum.following, record.objective)
    # Of what an approximation cannot tell apart the later is the better: it is nearer the end.
    best = tried if tried.objective >= state.peak - slack else state.best
    history = (*state.history, record)
    return State(record.iteration, tried, best, history, max(state.peak, record.objective))


def _slack(evaluation: Evaluation) -> float:
    """Return by how much J may be lower and yet be told to be as large."""
    share = min(evaluation.error / 4, _TIE) if evaluation.approximate else 0.0
    return (share + evaluation.noise) * abs(evaluation.objective)


def meets_solver_tolerance(W: Array, product: Array) -> bool:
    """Return whether W (d, k), with Phi W (d, k), is stationary enough for a solver to end."""
    return relative_residual(W, product) <= SOLVER_TOLERANCE
