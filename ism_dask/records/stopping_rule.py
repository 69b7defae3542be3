"""Stopping rules of an iteration, and the limits that the status `converged` guarantees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ism_dask.records.iteration import Record, Round, relative_change

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
class Stopping:
    """The stopping rule of an iteration.

    Attributes
    ----------
    tol : float or None
        The published rule: stop when the relative change of the eigenvalues is below `tol`. None
        means to stop when W is stationary.
    angle_tol : float, optional
        With `tol`, stop only when the sine of the largest principal angle between successive
        subspaces is below this, too.
    max_iter : int
        The largest number of iterations.
    max_seconds : float, optional
        The time limit.
    """

    tol: float | None = 0.01
    angle_tol: float | None = None
    max_iter: int = 100
    max_seconds: float | None = None

    def tol_is_met(self, change: float, angle: float) -> bool:
        """Return whether the published rule applies and ends the iteration."""
        if self.tol is None or change >= self.tol:
            return False
        return self.angle_tol is None or angle < self.angle_tol

    def is_stationary(self, residual: float, angle: float) -> bool:
        """Return whether the iteration ends at a W, because there is no `tol`."""
        return self.tol is None and residual <= RESIDUAL and angle <= ANGLE

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

    @property
    def claims_convergence(self) -> bool:
        """Whether an iteration that ends by this rule may be called converged."""
        return self.tol is None or self.tol <= RESIDUAL

    def reached(self, record: Record) -> bool:
        """Return whether the iteration of `record` was the last."""
        limit = np.inf if self.max_seconds is None else self.max_seconds
        return record.settled or record.iteration >= self.max_iter or record.seconds >= limit

    def is_stuck(self, history: Sequence[Record]) -> bool:
        """Return whether the spectral iteration will not converge, but another solver may."""
        if self.tol is not None:
            return self._cycles(history)
        return self._cycles(history) or _swings(history) or _is_slow(history)

    def _cycles(self, history: Sequence[Record]) -> bool:
        """Return whether the iteration alternates between two subspaces and will not stop doing so.

        Its eigenvalues then repeat every second iteration.
        """
        values = [np.array(record.eigenvalues) for record in history[-4:]]
        if len(values) < 4 or not all(self._moves(record) for record in history[-2:]):
            return False
        repeats_now, repeated_before = (
            relative_change(values[i], values[i - 2]) < _CYCLE * self._smallest_change
            for i in (-1, -2)
        )
        # A slowly damped oscillation looks the same, but ends: extrapolate its damping.
        sizes = [record.angle if self.tol is None else record.change for record in history[-3:]]
        damping = min(1.0, sizes[-1] / sizes[-3]) if sizes[-3] > 0 else 1.0
        cycles_to_come = (self.max_iter - len(history)) / 2
        smallest = ANGLE if self.tol is None else self.tol
        return repeats_now and repeated_before and sizes[-1] * damping**cycles_to_come >= smallest

    @property
    def _smallest_change(self) -> float:
        """The relative change below which eigenvalues count as unchanged."""
        return _UNCHANGED if self.tol is None else self.tol

    def _moves(self, record: Record) -> bool:
        rotates = self.tol is None and record.angle >= ANGLE
        return rotates or record.change >= self._smallest_change


class StoppingOfRounds(Stopping):
    """The stopping rule of rounds: W and the embedding both move by less than `tol`."""

    @property
    def measure(self) -> str:
        """The field of `Round` that has to fall below `limit`."""
        return "movement"


def _swings(history: Sequence[Record]) -> bool:
    """Return whether W turns and turns back, while neither residual nor J changes much."""
    turns = all(record.angle >= _TURN for record in history[-_SWINGS:])
    return turns and _stays(history, _SWINGS, _SWING)


def _is_slow(history: Sequence[Record]) -> bool:
    """Return whether residual and J hardly change any more, or the steps are too many."""
    return len(history) >= _MORE_PATIENCE or _stays(history, _PATIENCE, _SPREAD)


def _stays(history: Sequence[Record], steps: int, share: float) -> bool:
    """Return whether in some steps the residual has not halved, and J varied by a share at most."""
    last = history[-1 - steps :]
    if len(last) <= steps or last[-1].residual <= _FALL * last[0].residual:
        return False
    objectives = [record.objective for record in last]
    return max(objectives) - min(objectives) <= share * abs(objectives[-1])
