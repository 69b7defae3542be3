"""What an iteration is told, notes and leaves: when to stop, where it is, what came out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from ism_dask.shift import Shift
from ism_dask.typing import Array

# Of the tolerance: eigenvalues nearer to those before last are the same ones again.
_COMES_ROUND = 0.1
# What J changes by, relatively and as a mean of so many steps, below which nothing is to be gained.
_GAIN, STEPS = 1e-9, 5
# Eigenvalues of an approximation vary by this share of the bound on its error (measured: 60,000
# images, 6.6e-4 of a bound of 1.5e-3), and where the bound is wide by no more than this.
_VARIES, _COARSE = 0.5, 0.01
# So many falls of J are more than the few with which an iteration may begin.
_FALLS = 5


class Status(Enum):
    """How a solution ended."""

    CONVERGED = "converged"
    MAX_ITER = "max_iter"
    SWINGS = "swings"
    OVER_CAP = "over the cap"


@dataclass(frozen=True)
class Stopping:
    """When to stop: relative eigenvalue change, sine of the largest angle (if any), count, time.

    `shifts` says whether an iteration that swings goes on with a level shift, or ends.
    """

    tol: float = 0.01
    angle_tol: float | None = None
    max_iter: int = 100
    max_seconds: float | None = None
    shifts: bool = True

    def met(self, change: float, angle: float, error: float = 0.0) -> bool:
        """Say whether the iteration has settled, as far as an approximation can tell.

        With another W it leaves out other parts: eigenvalues vary within its `error`.
        """
        told = change < max(self.tol, min(error * _VARIES, _COARSE))
        return told and (self.angle_tol is None or angle < self.angle_tol)

    def after(self, seconds: float) -> Stopping:
        """Return when to stop what begins so many seconds later."""
        if self.max_seconds is None:
            return self
        return replace(self, max_seconds=max(0.0, self.max_seconds - seconds))

    def over_cap(self, seconds: float) -> bool:
        """Say whether the time is up."""
        return self.max_seconds is not None and seconds >= self.max_seconds

    def spent(self, iteration: int, seconds: float) -> bool:
        """Say whether there may be no iteration after this one."""
        return iteration >= self.max_iter or self.over_cap(seconds)

    def reached(self, record: Record) -> bool:
        """Say whether the iteration of `record` was the last."""
        return record.settled or self.spent(record.iteration, record.seconds)

    def ends_swinging(self, history: Sequence[Record]) -> bool:
        """Say whether there is nothing left to do but to end with the best W."""
        return not self.shifts and self.swings(history)

    def calls_for_shift(self, history: Sequence[Record]) -> bool:
        """Say whether the bare iteration will not settle: it swings, or J falls again and again."""
        if not self.shifts or min(record.change for record in history[-2:]) < self.tol:
            return False
        falls = sum(not record.ascent for record in history)
        return falls >= _FALLS or self.swings(history)

    def swings(self, history: Sequence[Record]) -> bool:
        """Say whether eigenvalues come round again, those before last, and so it will stay.

        Of two subspaces each may lead to the other: whatever is left to do is done twice.
        """
        values = [np.array(record.eigenvalues) for record in history[-4:]]
        changes = [record.change for record in history[-3:]]
        if len(values) < 4 or min(changes[1:]) < self.tol:
            return False
        near = _COMES_ROUND * self.tol
        again, before = (relative_change(values[i], values[i - 2]) < near for i in (-1, -2))
        # Slow damping looks alike, but ends.
        damping = min(1.0, changes[-1] / changes[-3])
        turns_left = (self.max_iter - len(history)) / 2
        return again and before and changes[-1] * damping**turns_left >= self.tol


@dataclass(frozen=True)
class Record:
    """One line of the history, of the W that the iteration came to.

    Attributes
    ----------
    iteration : int
    objective : float
    eigenvalues : tuple of float
    change, angle : float
        Against the W before; of a shifted iteration, what the bare one would turn by.
    seconds : float
        Since the beginning.
    ascent : bool
        Whether J is as large as before, as far as an approximation can tell. A shifted iteration
        takes back a W of which it is not.
    settled : bool
        Whether it was the last because nothing changed any more.
    """

    iteration: int
    objective: float
    eigenvalues: tuple[float, ...]
    change: float
    angle: float
    seconds: float
    ascent: bool
    settled: bool = False


@dataclass(frozen=True)
class Candidate:
    """A subspace with what is known of it."""

    W: Array
    eigenvalues: Array
    gap: float
    objective: float


@dataclass(frozen=True)
class State:
    """All that the iteration needs to go on from here: the current W and the best so far.

    `shift` is there where the bare iteration has gone astray.
    """

    iteration: int
    current: Candidate
    best: Candidate
    history: tuple[Record, ...]
    shift: Shift | None = None

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
        Of the Phi whose leading eigenvectors W are, falling.
    eigengap : float
        The smallest chosen eigenvalue minus the largest not chosen.
    objective : float
        J(W).
    error : float
        A bound on the relative error of the objective.
    product : (d, q) array
        Phi(W) W.
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
    """

    number: int
    objective: float
    affinity: float
    eigenvalues: tuple[float, ...]
    change: float
    iterations: int
    seconds: float


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
    """

    rounds: tuple[Round, ...]
    last: Solution
    best: Solution
    before: Solution | None


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


def stands_still(changes: Array, objective: float) -> bool:
    """Say whether what J, now `objective`, changed by in the last steps is nothing in the mean."""
    return len(changes) == STEPS and bool(changes.mean() <= _GAIN * abs(objective))


def relative_change(values: Array, before: Array) -> float:
    """Return `||values - before|| / ||values||`, or 0 where values (q,) are."""
    norm = float(np.linalg.norm(values))
    return float(np.linalg.norm(values - before)) / norm if norm > 0 else 0.0
