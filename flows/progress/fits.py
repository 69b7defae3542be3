"""What the events of a fit say to those who watch: the share that is done, and lines of the log."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from flows.progress.watching import PHASE, ProgressShare, progress_log, repeated
from flows.text import number
from ism_dask.observe.fit_events import FitPlan, FitWatcher
from ism_dask.observe.fit_progress import FitProgress
from ism_dask.observe.progress import watching_passes
from ism_dask.records.checkpoint import Round
from ism_dask.records.iteration import Record, State
from ism_dask.records.stopping_rule import Stopping

# Each line of a log comes after this multiple of the events before it.
_FACTOR, _LEAST_SHARE = 1.2, 0.05


class ThinnedLog:
    """Writes lines on events to the log: of the first events, of fewer and fewer, and of the last.

    Each line comes after a constant factor of the events before it. `share` is that of the lines of
    a whole run, which has some fifty on ten thousand events.
    """

    def __init__(self, share: float = 1.0) -> None:
        self._factor = _FACTOR ** (1 / max(share, _LEAST_SHARE))
        self._last, self._count, self._next = "", 0, 1

    def add(self, text: str) -> None:
        """Write the line of an event now or, if it is the last one, later."""
        self._last, self._count = text, self._count + 1
        if self._count >= self._next:
            self.close()
            self._next = math.ceil(max(self._count + 1, self._factor * self._count))

    def close(self) -> None:
        """Write the line of the last event, unless it is written."""
        if self._last:
            progress_log(self._last)
        self._last = ""


class FitReports(FitWatcher):
    """Turns the events of a fit into reports, in its `part` of the progress, that never go back."""

    # The result of a run has how its fits ended.
    reports_endings = True

    def __init__(self, part: ProgressShare, plan: FitPlan) -> None:
        self._part, self._plan, self._progress = part, plan, FitProgress(plan)
        # A fold of a cross-validation has its share of the lines.
        self.log = ThinnedLog(part.stop - part.start)
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
    with watching_passes(reports.on_task), repeated(reports.report_pass):
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
