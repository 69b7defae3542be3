"""The Iterative Spectral Method: W becomes the leading eigenvectors of Phi(W) until it converges.

The solver knows neither Dask nor storage. It iterates on an `Operator`, and a callback watches or
saves the iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ism_dask._types import Array
from ism_dask._validation import check_open_interval
from ism_dask.engines.base import DOUBLE_NOISE, Operator, PhiEvaluation, ProductEvaluation, space_of
from ism_dask.kernels.base import check_finite
from ism_dask.linalg.eigen import (
    Spectrum,
    largest_eigenvalue_outside,
    leading_eigenpairs,
    rayleigh_ritz,
)
from ism_dask.linalg.subspaces import relative_residual, subspace_sine
from ism_dask.records.checkpoint import CheckpointedFit
from ism_dask.records.fit_report import FitReport
from ism_dask.records.iteration import ANGLE, RESIDUAL, Record, Solution, State, relative_change
from ism_dask.solvers.base import Solver, TimeLimit, drive
from ism_dask.stationarity import is_flat
from ism_dask.status import Status

# Two values of J by an approximation are equal if they differ by less than a quarter of the bound
# on their error and by less than this share. From one W to the next the error varies by a tenth to
# a thousandth of the bound. A wide bound is no measure of that variation, hence the share.
_TIE = 1e-4
# At this residual W is stationary, whichever rule ended the iteration.
_STATIONARY = 1e-10

# Eigenvalues are unchanged if their relative change is below this and there is no `tol`.
_UNCHANGED = 1e-5
# Two iterations apart, eigenvalues closer than this fraction of `tol` are a cycle of length two.
_CYCLE = 0.1
# The iteration is slow if within _PATIENCE steps the residual has not fallen to the share _FALL
# and J has varied by at most the share _SPREAD. A larger variation of J may lead to a higher
# maximum, so such an iteration gets _MORE_PATIENCE steps.
_FALL, _SPREAD, _PATIENCE, _MORE_PATIENCE = 0.5, 3e-3, 20, 100
# It swings if within _SWINGS steps, each of which turns W by a sine of _TURN at least, the residual
# has not fallen to the share _FALL and J has varied by at most the share _SWING.
_SWINGS, _TURN, _SWING = 3, 0.9, 3e-4

AnyEvaluation: TypeAlias = PhiEvaluation | ProductEvaluation


@dataclass(frozen=True, kw_only=True)
class ISM(Solver):
    """The Iterative Spectral Method: W becomes the leading eigenvectors of Phi(W), in turns.

    If these steps do not converge, steps along the gradient of J follow.

    Parameters
    ----------
    tol : float or None, default None
        None: iterate until W is stationary, as `converged_` then states. A number: the published
        rule, which stops when the change of the eigenvalues, relative to their norm, is below
        `tol`; the paper uses 0.01. This rule can stop when the iteration is merely slow:
        `converged_` is then False and `status_` is `Status.TOLERANCE`.
    angle_tol : float, optional
        With a number as `tol`: stop only if the sine of the largest angle between successive
        subspaces is also below `angle_tol`.
    max_iter : int, default 300
        Maximum number of iterations, steps along the gradient of J included.
    max_seconds : float, optional
        Time limit: stop after this many seconds, and keep the best W so far. The step in progress
        ends, the first one in any case, and one pass over the rows computes J and the residual; an
        engine that approximates takes the residual over a sample if there are many rows
        (`report_.residual_rows`). With 20,000 rows, 50 columns and two cores this takes a second or
        two by landmarks, and five by "exact".

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from ism_dask import SupervisedIKDR
    >>> from ism_dask.solvers import ISM
    >>> X, y = load_wine(return_X_y=True)
    >>> SupervisedIKDR(2, solver=ISM(tol=0.01)).fit(X, y).report_.tolerance
    0.01
    """

    tol: float | None = None
    angle_tol: float | None = None
    max_iter: int = 300

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("tol", "angle_tol"):
            if getattr(self, name) is not None:
                check_open_interval(f"`{name}`", getattr(self, name), 0, np.inf)
        if self.angle_tol is not None and self.tol is None:
            raise ValueError(
                f"`angle_tol` goes with `tol`, which is None: then the angle has to be below "
                f"{ANGLE:g} in any case; got {self.angle_tol!r}"
            )

    @property
    def most_steps(self) -> int:
        """The largest number of spectral steps, after which an ascent goes on or none does."""
        return self.max_iter if self.tol is not None else min(self.max_iter, _MORE_PATIENCE)

    def solve(
        self,
        operator: Operator,
        q: int,
        time_limit: TimeLimit,
        *,
        on_iteration: Callable[[State], None] | None = None,
        state: State | None = None,
        saved_fit: CheckpointedFit | None = None,
    ) -> Solution:
        """Return the solution of the spectral steps alone, from the spectral start or from `state`.

        They are the next run of a saved fit, and continue to the same bits where that was
        interrupted. The other arguments are those of `Solver.solve`.
        """
        if saved_fit is not None:
            saved, on_iteration = saved_fit.next_run(on_iteration)
            state = state if saved is None else saved
        state = spectral_state(operator, q) if state is None else state
        steps = SpectralSteps(operator, q, self, time_limit)
        return steps.solution(*drive(steps, state, self.max_iter, time_limit, on_iteration))

    def is_met(self, change: float, angle: float, residual: float = np.inf) -> bool:
        """Return whether the iteration ends at a W; without `tol`, its residual decides."""
        if self.tol is None:
            return residual <= RESIDUAL and angle <= ANGLE
        return change < self.tol and (self.angle_tol is None or angle < self.angle_tol)

    def is_stuck(self, history: Sequence[Record]) -> bool:
        """Return whether the spectral iteration will not converge, but another solver may."""
        if self._cycles(history):
            return True
        if self.tol is not None:
            return False
        # It swings if W turns and turns back, while neither residual nor J changes much.
        turns = all(record.angle >= _TURN for record in history[-_SWINGS:])
        swings = turns and _stays(history, _SWINGS, _SWING)
        slow = len(history) >= _MORE_PATIENCE or _stays(history, _PATIENCE, _SPREAD)
        return swings or slow

    def _cycles(self, history: Sequence[Record]) -> bool:
        """Return whether the iteration alternates between two subspaces and will not stop doing so.

        Its eigenvalues then repeat every second iteration.
        """
        if len(history) < 4:
            return False
        values = [np.array(record.eigenvalues) for record in history[-4:]]
        unchanged = _UNCHANGED if self.tol is None else self.tol
        moves = all(
            (self.tol is None and record.angle >= ANGLE) or record.change >= unchanged
            for record in history[-2:]
        )
        repeats = all(
            relative_change(values[i], values[i - 2]) < _CYCLE * unchanged for i in (-1, -2)
        )
        if not (moves and repeats):
            return False
        # A slowly damped oscillation looks the same, but ends: extrapolate its damping.
        sizes = [record.angle if self.tol is None else record.change for record in history[-3:]]
        damping = min(1.0, sizes[-1] / sizes[-3]) if sizes[-3] > 0 else 1.0
        cycles_to_come = (self.max_iter - len(history)) / 2
        smallest = ANGLE if self.tol is None else self.tol
        return bool(sizes[-1] * damping**cycles_to_come >= smallest)


def _stays(history: Sequence[Record], steps: int, share: float) -> bool:
    """Return whether in some steps the residual has not halved, and J varied by a share at most."""
    last = history[-1 - steps :]
    if len(last) <= steps or last[-1].residual <= _FALL * last[0].residual:
        return False
    objectives = [record.objective for record in last]
    return max(objectives) - min(objectives) <= share * abs(objectives[-1])


class SpectralSteps:
    """The steps of ISM to a W of q columns, for the driver."""

    def __init__(self, operator: Operator, q: int, options: ISM, time_limit: TimeLimit) -> None:
        self._operator, self._q = operator, q
        self._options, self._time_limit = options, time_limit
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
            if self._options.tol is not None:
                return Status.TOLERANCE
            # J by landmarks may jump: then an earlier W has a larger J than the last.
            is_best = np.array_equal(state.best, state.W)
            return Status.CONVERGED if is_best else Status.SWINGS
        return Status.SWINGS if self._options.is_stuck(state.history) else None

    def step(self, state: State) -> State:
        """Return the state after a spectral step."""
        W, options = state.W, self._options
        evaluation = self._phi(W)
        if not np.isfinite(state.objective):
            state = replace(state, objective=evaluation.objective)
            # The start may be the best W only if it has all q columns.
            if W.shape[1] == len(state.eigenvalues):
                state = replace(state, best=W, following=np.nan, peak=state.objective)
        # The leading eigenpairs of Phi, whose vectors are the next W.
        spectrum = leading_eigenpairs(
            check_finite(evaluation.phi),
            self._q,
            guess=W,
            noise=evaluation.noise,
            space=space_of(self._operator),
        )
        W, values = spectrum.vectors, spectrum.values
        change = relative_change(values, state.eigenvalues)
        settled = options.is_met(change, angle := subspace_sine(state.W, W))
        # The last W needs no d x d matrix: a cheaper pass gives J and the residual.
        is_last = settled or self._time_limit.is_over or state.iteration + 1 >= options.max_iter
        tried: AnyEvaluation
        tried = self._operator.gradient(W) if is_last else self._operator.phi(W)
        self._point = W, tried
        residual = relative_residual(W, _product(tried, W))
        # The decrease of J that approximation and rounding may cause.
        share = min(tried.error / 4, _TIE) if tried.approximate else 0.0
        return state.advanced(
            W,
            values,
            tried.objective,
            residual,
            following=spectrum.following,
            slack=(share + tried.noise) * abs(tried.objective),
            settled=options.is_met(change, angle, residual),
        )

    def solution(self, state: State, status: Status) -> Solution:
        """Return the solution with the best W of a run.

        By the published rule, and after the time limit, the eigengap is that of the Phi whose
        eigenvectors W has, otherwise that of Phi(W). In either case one kind of pass computes all
        numbers, so that a run that was interrupted comes to the same bits.
        """
        W, tol = state.best, self._options.tol
        last = self._last(W)
        has_time = status is not Status.OVER_CAP or isinstance(last, PhiEvaluation)
        if tol is None and has_time:
            return solution_at(self._operator, W, status, state.history, self._phi(W))
        product = last if isinstance(last, ProductEvaluation) else self._operator.gradient(W)
        solution = solution_at(self._operator, W, status, state.history, product, state.following)
        least = RESIDUAL if tol is not None and tol <= RESIDUAL else _STATIONARY
        if solution.status is Status.TOLERANCE and solution.residual <= least:
            return replace(solution, status=Status.CONVERGED)
        return solution

    def _phi(self, W: Array) -> PhiEvaluation:
        last = self._last(W)
        return last if isinstance(last, PhiEvaluation) else self._operator.phi(W)

    def _last(self, W: Array) -> AnyEvaluation | None:
        """Return what the last pass has computed, if it was at W."""
        return self._point[1] if self._point is not None and self._point[0] is W else None


def solution_at(  # noqa: PLR0917
    operator: Operator,
    W: Array,
    status: Status,
    history: tuple[Record, ...],
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
    return Solution(
        State(W, values, W, evaluation.objective, history=history),
        Status.FLAT if is_flat(product, evaluation.objective) else status,
        product,
        relative_residual(W, product),
        eigengap=float(values[-1]) - following,
        report=FitReport(engine_error=evaluation.error),
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
