"""Progress of one fit as a share from 0 to 1 that never falls, and the stage that it is in."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ism_dask.observe.earlier_course import EarlierCourse
from ism_dask.observe.steps_left import StepsLeft

if TYPE_CHECKING:  # programs that do not compute import the progress bar, too
    from ism_dask.records.checkpoint import Round
    from ism_dask.records.iteration import Record, State
    from ism_dask.records.stopping_rule import Stopping

# Seconds above which a pass is reported: a shorter one is over before anybody has read the report.
_LONG = 1.0
# The share of a fit that its iterations or rounds take. The check of the solution, or k-means,
# takes the rest.
_ITERATIONS = 0.8
# The share of a fit that the choice of start, width and ridge takes, if there is one.
_SELECTION = 0.5
# The time that the check of the solution takes, as a share of that of all iterations. It varies
# from a third of that to three times as much, so that the time left is known only while the
# iterations to come take more than this multiple of it.
_CHECK, _SURE = 0.15, 1.5
# The number of iterations if another solver takes over, relative to those before it.
_HANDED_OVER = 1.1
# The latest iterations whose mean time counts.
_TIMED = 30
# The largest share of a fit by time: the estimate of the time left may be too low.
_MOST_BY_TIME = 0.95
# The passes of the first iteration take at most this fraction of the share that remains for all
# iterations: how close it has come to the end is measured only when it has ended. The passes of
# the t-th iteration take at most a t-th of that: most fits need few iterations, and those that
# need many keep moving.
_FIRST_ITERATION = 0.5
# The largest share of the rounds that counts as done before the last one ends: when the embedding
# has converged, W is still solved fully.
_ALMOST = 0.9
# The part of the share that remains for the rounds that the next round takes.
_NEXT_ROUND = 1 / 3


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
        The number of long passes before it in the same stage.
    """

    first: float
    last: float
    done: int
    total: int
    after: int

    @property
    def share(self) -> float:
        """The share of its tasks that are done."""
        return self.done / self.total

    def is_long(self, now: float) -> bool:
        """Return whether the pass takes long enough to be reported."""
        return (now if self.done < self.total else self.last) - self.first > _LONG

    def continues_with(self, done: int, total: int) -> bool:
        """Return whether the counts `done` and `total` belong to this pass, not to the next."""
        return total == self.total and done > self.done

    @property
    def text(self) -> str:
        """A description of its progress."""
        line = f"pass {self.after + 1}, " if self.after else ""
        return f"{line}rows {100 * self.share:.0f}%"


class FitProgress:
    """Progress of one fit, from its events.

    The methods may be called from one thread at a time, except for `on_task`.

    Parameters
    ----------
    iterations : Stopping
        The rules that end the iterations, in each round if the fit has rounds.
    rounds : Stopping, optional
        The rules that end the rounds; None for a fit without rounds.
    spectral : bool
        Whether all iterations are spectral steps, up to those of a solver that takes over.
    earlier : EarlierCourse, optional
        Of a fit with the same settings.

    Attributes
    ----------
    share : float
        The share of the fit that is done.
    stage : str
        The present stage, such as "iteration 3" or "round 2, checking".
    """

    def __init__(
        self,
        iterations: Stopping,
        rounds: Stopping | None = None,
        *,
        spectral: bool = False,
        earlier: EarlierCourse | None = None,
    ) -> None:
        self._iterations, self._rounds = iterations, rounds
        self._course = _Course(iterations, spectral=spectral, earlier=earlier)
        self._began = time.monotonic()
        self._changes: list[float] = []
        self._pass: Pass | None = None
        self.share = 0.0
        self._iterating = False
        self._begin_run("" if rounds is None else "round 1, ")
        self.stage = "preparing"

    def on_task(self, done: int, total: int) -> None:
        """Count a task of a pass. Computing threads call this; passes follow each other."""
        now, current = time.monotonic(), self._pass
        if current is not None and current.continues_with(done, total):
            self._pass = replace(current, last=now, done=done)
        else:
            self._pass = Pass(now, now, done, total, _long_passes(current))

    @property
    def spent(self) -> float:
        """Seconds since the fit began."""
        return time.monotonic() - self._began

    @property
    def left(self) -> float:
        """Seconds until the fit ends; infinite if they cannot be known."""
        if self._rounds is not None or not self._iterating:
            return math.inf
        return self._course.left

    def on_selection(self, done: int, total: int) -> str:
        """Count a step of the choice of start, width and ridge; return the name of the stage."""
        self._start = _SELECTION * done / total
        self.share = max(self.share, self._start)
        self.stage = "choosing start, width and ridge"
        return self.stage

    def on_iteration(self, state: State) -> str:
        """Count an iteration that has ended, and return its name."""
        ended = f"{self._within}iteration {state.iteration}"
        if self._rounds is None:
            self._course.follow(state)
        reached = self._iterations.reached(state.history[-1])
        self._iterating = not reached or self._course.goes_as_before
        spent, left = self.spent, self.left
        if left < math.inf:
            self.share = max(self.share, min(spent / (spent + left), _MOST_BY_TIME))
        self._advance(_ITERATIONS * converged_share(state, self._iterations))
        if reached:
            self._enter(f"{self._within}checking", 1.0 - self._run_share)
        else:
            following = state.iteration + 1
            room = _FIRST_ITERATION / following * (_ITERATIONS - self._run_share)
            self._enter(f"{self._within}iteration {following}", room)
        return ended

    def on_round(self, done: Round) -> str:
        """Count a round that has ended, and return its name."""
        if self._rounds is None:
            raise TypeError("a fit without rounds has ended a round")
        self._changes.append(done.change)
        share = log_progress(self._changes, self._rounds.limit)
        share = min(max(share, done.number / self._rounds.max_iter), _ALMOST)
        self.share = max(self.share, _ITERATIONS * (1.0 if done.last else share))
        self._begin_run(f"round {done.number + 1}, ", last=done.last)
        return f"round {done.number}"

    def advance_by_pass(self) -> str | None:
        """Advance by the current pass and return a text on it, or None if no pass takes long."""
        current = self._pass
        if current is None or not current.is_long(time.monotonic()):
            return None
        # The number of passes is not predictable: each takes half of the remaining room.
        passed = 1.0 - 0.5 ** (current.after + current.share)
        self._advance(self._base + self._room * passed)
        return f"{self.stage}, {current.text}"

    def _begin_run(self, within: str, *, last: bool = False) -> None:
        """Begin a run of the solver, or after the last round the clusters."""
        self._within, self._run_share, self._start = within, 0.0, self.share
        if last:
            self._stop = 1.0
            self._enter("clusters", 1.0)
            return
        self._stop = 1.0
        if self._rounds is not None:
            self._stop = self.share + _NEXT_ROUND * (_ITERATIONS - self.share)
        self._enter(f"{within}iteration 1", _FIRST_ITERATION * _ITERATIONS)

    def _enter(self, stage: str, room: float) -> None:
        """Begin a stage, whose passes take at most the share `room` of the run."""
        self.stage, self._base, self._room = stage, self._run_share, room
        self._pass = None

    def _advance(self, run_share: float) -> None:
        """Raise the share of the run that is done, unless it is larger already."""
        self._run_share = max(self._run_share, run_share)
        share = self._start + self._run_share * (self._stop - self._start)
        self.share = max(self.share, share)


