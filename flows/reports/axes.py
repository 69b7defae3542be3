"""Axes of plots: their range, their tick positions and labels, and the place of a value."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

# Ticks are one of these, times a power of ten, apart.
_STEPS = (1.0, 2.0, 5.0)
# Labels from 10^-4 up to 10^6 are decimals; others have an exponent.
_MIN_POWER, _MAX_POWER = -4, 6
# An axis has at least 3 ticks; one of whole numbers or decades labels at most about 6.
_MIN_TICKS, _MAX_TICKS = 3, 6


@dataclass(frozen=True)
class Axis:
    """A range of values, its ticks, and its position on the page.

    Attributes
    ----------
    low, high : float
        Range in the units of the axis: on a logarithmic axis, the logarithms to base 10.
    ticks : tuple of (float, str)
        Position, in the same units, and label of each tick.
    logarithmic : bool
    start, stop : float
        Coordinates of low and high on the page.
    """

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    logarithmic: bool = False
    start: float = 0.0
    stop: float = 1.0

    def place(self, value: float) -> float:
        """Return the coordinate of a value on the page."""
        return self.at(math.log10(value) if self.logarithmic else value)

    def at(self, unit: float) -> float:
        """Return the coordinate of a position in the units of the axis."""
        share = (unit - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)


def linear_axis(values: Iterable[float], *, margin: float = 0.06) -> Axis:
    """Return a linear axis around values, with a margin at both ends."""
    low, high = _ends(values)
    room = margin * (high - low)
    low, high = low - room, high + room
    step = _step((high - low) / _MIN_TICKS)
    first, last = math.ceil(low / step), math.floor(high / step)
    most = max(abs(low), abs(high))
    ticks = tuple((k * step, tick_label(k * step, step, most)) for k in range(first, last + 1))
    return Axis(low, high, ticks)


def integer_axis(least: int, most: int) -> Axis:
    """Return an axis of the whole numbers from `least` to `most`, each with a place of its own."""
    span = most - least
    step = 1 if span <= _MAX_TICKS else round(_step(span / _MIN_TICKS))
    marks = range(least + (-least % step), most + 1, step)
    return Axis(least - 0.5, most + 0.5, tuple((float(k), str(k)) for k in marks))


def log_axis(values: Iterable[float]) -> Axis:
    """Return a logarithmic axis around positive values; its ticks are powers of ten."""
    logs = [math.log10(value) for value in values]
    low, high = math.floor(min(logs)), math.ceil(max(logs))
    high = max(high, low + 1)
    step = -(-(high - low) // _MAX_TICKS)
    ticks = tuple(
        (float(k), tick_label(10.0**k, 10.0**k, 10.0**k)) for k in range(low, high + 1, step)
    )
    return Axis(low - 0.1, high + 0.1, ticks, logarithmic=True)


def tick_label(value: float, step: float, most: float) -> str:
    """Return the label of a tick, with as many digits as `step`, its distance to the next, needs.

    `most` is the largest value on the axis: it decides whether all labels of the axis are
    decimals or have an exponent.
    """
    if value == 0:
        return "0"
    power, size = (math.floor(math.log10(abs(each)) + 1e-9) for each in (step, most))
    if _MIN_POWER <= size < _MAX_POWER and power >= 2 * _MIN_POWER:
        return f"{value:.{max(0, -power)}f}"
    own = math.floor(math.log10(abs(value)) + 1e-9)
    mantissa, exponent = f"{value:.{max(0, own - power)}e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def _ends(values: Iterable[float]) -> tuple[float, float]:
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    if high - low > 1e-12 * max(abs(low), abs(high), 1e-300):
        return low, high
    half_width = 0.1 * abs(low) or 1.0
    return low - half_width, high + half_width


def _step(most: float) -> float:
    """Return the largest of `_STEPS`, times a power of ten, that is not above `most`."""
    power = 10.0 ** math.floor(math.log10(most) + 1e-9)
    return max(step * power for step in _STEPS if step * power <= most * (1 + 1e-9))
