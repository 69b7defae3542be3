"""An iteration: its history, its states, its solution, and the rules by which it stops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from ism_dask._types import Array
from ism_dask.linalg.subspaces import subspace_sine
from ism_dask.status import Status

# `converged` claims that the residual of W is at most this.
RESIDUAL = 1e-4
# Spectral steps go on until they turn W by an angle with at most this sine, too: the residual says
# little of columns with small eigenvalues.
ANGLE = 0.01
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
class Candidate:
    """A W (d, q) with the eigenvalues (q,) of the Phi whose eigenvectors it has, and its J.

    `following` is the largest other eigenvalue of that Phi, NaN if it is unknown; J is minus
    infinity before it is computed.
    """

    W: Array
    eigenvalues: Array
    following: float = np.nan
    objective: float = -np.inf


@dataclass(frozen=True)
class State:
    """All that a run of a solver needs to continue: the current W and the best so far.

    `peak` is the largest J of any W with all q columns. J of the best W may be lower by the error
    of an approximation. `curvature` is what L-BFGS remembers: its last steps (d, q), each with the
    change of the slope along it.
    """

    current: Candidate
    best: Candidate
    history: tuple[Record, ...] = ()
    peak: float = -np.inf
    curvature: tuple[tuple[Array, Array], ...] = ()

    @classmethod
    def from_weights(
        cls, W: Array, eigenvalues: Array | None = None, history: tuple[Record, ...] = ()
    ) -> Self:
        """Return the state of a run that begins at W (d, q), after the steps of a history."""
        start = Candidate(W, np.zeros(W.shape[1]) if eigenvalues is None else eigenvalues)
        if history:
            history = (*history[:-1], replace(history[-1], settled=False))
        return cls(start, start, history)

    @property
    def iteration(self) -> int:
        """The number of iterations that have ended."""
        return len(self.history)

    def advanced(
        self,
        now: Candidate,
        residual: float,
        *,
        limit: float = 0.0,
        slack: float = 0.0,
        settled: bool = False,
        curvature: Sequence[tuple[Array, Array]] = (),
    ) -> Self:
        """Return the state after a step to another W; the driver adds the seconds.

        `slack` is the decrease of J that approximation and rounding may cause. Of two W that they
        hide from each other the later one is taken, which is nearer convergence.
        """
        record = Record(
            iteration=self.iteration + 1,
            objective=now.objective,
            eigenvalues=tuple(now.eigenvalues.tolist()),
            change=relative_change(now.eigenvalues, self.current.eigenvalues),
            angle=subspace_sine(self.current.W, now.W),
            seconds=0.0,
            ascent=now.objective >= self.current.objective - slack,
            settled=settled,
            residual=residual,
            limit=limit,
        )
        best = now if now.objective >= self.peak - slack else self.best
        peak = max(self.peak, now.objective)
        return type(self)(now, best, (*self.history, record), peak, tuple(curvature))


@dataclass(frozen=True)
class Solution:
    """The solution of a run, or of all runs of a fit.

    W (d, q) has orthonormal columns, and of all W in the run the largest objective J. The
    `eigenvalues` (q,) are the diagonal of `W^T Phi W`, which is a diagonal matrix, in decreasing
    order; `eigengap` is the smallest of them minus the largest outside of W. `error` bounds the
    relative error of J. `product` is Phi W. J and Phi W are in double precision. The `residual` of
    a fit is under the true kernel as far as that was affordable, by comparing `residual_rows` rows
    with all rows. `engine_note` is why the engines before this one declined.
    """

    W: Array
    eigenvalues: Array
    eigengap: float
    objective: float
    error: float
    product: Array
    status: Status
    history: tuple[Record, ...]
    residual: float = 1.0
    residual_rows: int = 0
    engine: str = ""
    engine_note: str = ""

    @property
    def n_iter(self) -> int:
        """The number of iterations."""
        return len(self.history)


def relative_change(values: Array, before: Array) -> float:
    """Return `||values - before|| / ||values||`, or 0 if all values (q,) are 0."""
    norm = float(np.linalg.norm(values))
    return float(np.linalg.norm(values - before)) / norm if norm > 0 else 0.0


@dataclass(frozen=True)
class Stopping:
    """The stopping rule of an iteration.

    The published rule is to stop when the relative change of the eigenvalues is below `tol`, and
    the sine of the largest principal angle between successive subspaces below `angle_tol`, if there
    is one. Without `tol` it is to stop when W is stationary.
    """

    tol: float | None = 0.01
    angle_tol: float | None = None
    max_iter: int = 100
    max_seconds: float | None = None

    def is_met(self, change: float, angle: float, residual: float = np.inf) -> bool:
        """Return whether the iteration ends at a W; without `tol`, its residual decides."""
        if self.tol is None:
            return residual <= RESIDUAL and angle <= ANGLE
        return change < self.tol and (self.angle_tol is None or angle < self.angle_tol)

    @property
    def limit(self) -> float:
        """The tolerance that applies, of the change of the eigenvalues or of the residual."""
        return RESIDUAL if self.tol is None else self.tol

    @property
    def measure(self) -> str:
        """The field of `Record` or `Round` that has to fall below `limit`."""
        return "residual" if self.tol is None else "change"

    def measured(self, record: Record | Round) -> float:
        """Return the value of `record` that has to fall below `limit`."""
        return float(getattr(record, self.measure))

    @property
    def most_spectral_steps(self) -> int:
        """The largest number of spectral steps, after which another solver goes on or none does."""
        return self.max_iter if self.tol is not None else min(self.max_iter, _MORE_PATIENCE)

    def limit_of(self, record: Record | Round) -> float:
        """Return the value at which the iteration may end: noise between rows may raise `limit`."""
        return max(self.limit, getattr(record, "limit", 0.0))

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
        values, unchanged = [np.array(record.eigenvalues) for record in history[-4:]], _UNCHANGED
        if self.tol is not None:
            unchanged = self.tol
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


class StoppingOfRounds(Stopping):
    """The stopping rule of rounds: W and the embedding both move by less than `tol`."""

    @property
    def measure(self) -> str:
        """The field of `Round` that has to fall below `limit`."""
        return "movement"


def _stays(history: Sequence[Record], steps: int, share: float) -> bool:
    """Return whether in some steps the residual has not halved, and J varied by a share at most."""
    last = history[-1 - steps :]
    if len(last) <= steps or last[-1].residual <= _FALL * last[0].residual:
        return False
    objectives = [record.objective for record in last]
    return max(objectives) - min(objectives) <= share * abs(objectives[-1])
