"""Progress of one fit as a share from 0 to 1 that never falls, and the stage that it is in."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # programs that do not compute import the progress bar, too
    from ism_dask.observe.fit_events import FitPlan
    from ism_dask.records.checkpoint import Round
    from ism_dask.records.iteration import State

# Seconds above which a pass is reported: a shorter one is over before anybody has read the report.
_LONG = 1.0
# The share of a fit that the choice of start, width and ridge takes, if there is one.
_SELECTION = 0.5
# The share of a run that its iterations take; the check of the solution follows, which is short if
# the published rule ended them. Likewise the share of a fit that its rounds take before k-means.
_ITERATIONS, _PUBLISHED = 0.9, 0.98
# The share that counts as done, at most, if there are many iterations but the limit is far away.
_ALMOST = 0.9
# The part of the way to the end of the rounds that the next round takes.
_ROUND = 1 / 3
# The part of the way to the end that the passes of the first iteration take at most. Those of the
# t-th iteration take at most a t-th of that.
_FIRST_ITERATION = 0.5


class FitProgress:
    """Progress of one fit, from its events.

    The methods may be called from one thread at a time, except for `on_task`.

    Parameters
    ----------
    plan : FitPlan
        The rules that end the fit.

    Attributes
    ----------
    share : float
        The share of the fit that is done.
    stage : str
        The present stage, such as "iteration 3" or "round 2, checking".
    """

    # The tasks of the present pass that are done, and all of them; the long passes before it.
    _tasks: tuple[int, int]
    _passes: int

    def __init__(self, plan: FitPlan) -> None:
        self._plan = plan
        self._movements: list[float] = []
        self._unit = "iteration"
        self.share = 0.0
        self._begin_run("" if plan.rounds is None else "round 1, ")
        self.stage = "preparing"

    def on_task(self, done: int, total: int) -> None:
        """Count a task of a pass. Computing threads call this; passes follow each other."""
        earlier, of = self._tasks
        if done <= earlier or total != of:
            self._passes += self._pass_is_long
            self._pass_began = time.monotonic()
        self._tasks = done, total

    def on_selection(self, done: int, total: int) -> str:
        """Count a step of the choice of start, width and ridge; return the name of the stage."""
        self._advance(_SELECTION * done / total)
        self._first = self.share
        self._enter("choosing start, width and ridge", _FIRST_ITERATION)
        return self.stage

    def on_steps(self, unit: str) -> None:
        """Call the following steps by another name, such as "gradient step"."""
        self._unit = unit

    def on_iteration(self, state: State) -> str:
        """Count an iteration that has ended, and return its name."""
        rules, record = self._plan.iterations, state.history[-1]
        measured = [rules.measured(each) for each in state.history]
        share = log_progress(measured, rules.limit_of(record), rules.most_spectral_steps)
        is_last = rules.reached(record)
        end = _ITERATIONS if rules.tol is None else _PUBLISHED
        share = end * (1.0 if is_last else share)
        self._advance(self._first + share * (self._last - self._first))
        following = state.iteration + 1
        stage = "checking" if is_last else f"{self._unit} {following}"
        self._enter(f"{self._within}{stage}", 1.0 if is_last else _FIRST_ITERATION / following)
        return f"{self._within}{self._unit} {state.iteration}"

    def on_round(self, done: Round) -> str:
        """Count a round that has ended, and return its name."""
        rounds = self._plan.rounds
        if rounds is None:
            raise TypeError("a fit without rounds has ended a round")
        self._movements.append(rounds.measured(done))
        share = log_progress(self._movements, rounds.limit, rounds.max_iter)
        self._advance(_ITERATIONS * (1.0 if done.last else share))
        self._begin_run(f"round {done.number + 1}, ")
        if done.last:
            self._last = 1.0
            self._enter("clusters", 1.0)
        return f"round {done.number}"

    def advance_by_pass(self) -> str | None:
        """Advance by the current pass and return a text on it, or None if no pass takes long."""
        if not self._pass_is_long:
            return None
        done, total = self._tasks
        # The number of passes is not predictable: each takes half of the remaining room.
        passed = 1.0 - 0.5 ** (self._passes + done / total)
        self._advance(self._base + self._room * passed)
        return f"{self.stage}, rows {done / total:.0%}"

    @property
    def _pass_is_long(self) -> bool:
        return self._tasks[1] > 0 and time.monotonic() - self._pass_began > _LONG

    def _begin_run(self, within: str) -> None:
        """Begin a run of the solver, whose stages have names that begin with `within`."""
        self._within, self._first, self._last = within, self.share, 1.0
        if self._plan.rounds is not None:
            self._last = self.share + _ROUND * (_ITERATIONS - self.share)
        self._enter(f"{within}iteration 1", _FIRST_ITERATION)

    def _enter(self, stage: str, part: float) -> None:
        """Begin a stage, whose passes take at most a part of the way to the end of the run."""
        self.stage, self._base, self._room = stage, self.share, part * (self._last - self.share)
        self._tasks, self._passes, self._pass_began = (0, 0), 0, 0.0

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
