"""How far a run has come, told to whoever watches: a terminal, a Prefect artifact, nobody."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import Protocol


class Watcher(Protocol):
    """Whoever wants to know."""

    def tick(self, share: float, text: str) -> None:
        """Take note that `share` of the work, 0 to 1, is done; `text` is for people."""

    def linked(self, url: str) -> None:
        """Take note of the page that shows the run."""

    def noted(self, text: str) -> None:
        """Take note of what has to be said on the way."""


# Seconds between two reports of what goes on by itself: what is left of it counts down.
_EVERY = 0.5
# Of the time left nothing is said before so many reports and seconds ...
_STEPS, _SECONDS = 2, 2.0
# ... and so much of each new estimate is believed.
_TRUST = 0.3
# A flow takes JSON only, so those who watch it cannot be handed to it.
_WATCHERS: ContextVar[tuple[Watcher, ...]] = ContextVar("watchers", default=())


@contextmanager
def watch_progress(watcher: Watcher) -> Iterator[None]:
    """Let `watcher`, with those already there, be told what happens in the block."""
    token = _WATCHERS.set((*_WATCHERS.get(), watcher))
    try:
        yield
    finally:
        _WATCHERS.reset(token)


def report_progress(share: float, text: str) -> None:
    """Tell all watchers how far the run has come."""
    for watcher in _WATCHERS.get():
        watcher.tick(share, text)


def progress_link(url: str) -> None:
    """Tell all watchers where the run can be seen."""
    for watcher in _WATCHERS.get():
        watcher.linked(url)


def progress_note(text: str) -> None:
    """Tell all watchers what has to be said on the way."""
    for watcher in _WATCHERS.get():
        watcher.noted(text)


class TimeLeft:
    """How long the work will take, by the share that is done and the time that this took.

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
        """Take note of the share that is done."""
        if share <= self._share:
            return
        now = self._clock()
        self._share, self._steps = share, self._steps + 1
        end = self._began + (now - self._began) / share
        # Shares move by fits and starts: what is told must not jump with each.
        self._end = end if self._end is None else self._end + _TRUST * (end - self._end)

    def __str__(self) -> str:
        """Return such as "about 20 s left", or nothing where it is too early to say."""
        now = self._clock()
        known = self._steps >= _STEPS and now - self._began >= _SECONDS and self._share < 1
        if self._end is None or not known:
            return ""
        return f"about {duration(_rounded(max(self._end - now, 1.0)))} left"

    def after(self, text: str) -> str:
        """Return a line with the time left at its end."""
        return ", ".join(filter(None, (text, str(self))))


def duration(seconds: float) -> str:
    """Return such as 12 s, 3 min or 2 h."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5970 else f"{seconds / 3600:.0f} h"


def _rounded(seconds: float) -> float:
    """Return seconds as coarse as the estimate is: 7, 15, 40, 90."""
    step = 1 if seconds < 10 else 5 if seconds < 30 else 10
    return step * round(seconds / step)


@contextmanager
def repeated(call: Callable[[], None]) -> Iterator[None]:
    """Call again and again in the block, from a thread that may wait where others compute.

    It sees the watchers, and the server, of the thread that starts it.
    """
    ended = threading.Event()

    def repeat() -> None:
        # Whoever cannot be told makes the next report fail, where it is seen.
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
    """A part of the work that is watched, which need not know of what it is a part.

    Attributes
    ----------
    start, stop : float
        The shares of the whole where it begins and ends.
    name : str
        For people, before all that is told of it.
    """

    start: float = 0.0
    stop: float = 1.0
    name: str = ""

    def report(self, share: float, text: str = "") -> None:
        """Tell all watchers how far this part has come."""
        line = ", ".join(filter(None, (self.name, text)))
        report_progress(self.start + share * (self.stop - self.start), line)

    @contextmanager
    def lasting(self, share: float, text: str) -> Iterator[None]:
        """Tell again and again that this part is at `share` of it, while the block takes long."""
        self.report(share, text)
        with repeated(lambda: self.report(share, text)):
            yield

    def until(self, share: float) -> ProgressShare:
        """Return the part of this one that ends at `share` of it."""
        return ProgressShare(self.start, self.start + share * (self.stop - self.start), self.name)

    def cut(self, count: int) -> list[ProgressShare]:
        """Return so many parts of this one, alike and one after the other."""
        width = (self.stop - self.start) / count
        edges = [self.start + number * width for number in range(count)]
        return [ProgressShare(edge, edge + width, self.name) for edge in edges]

    def named(self, name: str) -> ProgressShare:
        """Return the same part under another name."""
        return ProgressShare(self.start, self.stop, name)
