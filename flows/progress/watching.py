"""The context of a run, and its progress as watchers hear of it: a terminal, Prefect, or nobody.

The events of a fit become the share that is done, and lines of the log.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ism_dask.observe import watching_fits
from ism_dask.observe.progress import FitProgress
from ism_dask.threads import bound

if TYPE_CHECKING:  # `--help` need not wait for numpy
    from ism_dask.records.iteration import Record, Round, State, Stopping

T = TypeVar("T")

# Seconds between the repeated reports of one step, in which the time left counts down.
_EVERY = 0.5
# Each line of a log comes after this multiple of the events before it.
_FACTOR, _LEAST_SHARE = 1.2, 0.05


class Watcher(Protocol):
    """A receiver of progress reports."""

    def tick(self, share: float, text: str) -> None:
        """Receive that `share` of the work, 0 to 1, is done; `text` describes it."""

    def noted(self, text: str) -> None:
        """Receive a message about the run while it goes on."""

    def logged(self, text: str) -> None:
        """Receive a line for the log of the run, which is read later or by others."""


@dataclass(frozen=True)
class RunContext:
    """What the code of a run knows beside its settings. A flow takes JSON only as parameters."""

    watchers: tuple[Watcher, ...] = ()
    page: str | None = None  # address of the page that shows the run
    # The value of `--scheduler`, and the session that it led to (`compute.session`).
    cluster: tuple[str, Any] | None = None
    begun: list[Any] = field(default_factory=list)  # takes the TrackedRun that begins
    # Called with the settings of the run once its data are read, and decide those not given.
    describe: Callable[[Any], None] = lambda _: None
    # Called with the title and the work of each step of the run; returns the result of the work.
    step: Callable[[str, Callable[[], Any]], Any] = lambda _, work: work()


_CURRENT: ContextVar[RunContext] = ContextVar("run", default=RunContext())  # noqa: B039 - frozen


def run_context() -> RunContext:
    """Return the context of the run that computes."""
    return _CURRENT.get()


def in_context(**changes: Any) -> AbstractContextManager[None]:
    """Change some fields of the context within the block."""
    return bound(_CURRENT, replace(_CURRENT.get(), **changes))


def watch_progress(watcher: Watcher) -> AbstractContextManager[None]:
    """Add `watcher` to those that receive the reports of the block."""
    return in_context(watchers=(*run_context().watchers, watcher))


def run_step(title: str, work: Callable[..., T], *given: Any) -> T:
    """Return `work(*given)`, a step of the run, which Prefect shows as a task of this title."""
    result: T = run_context().step(title, partial(work, *given))
    return result


def report_progress(share: float, text: str) -> None:
    """Report to all watchers that `share` of the run, 0 to 1, is done."""
    for watcher in run_context().watchers:
        watcher.tick(share, text)


def progress_note(text: str) -> None:
    """Send all watchers a message about the run."""
    for watcher in run_context().watchers:
        watcher.noted(text)


def progress_log(text: str) -> None:
    """Send all watchers a line for the log of the run."""
    for watcher in run_context().watchers:
        watcher.logged(text)


@contextmanager
def repeated(call: Callable[[], None], seconds: float | None = None) -> Iterator[None]:
    """Call `call` again and again in the block, at an interval of `seconds`, until it fails.

    A thread calls it, and may wait while others compute. It runs in a copy of the context that
    starts it, and has the same watchers and the same Prefect server.
    """
    ended = threading.Event()

    def repeat() -> None:
        # An error is dropped here: the next call outside this thread raises it as well, visibly.
        with suppress(Exception):
            while not ended.wait(seconds or _EVERY):
                call()

    thread = threading.Thread(target=copy_context().run, args=(repeat,), name="repeated")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@dataclass(frozen=True)
class ProgressShare:
    """An interval of the progress of a run, which belongs to one part of its work.

    That part reports its own progress from 0 to 1, and need not know the whole.
    """

    start: float = 0.0  # share of the whole at which the part begins
    stop: float = 1.0
    name: str = ""  # comes before the text of all its reports

    def report(self, share: float, text: str = "") -> None:
        """Report to all watchers that `share` of this part is done."""
        whole = self.start + share * (self.stop - self.start)
        report_progress(whole, self.named_line(text))

    def named_line(self, text: str) -> str:
        """Return `text` with the name of the part before it, if it has one."""
        return ", ".join(filter(None, (self.name, text)))

    @contextmanager
    def lasting(self, share: float, text: str) -> Iterator[None]:
        """Report repeatedly during the block that this part is at `share` of itself."""
        self.report(share, text)
        with repeated(lambda: self.report(share, text)):
            yield

    def until(self, share: float) -> ProgressShare:
        """Return the interval from the start of this one to `share` of it."""
        return replace(self, stop=self.start + share * (self.stop - self.start))

    def cut(self, efforts: Sequence[float]) -> list[ProgressShare]:
        """Return this interval cut into one for each of some efforts, in order."""
        ends = [*accumulate(efforts, initial=0.0)]
        edges = [self.start + (self.stop - self.start) * end / (ends[-1] or 1.0) for end in ends]
        return [replace(self, start=one, stop=other) for one, other in pairwise(edges)]

    def named(self, name: str) -> ProgressShare:
        """Return the same interval with another name."""
        return replace(self, name=name)


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
