"""Progress of one fit as a share that never falls, and the time left by that share."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ism_dask.observe import FitWatcher

if TYPE_CHECKING:  # programs that do not compute import the progress bar, too
    from ism_dask.records.iteration import Record, Round, State, Stopping

# Seconds above which a pass is reported: a shorter one is over before anybody has read the report.
_LONG = 1.0
# The share of a fit that the choice of start, width and ridge takes, if there is one.
_SELECTION = 0.5
# The share of a run that its iterations take; the check of the solution follows, which is short if
# the published rule ended them. Likewise the share of a fit that its rounds take before k-means.
_ITERATIONS, _PUBLISHED = 0.9, 0.98
# The share that counts as done, at most, if there are many iterations but the limit is far away.
_ALMOST = 0.9
# There is an estimate of the time left from this number of seconds and this share on.
_SECONDS, _LEAST_SHARE = 2.0, 0.02


class FitProgress(FitWatcher):
    """Turns the events of a fit into the share that is done and a text, for a subclass to show.

    Iterations move the share or, in a fit with rounds, these; the text tells of long passes, too.
    The `stage` is the present one, such as "round 2, checking", the `result` a text on the last
    iteration or round that has ended.
    """

    # The tasks of the present pass that are done, and all of them.
    _tasks: tuple[int, int]

    def begun(self, iterations: Stopping, rounds: Stopping | None = None) -> None:
        """Begin at 0."""
        self.iterations, self.rounds, self.share = iterations, rounds, 0.0
        self._selection, self._objective = 0.0, ""
        self._movements: list[float] = []
        self._enter("preparing")
        self.result = self.stage

    def show(self, text: str) -> None:
        """Show the share that is done, and a text on it."""

    def on_selection(self, done: int, total: int) -> None:
        """Count a step of the choice of start, width and ridge."""
        self._selection = _SELECTION * done / total
        self._advance(self._selection)
        self._enter("choosing start, width and ridge")
        self.show(self.stage)

    def on_iteration(self, state: State) -> None:
        """Count an iteration that has ended."""
        rules, record = self.iterations, state.history[-1]
        is_over = rules.max_seconds is not None and record.seconds >= rules.max_seconds
        is_last = record.settled or record.iteration >= rules.max_iter or is_over
        within = ""
        if self.rounds is None:
            measured = [rules.measured(each) for each in state.history]
            share = log_progress(measured, rules.limit_of(record), rules.most_steps)
            end = _ITERATIONS if rules.tol is None else _PUBLISHED
            share = end * (1.0 if is_last else share)
            self._advance(self._selection + share * (1.0 - self._selection))
        else:
            within = f"round {len(self._movements) + 1}, "
        self._enter(f"{within}{'checking' if is_last else f'iteration {state.iteration + 1}'}")
        self._show_ended(f"{within}iteration {state.iteration}", record, rules)

    def on_round(self, done: Round) -> None:
        """Count a round that has ended."""
        rounds = self.rounds
        assert rounds is not None  # or no round would end
        self._movements.append(rounds.measured(done))
        share = log_progress(self._movements, rounds.limit, rounds.max_iter)
        self._advance(_ITERATIONS * (1.0 if done.last else share))
        self._enter("clusters" if done.last else f"round {done.number + 1}, iteration 1")
        self._show_ended(f"round {done.number}", done, rounds)

    def on_task(self, done: int, total: int) -> None:
        """Count a task of a pass; passes follow each other."""
        earlier, all_of_pass = self._tasks
        if done <= earlier or total != all_of_pass:
            self._pass_began = time.monotonic()
        self._tasks = done, total

    def show_pass(self) -> None:
        """Show the current pass, if it takes long."""
        done, total = self._tasks
        if total and time.monotonic() - self._pass_began > _LONG:
            self.show(f"{self.stage}, rows {done / total:.0%}{self._objective}")

    def _show_ended(self, name: str, done: Record | Round, rules: Stopping) -> None:
        """Show an iteration or a round that has ended: its objective, and how near the end is."""
        measured, limit = rules.measured(done), rules.limit_of(done)
        sign = "<" if measured < limit else ">"
        self._objective = f", objective {done.objective:.5g}"
        measure = f"{rules.measure} {measured:.2g} {sign} {limit:.2g}"
        self.result = f"{name}{self._objective}, {measure}"
        self.show(self.result)

    def _enter(self, stage: str) -> None:
        """Begin a stage."""
        self.stage, self._tasks, self._pass_began = stage, (0, 0), 0.0

    def _advance(self, share: float) -> None:
        self.share = max(self.share, share)


def log_progress(values: Sequence[float], limit: float, most: int) -> float:
    """Return the share of the way to a limit on a log scale, for values that fall geometrically.

    It is at least the share of the usual number of values, `most`, but below 1 until a value has
    reached the limit.
    """
    # The least value so far, so that a value that grows for once does not lower the progress.
    # The first change compares with a start of another kind, and may be a hundred times larger.
    first, least = min(values[0], 1.0), min(values)
    if least <= limit:
        return 1.0
    return max(min(len(values) / most, _ALMOST), math.log(first / least) / math.log(first / limit))


class TimeLeft:
    """Estimate of the time left: the share that is done is to grow on as it has grown so far."""

    def __init__(self) -> None:
        self._began, self._end = time.monotonic(), math.nan

    def tick(self, share: float) -> None:
        """Update the estimate with the share that is done."""
        now = time.monotonic()
        known = _LEAST_SHARE <= share < 1.0
        self._end = now + (now - self._began) * (1.0 / share - 1.0) if known else math.nan

    @property
    def seconds(self) -> float | None:
        """The seconds that are left, or None if that cannot be known."""
        now = time.monotonic()
        return self._end - now if now - self._began >= _SECONDS and self._end > now else None

    def after(self, text: str) -> str:
        """Return `text` with the time left at its end, if it can be known."""
        seconds = self.seconds
        if seconds is None:
            return text
        # As coarse as the estimate is: 7, 15, 40, 90.
        step = 1 if seconds < 10 else 5 if seconds < 30 else 10
        return f"{text}, about {duration(max(1.0, step * round(seconds / step)))} left"


def duration(seconds: float) -> str:
    """Return a duration in words, such as 12 s, 3 min or 2 h."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5970 else f"{seconds / 3600:.0f} h"
