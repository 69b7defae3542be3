"""How far a run has come, told to whoever watches: a terminal, a Prefect artifact, nobody."""

from __future__ import annotations

import threading
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


# Seconds between two reports of what goes on by itself: what is left of it counts down.
_EVERY = 0.5
# A flow takes JSON only, so those who watch it cannot be handed to it.
_WATCHERS: ContextVar[tuple[Watcher, ...]] = ContextVar("watchers", default=())


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Let `watcher`, with those already there, be told what happens in the block."""
    token = _WATCHERS.set((*_WATCHERS.get(), watcher))
    try:
        yield
    finally:
        _WATCHERS.reset(token)


def report(share: float, text: str) -> None:
    """Tell all watchers how far the run has come."""
    for watcher in _WATCHERS.get():
        watcher.tick(share, text)


def link(url: str) -> None:
    """Tell all watchers where the run can be seen."""
    for watcher in _WATCHERS.get():
        watcher.linked(url)


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
class Part:
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
        report(self.start + share * (self.stop - self.start), line)

    @contextmanager
    def lasting(self, share: float, text: str) -> Iterator[None]:
        """Tell again and again that this part is at `share` of it, while the block takes long."""
        self.report(share, text)
        with repeated(lambda: self.report(share, text)):
            yield

    def until(self, share: float) -> Part:
        """Return the part of this one that ends at `share` of it."""
        return Part(self.start, self.start + share * (self.stop - self.start), self.name)
