"""Checkpoints of a fit: what a fit that is cut off needs to continue to the same bits.

A fit is a chain of solver runs, each decided by those before. A caller that has saved the runs of
an interrupted fit hands them to a new fit of the same rows and parameters. The new fit restores the
runs that ended, continues the one that was cut off, and comes to the same bits.
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
class OuterState:
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


# One run of a solver: its solution, its latest state, or None where it cannot continue.
SolverRun = State | Solution | None


@dataclass(frozen=True)
class Checkpoint:
    """How far a fit has come.

    Attributes
    ----------
    outer : OuterState or None
        After the last whole round, for a fit that goes in rounds.
    runs : tuple of SolverRun
        The solver runs since then, in order.
    """

    outer: OuterState | None = None
    runs: tuple[SolverRun, ...] = ()

    @property
    def progress(self) -> str:
        """Words for how far the fit is, such as "round 2, iteration 7"."""
        rounds = 0 if self.outer is None else len(self.outer.rounds)
        last = self.runs[-1] if self.runs else None
        done = 0 if last is None else len(last.history)
        words = [f"round {rounds + 1}"] if rounds else []
        return ", ".join([*words, f"iteration {done + 1}"])


RunSolver = Callable[[State | None, Callable[[State], None]], Solution]


class CheckpointedFit:
    """The solver runs of one fit, restored from a checkpoint or saved as they go.

    Parameters
    ----------
    known : Checkpoint, optional
        Of an interrupted fit with the same rows and parameters.
    keep : callable, optional
        Called with the checkpoint whenever it has grown.

    Attributes
    ----------
    checkpoint : Checkpoint
        How far the fit is.
    """

    def __init__(
        self, known: Checkpoint | None = None, keep: Callable[[Checkpoint], None] | None = None
    ) -> None:
        self.checkpoint = Checkpoint() if known is None else known
        self._keep = keep
        self._next = 0
        self._earlier = 0.0 if self.outer is None else self.outer.rounds[-1].seconds
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """How long the fit has taken, with the time before it was cut off."""
        return self._earlier + time.perf_counter() - self._began

    @property
    def outer(self) -> OuterState | None:
        """The state after the last whole round, for a fit that goes in rounds."""
        return self.checkpoint.outer

    def run_or_restore(self, run: RunSolver, counted: float = 0.0) -> Solution:
        """Return the solution of the next solver run, restored where the checkpoint holds it.

        Parameters
        ----------
        run : callable
            Takes the state at which it was cut off, or None, and a callback for each state from
            which it could continue.
        counted : float
            Seconds that the history of its first state already has, spent by earlier runs.
        """
        number, self._next = self._next, self._next + 1
        runs = self.checkpoint.runs
        known = runs[number] if number < len(runs) else None
        if isinstance(known, Solution):
            self._earlier += _seconds(known) - counted
            return known
        solution = run(known, partial(self._note, number))
        self._earlier += 0.0 if known is None else _seconds(known) - counted
        self._note(number, solution)
        return solution

    def commit_outer(self, outer: OuterState) -> None:
        """Save the state after a whole round and drop the solver runs of that round."""
        self._next = 0
        self._write(Checkpoint(outer))

    def _note(self, number: int, run: State | Solution) -> None:
        runs: list[SolverRun] = [*self.checkpoint.runs]
        # Some solvers cannot continue from a state: None holds their place.
        runs += [None] * (number + 1 - len(runs))
        runs[number] = run
        self._write(replace(self.checkpoint, runs=tuple(runs)))

    def _write(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        if self._keep is not None:
            self._keep(checkpoint)


_HANDED: ContextVar[list[CheckpointedFit]] = ContextVar("checkpointed_fit", default=[])  # noqa: B039


@contextmanager
def saving_checkpoints(saved_fit: CheckpointedFit) -> Iterator[None]:
    """Let the first fit that begins in the block use `saved_fit`; later fits do not."""
    token = _HANDED.set([saved_fit])
    try:
        yield
    finally:
        _HANDED.reset(token)


def current_fit() -> CheckpointedFit:
    """Return the `CheckpointedFit` handed to the fit that begins, or an empty one."""
    handed = _HANDED.get()
    return handed.pop() if handed else CheckpointedFit()


def _seconds(run: State | Solution) -> float:
    return run.history[-1].seconds if run.history else 0.0
