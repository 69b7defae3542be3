"""What is kept of the iterations of a rival, so that all solvers start, end and report alike."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg

from ism_dask.cap import Capped
from ism_dask.eigen import leading, sine
from ism_dask.ritz import Ritz
from ism_dask.solver import Evaluation, Operator, at_rest, finite
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


class Trace:
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
        Whose W to begin with, in place of the spectral start.

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
    ) -> None:
        self._operator, self._q = operator, q
        self._on_iteration = on_iteration
        self._capped = Capped(operator, stopping)
        self.start = _start(operator, q, None if state is None else state.current.W)
        # It is there whatever time there is: some W has to be returned.
        self.evaluation = operator.gradient(self.start)
        finite(self.evaluation.matrix)
        self.state = State.begun(_candidate(self.start, self.evaluation))
        self._last = self.evaluation

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
            angle=sine(before.current.W, W),
            seconds=self._capped.seconds,
            ascent=now.objective >= before.current.objective,
        )
        whole = W.shape[1] == self._q
        better = whole and now.objective >= before.best.objective
        history = (*before.history, record)
        self.state = State(record.iteration, now, now if better else before.best, history)
        self._last = evaluation
        if self._on_iteration is not None:
            self._on_iteration(self.state)

    @property
    def at_rest(self) -> bool:
        """Whether the last W, of all q columns, is an end."""
        return self.settled(self._last.matrix, self.state.current.W)

    def settled(self, product: Array, W: Array) -> bool:
        """Say whether W (d, k), where half the slope of J is `product` (d, k), is an end."""
        return at_rest(W, product) or self._stalls

    @property
    def _stalls(self) -> bool:
        # Of rows in single precision, or of a J that is all but flat, the residual stays above
        # what is small.
        last = [record.objective for record in self.state.history[-STEPS - 1 :]]
        # J may fall for once: there and back again is no standstill.
        return bool(last) and stands_still(np.abs(np.diff(last)), last[-1])

    def ended(self, status: Status, *, last: bool = False) -> Solution:
        """Return the best W that was seen, or the `last`, turned to its own eigenvectors."""
        if self.state.current.W.shape[1] < self._q:
            W = completed(self.state.current.W, self.start)
            self.note(W, self._operator.gradient(W))
        if not self.state.history:
            self.note(self.start, self.evaluation)
        kept = self.state.current if last else self.state.best
        ritz = Ritz.of(self._operator, kept.W)
        return Solution(
            **vars(ritz),
            n_iter=self.state.iteration,
            status=status,
            history=self.state.history,
        )


def completed(W: Array, others: Array) -> Array:
    """Return W (d, k) with the most that orthonormal columns `others` (d, q) add: (d, q)."""
    outside = np.linalg.svd(others - W @ (W.T @ others), full_matrices=False)[0]
    return np.hstack([W, outside[:, : others.shape[1] - W.shape[1]]])


def _start(operator: Operator, q: int, W: Array | None) -> Array:
    """Return the (d, q) leading eigenvectors of Phi0, or W with those that it lacks."""
    if W is not None and W.shape[1] == q:
        return W
    spectral = leading(finite(operator.phi0()), q).vectors
    return spectral if W is None else completed(W, spectral)


def _candidate(W: Array, evaluation: Evaluation) -> Candidate:
    values = scipy.linalg.eigvalsh(W.T @ evaluation.matrix)[::-1]
    return Candidate(W, values, np.nan, evaluation.objective)
