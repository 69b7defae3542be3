"""Log of the iterations of a solver other than ISM, so that all start, end and report alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask.engines.operator import Operator, ProductEvaluation, check_finite, relative_residual
from ism_dask.linalg.subspaces import subspace_sine
from ism_dask.records.iteration import (
    Candidate,
    Record,
    Solution,
    State,
    relative_change,
)
from ism_dask.records.stopping_rule import RESIDUAL, STEPS, Stopping, has_plateaued
from ism_dask.solvers.ism import SOLVER_TOLERANCE, solution_at, spectral_start
from ism_dask.solvers.lbfgs import no_curvature
from ism_dask.solvers.time_limit import TimeIsUpError, TimeLimited
from ism_dask.status import Status

# The mean change of J, as a share of it, at which other solvers than ISM take J to be on a plateau.
_PLATEAU = 1e-9


class SolverLog:
    """The iterations so far of a solver other than ISM.

    Parameters
    ----------
    operator : Operator
    q : int
        Columns of W.
    stopping : Stopping
        Only its `max_iter` and `max_seconds` count. The other solvers end by the residual and not
        by the change of the eigenvalues, which is small if steps are small.
    on_iteration : callable, optional
        Called with the state after each iteration.
    state : State, optional
        A state whose W is the start, in place of the spectral start, and whose history continues.
    rest : float
        The residual at which the solver ends.
    still : float
        The mean change of J over the last steps, as a share of J, at which the solver ends, too.
    begun : int, optional
        The iterations before this solver's own. Default: those of `state`.

    Attributes
    ----------
    start : (d, q) array
    evaluation : ProductEvaluation
        J and Phi W of the start.
    memory : Curvature
        What L-BFGS remembers of the steps, if they are its own.
    max_iter : int
    """

    def __init__(
        self,
        operator: Operator,
        q: int,
        stopping: Stopping,
        on_iteration: Callable[[State], None] | None,
        state: State | None,
        *,
        rest: float = SOLVER_TOLERANCE,
        still: float = _PLATEAU,
        begun: int | None = None,
    ) -> None:
        self._operator, self._q, self._rest, self._still = operator, q, rest, still
        self._on_iteration = on_iteration
        iteration, history = (0, ()) if state is None else (state.iteration, state.history)
        self._earlier = history[-1].seconds if history else 0.0
        self._limited = TimeLimited(operator, stopping.after(self._earlier))
        self.max_iter = stopping.max_iter
        self.start = _start(operator, q, None if state is None else state.current.W)
        # Evaluated without the time limit, because some W has to be returned.
        self.evaluation = operator.gradient(self.start)
        check_finite(self.evaluation.product)
        now = _candidate(self.start, self.evaluation)
        self.memory = no_curvature()
        self.memory.extend(() if state is None else state.curvature)
        self.state = State(iteration, now, now, history, peak=now.objective)
        self._last, self._begun = self.evaluation, len(history) if begun is None else begun

    def begin_subproblem(self) -> None:
        """Begin another subproblem, whose plateau of J does not count the steps so far."""
        self._begun = len(self.state.history)

    def evaluate(self, W: Array) -> ProductEvaluation:
        """Return J and Phi W (d, k) at W (d, k), or raise TimeIsUpError at the time limit."""
        return self._limited.gradient(W)

    def phi(self, W: Array) -> Array:
        """Return Phi (d, d) at W (d, k), or raise TimeIsUpError at the time limit."""
        return self._limited.phi(W).phi

    def curvature(self, W: Array, Z: Array) -> Array:
        """Return the derivative of Phi(W) W at W (d, q) along Z (d, q), or raise TimeIsUpError."""
        return self._limited.curvature(W, Z)

    def note(self, W: Array, evaluation: ProductEvaluation) -> None:
        """Record the end of an iteration at W (d, k)."""
        before = self.state
        now = _candidate(W, evaluation)
        padded = np.zeros(max(len(now.eigenvalues), len(before.current.eigenvalues)))
        padded[: len(before.current.eigenvalues)] = before.current.eigenvalues
        record = Record(
            iteration=before.iteration + 1,
            objective=now.objective,
            eigenvalues=tuple(now.eigenvalues.tolist()),
            change=relative_change(now.eigenvalues, padded[: len(now.eigenvalues)]),
            angle=subspace_sine(before.current.W, W),
            seconds=self._earlier + self._limited.seconds,
            ascent=now.objective >= before.current.objective,
            residual=relative_residual(W, evaluation.product),
        )
        whole = W.shape[1] == self._q
        better = whole and now.objective >= before.best.objective
        history = (*before.history, record)
        best, peak = (now, now.objective) if better else (before.best, before.peak)
        self.state = State(record.iteration, now, best, history, peak, tuple(self.memory))
        self._last = evaluation
        if self._on_iteration is not None:
            self._on_iteration(self.state)

    @property
    def may_end_now(self) -> bool:
        """Whether the solver may end at the last W, which has all q columns."""
        return self.may_end_at(self._last.product, self.state.current.W)

    def may_end_at(self, product: Array, W: Array) -> bool:
        """Return whether the solver may end at W (d, k), with half the gradient as `product`."""
        return relative_residual(W, product) <= self._rest or self._stalls

    @property
    def _stalls(self) -> bool:
        # If J is almost flat, or the engine approximates, the residual may never get small.
        own = self.state.history[self._begun :]
        last = [record.objective for record in own[-STEPS - 1 :]]
        # J may fall for once, so take absolute changes: a fall and a rise are no plateau.
        return bool(last) and has_plateaued(np.abs(np.diff(last)), last[-1], self._still)

    def follow(self, steps: Iterator[tuple[Array, ProductEvaluation]]) -> Status:
        """Take the steps of an ascent until the solver may or has to end; return the status."""
        try:
            while not self.may_end_now:
                if self.state.iteration >= self.max_iter:
                    return Status.MAX_ITER
                if (step := next(steps, None)) is None:
                    break  # no step raises J any more; `ended` checks the residual
                self.note(*step)
        except TimeIsUpError:
            return Status.OVER_CAP
        return Status.CONVERGED

    def ended(
        self, status: Status, *, last: bool = False, otherwise: Status = Status.STALLED
    ) -> Solution:
        """Return the solution with the best W, or with the `last`, after Rayleigh-Ritz.

        `otherwise` replaces the status "converged" if the residual does not confirm it.
        """
        if self.state.current.W.shape[1] < self._q:
            W = complete_columns(self.state.current.W, self.start)
            self.note(W, self._operator.gradient(W))
        if not self.state.history:
            self.note(self.start, self.evaluation)
        candidate = self.state.current if last else self.state.best
        solution = solution_at(self._operator, candidate.W, status, self.state.history)
        # Phi W by itself has less rounding than the product of Phi and W, and comes at the end.
        solution = replace(solution, in_double=False)
        residual = solution.residual
        if candidate is self.state.current:
            # Of Phi W in the precision of the steps, which may be finer than that of Phi.
            residual = min(residual, relative_residual(candidate.W, self._last.product))
        if status is Status.CONVERGED and residual > RESIDUAL:
            return replace(solution, status=otherwise)
        return solution


def with_log(solve: Callable[[SolverLog], Solution], **options: Any) -> Callable[..., Solution]:
    """Return a solver with the signature of `ism.solve`, which gives `solve` a log to write.

    `options` are `rest`, `still` and `begun` of that `SolverLog`.
    """

    def solve_operator(
        operator: Operator,
        q: int,
        stopping: Stopping,
        *,
        on_iteration: Callable[[State], None] | None = None,
        state: State | None = None,
    ) -> Solution:
        return solve(SolverLog(operator, q, stopping, on_iteration, state, **options))

    return solve_operator


def complete_columns(W: Array, others: Array) -> Array:
    """Return W (d, k) completed to (d, q) with the main directions that `others` (d, q) add."""
    added = np.linalg.svd(others - W @ (W.T @ others), full_matrices=False)[0]
    return np.hstack([W, added[:, : others.shape[1] - W.shape[1]]])


def _start(operator: Operator, q: int, W: Array | None) -> Array:
    """Return the (d, q) spectral start, or W completed with directions of it."""
    if W is not None and W.shape[1] == q:
        return W
    spectral = spectral_start(operator, q)
    return spectral if W is None else complete_columns(W, spectral)


def _candidate(W: Array, evaluation: ProductEvaluation) -> Candidate:
    values = scipy.linalg.eigvalsh(W.T @ evaluation.product)[::-1]
    return Candidate(W, values, np.nan, evaluation.objective)
