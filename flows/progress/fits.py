"""What the events of a fit say to those who watch: the share that is done, and lines of the log."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from flows.progress.watching import PHASE, ProgressShare, progress_log, repeat_report
from flows.text import number
from ism_dask.observe.fit_events import FitPlan, FitWatcher
from ism_dask.observe.fit_progress import FitProgress
from ism_dask.observe.progress import watching_passes
from ism_dask.records.checkpoint import Round
from ism_dask.records.iteration import Record, State
from ism_dask.records.stopping_rule import Stopping

# Lines on iterations or rounds that the log of a whole run has at most, and those of one fit.
_LINES, _FEWEST_LINES = 36, 3


class ThinnedLog:
    """Writes lines on events to the log: all of the first, few of those between, all of the last.

    A third of the lines is for each. Between, each line comes after a constant factor of the events
    so far. The last events are written when it is known that they are the last.

    Parameters
    ----------
    lines : int
        Largest number of lines; at least 3.
    events : int
        Largest number of events. If there are more of them, there are some more lines.
    """

    def __init__(self, lines: int, events: int) -> None:
        self._first = max(1, lines // 3)
        self._factor = max(1.0, events / self._first) ** (1 / self._first)
        self._held: deque[str] = deque(maxlen=self._first)
        self._count, self._next = 0, 1

    def add(self, text: str) -> None:
        """Write the line of an event now, later or never."""
        self._count += 1
        if self._count < self._next:
            self._held.append(text)
            return
        self._held.clear()
        progress_log(text)
        gap = self._factor if self._count >= self._first else 1.0
        self._next = max(self._count + 1, math.ceil(gap * self._count))

    def close(self) -> None:
        """Write the lines of the last events."""
        while self._held:
            progress_log(self._held.popleft())


class FitReports(FitWatcher):
    """Turns the events of a fit into progress reports that never go back.

    Parameters
    ----------
    part : ProgressShare
        The interval of the progress that belongs to the fit.
    plan : FitPlan
        The rules that end the fit.
    """

    # The result of a run has how its fits ended.
    reports_endings = True

    def __init__(self, part: ProgressShare, plan: FitPlan) -> None:
        self._part, self._plan, self._progress = part, plan, FitProgress(plan)
        # A fold of a cross-validation has its share of the lines.
        lines = max(_FEWEST_LINES, round(_LINES * (part.stop - part.start)))
        self.log = ThinnedLog(lines, (plan.rounds or plan.iterations).max_iter)
        # Without it, a timed report of a stage could follow the first report of the next stage.
        self._lock = threading.Lock()
        self._objective, self._phase, self._unit = "", "", "iteration"

    def on_task(self, done: int, total: int) -> None:
        """Count a task of a pass."""
        self._progress.on_task(done, total)

    def on_selection(self, done: int, total: int) -> None:
        """Report a step of the choice of start, width and ridge."""
        with self._lock:
            stage = self._progress.on_selection(done, total)
            self._enter(stage)
            self._report(stage)

    def on_steps(self, unit: str) -> None:
        """Name the steps that follow."""
        with self._lock:
            self._unit = unit
            self._progress.on_steps(unit)

    def on_iteration(self, state: State) -> None:
        """Report an iteration that has ended."""
        with self._lock:
            self._objective = f"objective {number(state.current.objective)}"
            self._enter(f"{self._unit}s" if self._plan.rounds is None else "rounds")
            name = self._progress.on_iteration(state)
            if self._plan.rounds is None:
                line = _iteration_line(name, state.history[-1], self._plan.iterations)
                self.log.add(self._part.named_line(line))
            if self._progress.stage == "checking":
                self._enter("checking")
            self._report(name, self._objective)

    def on_round(self, done: Round) -> None:
        """Report a round that has ended."""
        with self._lock:
            self._objective = ""
            name = self._progress.on_round(done)
            self.log.add(self._part.named_line(_round_line(name, done)))
            if done.last:
                self._enter(self._progress.stage)
                self._report(self._progress.stage)
            else:
                self._report(f"round {done.number + 1}", f"last movement {done.movement:.2g}")

    def report_pass(self) -> None:
        """Report the current pass, if it takes long."""
        with self._lock:
            text = self._progress.advance_by_pass()
            if text is not None:
                self._report(text, self._objective)

    def _enter(self, phase: str) -> None:
        """Write to the log which phase of the fit it is in, once it is another."""
        if phase != self._phase:
            self._phase = phase
            progress_log(self._part.named_line(f"{PHASE}{phase}"))

    def _report(self, *texts: str) -> None:
        self._part.report(self._progress.share, ", ".join(filter(None, texts)))


@contextmanager
def watched_fit(part: ProgressShare, plan: FitPlan) -> Iterator[FitReports]:
    """Report the progress of the fit in the block; yield the watcher for it."""
    reports = FitReports(part, plan)
    with watching_passes(reports.on_task), repeat_report(reports.report_pass):
        try:
            yield reports
        finally:
            reports.log.close()


def _iteration_line(name: str, record: Record, stopping: Stopping) -> str:
    """Return a line on an iteration, such as "iteration 3: J 0.81, change 0.02, 12.0 s"."""
    measures = [f"J {record.objective:.6g}", f"change {record.change:.2g}"]
    if stopping.measure != "change":
        measures.append(f"{stopping.measure} {stopping.measured(record):.2g}")
    return f"{name}: {', '.join(measures)}, {record.seconds:.1f} s"


def _round_line(name: str, done: Round) -> str:
    """Return a line on a round, such as "round 2: J 0.81, change 0.02, turn 0.1, ..., 12.0 s"."""
    return (
        f"{name}: J {done.objective:.6g}, change {done.change:.2g}, turn {done.turn:.2g}, "
        f"{done.iterations} iterations, {done.seconds:.1f} s"
    )
