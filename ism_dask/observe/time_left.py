"""Estimate of the time left, and durations in words."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

# There is an estimate from this number of steps and seconds on.
_STEPS, _SECONDS = 2, 2.0
# The weight of each new estimate in the exponential average.
_NEW_WEIGHT = 0.3


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

    def tick(self, share: float, left: float | None = None) -> None:
        """Update the estimate with the share that is done, or with the seconds that are left.

        Without these, the time left follows from the share. If they are infinite, the time left
        cannot be known.
        """
        if left is not None:
            self._end = self._clock() + left if math.isfinite(left) else None
            self._steps, self._share = _STEPS, max(share, self._share)
            return
        if share <= self._share:
            return
        now = self._clock()
        self._share, self._steps = share, self._steps + 1
        end = self._began + (now - self._began) / share
        # Shares advance unevenly, and the estimate must not jump with each: it is averaged.
        self._end = end if self._end is None else self._end + _NEW_WEIGHT * (end - self._end)

    @property
    def end(self) -> float | None:
        """The time of the clock at which the work ends, or None if it is too early to estimate."""
        enough = self._clock() - self._began >= _SECONDS
        reliable = self._steps >= _STEPS and enough and self._share < 1
        return self._end if reliable else None

    def __str__(self) -> str:
        """Return a text such as "about 20 s left", or nothing if it is too early to estimate."""
        return "" if self.end is None else time_left_in_words(self.end - self._clock())

    def after(self, text: str) -> str:
        """Return `text` with the time left at its end."""
        return ", ".join(filter(None, (text, str(self))))


def time_left_in_words(seconds: float) -> str:
    """Return a text such as "about 20 s left", rounded as coarsely as the estimate is."""
    return f"about {duration(_rounded(max(seconds, 1.0)))} left"


def duration(seconds: float) -> str:
    """Return a duration in words, such as 12 s, 3 min or 2 h."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5970 else f"{seconds / 3600:.0f} h"


def _rounded(seconds: float) -> float:
    """Return seconds rounded as coarsely as the estimate is: 7, 15, 40, 90."""
    step = 1 if seconds < 10 else 5 if seconds < 30 else 10
    return step * round(seconds / step)
