"""What the events of a fit say to those who watch: the share that is done, and lines of the log."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from flows.progress.watching import ProgressShare, progress_log, repeated
from ism_dask.observe import watching_fits
from ism_dask.observe.progress import FitProgress
from ism_dask.records.iteration import Record, Round, State, Stopping

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


class FitReports(FitProgress):
    """Turns the events of a fit into reports, in its `part` of the progress, that never go back."""

    # The result of a run has how its fits ended.
    reports_endings = True

    def __init__(
        self, part: ProgressShare, iterations: Stopping, rounds: Stopping | None = None
    ) -> None:
        super().begun(iterations, rounds)
        self._part, self._phase = part, ""
        # A fold of a cross-validation has its share of the lines.
        self.log = ThinnedLog(part.stop - part.start)
        # Without it, a timed report of a stage could follow the first report of the next stage.
        self._lock = threading.Lock()

    def begun(self, iterations: Stopping, rounds: Stopping | None = None) -> None:
        """Do nothing: the progress has begun with the passes that check the rows."""

    def on_selection(self, done: int, total: int) -> None:
        """Report a step of the choice of start, width and ridge."""
        with self._lock:
            super().on_selection(done, total)
            self._log_phase(self.stage)

    def on_iteration(self, state: State) -> None:
        """Report an iteration that has ended."""
        with self._lock:
            has_rounds = self.rounds is not None
            self._log_phase("rounds" if has_rounds else "iterations")
            if not has_rounds:
                record, rules = state.history[-1], self.iterations
                line = f"iteration {state.iteration}: {_measures(record)}"
                if rules.measure != "change":
                    line += f", {rules.measure} {rules.measured(record):.2g}"
                self._log(f"{line}, {record.seconds:.1f} s")
            super().on_iteration(state)
            if self.stage == "checking":
                self._log_phase(self.stage)

    def on_round(self, done: Round) -> None:
        """Report a round that has ended."""
        with self._lock:
            line = f"round {done.number}: {_measures(done)}, turn {done.turn:.2g}"
            self._log(f"{line}, {done.iterations} iterations, {done.seconds:.1f} s")
            super().on_round(done)
            if done.last:
                self._log_phase(self.stage)
                self.show(self.stage)

    def report_pass(self) -> None:
        """Report the current pass, if it takes long."""
        with self._lock:
            self.show_pass()

    def show(self, text: str) -> None:
        """Report the share that is done, and a text on it."""
        self._part.report(self.share, text)

    def _log(self, line: str) -> None:
        self.log.add(self._part.named_line(line))

    def _log_phase(self, phase: str) -> None:
        """Write to the log which phase of the fit it is in, once it is another."""
        if phase != self._phase:
            self._phase = phase
            progress_log(self._part.named_line(f"phase: {phase}"))


@contextmanager
def watched_fit(
    part: ProgressShare, iterations: Stopping, rounds: Stopping | None = None
) -> Iterator[FitReports]:
    """Report the progress of the fit in the block; yield the watcher for it."""
    reports = FitReports(part, iterations, rounds)
    with watching_fits(reports), repeated(reports.report_pass):
        try:
            yield reports
        finally:
            reports.log.close()


def _measures(done: Record | Round) -> str:
    return f"J {done.objective:.6g}, change {done.change:.2g}"
