"""Ascent of J over W with orthonormal columns, by preconditioned Riemannian L-BFGS steps.

Directions are tangents Z (d, k) at W on the Grassmann manifold, with `W^T Z = 0`. The steps and
changes of the slope in memory are projected onto the tangent space of the current W. The slope is
half of the gradient. J rises in every step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from ism_dask._types import Array
from ism_dask.criteria.prediction import Explained
from ism_dask.engines.base import ProductEvaluation
from ism_dask.kernels.base import check_finite
from ism_dask.linalg.eigen import rayleigh_ritz
from ism_dask.linalg.subspaces import nearest_orthonormal, relative_residual, tangent
from ism_dask.records.checkpoint import CheckpointedFit
from ism_dask.records.fit_report import FitReport
from ism_dask.records.iteration import RESIDUAL, Solution, State
from ism_dask.solvers.base import Solver, TimeLimit, drive, stamped
from ism_dask.status import Status

# W is stationary up to the largest of three residuals: that of `converged`, the one at which the
# slope is this share of its noise between rows, and the one at which a turn of W by a radian
# changes J, a share from 0 to 1, by this; but never beyond the last number.
_NOISE_SHARE = 0.25
_SMALL_CHANGE = 3e-6
_LARGEST_RESIDUAL = 0.25
# Rough ascents end once a step gains less than this share of what is not explained.
_STILL = 1e-5
# J has reached a plateau by its mean change over this many steps.
_PLATEAU_STEPS = 5
# Steps whose curvature is in memory.
_MEMORY = 20
# The share of the gain predicted by the slope that a step has to reach.
_GAIN = 1e-4
# The line search shortens a step to the maximum of the parabola through J and its slope, but to
# these shares of it at least and at most, and at most _CUTS times.
_SHORTEST_CUT, _LONGEST_CUT, _CUTS = 0.02, 0.4, 12
# The spectral norms of the first step and of the longest one. The norm of a step is the tangent of
# the angle by which it turns W.
_FIRST, _LONGEST = 0.1, 0.5
# The curvature along a step is rounding if it is a smaller share of |step| |change of slope|.
_ROUNDING = 1e-10
_TINY = float(np.finfo(np.float64).tiny)

Precondition = Callable[[Array], Array]
# Steps (d, k) and the changes of the slope along them.
Curvature = deque[tuple[Array, Array]]
# J at some W, and Phi W, half of its gradient.
Slope: TypeAlias = Explained | ProductEvaluation
_Value = TypeVar("_Value", bound=Slope)


@dataclass(frozen=True, kw_only=True)
class Ascent(Solver):
    """Preconditioned L-BFGS steps, the solver of the prediction criterion.

    Parameters
    ----------
    max_iter : int, default 100
        Maximum number of steps on all rows.
    max_seconds : float, optional
        Time limit in seconds of the whole fit, its choices among it.
    """

    estimators = ("PredictiveIKDR",)

    max_iter: int = 100


def residual_limit(value: Explained) -> float:
    """Return the residual at which the W of a prediction counts as stationary."""
    size = float(np.linalg.norm(value.product))
    if size == 0.0:
        return RESIDUAL
    # The slope of J is twice the part of Phi W whose share the residual is.
    of_noise, of_change = _NOISE_SHARE * value.noise / size, _SMALL_CHANGE / (2.0 * size)
    return min(max(RESIDUAL, of_noise, of_change), _LARGEST_RESIDUAL)


def ascend(
    evaluate: Callable[[Array], Slope],
    W: Array,
    precondition: Precondition | None = None,
    *,
    limit: float | None = None,
    max_iter: int,
    time_limit: TimeLimit | None = None,
    state: State | None = None,
    saved_fit: CheckpointedFit | None = None,
    on_iteration: Callable[[State], None] | None = None,
    still: float = 0.0,
    least_gain: float = 0.0,
) -> Solution:
    """Return the solution of an ascent from W (d, q), which ends where W is stationary.

    `evaluate` returns J and Phi W (d, q) at a W. W is stationary at a residual of `limit`, by
    default `residual_limit` of a prediction. The ascent ends, too, after `max_iter` steps with
    those in the history, or if in the mean of five steps J changes by a smaller share than `still`,
    or the steps explain less than the share `least_gain` each of what is not explained.
    It continues the history of `state`; it is the next run of a saved fit, and continues where that
    was interrupted. `W^T Phi W` is diagonal only after `diagonalised`.
    """
    time_limit = TimeLimit() if time_limit is None else time_limit
    memory: Curvature = deque(maxlen=_MEMORY)
    begun = 0 if state is None else state.iteration
    steps = AscentSteps(evaluate, precondition, memory, limit, still, least_gain, begun)
    state = State.from_weights(W) if state is None else replace(state, W=W)
    if saved_fit is not None:
        saved, on_iteration = saved_fit.next_run(on_iteration)
        if saved is not None:
            state = saved
            memory.extend(saved.curvature)
    state, status = drive(steps, state, max_iter, time_limit, on_iteration)
    if not state.history:
        # No step was taken: the history has the start.
        state = stamped(steps.noted(state, state.W), time_limit)
        if on_iteration is not None:
            on_iteration(state)
    product = steps.value.product
    residual = relative_residual(state.W, product)
    report = FitReport(tolerance=steps.limit_here)
    return Solution(state, status, product, residual, report=report)


def diagonalised(solution: Solution) -> Solution:
    """Return a solution with W rotated so that `W^T Phi W` is diagonal."""
    W, values, product = rayleigh_ritz(solution.W, solution.product)
    state = replace(solution.state, W=W, eigenvalues=values)
    return replace(solution, state=state, product=product, residual=relative_residual(W, product))


@dataclass(eq=False)
class AscentSteps:
    """The steps of L-BFGS after `begun` others, for `drive`; `value` is J and Phi W at the last W.

    The other fields are explained in `ascend`.
    """

    evaluate: Callable[[Array], Slope]
    precondition: Precondition | None
    memory: Curvature
    limit: float | None
    still: float
    least_gain: float
    begun: int
    value: Any = None

    @property
    def limit_here(self) -> float:
        """The residual at which the current W counts as stationary."""
        return residual_limit(self.value) if self.limit is None else self.limit

    def init(self, state: State) -> State:
        """Return the state with J at its W, from which J rises in every step."""
        W = state.W
        self.value = self.evaluate(W)
        check_finite(self.value.product)
        self._moves = lbfgs_ascent(self.evaluate, W, self.value, self.precondition, self.memory)
        J = self.value.objective
        values, curvature = self._eigenvalues(W), tuple(self.memory)
        return State(W, values, W, J, history=state.history, peak=J, curvature=curvature)

    def terminate(self, state: State) -> Status | None:
        """Return how the ascent ends at a state, or None if it goes on."""
        if relative_residual(state.W, self.value.product) <= self.limit_here:
            return Status.CONVERGED
        own = state.history[self.begun :][-_PLATEAU_STEPS - 1 :]
        rise = np.abs(np.diff([record.objective for record in own]))
        flat = self.still * abs(self.value.objective)
        if len(rise) < _PLATEAU_STEPS:
            return None
        if rise.mean() <= self.least_gain * abs(1.0 - self.value.objective):
            return Status.NOISE
        return Status.STALLED if rise.mean() <= flat else None

    def step(self, state: State) -> State | None:
        """Return the state after a step, or None if no step along the slope raises J."""
        move = next(self._moves, None)
        if move is None:
            return None
        W, self.value = move
        return self.noted(state, W)

    def noted(self, state: State, W: Array) -> State:
        """Return the state with a record of W, at which J was evaluated."""
        residual, limit = relative_residual(W, self.value.product), self.limit_here
        return state.advanced(
            W,
            self._eigenvalues(W),
            self.value.objective,
            residual,
            limit=limit,
            settled=residual <= limit,
            curvature=self.memory,
        )

    def _eigenvalues(self, W: Array) -> Array:
        inner = W.T @ self.value.product
        return np.linalg.eigvalsh((inner + inner.T) / 2)[::-1]


def ascend_roughly(
    evaluate: Callable[[Array], Explained],
    W: Array,
    precondition: Precondition,
    steps: int,
    *,
    time_limit: TimeLimit | None = None,
) -> tuple[Array, float]:
    """Return W (d, q) and J after up to a number of steps, or once J hardly rises any more.

    It ends as well where W is stationary, or after the first step beyond a time limit.
    """
    now = evaluate(W)
    ascent = lbfgs_ascent(evaluate, W, now, precondition)
    for number, (V, value) in enumerate(ascent, 1):
        gain = value.objective - now.objective
        W, now = V, value
        still = gain <= _STILL * abs(1.0 - now.objective)
        stationary = relative_residual(W, now.product) <= residual_limit(now)
        is_over = time_limit is not None and time_limit.is_over
        if number >= steps or still or stationary or is_over:
            break
    return W, now.objective


def lbfgs_ascent(
    evaluate: Callable[[Array], _Value],
    W: Array,
    now: _Value,
    precondition: Precondition | None,
    curvature: Curvature | None = None,
) -> Iterator[tuple[Array, _Value]]:
    """Yield points (d, k) with orthonormal columns, J growing from one to the next.

    The first point W, where the evaluation is `now`, is not yielded. The iterator ends when no step
    along the slope raises J any more. `precondition` multiplies a slope (d, k) by an estimate of
    the inverse curvature, which may be off by a factor but must be positive definite. `curvature`
    is what an interrupted ascent had learned up to W, and holds that of this ascent afterwards.
    """
    guess = precondition or (lambda Z: Z)
    memory: Curvature = deque(maxlen=_MEMORY) if curvature is None else curvature
    uphill = tangent(W, now.product)
    while True:
        direction = tangent(W, _direction(uphill, memory, guess))
        if not np.sum(direction * uphill) > 0:
            memory.clear()
            direction = tangent(W, _direction(uphill, memory, guess))
        move = _line_search(evaluate, W, now, direction, float(np.sum(direction * uphill)))
        if move is None:
            if not memory:
                return
            memory.clear()  # its curvature may be out of date: try the slope itself
            continue
        step, W, now = move
        before, uphill = tangent(W, uphill), tangent(W, now.product)
        memory.append((step, before - uphill))
        steps, changes = (tangent(W, np.stack(each)) for each in zip(*memory, strict=True))
        memory.clear()
        # L-BFGS can use the curvature of steps along which J is concave.
        sizes = np.linalg.norm(steps, axis=(1, 2)) * np.linalg.norm(changes, axis=(1, 2))
        falls = np.einsum("mdk,mdk->m", steps, changes)
        concave = np.flatnonzero((falls > _ROUNDING * sizes) & (sizes > 0))
        memory.extend((steps[number], changes[number]) for number in concave)
        yield W, now


def _line_search(
    evaluate: Callable[[Array], _Value], W: Array, now: _Value, direction: Array, slope: float
) -> tuple[Array, Array, _Value] | None:
    """Return a step, its end point and the evaluation there, or None if no length raises J."""
    share = min(1.0, _LONGEST / max(float(np.linalg.norm(direction, 2)), _TINY))
    for _ in range(_CUTS):
        point = nearest_orthonormal(W + share * direction)
        evaluation = evaluate(point)
        # The slope is half of the gradient, so J rises at first by twice this.
        if evaluation.objective > now.objective + _GAIN * share * slope:
            return share * direction, point, evaluation
        # J along the step is near `J + 2 slope share + bend share^2`, whose maximum is here:
        bend = (evaluation.objective - now.objective) / share - 2.0 * slope
        best = -slope / bend if bend < 0 else _LONGEST_CUT
        share *= float(np.clip(best, _SHORTEST_CUT, _LONGEST_CUT))
    return None


def _direction(uphill: Array, memory: Curvature, guess: Precondition) -> Array:
    """Return the slope times the inverse curvature, by the two-loop recursion of L-BFGS."""
    if not memory:
        direction = guess(uphill)
        return direction * (_FIRST / max(float(np.linalg.norm(direction, 2)), _TINY))
    direction, coefficients = uphill, []
    falls = [np.vdot(step, change) for step, change in memory]
    for (step, change), fall in zip(reversed(memory), reversed(falls), strict=True):
        coefficient = float(np.vdot(step, direction) / fall)
        direction = direction - coefficient * change
        coefficients.append(coefficient)
    change = memory[-1][1]
    direction = guess(direction) * float(falls[-1] / np.vdot(change, guess(change)))
    for (step, change), fall, first in zip(memory, falls, reversed(coefficients), strict=True):
        correction = float(np.vdot(change, direction) / fall)
        direction = direction + step * (first - correction)
    return direction
