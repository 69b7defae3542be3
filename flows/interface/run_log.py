"""The log of a run: a line for each event, of which only some are written if there are many."""

from __future__ import annotations

import math
from collections import deque

from flows.interface.progress import progress_log
from ism_dask.records.checkpoint import Round
from ism_dask.records.iteration import Record
from ism_dask.records.stopping_rule import Stopping


class ThinnedLog:
    """Writes lines on events to the log: all of the first, few of those between, all of the last.

    A third of the lines is for each. Between, each line comes after a constant factor of the events
    so far. The last events are written when it is known that they are the last.

    Parameters
    ----------
    lines : int
        Largest number of lines; at least 3.
    events : int
        Largest number of events. If there are more of them, there are some more lines.
    """

    def __init__(self, lines: int, events: int) -> None:
        self._first = max(1, lines // 3)
        self._factor = max(1.0, events / self._first) ** (1 / self._first)
        self._held: deque[str] = deque(maxlen=self._first)
        self._count, self._next = 0, 1

    def add(self, text: str) -> None:
        """Write the line of an event now, later or never."""
        self._count += 1
        if self._count < self._next:
            self._held.append(text)
            return
        self._held.clear()
        progress_log(text)
        gap = self._factor if self._count >= self._first else 1.0
        self._next = max(self._count + 1, math.ceil(gap * self._count))

    def close(self) -> None:
        """Write the lines of the last events."""
        while self._held:
            progress_log(self._held.popleft())


def iteration_line(name: str, record: Record, stopping: Stopping) -> str:
    """Return a line on an iteration, such as "iteration 3: J 0.81, change 0.02, 12.0 s"."""
    measures = [f"J {record.objective:.6g}", f"change {record.change:.2g}"]
    if stopping.measure != "change":
        measures.append(f"{stopping.measure} {stopping.measured(record):.2g}")
    return f"{name}: {', '.join(measures)}, {record.seconds:.1f} s"


def round_line(name: str, done: Round) -> str:
    """Return a line on a round, such as "round 2: J 0.81, change 0.02, turn 0.1, ..., 12.0 s"."""
    return (
        f"{name}: J {done.objective:.6g}, change {done.change:.2g}, turn {done.turn:.2g}, "
        f"{done.iterations} iterations, {done.seconds:.1f} s"
    )
