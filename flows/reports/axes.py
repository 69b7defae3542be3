"""Axes of plots: where ticks lie, what they are called, and where a value goes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

# Steps between ticks, times a power of ten.
_STEPS = (1.0, 2.0, 5.0, 10.0)
# Powers of ten that are written out.
_LEAST, _MOST = -4, 6
_FEW, _MANY = 4, 6


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


def linear(values: Iterable[float], *, count: int = _FEW, margin: float = 0.06) -> Axis:
    """Return an axis for values, with a margin at both ends and about `count` ticks."""
    low, high = _ends(values)
    room = margin * (high - low)
    low, high = low - room, high + room
    step = _step((high - low) / count)
    first, last = math.ceil(low / step), math.floor(high / step)
    ticks = tuple((k * step, written(k * step, step)) for k in range(first, last + 1))
    return Axis(low, high, ticks)


def whole(most: int, *, least: int = 1) -> Axis:
    """Return an axis for the numbers from `least` to `most`, one place for each."""
    step = max(1, round(_step((most - least) / _MANY))) if most - least > _MANY else 1
    marks = range(least + (-least % step), most + 1, step)
    return Axis(least - 0.5, most + 0.5, tuple((float(k), str(k)) for k in marks))


def decades(values: Iterable[float]) -> Axis:
    """Return a logarithmic axis from one power of ten to another, around positive values."""
    known = [math.log10(value) for value in values]
    low, high = math.floor(min(known)), math.ceil(max(known))
    high = max(high, low + 1)
    step = -(-(high - low) // _MANY)
    ticks = tuple((float(k), written(10.0**k, 10.0**k)) for k in range(low, high + 1, step))
    return Axis(low - 0.1, high + 0.1, ticks, logarithmic=True)


def written(value: float, step: float) -> str:
    """Return the name of a tick, as exact as its distance to the next one asks for."""
    if value == 0:
        return "0"
    power = math.floor(math.log10(step) + 1e-9)
    size = math.floor(math.log10(abs(value)) + 1e-9)
    if not _LEAST <= size < _MOST or power < 2 * _LEAST:
        mantissa, exponent = f"{value:.{max(0, size - power)}e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{value:.{max(0, -power)}f}"


def _ends(values: Iterable[float]) -> tuple[float, float]:
    known = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(known), max(known)
    if high - low > 1e-12 * max(abs(low), abs(high), 1e-300):
        return low, high
    apart = 0.1 * abs(low) or 1.0
    return low - apart, high + apart


def _step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in _STEPS if step * power >= rough * (1 - 1e-9))
