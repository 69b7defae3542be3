"""Rules that end an iteration, and the limits that `converged` claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ism_dask.records.iteration import Record, relative_change

if TYPE_CHECKING:
    from ism_dask.records.checkpoint import Round
from typing import TYPE_CHECKING

from ism_dask._types import Array

if TYPE_CHECKING:
    from ism_dask.records.checkpoint import Round

# What `converged` claims. The residual of W is at most this ...
RESIDUAL = 1e-4
# ... the sine of the angle by which the next step would turn it is at most this ...
ANGLE = 0.01
# ... and so many more steps would raise J by no more than this share of it.
HORIZON, GAIN = 50, 1e-3
# The share of that gain which the last step may promise: steps may grow.
_CAUTION = 0.1
# Eigenvalues that change by less stay, where no tolerance says otherwise.
_STAYS = 1e-5
# Two iterations apart, eigenvalues closer than this share of the tolerance are a cycle of two.
_CYCLE = 0.1
# An iteration crawls whose residual has not fallen to the first share within so many steps, while
# J has changed by less than the second. One that goes up and down may find a higher maximum by it,
# and is given more steps.
_FALL, _SPREAD, _PATIENCE, _MORE_PATIENCE = 0.5, 3e-3, 20, 100
# Steps in whose mean J has to change, unless it stands still.
STEPS = 5


@dataclass(frozen=True)
class Stopping:
    """When to stop.

    Attributes
    ----------
    tol : float or None
        The published rule: stop where the eigenvalues change by less, as a share. None: where W
        is stationary.
    angle_tol : float, optional
        With `tol`, stop only where the sine of the largest angle between successive subspaces
        is below this, too.
    max_iter : int
    max_seconds : float, optional
    """

    tol: float | None = 0.01
    angle_tol: float | None = None
    max_iter: int = 100
    max_seconds: float | None = None

    def tol_is_met(self, change: float, angle: float) -> bool:
        """Return whether the published rule, if it is in force, ends the iteration."""
        if self.tol is None or change >= self.tol:
            return False
        return self.angle_tol is None or angle < self.angle_tol

    @property
    def limit(self) -> float:
        """The tolerance that is in force: of the eigenvalues' change, or of the residual."""
        return RESIDUAL if self.tol is None else self.tol

    @property
    def measure(self) -> str:
        """What has to fall below that tolerance: the name of a field of `Record`."""
        return "residual" if self.tol is None else "change"

    def measured(self, record: Record | Round) -> float:
        """Return what has to fall below the tolerance."""
        return float(getattr(record, self.measure))

    @property
    def claims_convergence(self) -> bool:
        """Whether what ends by these rules may be said to have converged."""
        return self.tol is None or self.tol <= RESIDUAL

    def after(self, seconds: float) -> Stopping:
        """Return when to stop what begins so many seconds later."""
        if self.max_seconds is None:
            return self
        return replace(self, max_seconds=max(0.0, self.max_seconds - seconds))

    def time_is_up(self, seconds: float) -> bool:
        """Return whether the time is up."""
        return self.max_seconds is not None and seconds >= self.max_seconds

    def is_spent(self, iteration: int, seconds: float) -> bool:
        """Return whether there may be no iteration after this one."""
        return iteration >= self.max_iter or self.time_is_up(seconds)

    def reached(self, record: Record) -> bool:
        """Return whether the iteration of `record` was the last."""
        return record.settled or self.is_spent(record.iteration, record.seconds)

    def is_stuck(self, history: Sequence[Record]) -> bool:
        """Return whether the spectral iteration is not the way to an end: others may be."""
        return self._cycles(history) or (self.tol is None and self._crawls(history))

    def _crawls(self, history: Sequence[Record]) -> bool:
        """Return whether the residual hardly falls any more, and J hardly changes."""
        if len(history) >= _MORE_PATIENCE:
            return True
        if len(history) <= _PATIENCE:
            return False
        last = history[-1 - _PATIENCE :]
        objectives = [record.objective for record in last]
        spread = max(objectives) - min(objectives)
        falls = last[-1].residual <= _FALL * last[0].residual
        return not falls and spread <= _SPREAD * abs(objectives[-1])

    def _cycles(self, history: Sequence[Record]) -> bool:
        """Return whether eigenvalues repeat every second iteration, and so it will stay.

        Of two subspaces each may lead to the other: whatever is left to do is done twice.
        """
        values = [np.array(record.eigenvalues) for record in history[-4:]]
        if len(values) < 4 or not all(self._moves(record) for record in history[-2:]):
            return False
        again, before = (
            relative_change(values[i], values[i - 2]) < _CYCLE * self._least for i in (-1, -2)
        )
        # Slow damping looks alike, but ends.
        turns = [record.angle if self.tol is None else record.change for record in history[-3:]]
        damping = min(1.0, turns[-1] / turns[-3]) if turns[-3] > 0 else 1.0
        turns_left = (self.max_iter - len(history)) / 2
        smallest = ANGLE if self.tol is None else self.tol
        return again and before and turns[-1] * damping**turns_left >= smallest

    @property
    def _least(self) -> float:
        """The change of eigenvalues below which they stay."""
        return _STAYS if self.tol is None else self.tol

    def _moves(self, record: Record) -> bool:
        turning = self.tol is None and record.angle >= ANGLE
        return turning or record.change >= self._least


def is_stationary(residual: float, angle: float, product: float, objective: float) -> bool:
    """Return whether a W is all that `converged` claims of it, as far as one step tells.

    Parameters
    ----------
    residual : float
    angle : float
        The sine of the angle by which the next step would turn W.
    product : float
        The norm of Phi W, half of the slope of J.
    objective : float
    """
    if residual > RESIDUAL or angle > ANGLE:
        return False
    promised = HORIZON * 2.0 * residual * product * angle
    return promised <= _CAUTION * GAIN * abs(objective)


def has_plateaued(changes: Array, objective: float, share: float) -> bool:
    """Return whether the mean of the last changes of J is at most a share of it."""
    return len(changes) == STEPS and bool(changes.mean() <= share * abs(objective))
