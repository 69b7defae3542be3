"""The Iterative Spectral Method: W becomes the leading eigenvectors of Phi(W) until it stays.

The solver knows neither Dask nor storage. What it iterates on is an `Operator`; who watches or
keeps the iterations is a callback.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

import numpy as np

from ism_dask.eigen import Spectrum, leading, sine
from ism_dask.typing import Array

# Two J of an approximation are equal where they are closer than a quarter of the bound on their
# error, and than this share. Errors vary from one W to the next by a tenth of the bound to a
# thousandth; where the bound is wide it says nothing of that.
_TIE = 1e-4
# Of the tolerance: eigenvalues nearer to those before last are the same ones again.
_COMES_ROUND = 0.1
# The residual at which W is stationary.
_AT_REST = 1e-6


@dataclass(frozen=True)
class Evaluation:
    """J at some W, with Phi(W) (d, d) or with Phi(W) W (d, q), whichever was asked for.

    `error` bounds the relative error of J where Phi is approximated.
    """

    objective: float
    matrix: Array
    error: float = 0.0


class Operator(Protocol):
    """The questions the solver asks of an engine."""

    def phi0(self) -> Array:
        """Return the (d, d) matrix of the start, which does not depend on W."""

    def phi(self, W: Array) -> Evaluation:
        """Return J and the (d, d) matrix Phi at W (d, k)."""

    def gradient(self, W: Array) -> Evaluation:
        """Return J and the (d, k) product Phi(W) W, half the gradient of J."""

    def curvature(self, W: Array, Z: Array) -> Array:
        """Return the (d, k) derivative of Phi(W) W along Z (d, k)."""


class Status(Enum):
    """How a solution ended."""

    CONVERGED = "converged"
    MAX_ITER = "max_iter"
    SWINGS = "swings"
    OVER_CAP = "over the cap"


@dataclass(frozen=True)
class Stopping:
    """When to stop: relative eigenvalue change, sine of the largest angle (if any), count, time."""

    tol: float = 0.01
    angle_tol: float | None = None
    max_iter: int = 100
    max_seconds: float | None = None

    def met(self, change: float, angle: float) -> bool:
        """Say whether the iteration has settled."""
        return change < self.tol and (self.angle_tol is None or angle < self.angle_tol)

    def after(self, seconds: float) -> Stopping:
        """Return when to stop what begins so many seconds later."""
        if self.max_seconds is None:
            return self
        return replace(self, max_seconds=max(0.0, self.max_seconds - seconds))

    def over_cap(self, seconds: float) -> bool:
        """Say whether the time is up."""
        return self.max_seconds is not None and seconds >= self.max_seconds

    def spent(self, iteration: int, seconds: float) -> bool:
        """Say whether there may be no iteration after this one."""
        return iteration >= self.max_iter or self.over_cap(seconds)

    def reached(self, record: Record) -> bool:
        """Say whether the iteration of `record` was the last."""
        done = self.met(record.change, record.angle)
        return done or self.spent(record.iteration, record.seconds)

    def swings(self, history: Sequence[Record], values: Array, change: float) -> bool:
        """Say whether eigenvalues (q,) come round again, those before last, and so it will stay.

        Of two subspaces each may lead to the other: whatever is left to do is done twice.
        """
        if len(history) < 3 or min(change, history[-1].change) < self.tol:
            return False
        near = _COMES_ROUND * self.tol
        again = relative_change(values, np.array(history[-2].eigenvalues)) < near
        before = relative_change(*(np.array(history[i].eigenvalues) for i in (-1, -3))) < near
        # Slow damping looks alike, but ends.
        damping = min(1.0, change / history[-2].change)
        turns_left = (self.max_iter - len(history) - 1) / 2
        return bool(again and before and change * damping**turns_left >= self.tol)


@dataclass(frozen=True)
class Record:
    """One line of the history, of the W that the iteration ended with."""

    iteration: int
    objective: float
    eigenvalues: tuple[float, ...]
    change: float
    angle: float
    seconds: float
    ascent: bool


@dataclass(frozen=True)
class Candidate:
    """A subspace with what is known of it."""

    W: Array
    eigenvalues: Array
    gap: float
    objective: float


@dataclass(frozen=True)
class State:
    """All that the iteration needs to go on from here: the current W and the best so far."""

    iteration: int
    current: Candidate
    best: Candidate
    history: tuple[Record, ...]

    @classmethod
    def begun(cls, start: Candidate) -> State:
        """Return the state that begins with a candidate."""
        return cls(iteration=0, current=start, best=start, history=())


@dataclass(frozen=True)
class Solution:
    """What came out.

    Attributes
    ----------
    W : (d, q) array
        Orthonormal columns, the best seen by the objective.
    eigenvalues : (q,) array
        Of the Phi whose leading eigenvectors W are, falling.
    eigengap : float
        The smallest chosen eigenvalue minus the largest not chosen.
    objective : float
        J(W).
    error : float
        A bound on the relative error of the objective.
    product : (d, q) array
        Phi(W) W.
    """

    W: Array
    eigenvalues: Array
    eigengap: float
    objective: float
    error: float
    product: Array
    n_iter: int
    status: Status
    history: tuple[Record, ...]


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
    started = time.perf_counter()
    state = state if state is not None else begin(operator, q)
    if state.history and _over(state, stopping):
        return _solution(operator, state, operator.gradient(state.current.W), stopping)
    evaluation = operator.phi(state.current.W)
    if state.iteration == 0:
        state = _with_objective(state, evaluation.objective)
    while True:
        spectrum = leading(finite(evaluation.matrix), q, guess=state.current.W)
        iteration = state.iteration + 1
        change = relative_change(spectrum.values, state.current.eigenvalues)
        angle = sine(state.current.W, spectrum.vectors)
        # The last W needs no d x d matrix: J and the residual come from a cheaper pass.
        swings = stopping.swings(state.history, spectrum.values, change)
        spent = stopping.spent(iteration, time.perf_counter() - started)
        last = stopping.met(change, angle) or swings or spent
        evaluation = (operator.gradient if last else operator.phi)(spectrum.vectors)
        record = Record(
            iteration=iteration,
            objective=evaluation.objective,
            eigenvalues=tuple(spectrum.values.tolist()),
            change=change,
            angle=angle,
            seconds=time.perf_counter() - started,
            ascent=evaluation.objective >= state.current.objective,
        )
        state = _advanced(state, spectrum, record, evaluation.error)
        if on_iteration is not None:
            on_iteration(state)
        if last:
            return _solution(operator, state, evaluation, stopping)


def begin(operator: Operator, q: int) -> State:
    """Return the state before the first iteration: the leading eigenvectors of Phi0.

    Where Phi0 determines fewer than q of them (c classes give it rank c - 1), only those are
    taken: the others would be rounding noise, and the first iteration finds q in any case.
    """
    spectrum = leading(finite(operator.phi0()), q)
    W = spectrum.vectors if spectrum.null.all() else spectrum.determined
    start = Candidate(W, spectrum.values, spectrum.gap, -np.inf)
    return State.begun(start)


def resumed(solution: Solution) -> State:
    """Return the state that begins with the W of a solution of a problem that has changed."""
    start = Candidate(solution.W, solution.eigenvalues, solution.eigengap, -np.inf)
    return State.begun(start)


def _over(state: State, stopping: Stopping) -> bool:
    return stopping.reached(state.history[-1]) or _unsettled(state, stopping) is Status.SWINGS


def _unsettled(state: State, stopping: Stopping) -> Status:
    *before, record = state.history
    if stopping.swings(before, np.array(record.eigenvalues), record.change):
        return Status.SWINGS
    return Status.MAX_ITER if record.iteration >= stopping.max_iter else Status.OVER_CAP


def _with_objective(state: State, objective: float) -> State:
    # The start is a candidate for the best only where it has all q columns.
    current = replace(state.current, objective=objective)
    eligible = current.W.shape[1] == len(current.eigenvalues)
    best = current if eligible and objective > state.best.objective else state.best
    return replace(state, current=current, best=best)


def _advanced(state: State, spectrum: Spectrum, record: Record, error: float) -> State:
    current = Candidate(spectrum.vectors, spectrum.values, spectrum.gap, record.objective)
    # Of what an approximation cannot tell apart the later is the better: it is nearer the end.
    highest = max([state.best.objective, *(each.objective for each in state.history)])
    slack = min(error / 4, _TIE) * abs(current.objective) if np.isfinite(error) else 0.0
    better = current.objective >= highest - slack
    return State(
        iteration=record.iteration,
        current=current,
        best=current if better else state.best,
        history=(*state.history, record),
    )


def relative_change(values: Array, before: Array) -> float:
    """Return `||values - before|| / ||values||`, or 0 where values (q,) are."""
    norm = float(np.linalg.norm(values))
    return float(np.linalg.norm(values - before)) / norm if norm > 0 else 0.0


def relative_residual(W: Array, product: Array) -> float:
    """Return `||P - W (W^T P)|| / ||P||` for P = Phi W (d, k), or 0 where P is."""
    norm = float(np.linalg.norm(product))
    return float(np.linalg.norm(product - W @ (W.T @ product))) / norm if norm > 0 else 0.0


def at_rest(W: Array, product: Array) -> bool:
    """Say whether W (d, k), with Phi W (d, k), is stationary for all that is asked of a solver."""
    return relative_residual(W, product) <= _AT_REST


def finite(matrix: Array) -> Array:
    """Return `matrix`, or raise the error of a kernel that overflows."""
    if np.isfinite(matrix).all():
        return matrix
    raise overflow()


def overflow() -> ValueError:
    """Return the error of a kernel whose values are beyond what a float holds."""
    return ValueError(
        "Phi is not finite: the kernel overflows on these rows. Standardise X, or take a lower "
        "degree, a smaller offset or weight, a width nearer the distances between the rows, or "
        "float64 rows"
    )


def _solution(operator: Operator, state: State, last: Evaluation, stopping: Stopping) -> Solution:
    best, record = state.best, state.history[-1]
    settled = stopping.met(record.change, record.angle)
    at_best = last if best is state.current else operator.gradient(best.W)
    return Solution(
        W=best.W,
        eigenvalues=best.eigenvalues,
        eigengap=best.gap,
        objective=best.objective,
        error=at_best.error,
        product=at_best.matrix,
        n_iter=state.iteration,
        status=Status.CONVERGED if settled else _unsettled(state, stopping),
        history=state.history,
    )
