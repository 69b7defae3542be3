"""How far one fit of W has come: its iterations, and the long passes over the rows within them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from flows.interface.progress import ProgressShare, repeated
from ism_dask.observe.pass_progress import converged_share, watching_passes
from ism_dask.records.checkpoint import Round
from ism_dask.records.iteration import State
from ism_dask.records.stopping import Stopping

# A pass of fewer seconds is over before anybody has read of it.
_LONG = 1.0
# How much of a fit its iterations are; the final check is the rest.
_ITERATIONS = 0.8
# How much of what is left of them the first may take before it is known what it has brought. The
# t-th may take a t-th of that: most fits need few, and those that need many keep moving.
_STEP = 0.5


@dataclass(frozen=True)
class Pass:
    """A pass over the rows, as its tasks tell of it.

    Attributes
    ----------
    first, last : float
        When the first and the latest of its tasks were done.
    done, total : int
        Tasks.
    after : int
        How many long passes the iteration had before.
    """

    first: float
    last: float
    done: int
    total: int
    after: int

    @property
    def share(self) -> float:
        """How much of it is done."""
        return self.done / self.total

    def is_long(self, now: float) -> bool:
        """Say whether it takes long enough to be told of."""
        return (now if self.done < self.total else self.last) - self.first > _LONG

    def goes_on(self, done: int, total: int) -> bool:
        """Say whether it is this pass of which `done` tasks are done now, and not the next."""
        return total == self.total and done > self.done

    @property
    def text(self) -> str:
        """How far it is, for people."""
        line = f"pass {self.after + 1}, " if self.after else ""
        return f"{line}rows {100 * self.share:.0f}%"


class FitProgress:
    """What a fit tells of itself, made into reports that never go back.

    Parameters
    ----------
    part : Part
        What the fit is of the work.
    stopping : Stopping
        When it ends.
    """

    def __init__(self, part: ProgressShare, stopping: Stopping) -> None:
        self._part, self._stopping = part, stopping
        self._lock = threading.Lock()
        self._told = 0.0
        self._pass: Pass | None = None
        self._objective = ""
        self._enter("iteration 1", _STEP * _ITERATIONS)

    def on_task(self, done: int, total: int) -> None:
        """Take note, in a thread that computes, of a task of a pass; passes follow each other."""
        now, current = time.monotonic(), self._pass
        if current is not None and current.goes_on(done, total):
            self._pass = replace(current, last=now, done=done)
        else:
            self._pass = Pass(now, now, done, total, _long_passes(current))

    def on_iteration(self, state: State) -> None:
        """Report an iteration that has ended."""
        share = _ITERATIONS * converged_share(state, self._stopping)
        with self._lock:
            self._objective = f", objective {state.current.objective:.6g}"
            self._tell(share, f"iteration {state.iteration}{self._objective}")
            if self._stopping.reached(state.history[-1]):
                self.check()
            else:
                following = state.iteration + 1
                room = _STEP / following * (_ITERATIONS - self._told)
                self._enter(f"iteration {following}", room)

    def look(self) -> None:
        """Report the pass that is under way, if it takes long."""
        with self._lock:
            now, current = time.monotonic(), self._pass
            if current is None or not current.is_long(now):
                return
            # How many passes there will be is not known: each takes half of what is left.
            passed = 1.0 - 0.5 ** (current.after + current.share)
            text = f"{self._stage}, {current.text}{self._objective}"
            self._tell(self._base + self._room * passed, text)

    def check(self) -> None:
        """Begin what follows the iterations."""
        self._enter("checking", 1.0 - self._told)

    def _enter(self, stage: str, room: float) -> None:
        """Begin an iteration or the check, which lead as far as `room` from here."""
        self._stage, self._base, self._room = stage, self._told, room
        self._pass = None

    def _tell(self, share: float, text: str) -> None:
        self._told = max(self._told, share)
        self._part.report(self._told, text)


def _long_passes(last: Pass | None) -> int:
    """Return how many long passes an iteration has had when `last` is over."""
    return 0 if last is None else last.after + last.is_long(last.last)


@contextmanager
def watched_fit(part: ProgressShare, stopping: Stopping) -> Iterator[Callable[[State], None]]:
    """Report how far the fit in the block is; yield what it has to call after each iteration."""
    progress = FitProgress(part, stopping)
    with watching_passes(progress.on_task), repeated(progress.look):
        yield progress.on_iteration


class RoundsProgress:
    """What a fit that goes in rounds tells of itself: each round is a fit, and a part of it.

    Parameters
    ----------
    part : Part
        What the rounds are of the work.
    stopping : Stopping
        When the iterations of a round end.
    """

    def __init__(self, part: ProgressShare, stopping: Stopping) -> None:
        self._part, self._stopping = part, stopping
        # A look at a round must not come after the first report of the next.
        self._lock = threading.Lock()
        self._enter(_begun(1), _begun(2), "round 1")

    def on_round(self, done: Round) -> None:
        """Report a round that has ended."""
        number = done.number + 1
        with self._lock:
            if done.last:
                self._enter(_begun(number), 1.0, "clusters").report(0.0)
                self._fit.check()
            else:
                part = self._enter(_begun(number), _begun(number + 1), f"round {number}")
                part.report(0.0, f"last change {done.change:.2g}")

    def on_iteration(self, state: State) -> None:
        """Report an iteration that has ended."""
        with self._lock:
            self._fit.on_iteration(state)

    def on_task(self, done: int, total: int) -> None:
        """Take note of a task of a pass."""
        self._fit.on_task(done, total)

    def look(self) -> None:
        """Report the pass that is under way, if it takes long."""
        with self._lock:
            self._fit.look()

    def _enter(self, start: float, stop: float, name: str) -> ProgressShare:
        """Begin what lies between two shares of the rounds; return what it is of the work."""
        room = self._part.stop - self._part.start
        part = ProgressShare(self._part.start + start * room, self._part.start + stop * room, name)
        self._fit = FitProgress(part, self._stopping)
        return part


def _begun(number: int) -> float:
    """Return how much of the rounds is done when one begins, counted from 1."""
    # How many there will be is not known: each takes a third of what is left.
    return 1.0 - (2 / 3) ** (number - 1)


@contextmanager
def watched_rounds(part: ProgressShare, stopping: Stopping) -> Iterator[RoundsProgress]:
    """Report how far the fit in the block is, by rounds; yield what it has to call."""
    progress = RoundsProgress(part, stopping)
    with watching_passes(progress.on_task), repeated(progress.look):
        yield progress
