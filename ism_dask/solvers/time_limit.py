"""The time limit of a fit, which its choices, its growth and its iterations share."""

from __future__ import annotations

import time


class TimeLimit:
    """A clock of one fit, with the seconds that it may take.

    Parameters
    ----------
    max_seconds : float, optional
        Default: no limit.
    earlier : float
        Seconds that the fit has taken before it was interrupted.
    """

    def __init__(self, max_seconds: float | None = None, earlier: float = 0.0) -> None:
        self.max_seconds = max_seconds
        self._began = time.perf_counter() - earlier

    @property
    def seconds(self) -> float:
        """Seconds since the fit began."""
        return time.perf_counter() - self._began

    @property
    def is_over(self) -> bool:
        """Whether the fit has taken all of its seconds."""
        return self.max_seconds is not None and self.seconds >= self.max_seconds

    @property
    def seconds_left(self) -> float | None:
        """Seconds that the fit may still take; None without a limit."""
        return None if self.max_seconds is None else max(0.0, self.max_seconds - self.seconds)
