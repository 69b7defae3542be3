"""The Iterative Spectral Method: W becomes the leading eigenvectors of Phi(W) until it stays.

The solver knows neither Dask nor storage. What it iterates on is an `Operator`; who watches or
keeps the iterations is a callback.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from ism_dask.eigen import Spectrum, leading, sine
from ism_dask.shift import Shift
from ism_dask.states import (
    STEPS,
    Candidate,
    Record,
    Solution,
    State,
    Status,
    Stopping,
    relative_change,
    stands_still,
)
from ism_dask.typing import Array

# Two J of an approximation are equal where they are closer than a quarter of the bound on their
# error, and than this share. Errors vary from one W to the next by a tenth of the bound to a
# thousandth; where the bound is wide it says nothing of that.
_TIE = 1e-4
# What J may fall by, relatively, by rounding alone.
_ROUNDING = 1e-12
# Steps of a shift to one of the bare iteration, beyond which J cannot be told to rise.
_MOST_STRIDES = 1e4
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
    state = state if state is not None else begin(operator, q)
    # The time before a run was cut off counts.
    earlier = state.history[-1].seconds if state.history else 0.0
    started = time.perf_counter() - earlier
    if state.history and _over(state, stopping):
        return _solution(operator, state, stopping)
    evaluation = operator.phi(state.current.W)
    if state.iteration == 0:
        state = _with_objective(state, evaluation.objective)
    while True:
        spectrum, strides = _next(evaluation, state, q)
        iteration = state.iteration + 1
        change = strides * relative_change(spectrum.values, state.current.eigenvalues)
        angle = min(1.0, strides * sine(state.current.W, spectrum.vectors))
        # The last W needs no d x d matrix: J and the residual come from a cheaper pass.
        spent = stopping.spent(iteration, time.perf_counter() - started)
        settled = stopping.met(change, angle, evaluation.error)
        last = settled or spent
        tried = (operator.gradient if last else operator.phi)(spectrum.vectors)
        record = Record(
            iteration=iteration,
            objective=tried.objective,
            eigenvalues=tuple(spectrum.values.tolist()),
            change=change,
            angle=angle,
            seconds=time.perf_counter() - started,
            ascent=tried.objective >= state.current.objective - _slack(tried),
            settled=settled,
        )
        before, state = state, _advanced(state, spectrum, record, _slack(tried), stopping)
        if on_iteration is not None:
            on_iteration(state)
        if last:
            return _solution(operator, state, stopping, (spectrum.vectors, tried))
        if _stalls(state) or stopping.ends_swinging(state.history):
            return _solution(operator, state, stopping)
        evaluation = _at_current(operator, state, (before, evaluation), (spectrum, tried))


def _next(evaluation: Evaluation, state: State, q: int) -> tuple[Spectrum, float]:
    """Return the eigenpairs that W becomes, and how many of such steps make a bare one."""
    matrix, current = finite(evaluation.matrix), state.current
    if state.shift is None:
        return leading(matrix, q, guess=current.W), 1.0
    return state.shift.leading(matrix, current.W), state.shift.strides(current.eigenvalues)


def _at_current(
    operator: Operator,
    state: State,
    before: tuple[State, Evaluation],
    tried: tuple[Spectrum, Evaluation],
) -> Evaluation:
    """Return Phi at the current W, which may be the one that was tried or the one before."""
    if state.current.W is tried[0].vectors:
        return tried[1]
    if state.current.W is before[0].current.W:
        return before[1]
    return operator.phi(state.current.W)


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
    ends = _stalls(state) or stopping.ends_swinging(state.history)
    return ends or stopping.reached(state.history[-1])


def _stalls(state: State) -> bool:
    """Say whether a shifted iteration has come as far as it will: J has all but ceased to rise."""
    if state.shift is None:
        return False
    strides = state.shift.strides(state.current.eigenvalues)
    if strides > _MOST_STRIDES:
        # Steps as short as these follow the slope of J: where it falls all the same, that is
        # rounding.
        return True
    risen = [record.objective for record in state.history[state.shift.since :] if record.ascent]
    gains = np.diff(risen[-STEPS - 1 :]) * strides
    return bool(risen) and stands_still(gains, risen[-1])


def _unsettled(state: State, stopping: Stopping) -> Status:
    if stopping.ends_swinging(state.history):
        return Status.SWINGS
    spent = state.history[-1].iteration >= stopping.max_iter
    return Status.MAX_ITER if spent else Status.OVER_CAP


def _with_objective(state: State, objective: float) -> State:
    # The start is a candidate for the best only where it has all q columns.
    current = replace(state.current, objective=objective)
    eligible = current.W.shape[1] == len(current.eigenvalues)
    best = current if eligible and objective > state.best.objective else state.best
    return replace(state, current=current, best=best)


def _advanced(
    state: State, spectrum: Spectrum, record: Record, slack: float, stopping: Stopping
) -> State:
    tried = Candidate(spectrum.vectors, spectrum.values, spectrum.gap, record.objective)
    # Of what an approximation cannot tell apart the later is the better: it is nearer the end.
    highest = max([state.best.objective, *(each.objective for each in state.history)])
    best = tried if tried.objective >= highest - slack else state.best
    history = (*state.history, record)
    if state.shift is None:
        if not stopping.calls_for_shift(history):
            return State(record.iteration, tried, best, history)
        shift = Shift.begun(best.eigenvalues, best.gap, record.iteration)
        return State(record.iteration, best, best, history, shift)
    if record.ascent:
        return State(record.iteration, tried, best, history, state.shift.softer)
    return State(record.iteration, state.current, best, history, state.shift.harder)


def _slack(evaluation: Evaluation) -> float:
    """Return by how much J may be lower and yet be told to be as large."""
    share = min(evaluation.error / 4, _TIE) if np.isfinite(evaluation.error) else 0.0
    return (share + _ROUNDING) * abs(evaluation.objective)


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


def _solution(
    operator: Operator,
    state: State,
    stopping: Stopping,
    last: tuple[Array, Evaluation] | None = None,
) -> Solution:
    """Return the best; `last` is the W that was tried last with its J and Phi W, where known."""
    best, record = state.best, state.history[-1]
    settled = record.settled or _stalls(state)
    known = last is not None and last[0] is best.W
    at_best = last[1] if last is not None and known else operator.gradient(best.W)
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
