"""What a fit has come to, leg by leg, for one that is cut off and begun again.

A fit is a chain of legs: runs of a solver one after the other, each of them decided by those
before. Who has kept the legs of a fit that was cut off hands them to one of the same rows and
parameters, which is told how the first of them ended instead of running them, goes on where the
last one was, and comes to the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial

from ism_dask.records.iteration import Solution, State


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


Run = Callable[[State | None, Callable[[State], None]], Solution]


class Journal:
    """The legs of one fit.

    Parameters
    ----------
    known : Journey, optional
        How far a fit of the same rows and parameters has come that was cut off.
    keep : callable, optional
        Called with the journey whenever there is more of it.

    Attributes
    ----------
    journey : Journey
        All that is known.
    """

    def __init__(
        self, known: Journey | None = None, keep: Callable[[Journey], None] | None = None
    ) -> None:
        self.journey = Journey() if known is None else known
        self._keep = keep
        self._next = 0
        self._earlier = 0.0 if self.standing is None else self.standing.rounds[-1].seconds
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """How long the fit has taken, with the time before it was cut off."""
        return self._earlier + time.perf_counter() - self._began

    @property
    def standing(self) -> Standing | None:
        """Where rounds have come to, of a fit that goes in rounds."""
        return self.journey.standing

    def leg(self, run: Run, counted: float = 0.0) -> Solution:
        """Return what the next leg comes to.

        Parameters
        ----------
        run : callable
            Takes the state that it was cut off at, if it was, and whom to tell of each state
            that it could go on from.
        counted : float
            Seconds in the history of the state that it begins with: the legs before took them.
        """
        number, self._next = self._next, self._next + 1
        legs = self.journey.legs
        known = legs[number] if number < len(legs) else None
        if isinstance(known, Solution):
            self._earlier += _seconds(known) - counted
            return known
        solution = run(known, partial(self._note, number))
        self._earlier += 0.0 if known is None else _seconds(known) - counted
        self._note(number, solution)
        return solution

    def rest(self, standing: Standing) -> None:
        """Take a round as over: its legs are not needed any more."""
        self._next = 0
        self._write(Journey(standing))

    def _note(self, number: int, leg: State | Solution) -> None:
        legs: list[Leg] = [*self.journey.legs]
        # A leg of which nothing could be kept has a place all the same.
        legs += [None] * (number + 1 - len(legs))
        legs[number] = leg
        self._write(replace(self.journey, legs=tuple(legs)))

    def _write(self, journey: Journey) -> None:
        self.journey = journey
        if self._keep is not None:
            self._keep(journey)


_HANDED: ContextVar[list[Journal]] = ContextVar("journal", default=[])  # noqa: B039


@contextmanager
def journaled(journal: Journal) -> Iterator[None]:
    """Let the first fit that begins in the block keep its legs in `journal`, and no other."""
    token = _HANDED.set([journal])
    try:
        yield
    finally:
        _HANDED.reset(token)


def journal_of_fit() -> Journal:
    """Return the journal of a fit that begins: the one that was handed to it, or an empty one."""
    handed = _HANDED.get()
    return handed.pop() if handed else Journal()


def _seconds(leg: State | Solution) -> float:
    return leg.history[-1].seconds if leg.history else 0.0
