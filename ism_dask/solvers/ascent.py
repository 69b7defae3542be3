"""Ascent of a criterion over W with orthonormal columns, by preconditioned L-BFGS steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ism_dask._types import Array
from ism_dask.criteria.prediction import Explained
from ism_dask.engines.operator import check_finite, relative_residual
from ism_dask.linalg.eigen import rayleigh_ritz
from ism_dask.linalg.subspaces import subspace_sine
from ism_dask.records.iteration import Candidate, Record, State, relative_change
from ism_dask.records.stopping_rule import RESIDUAL
from ism_dask.solvers.lbfgs import Curvature, Precondition, lbfgs_ascent, no_curvature
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


@dataclass(frozen=True, eq=False)
class AscentResult:
    """The result of an ascent.

    Attributes
    ----------
    W : (d, q) array
        Orthonormal columns; `W^T Phi W` is diagonal and its entries decrease.
    eigenvalues : (q,) array
        These entries.
    value : Explained
        J and Phi W.
    state : State
        The last state, with the history.
    status : Status
    limit : float
        The residual that had to be reached.
    """

    W: Array
    eigenvalues: Array
    value: Explained
    state: State
    status: Status
    limit: float

    @property
    def residual(self) -> float:
        """The residual of W."""
        return relative_residual(self.W, self.value.product)


def ascend(
    evaluate: Callable[[Array], Explained],
    W: Array,
    precondition: Precondition | None = None,
    *,
    max_iter: int,
    max_seconds: float | None = None,
    state: State | None = None,
    on_iteration: Callable[[State], None] | None = None,
    curvature: Curvature | None = None,
) -> AscentResult:
    """Return the result of an ascent from W (d, q), which ends where W is stationary.

    The history continues that of `state`, whose steps and seconds count, and the steps begin with
    the `curvature` of an ascent on other rows or in single precision. The residual that ends it is
    that of `residual_limit`.
    """
    began = time.perf_counter()
    now = evaluate(W)
    check_finite(now.product)
    history = () if state is None else state.history
    earlier = history[-1].seconds if history else 0.0
    here = _candidate(W, now)
    state = State(len(history), here, here, history, now.objective)
    memory = no_curvature() if curvature is None else curvature
    limits = max_iter, max_seconds
    status = _ending(_is_stationary(W, now), len(history), earlier, *limits)
    if status is None:
        for V, value in lbfgs_ascent(evaluate, W, now, precondition, memory):
            W, now = V, value
            seconds = earlier + time.perf_counter() - began
            settled = _is_stationary(W, now)
            state = _next_state(state, W, now, seconds, settled)
            state = replace(state, curvature=tuple(memory))
            if on_iteration is not None:
                on_iteration(state)
            status = _ending(settled, state.iteration, seconds, *limits)
            if status is not None:
                break
    status = status or Status.STALLED  # no step along the slope raises J
    if not state.history:
        settled = status is Status.CONVERGED
        state = _next_state(state, W, now, time.perf_counter() - began, settled)
        if on_iteration is not None:
            on_iteration(state)
    W, values, product = rayleigh_ritz(W, now.product)
    value = Explained(now.objective, product, now.noise)
    return AscentResult(W, values, value, state, status, residual_limit(value))


def _ending(
    settled: bool, steps: int, seconds: float, max_iter: int, max_seconds: float | None
) -> Status | None:
    """Return how an ascent ends after some steps and seconds, or None if it goes on."""
    if settled:
        return Status.CONVERGED
    if max_seconds is not None and seconds >= max_seconds:
        return Status.OVER_CAP
    return Status.MAX_ITER if steps >= max_iter else None


def ascend_roughly(
    evaluate: Callable[[Array], Explained],
    W: Array,
    precondition: Precondition,
    steps: int,
    curvature: Curvature | None = None,
) -> tuple[Array, float]:
    """Return W (d, q) and J after up to a number of steps, or once J hardly rises any more.

    It ends as well where W is stationary.
    """
    now = evaluate(W)
    ascent = lbfgs_ascent(evaluate, W, now, precondition, curvature)
    for number, (V, value) in enumerate(ascent, 1):
        gain = value.objective - now.objective
        W, now = V, value
        still = gain <= _STILL * abs(1.0 - now.objective)
        if number >= steps or still or _is_stationary(W, now):
            break
    return W, now.objective


def residual_limit(value: Explained) -> float:
    """Return the residual at which W counts as stationary."""
    size = float(np.linalg.norm(value.product))
    if size == 0.0:
        return RESIDUAL
    # The slope of J is twice the part of Phi W whose share the residual is.
    of_noise, of_change = _NOISE_SHARE * value.noise / size, _FLAT / (2.0 * size)
    return min(max(RESIDUAL, of_noise, of_change), _LARGEST_RESIDUAL)


def _is_stationary(W: Array, value: Explained) -> bool:
    return relative_residual(W, value.product) <= residual_limit(value)


def _candidate(W: Array, value: Explained) -> Candidate:
    values = np.linalg.eigvalsh(_symmetric(W.T @ value.product))[::-1]
    return Candidate(W, values, np.nan, value.objective)


def _symmetric(matrix: Array) -> Array:
    return (matrix + matrix.T) / 2


def _next_state(state: State, W: Array, value: Explained, seconds: float, settled: bool) -> State:
    before, here = state.current, _candidate(W, value)
    record = Record(
        iteration=state.iteration + 1,
        objective=value.objective,
        eigenvalues=tuple(here.eigenvalues.tolist()),
        change=relative_change(here.eigenvalues, before.eigenvalues),
        angle=subspace_sine(before.W, W),
        seconds=seconds,
        ascent=value.objective >= before.objective,
        settled=settled,
        residual=relative_residual(W, value.product),
        limit=residual_limit(value),
    )
    return State(record.iteration, here, here, (*state.history, record), value.objective)
