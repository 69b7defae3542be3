"""Turn the events of a fit into progress reports: the share that is done, and a text."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from flows.interface.progress import ProgressShare, repeat_report
from flows.interface.run_log import ThinnedLog, iteration_line, round_line
from flows.text import number
from ism_dask.observe.fit_events import FitPlan, FitWatcher
from ism_dask.observe.fit_progress import FitProgress
from ism_dask.observe.progress import watching_passes
from ism_dask.records.checkpoint import Round
from ism_dask.records.iteration import State

# Lines on iterations or rounds that the log of a whole run has at most, and those of one fit.
_LINES, _FEWEST_LINES = 36, 3


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
        self._objective = ""

    def on_task(self, done: int, total: int) -> None:
        """Count a task of a pass."""
        self._progress.on_task(done, total)

    def on_selection(self, done: int, total: int) -> None:
        """Report a step of the choice of start, width and ridge."""
        with self._lock:
            self._report(self._progress.on_selection(done, total))

    def on_steps(self, unit: str) -> None:
        """Name the steps that follow."""
        with self._lock:
            self._progress.on_steps(unit)

    def on_iteration(self, state: State) -> None:
        """Report an iteration that has ended."""
        with self._lock:
            self._objective = f"objective {number(state.current.objective)}"
            name = self._progress.on_iteration(state)
            if self._plan.rounds is None:
                line = iteration_line(name, state.history[-1], self._plan.iterations)
                self.log.add(self._part.named_line(line))
            self._report(name, self._objective)

    def on_round(self, done: Round) -> None:
        """Report a round that has ended."""
        with self._lock:
            self._objective = ""
            name = self._progress.on_round(done)
            self.log.add(self._part.named_line(round_line(name, done)))
            if done.last:
                self._report(self._progress.stage)
            else:
                self._report(f"round {done.number + 1}", f"last movement {done.movement:.2g}")

    def report_pass(self) -> None:
        """Report the current pass, if it takes long."""
        with self._lock:
            text = self._progress.advance_by_pass()
            if text is not None:
                self._report(text, self._objective)

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
