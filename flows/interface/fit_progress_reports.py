"""Turn the events of a fit into progress reports: the share that is done, and a text."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from flows.interface.progress import ProgressShare, repeat_report
from flows.interface.run_log import ThinnedLog, iteration_line, round_line
from flows.text import number
from ism_dask.observe.earlier_course import EarlierCourse
from ism_dask.observe.fit_events import FitWatcher
from ism_dask.observe.fit_progress import FitProgress
from ism_dask.observe.progress import watching_passes
from ism_dask.records.checkpoint import Round
from ism_dask.records.iteration import State
from ism_dask.records.stopping_rule import Stopping

# Lines on iterations or rounds that the log of a whole run has at most, and those of one fit.
_LINES, _FEWEST_LINES = 36, 3


class FitReports(FitWatcher):
    """Turns the events of a fit into progress reports that never go back.

    Parameters
    ----------
    part : ProgressShare
        The interval of the progress that belongs to the fit.
    iterations : Stopping
        The rules that end the iterations, in each round if the fit has rounds.
    rounds : Stopping, optional
        The rules that end the rounds; None for a fit without rounds.
    spectral : bool
        Whether all iterations are spectral steps, as for `FitProgress`.
    earlier : EarlierCourse, optional
        Of a fit with the same settings.
    """

    # The result of a run has how its fits ended.
    reports_endings = True

    def __init__(
        self,
        part: ProgressShare,
        iterations: Stopping,
        rounds: Stopping | None = None,
        *,
        spectral: bool = False,
        earlier: EarlierCourse | None = None,
    ) -> None:
        self._part = part
        self._progress = FitProgress(iterations, rounds, spectral=spectral, earlier=earlier)
        self._iterated: float | None = None
        self._iterations, self._rounds = iterations, rounds
        # A fold of a cross-validation has its share of the lines.
        lines = max(_FEWEST_LINES, round(_LINES * (part.stop - part.start)))
        self.log = ThinnedLog(lines, (rounds or iterations).max_iter)
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

    def on_iteration(self, state: State) -> None:
        """Report an iteration that has ended."""
        with self._lock:
            self._iterated = time.monotonic()
            self._objective = f"objective {number(state.current.objective)}"
            name = self._progress.on_iteration(state)
            if self._rounds is None:
                line = iteration_line(name, state.history[-1], self._iterations)
                self.log.add(self._part.named_line(line))
            self._report(name, self._objective)

    @property
    def seconds_since_iteration(self) -> float | None:
        """Seconds since the last iteration ended; None before the first."""
        return None if self._iterated is None else time.monotonic() - self._iterated

    def on_round(self, done: Round) -> None:
        """Report a round that has ended."""
        with self._lock:
            self._objective = ""
            name = self._progress.on_round(done)
            self.log.add(self._part.named_line(round_line(name, done)))
            if done.last:
                self._report(self._progress.stage)
            else:
                self._report(f"round {done.number + 1}", f"last change {done.change:.2g}")

    def report_pass(self) -> None:
        """Report the current pass, if it takes long."""
        with self._lock:
            text = self._progress.advance_by_pass()
            if text is not None:
                self._report(text, self._objective)

    def _report(self, *texts: str) -> None:
        progress, text = self._progress, ", ".join(filter(None, texts))
        self._part.report(progress.share, text, progress.spent, progress.left)


@contextmanager
def watched_fit(
    part: ProgressShare,
    iterations: Stopping,
    rounds: Stopping | None = None,
    *,
    spectral: bool = False,
    earlier: EarlierCourse | None = None,
) -> Iterator[FitReports]:
    """Report the progress of the fit in the block; yield the watcher for it."""
    reports = FitReports(part, iterations, rounds, spectral=spectral, earlier=earlier)
    with watching_passes(reports.on_task), repeat_report(reports.report_pass):
        try:
            yield reports
        finally:
            reports.log.close()
