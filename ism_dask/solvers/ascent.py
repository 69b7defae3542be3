"""Ascent of J over W with orthonormal columns, by preconditioned L-BFGS steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ism_dask._types import Array
from ism_dask.criteria.prediction import Explained
from ism_dask.engines.operator import check_finite, relative_residual
from ism_dask.linalg.subspaces import rayleigh_ritz
from ism_dask.records.iteration import RESIDUAL, Candidate, State
from ism_dask.solvers.driver import TimeLimit, drive, stamped
from ism_dask.solvers.lbfgs import Curvature, Precondition, Slope, lbfgs_ascent, no_curvature
from ism_dask.status import Status

# W is stationary at the residual that `converged` allows, once the slope is at most this share of
# its noise between blocks of rows, ...
_NOISE_SHARE = 0.25
# ... or once a turn of W by a radian would change J, a share from 0 to 1, by this at most. ...
_FLAT = 3e-6
# ... A W with a larger residual than this is not stationary, however noisy or flat J is.
_LARGEST_RESIDUAL = 0.25
# Rough ascents end once a step gains less than this share of what is not explained.
_STILL = 1e-5
# J has reached a plateau by its mean change over this many steps.
_PLATEAU_STEPS = 5


@dataclass(frozen=True, eq=False)
class AscentResult:
    """The W (d, q) of an ascent, what J and Phi W are there, and how the ascent ended.

    `W^T Phi W` is diagonal, with decreasing `eigenvalues`. The residual had to come to `limit`.
    """

    W: Array
    eigenvalues: Array
    objective: float
    product: Array
    limit: float
    state: State
    status: Status

    @property
    def residual(self) -> float:
        """The residual of W."""
        return relative_residual(self.W, self.product)


def residual_limit(value: Explained) -> float:
    """Return the residual at which the W of a prediction counts as stationary."""
    size = float(np.linalg.norm(value.product))
    if size == 0.0:
        return RESIDUAL
    # The slope of J is twice the part of Phi W whose share the residual is.
    of_noise, of_change = _NOISE_SHARE * value.noise / size, _FLAT / (2.0 * size)
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
    saved: State | None = None,
    on_iteration: Callable[[State], None] | None = None,
    curvature: Curvature | None = None,
    still: float = 0.0,
) -> AscentResult:
    """Return the result of an ascent from W (d, q), which ends where W is stationary.

    `evaluate` returns J and Phi W (d, q) at a W. W is stationary at a residual of `limit`, by
    default `residual_limit` of a prediction. The ascent ends, too, after `max_iter` steps with
    those in the history, or if in the mean of five steps J changes by a smaller share than `still`.
    It continues the history of `state`; if it was interrupted, it continues at the state `saved`.
    The steps begin with the curvature of an ascent on other rows or in single precision, if given.
    """
    time_limit = TimeLimit() if time_limit is None else time_limit
    memory = no_curvature() if curvature is None else curvature
    begun = 0 if state is None else state.iteration
    steps = _AscentSteps(evaluate, precondition, memory, limit, begun, still)
    if saved is not None:
        W, state = saved.current.W, saved
        memory.clear()
        memory.extend(saved.curvature)
    start = (
        State.from_weights(W)
        if state is None
        else replace(state, current=Candidate(W, np.zeros(0)))
    )
    state, status = drive(steps, start, max_iter, time_limit, on_iteration)
    value = steps.value
    if not state.history:
        # No step was taken: the history has the start.
        state = stamped(steps.noted(state, state.current.W), time_limit)
        if on_iteration is not None:
            on_iteration(state)
    W, values, product = rayleigh_ritz(state.current.W, value.product)
    return AscentResult(W, values, value.objective, product, steps.limit_here, state, status)


@dataclass(eq=False)
class _AscentSteps:
    """The steps of L-BFGS after `begun` others, for the driver; `value` is J at the current W."""

    evaluate: Callable[[Array], Slope]
    precondition: Precondition | None
    memory: Curvature
    limit: float | None
    begun: int
    still: float
    value: Any = None

    @property
    def limit_here(self) -> float:
        """The residual at which the current W counts as stationary."""
        return residual_limit(self.value) if self.limit is None else self.limit

    def init(self, state: State) -> State:
        """Return the state with J at its W, from which J rises in every step."""
        W = state.current.W
        self.value = self.evaluate(W)
        check_finite(self.value.product)
        self._moves = lbfgs_ascent(self.evaluate, W, self.value, self.precondition, self.memory)
        here = self._candidate(W)
        return State(here, here, state.history, here.objective, tuple(self.memory))

    def terminate(self, state: State) -> Status | None:
        """Return how the ascent ends at a state, or None if it goes on."""
        if relative_residual(state.current.W, self.value.product) <= self.limit_here:
            return Status.CONVERGED
        own = state.history[self.begun :][-_PLATEAU_STEPS - 1 :]
        rise = np.abs(np.diff([record.objective for record in own]))
        flat = self.still * abs(self.value.objective)
        is_still = len(rise) == _PLATEAU_STEPS and rise.mean() <= flat
        return Status.STALLED if is_still else None

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
        now, settled = self._candidate(W), residual <= limit
        return state.advanced(now, residual, limit=limit, settled=settled, curvature=self.memory)

    def _candidate(self, W: Array) -> Candidate:
        inner = W.T @ self.value.product
        values = np.linalg.eigvalsh((inner + inner.T) / 2)[::-1]
        return Candidate(W, values, objective=self.value.objective)


def ascend_roughly(
    evaluate: Callable[[Array], Explained],
    W: Array,
    precondition: Precondition,
    steps: int,
    curvature: Curvature | None = None,
    *,
    time_limit: TimeLimit | None = None,
) -> tuple[Array, float]:
    """Return W (d, q) and J after up to a number of steps, or once J hardly rises any more.

    It ends as well where W is stationary, or after the first step beyond a time limit.
    """
    now = evaluate(W)
    ascent = lbfgs_ascent(evaluate, W, now, precondition, curvature)
    for number, (V, value) in enumerate(ascent, 1):
        gain = value.objective - now.objective
        W, now = V, value
        still = gain <= _STILL * abs(1.0 - now.objective)
        stationary = relative_residual(W, now.product) <= residual_limit(now)
        is_over = time_limit is not None and time_limit.is_over
        if number >= steps or still or stationary or is_over:
            break
    return W, now.objective
