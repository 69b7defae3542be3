"""The Iterative Spectral Method: W becomes the leading eigenvectors of Phi(W) until it converges.

The solver knows neither Dask nor storage. It iterates on an `Operator`, and a callback watches or
saves the iterations.
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
    PhiEvaluation,
    ProductEvaluation,
    check_finite,
    relative_residual,
    space_of,
)
from ism_dask.linalg.eigen import (
    Spectrum,
    largest_eigenvalue_outside,
    leading_eigenpairs,
    rayleigh_ritz,
)
from ism_dask.linalg.subspaces import subspace_sine
from ism_dask.records.iteration import Candidate, Record, Solution, State, relative_change
from ism_dask.records.stopping_rule import RESIDUAL, Stopping, is_stationary
from ism_dask.status import Status

# Two values of J by an approximation are equal if they differ by less than a quarter of the bound
# on their error and by less than this share. From one W to the next the error varies by a tenth to
# a thousandth of the bound. A wide bound is no measure of that variation, hence the share.
_TIE = 1e-4
# The residual at which other solvers than ISM end.
SOLVER_TOLERANCE = 1e-6
# If Phi W is a smaller share of J than this, J does not depend on W except by rounding.
_FLAT = 1e-9
# At this residual W is stationary, whichever rule ended the iteration.
_STATIONARY = 1e-10


@dataclass(frozen=True)
class _Point:
    """A W with its J and either Phi or only Phi W."""

    W: Array
    evaluation: PhiEvaluation | ProductEvaluation

    @property
    def phi(self) -> Array | None:
        """Phi (d, d), or None if only Phi W was computed."""
        return self.evaluation.phi if isinstance(self.evaluation, PhiEvaluation) else None

    @property
    def product(self) -> Array:
        """Phi W (d, q)."""
        if isinstance(self.evaluation, ProductEvaluation):
            return self.evaluation.product
        return self.evaluation.phi @ self.W

    @property
    def residual(self) -> float:
        """The residual of W, from 0 at a stationary point to 1."""
        return relative_residual(self.W, self.product)


def solve(
    operator: Operator,
    q: int,
    stopping: Stopping,
    *,
    on_iteration: Callable[[State], None] | None = None,
    state: State | None = None,
) -> Solution:
    """Return the solution of the iteration from the spectral start, or from `state`.

    Parameters
    ----------
    operator : Operator
    q : int
        Columns of W.
    stopping : Stopping
        The rule that ends the iteration.
    on_iteration : callable, optional
        Called with the `State` after every iteration.
    state : State, optional
        The state of an interrupted run, which continues to the same solution, bit for bit.
    """
    run = _Run(operator, q, stopping)
    state = spectral_state(operator, q) if state is None else state
    # The time before an interruption counts.
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
        # The last W needs no d x d matrix: a cheaper pass gives J and the residual.
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
        if not last and run.ends_at(tried):
            record = replace(record, settled=True)
        state = _next_state(state, spectrum, record, slack)
        if on_iteration is not None:
            on_iteration(state)
        if run.is_over(state):
            return run.solution(state, tried)
        point = tried


@dataclass(frozen=True)
class _Run:
    """The operator and the rules of a run, which are the same in all its iterations."""

    operator: Operator
    q: int
    stopping: Stopping

    def step(self, point: _Point) -> Spectrum:
        """Return the leading eigenpairs of Phi, whose vectors are the next W."""
        return leading_eigenpairs(
            check_finite(self._phi(point)),
            self.q,
            guess=point.W,
            noise=point.evaluation.noise,
            space=space_of(self.operator),
        )

    def ends_at(self, point: _Point) -> bool:
        """Return whether W is stationary and that ends the iteration, because there is no `tol`."""
        if self.stopping.tol is not None or point.residual > RESIDUAL:
            return False
        return is_stationary(
            point.residual,
            subspace_sine(point.W, self.step(point).vectors),
            float(np.linalg.norm(point.product)),
            point.evaluation.objective,
        )

    def is_over(self, state: State) -> bool:
        """Return whether the iteration ends at `state`."""
        reached = self.stopping.reached(state.history[-1])
        return reached or self.stopping.is_stuck(state.history)

    def solution(self, state: State, tried: _Point | None = None) -> Solution:
        """Return the solution with the best W; `tried` is the point of the last W, if available."""
        best = state.best
        published = self.stopping.tol is not None
        point = tried if tried is not None and tried.W is best.W else None
        # By the published rule the eigengap is that of the Phi whose eigenvectors W has, otherwise
        # that of Phi(W). In either case one kind of pass computes all numbers, so that a run that
        # was interrupted comes to the same bits.
        if point is None or (point.phi is not None) == published:
            evaluate = self.operator.gradient if published else self.operator.phi
            point = _Point(best.W, evaluate(best.W))
        W, values, product = rayleigh_ritz(best.W, point.product)
        following = best.following
        if not published or not np.isfinite(following):
            following = self._next_eigenvalue(point)
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

    def _next_eigenvalue(self, point: _Point) -> float:
        """Return the largest eigenvalue of Phi outside of W."""
        return largest_eigenvalue_outside(self._phi(point), point.W)

    def _phi(self, point: _Point) -> Array:
        return self.operator.phi(point.W).phi if point.phi is None else point.phi

    def _status(self, state: State, point: _Point) -> Status:
        record = state.history[-1]
        if np.linalg.norm(point.product) <= _FLAT * abs(point.evaluation.objective):
            return Status.FLAT
        published = self.stopping.tol is not None
        if record.settled and (published or state.best is state.current):
            converged = point.residual <= (
                RESIDUAL if self.stopping.claims_convergence else _STATIONARY
            )
            return Status.CONVERGED if converged else Status.TOLERANCE
        if self.stopping.is_spent(record.iteration, record.seconds):
            spent = record.iteration >= self.stopping.max_iter
            return Status.MAX_ITER if spent else Status.OVER_CAP
        return Status.SWINGS


def solution_at(
    operator: Operator, W: Array, status: Status, history: tuple[Record, ...] = ()
) -> Solution:
    """Return the solution in the span of W (d, q), by Rayleigh-Ritz; this computes Phi once.

    Its eigengap is negative if the spectral step would leave W.
    """
    evaluation = operator.phi(W)
    phi = evaluation.phi
    W, values, product = rayleigh_ritz(W, phi @ W)
    return Solution(
        W=W,
        eigenvalues=values,
        eigengap=float(values[-1]) - largest_eigenvalue_outside(phi, W),
        objective=evaluation.objective,
        error=evaluation.error,
        product=product,
        n_iter=len(history),
        status=status,
        history=history,
        residual=relative_residual(W, product),
        in_double=evaluation.noise <= DOUBLE_NOISE,
    )


def one_step_agrees(operator: Operator, solution: Solution) -> bool:
    """Return whether one spectral step does not refute that W is stationary.

    If the step would leave W, because Phi has a larger eigenvalue outside of W than within, it
    decides nothing: `verify_maximum` then takes more steps.
    """
    if relative_residual(solution.W, solution.product) > RESIDUAL:
        return False
    if solution.eigengap < 0:
        return True
    point = _Point(solution.W, operator.phi(solution.W))
    return _Run(operator, solution.W.shape[1], Stopping(None)).ends_at(point)


def spectral_state(operator: Operator, q: int) -> State:
    """Return the state before the first iteration: the leading eigenvectors of Phi0.

    If Phi0 determines fewer than q of them (with c classes its rank is c - 1), W has only those:
    others would be rounding noise, and the first iteration computes q in any case.
    """
    start = _spectrum_of_phi0(operator, q)
    W = start.vectors if start.null.all() else start.vectors[:, ~start.null]
    return State.initial(Candidate(W, start.values, np.nan, -np.inf))


def spectral_start(operator: Operator, q: int) -> Array:
    """Return the q leading eigenvectors (d, q) of Phi0."""
    return _spectrum_of_phi0(operator, q).vectors


def _spectrum_of_phi0(operator: Operator, q: int) -> Spectrum:
    return leading_eigenpairs(check_finite(operator.phi0()), q, space=space_of(operator))


def state_at(W: Array) -> State:
    """Return the state before the first iteration that starts at W (d, q)."""
    return State.initial(Candidate(W, np.zeros(W.shape[1]), np.nan, -np.inf))


def restart_from(solution: Solution) -> State:
    """Return the state before the first iteration that starts at the W of another problem."""
    return State.initial(Candidate(solution.W, solution.eigenvalues, np.nan, -np.inf))


def continue_from(solution: Solution, W: Array | None = None) -> State:
    """Return the state that continues the history of a solution, from its W or another (d, q)."""
    W = solution.W if W is None else W
    start = Candidate(W, solution.eigenvalues, np.nan, -np.inf)
    last = replace(solution.history[-1], settled=False)
    return State(solution.n_iter, start, start, (*solution.history[:-1], last))


def _with_objective(state: State, objective: float) -> State:
    """Return the state before the first iteration with J at its W."""
    current = replace(state.current, objective=objective)
    # The start may be the best W only if it has all q columns.
    if current.W.shape[1] < len(current.eigenvalues):
        return replace(state, current=current)
    return replace(state, current=current, best=current, peak=objective)


def _next_state(state: State, spectrum: Spectrum, record: Record, slack: float) -> State:
    tried = Candidate(spectrum.vectors, spectrum.values, spectrum.following, record.objective)
    # If an approximation cannot distinguish two W, prefer the later one: it is nearer convergence.
    best = tried if tried.objective >= state.peak - slack else state.best
    history = (*state.history, record)
    return State(record.iteration, tried, best, history, max(state.peak, record.objective))


def _slack(evaluation: Evaluation) -> float:
    """Return the decrease of J that approximation and rounding may cause."""
    share = min(evaluation.error / 4, _TIE) if evaluation.approximate else 0.0
    return (share + evaluation.noise) * abs(evaluation.objective)
