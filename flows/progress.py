"""How far a run has come, told to whoever watches: a terminal, a Prefect artifact, nobody."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ism_dask.solver import State


class Watcher(Protocol):
    """Whoever wants to know."""

    def tick(self, share: float, text: str) -> None:
        """Take note that `share` of the work, 0 to 1, is done; `text` is for people."""

    def linked(self, url: str) -> None:
        """Take note of the page that shows the run."""


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


def settled_share(state: State, tol: float, max_iter: int) -> float:
    """Return how much of a fit is done: the change of the eigenvalues shrinks geometrically."""
    # The smallest so far: a change that grows for once takes nothing back.
    first, last = state.history[0].change, min(record.change for record in state.history)
    counted = state.iteration / max_iter
    if not first > tol > 0 or last <= tol:
        return 1.0
    return min(1.0, max(counted, math.log(first / last) / math.log(first / tol)))
