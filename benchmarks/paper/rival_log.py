"""The log of a rival's iterations: all rivals start, end and report as the solvers of the package.

A rival is given to an estimator as an object, such as `SupervisedIKDR(2, solver=Stiefel())`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask.engines.base import Operator, ProductEvaluation
from ism_dask.kernels.base import check_finite
from ism_dask.linalg.subspaces import relative_residual, subspace_sine
from ism_dask.records.iteration import Record, Solution, State, relative_change
from ism_dask.solvers import Solver
from ism_dask.solvers.base import TimeLimit
from ism_dask.solvers.ism import solution_at, spectral_start
from ism_dask.status import Status

# The residual at which a rival ends, and the one above which its W is not called converged.
_RESIDUAL, _MOST_RESIDUAL = 1e-6, 1e-4
# A rival also ends if the mean change of J over this many steps is at most this share of J.
_STEPS, _PLATEAU = 5, 1e-9


class TimeIsUpError(Exception):
    """Signals that the time limit is reached."""


class RivalLog:
    """The iterations of a rival so far, and its evaluations of J under the time limit.

    Parameters
    ----------
    operator : Operator
    q : int
        Columns of W.
    max_iter : int
        The most iterations.
    time_limit : TimeLimit
        The clock of the fit.
    on_iteration : callable, optional
        Called with the state after each iteration.
    state : State, optional
        A state whose W is the start, in place of the spectral start, and whose history continues.

    Attributes
    ----------
    start : (d, q) array
    evaluation : ProductEvaluation
        J and Phi W of the start.
    """

    def __init__(
        self,
        operator: Operator,
        q: int,
        max_iter: int,
        time_limit: TimeLimit,
        *,
        on_iteration: Callable[[State], None] | None,
        state: State | None,
    ) -> None:
        self._operator, self._q, self._on_iteration = operator, q, on_iteration
        self.max_iter, self._time_limit = max_iter, time_limit
        history = () if state is None else state.history
        self.start = _start(operator, q, None if state is None else state.W)
        # Evaluated without the time limit, because some W has to be returned.
        self.evaluation = self._last = operator.gradient(self.start)
        check_finite(self.evaluation.product)
        W, J = self.start, self.evaluation.objective
        values = _eigenvalues(W, self.evaluation)
        self.state = State(W, values, W, J, history=history, peak=J)
        self._begun = len(history)

    def begin_subproblem(self) -> None:
        """Begin another subproblem, whose plateau of J does not count the steps so far."""
        self._begun = len(self.state.history)

    def evaluate(self, W: Array) -> ProductEvaluation:
        """Return J and Phi W (d, k) at W (d, k), or raise TimeIsUpError at the time limit."""
        self._check_time()
        evaluation = self._operator.gradient(W)
        check_finite(evaluation.product)
        return evaluation

    def phi(self, W: Array) -> Array:
        """Return Phi (d, d) at W (d, k), or raise TimeIsUpError at the time limit."""
        self._check_time()
        return check_finite(self._operator.phi(W).phi)

    def curvature(self, W: Array, Z: Array) -> Array:
        """Return the derivative of Phi(W) W at W (d, q) along Z (d, q), or raise TimeIsUpError."""
        self._check_time()
        return self._operator.curvature(W, Z)

    def _check_time(self) -> None:
        if self._time_limit.is_over:
            raise TimeIsUpError

    def note(self, W: Array, evaluation: ProductEvaluation) -> None:
        """Record the end of an iteration at W (d, k)."""
        before, J, values = self.state, evaluation.objective, _eigenvalues(W, evaluation)
        padded = np.zeros(max(len(values), len(before.eigenvalues)))
        padded[: len(before.eigenvalues)] = before.eigenvalues
        record = Record(
            iteration=before.iteration + 1,
            objective=J,
            eigenvalues=tuple(values.tolist()),
            change=relative_change(values, padded[: len(values)]),
            angle=subspace_sine(before.W, W),
            seconds=self._time_limit.seconds,
            ascent=before.objective <= J,
            residual=relative_residual(W, evaluation.product),
        )
        is_best = W.shape[1] == self._q and before.peak <= J
        best, peak = (W, J) if is_best else (before.best, before.peak)
        self.state = State(W, values, best, J, history=(*before.history, record), peak=peak)
        self._last = evaluation
        if self._on_iteration is not None:
            self._on_iteration(self.state)

    @property
    def may_end_now(self) -> bool:
        """Whether the rival may end at the last W, which has all q columns."""
        return self.may_end_at(self._last.product, self.state.W)

    def may_end_at(self, product: Array, W: Array) -> bool:
        """Return whether the rival may end at W (d, k), with half the gradient as `product`."""
        if relative_residual(W, product) <= _RESIDUAL:
            return True
        # If J is almost flat, or the engine approximates, the residual may never get small.
        last = [record.objective for record in self.state.history[self._begun :][-_STEPS - 1 :]]
        # J may fall for once, so take absolute changes: a fall and a rise are no plateau.
        changes = np.abs(np.diff(last))
        return len(changes) == _STEPS and bool(changes.mean() <= _PLATEAU * abs(last[-1]))

    def follow(self, steps: Iterator[tuple[Array, ProductEvaluation]]) -> Status:
        """Take the steps of an ascent until the rival may or has to end; return the status."""
        try:
            while not self.may_end_now:
                if self.state.iteration >= self.max_iter:
                    return Status.MAX_ITER
                self.note(*next(steps))
        except TimeIsUpError:
            return Status.OVER_CAP
        return Status.CONVERGED

    def ended(
        self, status: Status, *, last: bool = False, otherwise: Status = Status.STALLED
    ) -> Solution:
        """Return the solution with the best W, or with the `last`, after Rayleigh-Ritz.

        `otherwise` replaces the status "converged" if the residual does not confirm it.
        """
        if self.state.W.shape[1] < self._q:
            W = complete_columns(self.state.W, self.start)
            self.note(W, self._operator.gradient(W))
        if not self.state.history:
            self.note(self.start, self.evaluation)
        W = self.state.W if last else self.state.best
        solution = solution_at(self._operator, W, status, self.state.history)
        residual = solution.residual
        if W is self.state.W:
            # Of Phi W in the precision of the steps, which may be finer than that of Phi.
            residual = min(residual, relative_residual(W, self._last.product))
        if status is Status.CONVERGED and residual > _MOST_RESIDUAL:
            return replace(solution, status=otherwise)
        return solution


@dataclass(frozen=True, kw_only=True)
class Rival(Solver):
    """A solver that the paper compares ISM with; a subclass has its `search`."""

    def search(self, log: RivalLog) -> Solution:
        """Write the iterations into the log, and return the solution."""
        raise NotImplementedError

    def solve(
        self,
        operator: Operator,
        q: int,
        time_limit: TimeLimit,
        *,
        on_iteration: Callable[[State], None] | None = None,
        state: State | None = None,
    ) -> Solution:
        """Return the solution of the search; see `Solver.solve`."""
        log = RivalLog(
            operator, q, self.max_iter, time_limit, on_iteration=on_iteration, state=state
        )
        return self.search(log)


def complete_columns(W: Array, others: Array) -> Array:
    """Return W (d, k) completed to (d, q) with the main directions that `others` (d, q) add."""
    added = np.linalg.svd(others - W @ (W.T @ others), full_matrices=False)[0]
    return np.hstack([W, added[:, : others.shape[1] - W.shape[1]]])


def _start(operator: Operator, q: int, W: Array | None) -> Array:
    """Return the (d, q) spectral start, or W completed with directions of it."""
    if W is not None and W.shape[1] == q:
        return W
    spectral = spectral_start(operator, q).vectors
    return spectral if W is None else complete_columns(W, spectral)


def _eigenvalues(W: Array, evaluation: ProductEvaluation) -> Array:
    return np.asarray(scipy.linalg.eigvalsh(W.T @ evaluation.product)[::-1])
