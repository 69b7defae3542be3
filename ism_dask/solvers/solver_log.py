"""What is kept of the iterations of a rival, so that all solvers start, end and report alike."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask.engines.operator import Evaluation, Operator, check_finite, relative_residual
from ism_dask.linalg.eigen import subspace_sine
from ism_dask.records.iteration import (
    Candidate,
    Record,
    Solution,
    State,
    relative_change,
)
from ism_dask.records.stopping import RESIDUAL, STEPS, Stopping, has_plateaued
from ism_dask.solvers.ism import SOLVER_TOLERANCE, spectral_start
from ism_dask.solvers.rayleigh_ritz import RitzPairs
from ism_dask.solvers.time_limit import TimeLimited
from ism_dask.status import Status

# The share of J below which other solvers than ISM take it to stand still.
_STILL = 1e-9


class SolverLog:
    """The iterations of a rival so far.

    Parameters
    ----------
    operator : Operator
    q : int
        Columns of W.
    stopping : Stopping
        Of which `max_iter` and `max_seconds` count: rivals end by where they are, and not by
        what eigenvalues change by, which with small steps is little.
    on_iteration : callable, optional
    state : State, optional
        Whose W to begin with, in place of the spectral start, and whose history goes on.
    rest : float
        The residual at which W is an end.
    still : float
        The share of J that it has to change by in the mean of some steps: else W is an end, too.

    Attributes
    ----------
    start : (d, q) array
    evaluation : Evaluation
        J and Phi W of the start.
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
        still: float = _STILL,
    ) -> None:
        self._operator, self._q, self._rest, self._still = operator, q, rest, still
        self._on_iteration = on_iteration
        self._capped = TimeLimited(operator, stopping)
        self.start = _start(operator, q, None if state is None else state.current.W)
        # It is there whatever time there is: some W has to be returned.
        self.evaluation = operator.gradient(self.start)
        check_finite(self.evaluation.matrix)
        now = _candidate(self.start, self.evaluation)
        iteration, history = (0, ()) if state is None else (state.iteration, state.history)
        self.state = State(iteration, now, now, history, peak=now.objective)
        self._earlier = history[-1].seconds if history else 0.0
        self._last, self._begun = self.evaluation, len(history)

    def begin_anew(self) -> None:
        """Forget the steps so far when J is next asked to stand still: another problem begins."""
        self._begun = len(self.state.history)

    def evaluate(self, W: Array) -> Evaluation:
        """Return J and Phi W (d, k) at W (d, k), unless the time is up."""
        return self._capped.gradient(W)

    def curvature(self, W: Array, Z: Array) -> Array:
        """Return the derivative of Phi(W) W at W (d, q) along Z (d, q), unless the time is up."""
        return self._capped.curvature(W, Z)

    def note(self, W: Array, evaluation: Evaluation) -> None:
        """Take W (d, k) as the end of an iteration."""
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
            seconds=self._earlier + self._capped.seconds,
            ascent=now.objective >= before.current.objective,
            residual=relative_residual(W, evaluation.matrix),
        )
        whole = W.shape[1] == self._q
        better = whole and now.objective >= before.best.objective
        history = (*before.history, record)
        best, peak = (now, now.objective) if better else (before.best, before.peak)
        self.state = State(record.iteration, now, best, history, peak)
        self._last = evaluation
        if self._on_iteration is not None:
            self._on_iteration(self.state)

    @property
    def at_rest(self) -> bool:
        """Whether the last W, of all q columns, is an end."""
        return self.settled(self._last.matrix, self.state.current.W)

    def settled(self, product: Array, W: Array) -> bool:
        """Say whether W (d, k), where half the slope of J is `product` (d, k), is an end."""
        return relative_residual(W, product) <= self._rest or self._stalls

    @property
    def _stalls(self) -> bool:
        # Where J is all but flat, or the engine approximates, the residual stays above what is
        # small.
        own = self.state.history[self._begun :]
        last = [record.objective for record in own[-STEPS - 1 :]]
        # J may fall for once: there and back again is no standstill.
        return bool(last) and has_plateaued(np.abs(np.diff(last)), last[-1], self._still)

    def ended(
        self, status: Status, *, last: bool = False, otherwise: Status = Status.STALLED
    ) -> Solution:
        """Return the best W that was seen, or the `last`, turned to its own eigenvectors.

        `otherwise` takes the place of a status that claims more than the residual bears out.
        """
        if self.state.current.W.shape[1] < self._q:
            W = complete_columns(self.state.current.W, self.start)
            self.note(W, self._operator.gradient(W))
        if not self.state.history:
            self.note(self.start, self.evaluation)
        kept = self.state.current if last else self.state.best
        ritz = RitzPairs.of(self._operator, kept.W)
        if status is Status.CONVERGED and relative_residual(ritz.W, ritz.product) > RESIDUAL:
            status = otherwise
        return Solution(
            **vars(ritz),
            n_iter=self.state.iteration,
            status=status,
            history=self.state.history,
        )


def complete_columns(W: Array, others: Array) -> Array:
    """Return W (d, k) with the most that orthonormal columns `others` (d, q) add: (d, q)."""
    outside = np.linalg.svd(others - W @ (W.T @ others), full_matrices=False)[0]
    return np.hstack([W, outside[:, : others.shape[1] - W.shape[1]]])


def _start(operator: Operator, q: int, W: Array | None) -> Array:
    """Return the (d, q) leading eigenvectors of Phi0, or W with those that it lacks."""
    if W is not None and W.shape[1] == q:
        return W
    spectral = spectral_start(operator, q)
    return spectral if W is None else complete_columns(W, spectral)


def _candidate(W: Array, evaluation: Evaluation) -> Candidate:
    values = scipy.linalg.eigvalsh(W.T @ evaluation.matrix)[::-1]
    return Candidate(W, values, np.nan, evaluation.objective)
