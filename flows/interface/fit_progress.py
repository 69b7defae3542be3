"""Progress of one fit of W: its iterations, and the long passes over the rows within them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from flows.interface.progress import ProgressShare, repeat_report
from ism_dask.observe.progress import converged_share, watching_passes
from ism_dask.records.checkpoint import Round
from ism_dask.records.iteration import State
from ism_dask.records.stopping_rule import Stopping

# Seconds above which a pass is reported: a shorter one is over before anybody has read the report.
_LONG = 1.0
# The share of a fit that its iterations take; the final check takes the rest.
_ITERATIONS = 0.8
# The passes of the first iteration take at most this fraction of the share that remains for all
# iterations: how close it has come to the end is measured only when it has ended. The passes of
# the t-th iteration take at most a t-th of that: most fits need few iterations, and those that
# need many keep moving.
_FIRST_ITERATION = 0.5


@dataclass(frozen=True)
class Pass:
    """A pass over the rows, as counted by the tasks that are done.

    Attributes
    ----------
    first, last : float
        The times at which its first and its latest task were done.
    done, total : int
        Numbers of tasks.
    after : int
        The number of long passes before it in the same iteration.
    """

    first: float
    last: float
    done: int
    total: int
    after: int

    @property
    def share(self) -> float:
        """Return the share of its tasks that are done."""
        return self.done / self.total

    def is_long(self, now: float) -> bool:
        """Return whether the pass takes long enough to be reported."""
        return (now if self.done < self.total else self.last) - self.first > _LONG

    def goes_on(self, done: int, total: int) -> bool:
        """Return whether the counts `done` and `total` belong to this pass, not to the next."""
        return total == self.total and done > self.done

    @property
    def text(self) -> str:
        """Return a description of its progress."""
        line = f"pass {self.after + 1}, " if self.after else ""
        return f"{line}rows {100 * self.share:.0f}%"


class FitProgress:
    """Turns the events of a fit into progress reports that never go back.

    Parameters
    ----------
    part : ProgressShare
        The interval of the progress that belongs to the fit.
    stopping : Stopping
        The rules that end the iteration.
    """

    def __init__(self, part: ProgressShare, stopping: Stopping) -> None:
        self._part, self._stopping = part, stopping
        self._lock = threading.Lock()
        self._reported = 0.0
        self._pass: Pass | None = None
        self._objective = ""
        self._enter("iteration 1", _FIRST_ITERATION * _ITERATIONS)

    def on_task(self, done: int, total: int) -> None:
        """Count a task of a pass. A computing thread calls this; passes follow each other."""
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
            self._report(share, f"iteration {state.iteration}{self._objective}")
            if self._stopping.reached(state.history[-1]):
                self.check()
            else:
                following = state.iteration + 1
                room = _FIRST_ITERATION / following * (_ITERATIONS - self._reported)
                self._enter(f"iteration {following}", room)

    def look(self) -> None:
        """Report the current pass, if it takes long."""
        with self._lock:
            now, current = time.monotonic(), self._pass
            if current is None or not current.is_long(now):
                return
            # The number of passes is not predictable: each takes half of the remaining room.
            passed = 1.0 - 0.5 ** (current.after + current.share)
            text = f"{self._stage}, {current.text}{self._objective}"
            self._report(self._base + self._room * passed, text)

    def check(self) -> None:
        """Begin the check that follows the iterations."""
        self._enter("checking", 1.0 - self._reported)

    def _enter(self, stage: str, room: float) -> None:
        """Begin an iteration or the check, whose passes take at most the share `room`."""
        self._stage, self._base, self._room = stage, self._reported, room
        self._pass = None

    def _report(self, share: float, text: str) -> None:
        self._reported = max(self._reported, share)
        self._part.report(self._reported, text)


def _long_passes(last: Pass | None) -> int:
    """Return the number of long passes in an iteration up to the pass `last`."""
    return 0 if last is None else last.after + last.is_long(last.last)


@contextmanager
def watched_fit(part: ProgressShare, stopping: Stopping) -> Iterator[Callable[[State], None]]:
    """Report the progress of the fit in the block; yield its callback for each iteration."""
    progress = FitProgress(part, stopping)
    with watching_passes(progress.on_task), repeat_report(progress.look):
        yield progress.on_iteration


class RoundsProgress:
    """Turns the events of a fit in rounds into progress reports: each round is a fit of W.

    Parameters
    ----------
    part : ProgressShare
        The interval of the progress that belongs to all rounds.
    stopping : Stopping
        The rules that end the iteration of a round.
    """

    def __init__(self, part: ProgressShare, stopping: Stopping) -> None:
        self._part, self._stopping = part, stopping
        # Without it, a timed report of a round could follow the first report of the next round.
        self._lock = threading.Lock()
        self._enter(_share_before(1), _share_before(2), "round 1")

    def on_round(self, done: Round) -> None:
        """Report a round that has ended."""
        number = done.number + 1
        with self._lock:
            if done.last:
                self._enter(_share_before(number), 1.0, "clusters").report(0.0)
                self._fit.check()
            else:
                part = self._enter(
                    _share_before(number), _share_before(number + 1), f"round {number}"
                )
                part.report(0.0, f"last change {done.change:.2g}")

    def on_iteration(self, state: State) -> None:
        """Report an iteration that has ended."""
        with self._lock:
            self._fit.on_iteration(state)

    def on_task(self, done: int, total: int) -> None:
        """Count a task of a pass."""
        self._fit.on_task(done, total)

    def look(self) -> None:
        """Report the current pass, if it takes long."""
        with self._lock:
            self._fit.look()

    def _enter(self, start: float, stop: float, name: str) -> ProgressShare:
        """Begin the work between two shares of the rounds; return its interval of the progress."""
        room = self._part.stop - self._part.start
        part = ProgressShare(self._part.start + start * room, self._part.start + stop * room, name)
        self._fit = FitProgress(part, self._stopping)
        return part


def _share_before(number: int) -> float:
    """Return the share of the rounds that is done when a round begins; `number` counts from 1."""
    # The number of rounds is not predictable: each takes a third of the remaining share.
    return 1.0 - (2 / 3) ** (number - 1)


@contextmanager
def watched_rounds(part: ProgressShare, stopping: Stopping) -> Iterator[RoundsProgress]:
    """Report the progress of the fit in rounds in the block; yield the object to call back."""
    progress = RoundsProgress(part, stopping)
    with watching_passes(progress.on_task), repeat_report(progress.look):
        yield progress
