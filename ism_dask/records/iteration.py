"""An iteration: its history, its states, its solution, and the limits at which it stops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from ism_dask._types import Array
from ism_dask.linalg.subspaces import subspace_sine
from ism_dask.records.fit_report import FitReport
from ism_dask.status import Status

# `converged` claims that the residual of W is at most this.
RESIDUAL = 1e-4
# Spectral steps go on until they turn W by an angle with at most this sine, too: the residual says
# little of columns with small eigenvalues.
ANGLE = 0.01


@dataclass(frozen=True)
class Record:
    """One line of the history: the W of one iteration.

    `change` is the relative change of the eigenvalues since the previous W, and `angle` the sine of
    the largest principal angle to it. `seconds` count from the beginning of the fit, with those
    before an interruption. `ascent` is whether J is at least as large as before, up to the error
    of an approximation. `settled` is whether the iteration met the stopping rule. `residual` is
    `||Phi W - W (W^T Phi W)|| / ||Phi W||` under the engine's own Phi, and `limit` the residual
    that is small enough beside the noise between rows; 0 if that is not measured.
    """

    iteration: int
    objective: float
    eigenvalues: tuple[float, ...]
    change: float
    angle: float
    seconds: float
    ascent: bool
    settled: bool = False
    residual: float = 1.0
    limit: float = 0.0


@dataclass(frozen=True)
class Round:
    """One round of a fit that alternates between W and the embedding.

    `objective` is J under the embedding that W was fitted to; `iterations` counts the steps of the
    solver. `affinity` is the sum of the `eigenvalues` of the embedding of X W, which that embedding
    maximises. `change` is the largest change of one of them since the previous round, relative to
    itself, and `turn` the sine of the largest principal angle to the W of that round; 1 in the
    first. `seconds` count from the beginning of the fit.
    """

    number: int
    objective: float
    affinity: float
    eigenvalues: tuple[float, ...]
    change: float
    turn: float
    iterations: int
    seconds: float
    last: bool = False

    @property
    def movement(self) -> float:
        """The larger of `change` and `turn`: when it is small, W and the embedding stay."""
        return max(self.change, self.turn)


@dataclass(frozen=True)
class State:
    """All that a run of a solver needs to continue: its current W and the best so far, both (d, q).

    `eigenvalues` (q,) are those of the Phi whose eigenvectors the current W has, and `objective` is
    its J. `following` is the largest eigenvalue outside of the best W of its Phi. `peak` is the
    largest J of any W with all q columns; J of the best W may be lower by the error of an
    approximation. `curvature` is what L-BFGS remembers: its last steps (d, q), each with the change
    of the slope along it.
    """

    W: Array
    eigenvalues: Array
    best: Array
    objective: float = -np.inf
    following: float = np.nan
    history: tuple[Record, ...] = ()
    peak: float = -np.inf
    curvature: tuple[tuple[Array, Array], ...] = ()

    @classmethod
    def from_weights(
        cls, W: Array, eigenvalues: Array | None = None, history: tuple[Record, ...] = ()
    ) -> Self:
        """Return the state of a run that begins at W (d, q), after the steps of a history."""
        if history:
            history = (*history[:-1], replace(history[-1], settled=False))
        values = np.zeros(W.shape[1]) if eigenvalues is None else eigenvalues
        return cls(W, values, W, history=history)

    @property
    def iteration(self) -> int:
        """The number of iterations that have ended."""
        return len(self.history)

    def advanced(
        self,
        W: Array,
        eigenvalues: Array,
        objective: float,
        residual: float,
        *,
        settled: bool,
        following: float = np.nan,
        limit: float = 0.0,
        slack: float = 0.0,
        curvature: Sequence[tuple[Array, Array]] = (),
    ) -> Self:
        """Return the state after a step to another W; the driver adds the seconds.

        `slack` is the decrease of J that approximation and rounding may cause. If two W differ in J
        by less, the later one counts as the better: it is nearer convergence.
        """
        record = Record(
            iteration=self.iteration + 1,
            objective=objective,
            eigenvalues=tuple(eigenvalues.tolist()),
            change=relative_change(eigenvalues, self.eigenvalues),
            angle=subspace_sine(self.W, W),
            seconds=0.0,
            ascent=objective >= self.objective - slack,
            settled=settled,
            residual=residual,
            limit=limit,
        )
        is_best = objective >= self.peak - slack
        return type(self)(
            W,
            eigenvalues,
            best=W if is_best else self.best,
            objective=objective,
            following=following if is_best else self.following,
            history=(*self.history, record),
            peak=max(self.peak, objective),
            curvature=tuple(curvature),
        )


@dataclass(frozen=True)
class Solution:
    """What a run of a solver, or all runs of a fit, came to.

    The W (d, q) of the state has orthonormal columns, and of all W in the run the largest J.
    `product` is Phi W, in double precision as J, and `eigengap` the smallest eigenvalue of W minus
    the largest outside of W. The `residual` of a fit is under the true kernel as far as that was
    affordable. The report says what the engine adds, and of an ascent the limit of the residual.
    """

    state: State
    status: Status
    product: Array
    residual: float
    eigengap: float = np.nan
    report: FitReport = field(default_factory=FitReport)

    @property
    def W(self) -> Array:
        """W (d, q)."""
        return self.state.W

    @property
    def eigenvalues(self) -> Array:
        """The eigenvalues (q,) of W, in decreasing order."""
        return self.state.eigenvalues

    @property
    def objective(self) -> float:
        """J of W."""
        return self.state.objective

    @property
    def history(self) -> tuple[Record, ...]:
        """The records of all iterations."""
        return self.state.history


def relative_change(values: Array, before: Array) -> float:
    """Return `||values - before|| / ||values||`, or 0 if all values (q,) are 0."""
    norm = float(np.linalg.norm(values))
    return float(np.linalg.norm(values - before)) / norm if norm > 0 else 0.0


class Stopping:
    """The limits of an iteration, and the measure by which it ends.

    With a number as `tol` it ends by the change of the eigenvalues, else once W is stationary.
    """

    tol: float | None = None
    max_iter: int
    max_seconds: float | None = None

    @property
    def limit(self) -> float:
        """The tolerance that applies, of the change of the eigenvalues or of the residual."""
        return RESIDUAL if self.tol is None else self.tol

    @property
    def measure(self) -> str:
        """The field of `Record` or `Round` that has to fall below `limit`."""
        return "residual" if self.tol is None else "change"

    @property
    def most_steps(self) -> int:
        """The largest number of steps, after which another method goes on or none does."""
        return self.max_iter

    def measured(self, record: Record | Round) -> float:
        """Return the value of `record` that has to fall below `limit`."""
        return float(getattr(record, self.measure))

    def limit_of(self, record: Record | Round) -> float:
        """Return the value at which the iteration may end: noise between rows may raise `limit`."""
        return max(self.limit, getattr(record, "limit", 0.0))


@dataclass(frozen=True, kw_only=True)
class StoppingOfRounds(Stopping):
    """The stopping rule of rounds: W and the embedding both move by less than `tol`."""

    tol: float
    max_iter: int

    @property
    def measure(self) -> str:
        """The field of `Round` that has to fall below `limit`."""
        return "movement"
