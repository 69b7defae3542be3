"""The Iterative Spectral Method: W becomes the leading eigenvectors of Phi(W) until it converges.

The solver knows neither Dask nor storage. It iterates on an `Operator`, and a callback watches or
saves the iterations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.operator import (
    DOUBLE_NOISE,
    Operator,
    PhiEvaluation,
    ProductEvaluation,
    check_finite,
    relative_residual,
    space_of,
)
from ism_dask.linalg.subspaces import (
    Spectrum,
    largest_eigenvalue_outside,
    leading_eigenpairs,
    rayleigh_ritz,
    subspace_sine,
)
from ism_dask.records.iteration import (
    RESIDUAL,
    Candidate,
    Record,
    Solution,
    State,
    Stopping,
    relative_change,
)
from ism_dask.solvers.driver import TimeLimit, drive
from ism_dask.status import Status

# Two values of J by an approximation are equal if they differ by less than a quarter of the bound
# on their error and by less than this share. From one W to the next the error varies by a tenth to
# a thousandth of the bound. A wide bound is no measure of that variation, hence the share.
_TIE = 1e-4
# If Phi W is a smaller share of J than this, J does not depend on W except by rounding.
_FLAT = 1e-9
# At this residual W is stationary, whichever rule ended the iteration.
_STATIONARY = 1e-10

AnyEvaluation: TypeAlias = PhiEvaluation | ProductEvaluation


class SpectralSteps:
    """The steps of ISM to a W of q columns, for the driver."""

    def __init__(
        self, operator: Operator, q: int, stopping: Stopping, time_limit: TimeLimit
    ) -> None:
        self._operator, self._q = operator, q
        self._stopping, self._time_limit = stopping, time_limit
        # The current W with its evaluation, once there is one.
        self._point: tuple[Array, AnyEvaluation] | None = None

    def init(self, state: State) -> State:
        """Return the state as it is: its W is evaluated when a step needs that."""
        return state

    def terminate(self, state: State) -> Status | None:
        """Return how the iteration ends at a state, or None if it goes on."""
        if not state.history:
            return None
        if state.history[-1].settled:
            if self._stopping.tol is not None:
                return Status.TOLERANCE
            # J by landmarks may jump: then an earlier W has a larger J than the last.
            is_best = np.array_equal(state.best.W, state.current.W)
            return Status.CONVERGED if is_best else Status.SWINGS
        return Status.SWINGS if self._stopping.is_stuck(state.history) else None

    def step(self, state: State) -> State:
        """Return the state after a spectral step."""
        W, stopping = state.current.W, self._stopping
        evaluation = self._phi(W)
        if not np.isfinite(state.current.objective):
            current = replace(state.current, objective=evaluation.objective)
            state = replace(state, current=current)
            # The start may be the best W only if it has all q columns.
            if W.shape[1] == len(current.eigenvalues):
                state = replace(state, best=current, peak=current.objective)
        # The leading eigenpairs of Phi, whose vectors are the next W.
        spectrum = leading_eigenpairs(
            check_finite(evaluation.phi),
            self._q,
            guess=W,
            noise=evaluation.noise,
            space=space_of(self._operator),
        )
        W, values = spectrum.vectors, spectrum.values
        change = relative_change(values, state.current.eigenvalues)
        settled = stopping.is_met(change, angle := subspace_sine(state.current.W, W))
        # The last W needs no d x d matrix: a cheaper pass gives J and the residual.
        is_last = settled or self._time_limit.is_over or state.iteration + 1 >= stopping.max_iter
        tried: AnyEvaluation
        tried = self._operator.gradient(W) if is_last else self._operator.phi(W)
        self._point = W, tried
        residual = relative_residual(W, _product(tried, W))
        # The decrease of J that approximation and rounding may cause.
        share = min(tried.error / 4, _TIE) if tried.approximate else 0.0
        return state.advanced(
            Candidate(W, values, spectrum.following, tried.objective),
            residual,
            slack=(share + tried.noise) * abs(tried.objective),
            settled=settled or stopping.is_met(change, angle, residual),
        )

    def solution(self, state: State, status: Status) -> Solution:
        """Return the solution with the best W of a run.

        By the published rule the eigengap is that of the Phi whose eigenvectors W has, otherwise
        that of Phi(W). In either case one kind of pass computes all numbers, so that a run that
        was interrupted comes to the same bits.
        """
        W = state.best.W
        if self._stopping.tol is None:
            return solution_at(self._operator, W, status, state.history, self._phi(W))
        last = self._last(W)
        product = last if isinstance(last, ProductEvaluation) else self._operator.gradient(W)
        following = state.best.following
        solution = solution_at(self._operator, W, status, state.history, product, following)
        least = RESIDUAL if self._stopping.tol <= RESIDUAL else _STATIONARY
        if solution.status is Status.TOLERANCE and solution.residual <= least:
            return replace(solution, status=Status.CONVERGED)
        return solution

    def _phi(self, W: Array) -> PhiEvaluation:
        last = self._last(W)
        return last if isinstance(last, PhiEvaluation) else self._operator.phi(W)

    def _last(self, W: Array) -> AnyEvaluation | None:
        """Return what the last pass has computed, if it was at W."""
        return self._point[1] if self._point is not None and self._point[0] is W else None


def solve(
    operator: Operator,
    q: int,
    stopping: Stopping,
    *,
    on_iteration: Callable[[State], None] | None = None,
    state: State | None = None,
    time_limit: TimeLimit | None = None,
) -> Solution:
    """Return the solution of the spectral steps, from the spectral start or from `state`.

    `state` may be that of an interrupted run, which continues to the same solution, bit for bit.
    The time limit is that of the whole fit; by default that of `stopping`.
    """
    state = spectral_state(operator, q) if state is None else state
    if time_limit is None:
        earlier = state.history[-1].seconds if state.history else 0.0
        time_limit = TimeLimit(stopping.max_seconds, earlier)
    steps = SpectralSteps(operator, q, stopping, time_limit)
    return steps.solution(*drive(steps, state, stopping.max_iter, time_limit, on_iteration))


def solution_at(  # noqa: PLR0917
    operator: Operator,
    W: Array,
    status: Status,
    history: tuple[Record, ...] = (),
    evaluation: AnyEvaluation | None = None,
    following: float = np.nan,
) -> Solution:
    """Return the solution in the span of W (d, q), by Rayleigh-Ritz, in double precision.

    `evaluation` is that at W; by default J and Phi W come from `operator.gradient`. `following` is
    the largest eigenvalue of Phi outside of W, computed by default. If it exceeds those of W, the
    eigengap is negative: the spectral step would leave W.
    """
    if not np.isfinite(following):
        at_W = evaluation if isinstance(evaluation, PhiEvaluation) else operator.phi(W)
        following = largest_eigenvalue_outside(at_W.phi, W)
    if evaluation is None or evaluation.noise > DOUBLE_NOISE:
        evaluation = operator.gradient(W)
    W, values, product = rayleigh_ritz(W, _product(evaluation, W))
    is_flat = np.linalg.norm(product) <= _FLAT * abs(evaluation.objective)
    return Solution(
        W=W,
        eigenvalues=values,
        eigengap=float(values[-1]) - following,
        objective=evaluation.objective,
        error=evaluation.error,
        product=product,
        status=Status.FLAT if is_flat else status,
        history=history,
        residual=relative_residual(W, product),
    )


def spectral_state(operator: Operator, q: int) -> State:
    """Return the state before the first iteration: the leading eigenvectors of Phi0.

    If Phi0 determines fewer than q of them (with c classes its rank is c - 1), W has only those:
    others would be rounding noise, and the first iteration computes q in any case.
    """
    start = spectral_start(operator, q)
    W = start.vectors if start.null.all() else start.vectors[:, ~start.null]
    return State.from_weights(W, start.values)


def spectral_start(operator: Operator, q: int) -> Spectrum:
    """Return the q leading eigenpairs of Phi0."""
    return leading_eigenpairs(check_finite(operator.phi0()), q, space=space_of(operator))


def _product(evaluation: AnyEvaluation, W: Array) -> Array:
    """Return Phi W (d, k)."""
    return evaluation.phi @ W if isinstance(evaluation, PhiEvaluation) else evaluation.product
