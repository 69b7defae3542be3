"""Axes of plots: where ticks lie, what they are called, and where a value goes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

# Steps between ticks, times a power of ten.
_STEPS = (1.0, 2.0, 5.0)
# Powers of ten that are written out.
_LEAST, _MOST = -4, 6
# Ticks that there are at least, and of whole numbers at most.
_FEW, _MANY = 3, 6


@dataclass(frozen=True)
class Axis:
    """A range of values, its ticks, and where on the page it lies.

    Attributes
    ----------
    low, high : float
        In the units of the axis: the logarithm to base 10 on a logarithmic one.
    ticks : tuple of (float, str)
        Where, in the same units, and what it is called.
    logarithmic : bool
    start, stop : float
        The places of low and high on the page.
    """

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    logarithmic: bool = False
    start: float = 0.0
    stop: float = 1.0

    def place(self, value: float) -> float:
        """Return where a value goes."""
        return self.at(math.log10(value) if self.logarithmic else value)

    def at(self, unit: float) -> float:
        """Return where something in the units of the axis goes."""
        share = (unit - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)


def linear(values: Iterable[float], *, margin: float = 0.06) -> Axis:
    """Return an axis for values, with a margin at both ends."""
    low, high = _ends(values)
    room = margin * (high - low)
    low, high = low - room, high + room
    step = _step((high - low) / _FEW)
    first, last = math.ceil(low / step), math.floor(high / step)
    most = max(abs(low), abs(high))
    ticks = tuple((k * step, written(k * step, step, most)) for k in range(first, last + 1))
    return Axis(low, high, ticks)


def whole(least: int, most: int) -> Axis:
    """Return an axis for the numbers from `least` to `most`, one place for each."""
    apart = most - least
    step = 1 if apart <= _MANY else round(_step(apart / _FEW))
    marks = range(least + (-least % step), most + 1, step)
    return Axis(least - 0.5, most + 0.5, tuple((float(k), str(k)) for k in marks))


def decades(values: Iterable[float]) -> Axis:
    """Return a logarithmic axis from one power of ten to another, around positive values."""
    known = [math.log10(value) for value in values]
    low, high = math.floor(min(known)), math.ceil(max(known))
    high = max(high, low + 1)
    step = -(-(high - low) // _MANY)
    ticks = tuple(
        (float(k), written(10.0**k, 10.0**k, 10.0**k)) for k in range(low, high + 1, step)
    )
    return Axis(low - 0.1, high + 0.1, ticks, logarithmic=True)


def written(value: float, step: float, most: float) -> str:
    """Return the name of a tick, as exact as its distance to the next one asks for.

    `most` is the largest on the axis: names of one axis look alike.
    """
    if value == 0:
        return "0"
    power, size = (math.floor(math.log10(abs(each)) + 1e-9) for each in (step, most))
    if _LEAST <= size < _MOST and power >= 2 * _LEAST:
        return f"{value:.{max(0, -power)}f}"
    own = math.floor(math.log10(abs(value)) + 1e-9)
    mantissa, exponent = f"{value:.{max(0, own - power)}e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def _ends(values: Iterable[float]) -> tuple[float, float]:
    known = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(known), max(known)
    if high - low > 1e-12 * max(abs(low), abs(high), 1e-300):
        return low, high
    apart = 0.1 * abs(low) or 1.0
    return low - apart, high + apart


def _step(most: float) -> float:
    """Return the largest of the steps that is not above `most`."""
    power = 10.0 ** math.floor(math.log10(most) + 1e-9)
    return max(step * power for step in _STEPS if step * power <= most * (1 + 1e-9))
