"""What an iteration is told, notes and leaves: when to stop, where it is, what came out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ism_dask.endings import Status
from ism_dask.typing import Array

__all__ = [
    "ANGLE",
    "GAIN",
    "HORIZON",
    "RESIDUAL",
    "STEPS",
    "Candidate",
    "Journey",
    "Leg",
    "Record",
    "Round",
    "Solution",
    "Standing",
    "State",
    "Status",
    "Stopping",
    "is_stationary",
    "relative_change",
    "stands_still",
]

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

    def met(self, change: float, angle: float) -> bool:
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
    def claims(self) -> bool:
        """Whether what ends by these rules may be said to have converged."""
        return self.tol is None or self.tol <= RESIDUAL

    def after(self, seconds: float) -> Stopping:
        """Return when to stop what begins so many seconds later."""
        if self.max_seconds is None:
            return self
        return replace(self, max_seconds=max(0.0, self.max_seconds - seconds))

    def over_cap(self, seconds: float) -> bool:
        """Return whether the time is up."""
        return self.max_seconds is not None and seconds >= self.max_seconds

    def spent(self, iteration: int, seconds: float) -> bool:
        """Return whether there may be no iteration after this one."""
        return iteration >= self.max_iter or self.over_cap(seconds)

    def reached(self, record: Record) -> bool:
        """Return whether the iteration of `record` was the last."""
        return record.settled or self.spent(record.iteration, record.seconds)

    def gives_up(self, history: Sequence[Record]) -> bool:
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


@dataclass(frozen=True)
class Record:
    """One line of the history, of the W that the iteration came to.

    Attributes
    ----------
    iteration : int
    objective : float
    eigenvalues : tuple of float
    change, angle : float
        Against the W before.
    residual : float
        Of W, under the engine's own Phi: `||Phi W - W (W^T Phi W)|| / ||Phi W||`.
    seconds : float
        Since the beginning.
    ascent : bool
        Whether J is as large as before, as far as an approximation can tell.
    settled : bool
        Whether it was the last because the rules that are in force were met.
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


@dataclass(frozen=True)
class Candidate:
    """A subspace with what is known of it.

    Attributes
    ----------
    W : (d, q) array
    eigenvalues : (q,) array
        Of the Phi whose eigenvectors they are.
    following : float
        The largest other eigenvalue of that Phi; NaN where that is not known.
    objective : float
        J.
    """

    W: Array
    eigenvalues: Array
    following: float
    objective: float


@dataclass(frozen=True)
class State:
    """All that the iteration needs to go on from here: the current W and the best so far.

    `peak` is the largest J of a W with all columns, of which the best may fall short by what an
    approximation cannot tell.
    """

    iteration: int
    current: Candidate
    best: Candidate
    history: tuple[Record, ...]
    peak: float = -np.inf

    @classmethod
    def begun(cls, start: Candidate) -> State:
        """Return the state that begins with a candidate."""
        return cls(iteration=0, current=start, best=start, history=())


@dataclass(frozen=True)
class Solution:
    """What came out.

    Attributes
    ----------
    W : (d, q) array
        Orthonormal columns, the best seen by the objective.
    eigenvalues : (q,) array
        Of `W^T Phi W`, which is diagonal, falling.
    eigengap : float
        The smallest chosen eigenvalue minus the largest not chosen.
    objective : float
        J(W).
    error : float
        A bound on the relative error of the objective.
    product : (d, q) array
        Phi(W) W.
    residual : float
        Of W, under the true kernel as far as that was affordable.
    residual_rows : int
        How many rows were held against all rows for it, or against how many each row was.
    in_double : bool
        Whether the objective and the product are of double precision.
    standard_error : float
        Of the objective, as a share of it, where it is an estimate by some pairs of rows; else 0.
    """

    W: Array
    eigenvalues: Array
    eigengap: float
    objective: float
    error: float
    product: Array
    n_iter: int
    status: Status
    history: tuple[Record, ...]
    residual: float = 1.0
    residual_rows: int = 0
    in_double: bool = False
    standard_error: float = 0.0


@dataclass(frozen=True)
class Round:
    """One turn of W and the embedding, of a fit that goes in rounds.

    Attributes
    ----------
    number : int
    objective : float
        J of W, under the embedding that it was fitted to.
    affinity : float
        What the embedding of X W maximises: the sum of its eigenvalues.
    eigenvalues : tuple of float
        Those, falling.
    change : float
        The largest of an eigenvalue, relative to itself, against the round before.
    iterations : int
        What it took to find W.
    seconds : float
        Since the beginning.
    last : bool
        Whether no other follows.
    """

    number: int
    objective: float
    affinity: float
    eigenvalues: tuple[float, ...]
    change: float
    iterations: int
    seconds: float
    last: bool = False


@dataclass(frozen=True)
class Standing:
    """All that rounds need to go on from here; embeddings are made of W again, to the same bits.

    Attributes
    ----------
    rounds : tuple of Round
    last : Solution
        Of the last round.
    best : Solution
        What would be returned if no later round were better.
    before : Solution or None
        Of the round before the best, from which that began; None where it is the first.
    fully : bool
        Whether the best was solved for until it was stationary.
    """

    rounds: tuple[Round, ...]
    last: Solution
    best: Solution
    before: Solution | None
    fully: bool = False


# A run of a solver: how it ended, how far it is, or nothing where it cannot go on from anywhere.
Leg = State | Solution | None


@dataclass(frozen=True)
class Journey:
    """How far a fit has come.

    Attributes
    ----------
    standing : Standing or None
        After the last whole round, of a fit that goes in rounds.
    legs : tuple of Leg
        Since then, in their order.
    """

    standing: Standing | None = None
    legs: tuple[Leg, ...] = ()

    @property
    def told(self) -> str:
        """How far it is, for people."""
        rounds = 0 if self.standing is None else len(self.standing.rounds)
        last = self.legs[-1] if self.legs else None
        done = 0 if last is None else len(last.history)
        words = [f"round {rounds + 1}"] if rounds else []
        return ", ".join([*words, f"iteration {done + 1}"])


def stands_still(changes: Array, objective: float, share: float) -> bool:
    """Return whether the mean of the last changes of J is at most a share of it."""
    return len(changes) == STEPS and bool(changes.mean() <= share * abs(objective))


def relative_change(values: Array, before: Array) -> float:
    """Return `||values - before|| / ||values||`, or 0 where values (q,) are."""
    norm = float(np.linalg.norm(values))
    return float(np.linalg.norm(values - before)) / norm if norm > 0 else 0.0