class _Course:
    """The course of the iterations of a fit, from which the time that is left follows.

    Parameters
    ----------
    stopping : Stopping
        The rules that end the iterations.
    spectral : bool
        Whether all of them are spectral steps, up to those of a solver that takes over.
    earlier : EarlierCourse, optional
        Of a fit with the same settings.

    Attributes
    ----------
    goes_as_before : bool
        Whether the fit goes the way of the earlier one, which tells the time left.
    """

    def __init__(
        self, stopping: Stopping, *, spectral: bool, earlier: EarlierCourse | None
    ) -> None:
        self._stopping, self._earlier = stopping, earlier
        self.goes_as_before = False
        most, change = stopping.max_iter, stopping.handover
        self._angles = StepsLeft(stopping.angle_tol or 1.0, most)
        if spectral and change is not None:
            # Where the residual falls steadily, the solver that takes over soon comes to the end.
            most = round(_HANDED_OVER * change)
            self._values = StepsLeft(stopping.limit, most, least_fall=stopping.slow_fall)
        else:
            self._values = StepsLeft(stopping.limit, most, change)
        self._ends: deque[float] = deque(maxlen=_TIMED + 1)
        self._followed, self._end = 0, math.inf

    @property
    def left(self) -> float:
        """Seconds until the check of the solution ends; infinite if they cannot be known."""
        return max(self._end - time.monotonic(), 0.0)

    def follow(self, state: State) -> None:
        """Take in the iterations that have ended since the last call."""
        for record in state.history[self._followed :]:
            self._values.add(self._stopping.measured(record))
            self._angles.add(record.angle)
        self._followed = len(state.history)
        self._ends.append(time.monotonic())
        left = self._seconds_left_as_before(state.history)
        self.goes_as_before = left < math.inf
        self._end = self._ends[-1] + (left if self.goes_as_before else self._seconds_left())

    def _seconds_left_as_before(self, history: Sequence[Record]) -> float:
        if self._earlier is None:
            return math.inf
        measured = [self._stopping.measured(record) for record in history]
        return self._earlier.seconds_left([record.seconds for record in history], measured)

    def _seconds_left(self) -> float:
        needed = [self._values.steps]
        if self._stopping.angle_tol is not None:
            needed.append(self._angles.steps)
        known = [steps for steps in needed if steps is not None]
        if len(known) < len(needed) or len(self._ends) < 2:
            return math.inf
        seconds = (self._ends[-1] - self._ends[0]) / (len(self._ends) - 1)
        left = max(known) * seconds
        if self._stopping.max_seconds is not None:
            left = min(left, self._stopping.max_seconds)
        # The published rule ends a fit without a check.
        check = _CHECK * (self._followed * seconds + left) if self._stopping.tol is None else 0.0
        return left + check if left >= _SURE * check else math.inf


def _long_passes(last: Pass | None) -> int:
    """Return the number of long passes in a stage up to the pass `last`."""
    return 0 if last is None else last.after + last.is_long(last.last)


def converged_share(state: State, stopping: Stopping) -> float:
    """Return the estimated share of the iterations that is done, from 0 to 1."""
    if stopping.reached(state.history[-1]):
        return 1.0
    measured = [stopping.measured(record) for record in state.history]
    shares = [log_progress(measured, stopping.limit)]
    if stopping.angle_tol is not None:
        shares.append(log_progress([record.angle for record in state.history], stopping.angle_tol))
    counted = state.iteration / (stopping.handover or stopping.max_iter)
    return max(min(counted, _ALMOST) if stopping.handover else counted, min(shares))


def log_progress(values: Sequence[float], tol: float) -> float:
    """Return the share of the way to `tol` on a log scale, for values that shrink geometrically."""
    # The minimum so far, so that a value that grows for once does not lower the progress.
    # The first change compares with a start of another kind, and may be a hundred times larger.
    first, last = min(values[0], 1.0), min(values)
    return 1.0 if last <= tol else math.log(first / last) / math.log(first / tol)
