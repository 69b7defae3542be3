"""The context of a run, and its progress as watchers hear of it: a terminal, Prefect, or nobody.

The events of a fit become the share that is done, and a text on it.
"""

from __future__ import annotations

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
    from ism_dask.records.iteration import Round, Stopping

T = TypeVar("T")

# Seconds between the repeated reports of one step, in which the time left counts down.
_EVERY = 0.5


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


class FitReports(FitProgress):
    """Turns the events of a fit into reports, in its `part` of the progress, that never go back."""

    # The result of a run has how its fits ended.
    reports_endings = True

    def __init__(
        self, part: ProgressShare, iterations: Stopping, rounds: Stopping | None = None
    ) -> None:
        super().begun(iterations, rounds)
        self._part = part
        # Without it, a timed report of a smaller share could follow the next one.
        self._lock = threading.Lock()

    def begun(self, iterations: Stopping, rounds: Stopping | None = None) -> None:
        """Do nothing: the progress has begun with the passes that check the rows."""

    def on_round(self, done: Round) -> None:
        """Report a round that has ended and, after the last one, what follows."""
        super().on_round(done)
        if done.last:
            self.show(self.stage)

    def show(self, text: str) -> None:
        """Report the share that is done, and a text on it."""
        with self._lock:
            self._part.report(self.share, text)


@contextmanager
def watched_fit(
    part: ProgressShare, iterations: Stopping, rounds: Stopping | None = None
) -> Iterator[FitReports]:
    """Report the progress of the fit in the block; yield the watcher for it."""
    reports = FitReports(part, iterations, rounds)
    with watching_fits(reports), repeated(reports.show_pass):
        yield reports
