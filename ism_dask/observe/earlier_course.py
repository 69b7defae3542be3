"""The time left of a fit, from an earlier fit with the same settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# The two fits go the same way while what the stopping rule limits differs by at most this factor.
_SAME_WAY = 10.0
# The first iterations take too short to compare the pace of two fits by them alone. It counts as
# equal over this share of the earlier fit, besides the iterations that both have done.
_ASSUMED_EQUAL = 0.05


@dataclass(frozen=True)
class EarlierCourse:
    """The course of an earlier fit.

    Attributes
    ----------
    seconds : tuple of float
        The time at the end of each iteration, since the first one began.
    measured : tuple of float
        What the stopping rule limits, after each iteration.
    check_seconds : float
        Seconds from the last iteration to the end of the fit, in which W was checked.
    """

    seconds: tuple[float, ...]
    measured: tuple[float, ...]
    check_seconds: float

    def seconds_left(self, seconds: Sequence[float], measured: Sequence[float]) -> float:
        """Return the seconds left of a fit, infinite if it does not go the way of the earlier one.

        Parameters
        ----------
        seconds, measured : sequence of float
            The same of its iterations so far. The other fit may have had more rows, or another
            machine: its times are scaled to those of this fit, from the second iteration on.
        """
        done = len(seconds)
        if not 2 <= done <= len(self.seconds):
            return math.inf
        ratio = max(measured[-1], 1e-300) / max(self.measured[done - 1], 1e-300)
        if not 1 / _SAME_WAY <= ratio <= _SAME_WAY:
            return math.inf
        to_come = self.seconds[-1] - self.seconds[done - 1] + self.check_seconds
        equal = _ASSUMED_EQUAL * (self.seconds[-1] + self.check_seconds)
        before = self.seconds[done - 1] - self.seconds[0]
        return to_come * (seconds[-1] - seconds[0] + equal) / (before + equal)
