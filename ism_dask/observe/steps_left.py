"""How many steps an iteration still takes, as far as its course so far tells."""

from __future__ import annotations

import math
from collections.abc import Sequence

# The share of the latest values, and the least number of them, to which a line is fitted.
_RECENT, _FEWEST = 0.35, 4
# Predictions agree if the largest is at most this multiple of the smallest: of the latest ones this
# share, and at least this number.
_AGREE, _AGREEING, _FEWEST_AGREEING = 1.35, 0.3, 4


class StepsLeft:
    """Predicts how many steps are left until a value has fallen to a tolerance.

    A line through the logarithms of the latest values is extended to the tolerance. Values may stay
    where they are for a hundred steps before they fall, or fall by leaps. So there is a prediction
    only where the latest lines have led to about the same end.

    Parameters
    ----------
    tol : float
        The tolerance.
    most : int
        Largest number of steps.
    changes_at : int, optional
        The step after which another method goes on, at a pace that nobody knows.
    least_fall : float
        A line whose logarithm falls by less in a step does not tell where it ends.
    """

    def __init__(
        self, tol: float, most: int, changes_at: int | None = None, least_fall: float = 0.005
    ) -> None:
        self._goal, self._most, self._changes_at = math.log(tol), most, changes_at
        self._least_fall = least_fall
        self._logs: list[float] = []
        self._totals: list[float | None] = []

    def add(self, value: float) -> None:
        """Add the value after another step."""
        self._logs.append(math.log(max(value, 1e-300)))
        self._totals.append(self._total())

    @property
    def steps(self) -> float | None:
        """The number of steps that are left, at least 1; None if it cannot be known."""
        number = max(_FEWEST_AGREEING, int(_AGREEING * len(self._totals)))
        latest = self._totals[-number:]
        known = [total for total in latest if total is not None]
        if len(known) < number or max(known) > _AGREE * min(known):
            return None
        return max(1.0, known[-1] - len(self._logs))

    def _total(self) -> float | None:
        """Return the number of all steps that the latest values predict."""
        # The first value compares with a start of another kind. Means of two in a row, because
        # values of iterations go up and down in turn.
        logs = [(one + two) / 2 for one, two in zip(self._logs[1:], self._logs[2:], strict=False)]
        if len(logs) < _FEWEST or len(self._logs) >= self._most:
            return None
        fall, last = _line(logs[-max(_FEWEST, math.ceil(_RECENT * len(logs))) :])
        if fall < self._least_fall:
            return None
        total = len(self._logs) + max(1.0, (last - self._goal) / fall)
        if self._changes_at is not None and total > self._changes_at:
            return None
        return min(total, float(self._most))


def _line(values: Sequence[float]) -> tuple[float, float]:
    """Return how much the least-squares line of the values falls in a step, and its last value."""
    middle, mean = (len(values) - 1) / 2, sum(values) / len(values)
    products = sum((at - middle) * (value - mean) for at, value in enumerate(values))
    slope = products / sum((at - middle) ** 2 for at in range(len(values)))
    return -slope, mean + slope * middle
