"""Estimate of the time left, and durations in words."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable

# There is an estimate from this number of seconds on.
_SECONDS = 2.0
# It counts as reliable if the share has grown, in the first and in the second half of the time that
# the estimate looks back on, at paces that differ by at most this factor.
_STEADY = 2.0
# Ticks that come after a smaller share of the time so far change nothing.
_FINEST = 0.005


class TimeLeft:
    """Estimate of the time left, from the growth of the share that is done.

    It assumes that the share goes on to grow as it did in the latter half of the time so far. So a
    stage that was faster or slower than the present one is soon forgotten.

    Parameters
    ----------
    clock : callable
        Returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._began = clock, clock()
        self._course = [(self._began, 0.0)]
        self._end: float | None = None

    def tick(self, share: float) -> None:
        """Update the estimate with the share that is done."""
        now = self._clock()
        if share < 1 and now - self._course[-1][0] <= _FINEST * (now - self._began):
            return
        self._course.append((now, share))
        self._end = None
        first, before = self._latest((self._began + now) / 2)
        middle, halfway = self._latest((first + now) / 2)
        if not first < middle < now or share == 1:
            return
        earlier, later = (halfway - before) / (middle - first), (share - halfway) / (now - middle)
        if 0 < earlier <= _STEADY * later and later <= _STEADY * earlier:
            self._end = now + (1.0 - share) * (now - first) / (share - before)

    def _latest(self, moment: float) -> tuple[float, float]:
        """Return the latest time up to a moment at which the share was given, and the share."""
        return self._course[bisect_right(self._course, (moment, 1.0)) - 1]

    @property
    def seconds(self) -> float | None:
        """The seconds that are left, or None if that cannot be known."""
        now = self._clock()
        if self._end is None or self._end < now or now - self._began < _SECONDS:
            return None
        return self._end - now

    def after(self, text: str) -> str:
        """Return `text` with the time left at its end, if it can be known."""
        seconds = self.seconds
        return text if seconds is None else f"{text}, about {duration(_rounded(seconds))} left"


def duration(seconds: float) -> str:
    """Return a duration in words, such as 12 s, 3 min or 2 h."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5970 else f"{seconds / 3600:.0f} h"


def _rounded(seconds: float) -> float:
    """Return seconds rounded as coarsely as the estimate is: 7, 15, 40, 90."""
    step = 1 if seconds < 10 else 5 if seconds < 30 else 10
    return max(1.0, step * round(seconds / step))
