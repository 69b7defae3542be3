"""Progress of a run, reported to its watchers: a terminal, a Prefect artifact, or none at all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import Protocol


class Watcher(Protocol):
    """A receiver of progress reports."""

    def tick(self, share: float, text: str) -> None:
        """Receive that `share` of the work, 0 to 1, is done; `text` describes it."""

    def linked(self, url: str) -> None:
        """Receive the address of the page that shows the run."""

    def noted(self, text: str) -> None:
        """Receive a message about the run while it goes on."""


# Seconds between the repeated reports of one step, in which the time left counts down.
_EVERY = 0.5
# The time left is reported only after so many reports and seconds ...
_STEPS, _SECONDS = 2, 2.0
# ... and this is the weight of each new estimate in its exponential average.
_NEW_WEIGHT = 0.3
# A context variable, because a Prefect flow takes JSON only: watchers cannot be its parameters.
_WATCHERS: ContextVar[tuple[Watcher, ...]] = ContextVar("watchers", default=())


@contextmanager
def watch_progress(watcher: Watcher) -> Iterator[None]:
    """Add `watcher` to those that receive the reports of the block."""
    token = _WATCHERS.set((*_WATCHERS.get(), watcher))
    try:
        yield
    finally:
        _WATCHERS.reset(token)


def report_progress(share: float, text: str) -> None:
    """Report to all watchers that `share` of the run, 0 to 1, is done."""
    for watcher in _WATCHERS.get():
        watcher.tick(share, text)


def progress_link(url: str) -> None:
    """Send all watchers the address of the page that shows the run."""
    for watcher in _WATCHERS.get():
        watcher.linked(url)


def progress_note(text: str) -> None:
    """Send all watchers a message about the run."""
    for watcher in _WATCHERS.get():
        watcher.noted(text)


class TimeLeft:
    """Estimate of the time left, from the share that is done and the time that it took.

    Parameters
    ----------
    clock : callable
        Returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._began = clock, clock()
        self._share, self._steps = 0.0, 0
        self._end: float | None = None

    def tick(self, share: float) -> None:
        """Update the estimate with the share that is done."""
        if share <= self._share:
            return
        now = self._clock()
        self._share, self._steps = share, self._steps + 1
        end = self._began + (now - self._began) / share
        # Shares advance unevenly, and the estimate must not jump with each: it is averaged.
        self._end = end if self._end is None else self._end + _NEW_WEIGHT * (end - self._end)

    def __str__(self) -> str:
        """Return a text such as "about 20 s left", or nothing if it is too early to estimate."""
        now = self._clock()
        reliable = self._steps >= _STEPS and now - self._began >= _SECONDS and self._share < 1
        if self._end is None or not reliable:
            return ""
        return f"about {duration(_rounded(max(self._end - now, 1.0)))} left"

    def after(self, text: str) -> str:
        """Return `text` with the time left at its end."""
        return ", ".join(filter(None, (text, str(self))))


def duration(seconds: float) -> str:
    """Return a duration in words, such as 12 s, 3 min or 2 h."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5970 else f"{seconds / 3600:.0f} h"


def _rounded(seconds: float) -> float:
    """Return seconds rounded as coarsely as the estimate is: 7, 15, 40, 90."""
    step = 1 if seconds < 10 else 5 if seconds < 30 else 10
    return step * round(seconds / step)


@contextmanager
def repeat_report(call: Callable[[], None]) -> Iterator[None]:
    """Call `call` repeatedly during the block, from a thread that may wait while others compute.

    The thread runs in a copy of the context that starts it, so it has the same watchers and the
    same Prefect server.
    """
    ended = threading.Event()

    def repeat() -> None:
        # An error is dropped here: the next report outside this thread raises it as well, visibly.
        with suppress(Exception):
            while not ended.wait(_EVERY):
                call()

    thread = threading.Thread(target=copy_context().run, args=(repeat,), name="progress")
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

    Attributes
    ----------
    start, stop : float
        The shares of the whole at which the part begins and ends.
    name : str
        Comes before the text of all its reports.
    """

    start: float = 0.0
    stop: float = 1.0
    name: str = ""

    def report(self, share: float, text: str = "") -> None:
        """Report to all watchers that `share` of this part is done."""
        line = ", ".join(filter(None, (self.name, text)))
        report_progress(self.start + share * (self.stop - self.start), line)

    @contextmanager
    def lasting(self, share: float, text: str) -> Iterator[None]:
        """Report repeatedly during the block that this part is at `share` of itself."""
        self.report(share, text)
        with repeat_report(lambda: self.report(share, text)):
            yield

    def until(self, share: float) -> ProgressShare:
        """Return the interval from the start of this one to `share` of it."""
        return ProgressShare(self.start, self.start + share * (self.stop - self.start), self.name)

    def cut(self, count: int) -> list[ProgressShare]:
        """Return this interval cut into `count` equal intervals, in order."""
        width = (self.stop - self.start) / count
        edges = [self.start + number * width for number in range(count)]
        return [ProgressShare(edge, edge + width, self.name) for edge in edges]

    def named(self, name: str) -> ProgressShare:
        """Return the same interval with another name."""
        return ProgressShare(self.start, self.stop, name)
