"""Draw the plots of a run as SVG: lines, a spectrum, ranked weights, a scatter plot of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flows.reports.axes import Axis, integer_axis, linear_axis, log_axis
from flows.reports.svg import SIZE, Drawing, box, dots, line, text

# Most people can distinguish these colours, on light and on dark backgrounds.
_COLOURS = (
    "#3b82c4",
    "#e07b39",
    "#3a9d6e",
    "#c8506e",
    "#8a6fc9",
    "#b8952e",
    "#3aa5b4",
    "#a65f3e",
    "#d07fc0",
    "#7d8a3c",
)
BLUE, ORANGE = _COLOURS[:2]
_WIDTH, _HEIGHT = 480.0, 280.0
# Approximate width of a letter.
_LETTER = 0.6 * SIZE
# Longest name in letters, and most entries of a legend.
_MAX_NAME, _MAX_ENTRIES = 26, 24


@dataclass(frozen=True)
class Group:
    """Points (x, y) of one colour."""

    name: str
    colour: str
    points: list[tuple[float, float]]


def colour(index: int) -> str:
    """Return the colour number `index`; past the palette, hues around the colour circle."""
    if index < len(_COLOURS):
        return _COLOURS[index]
    return f"hsl({index * 137.5 % 360:.0f},55%,{(50, 62, 42)[index % 3]}%)"


def colour_of_share(share: float) -> str:
    """Return the colour of a share from 0 to 1: from blue (0) over green to yellow (1)."""
    return f"hsl({240 - 185 * share:.0f},60%,{42 + 13 * share:.0f}%)"


def line_plot(
    alt: str,
    values: Sequence[tuple[int, float]],
    names: tuple[str, str],
    *,
    level: tuple[float, str] | None = None,
    logarithmic: bool = False,
    joined: bool = True,
) -> Drawing:
    """Draw values against whole numbers, such as iterations.

    Parameters
    ----------
    alt : str
    values : sequence of (int, float)
    names : tuple of str
        Names of the two axes.
    level : tuple of (float, str), optional
        A value that a dashed line marks across the plot, and its label.
    logarithmic : bool
        Whether the axis of the values is logarithmic; the values must then be positive.
    joined : bool
        Whether a line joins each value to the next.
    """
    heights = [value for _, value in values] + ([level[0]] if level else [])
    x = integer_axis(min(k for k, _ in values), max(k for k, _ in values))
    frame = _framed(x, (log_axis if logarithmic else linear_axis)(heights), names)
    places = [(frame.x.place(k), frame.y.place(value)) for k, value in values]
    route = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [frame.body]
    if level:
        y = frame.y.place(level[0])
        parts.append(line(frame.x.start, y, frame.x.stop, y, opacity=0.7, dash="4 4"))
        parts.append(text(frame.x.stop, y - 5, level[1], anchor="end"))
    if joined:
        parts.append(f'<polyline points="{route}" fill="none" stroke="{BLUE}" stroke-width="2"/>')
    parts.append(dots(places, BLUE, 7))
    return Drawing(alt, _WIDTH, _HEIGHT, "".join(parts))


def lines(
    alt: str,
    groups: Sequence[Group],
    names: tuple[str, str],
    *,
    logarithmic: tuple[bool, bool] = (False, False),
) -> Drawing:
    """Draw lines through points, each in the colour of its group, with their names below.

    Parameters
    ----------
    alt : str
    groups : sequence of Group
        Points in the order in which they are joined.
    names : tuple of str
        Names of the two axes.
    logarithmic : tuple of bool
        Whether each of the two axes is logarithmic; its values must then be positive.
    """
    points = [point for group in groups for point in group.points]
    x, y = (
        (log_axis if log else linear_axis)(part)
        for log, part in zip(logarithmic, zip(*points, strict=True), strict=True)
    )
    frame = _framed(x, y, names, height=_WIDTH - 120)
    parts = [frame.body]
    for group in groups:
        placed = [(frame.x.place(a), frame.y.place(b)) for a, b in group.points]
        route = " ".join(f"{a:.1f},{b:.1f}" for a, b in placed)
        look = f'fill="none" stroke="{group.colour}" stroke-width="2"'
        parts.append(f'<polyline points="{route}" {look}/>')
        parts.append(dots(placed, group.colour, 6))
    legend, height = _legend([(group.name, group.colour) for group in groups], _WIDTH - 110)
    return Drawing(alt, _WIDTH, _WIDTH - 110 + height, "".join([*parts, legend]))


def spectrum(alt: str, values: Sequence[float], following: float | None) -> Drawing:
    """Draw eigenvalues as bars, and the next eigenvalue, pale, with the eigengap before it."""
    bars = [*values, *([] if following is None else [following])]
    frame = _framed(integer_axis(1, len(bars)), linear_axis([0.0, *bars]), ("number", "eigenvalue"))
    wide = 0.64 * (frame.x.place(2) - frame.x.place(1))
    parts = [frame.body]
    for number, value in enumerate(bars, start=1):
        y, zero = frame.y.place(value), frame.y.place(0)
        x = frame.x.place(number) - wide / 2
        look = "" if number <= len(values) else 'fill-opacity=".35"'
        tint = BLUE if number <= len(values) else "currentColor"
        parts.append(box(x, min(y, zero), wide, max(abs(zero - y), 1), fill=tint, look=look))
    if following is not None:
        parts.append(_gap(frame, len(values), (values[-1], following)))
    return Drawing(alt, _WIDTH, _HEIGHT, "".join(parts))


def ranked_bars(alt: str, weights: Sequence[tuple[str, float]]) -> Drawing:
    """Draw named weights in order, as bars to the right (above zero) and to the left (below)."""
    row, top = 22.0, 6.0
    names = [_cut(name) for name, _ in weights]
    left = min(0.46 * _WIDTH, 10 + _LETTER * max(map(len, names)))
    most = max(abs(weight) for _, weight in weights) or 1.0
    low = -most if any(weight < 0 for _, weight in weights) else 0.0
    # Leaves space for the numbers beside the bars.
    room = 46.0
    ends = (left + (room if low else 6), _WIDTH - room)
    x = Axis(low, most, (), start=ends[0], stop=ends[1])
    parts = [line(x.place(0), top, x.place(0), top + row * len(weights), opacity=0.4)]
    for index, (name, (_, weight)) in enumerate(zip(names, weights, strict=True)):
        y, (near, far) = top + row * index, sorted((x.place(0), x.place(weight)))
        tint = BLUE if weight >= 0 else ORANGE
        parts.append(text(left - 6, y + 15, name, anchor="end"))
        parts.append(box(near, y + 4, max(far - near, 1), row - 8, fill=tint))
        beside = (far + 5, "start") if weight >= 0 else (near - 5, "end")
        parts.append(text(beside[0], y + 15, f"{weight:+.2f}", anchor=beside[1]))
    return Drawing(alt, _WIDTH, 2 * top + row * len(weights), "".join(parts))


def scatter(alt: str, groups: Sequence[Group], names: tuple[str, str]) -> Drawing:
    """Draw points, each in the colour of its group, with the names of the groups below."""
    points = [point for group in groups for point in group.points]
    x, y = (linear_axis(part) for part in zip(*points, strict=True))
    frame = _framed(x, y, names, height=_WIDTH - 60)
    width = 5.0 if len(points) <= 500 else 4.0
    parts = [frame.body]
    for group in groups:
        placed = [(frame.x.place(a), frame.y.place(b)) for a, b in group.points]
        parts.append(dots(placed, group.colour, width))
    legend, height = _legend([(group.name, group.colour) for group in groups], _WIDTH - 50)
    return Drawing(alt, _WIDTH, _WIDTH - 50 + height, "".join([*parts, legend]))


@dataclass(frozen=True)
class _Frame:
    """Two axes with their place on the page, and their drawing as SVG elements."""

    x: Axis
    y: Axis
    body: str


def _framed(x: Axis, y: Axis, names: tuple[str, str], *, height: float = _HEIGHT) -> _Frame:
    left = 14 + _LETTER * max((len(name) for _, name in y.ticks), default=1)
    # The label of the last tick reaches beyond the end of the axis.
    right = max(10.0, 0.5 * _LETTER * max((len(name) for _, name in x.ticks), default=1))
    x = replace(x, start=left, stop=_WIDTH - right)
    y = replace(y, start=height - 40, stop=26.0)
    parts = [text(4, 14, names[1]), text(x.stop, height - 4, names[0], anchor="end")]
    for unit, name in y.ticks:
        at = y.at(unit)
        parts.append(line(x.start, at, x.stop, at, opacity=0.14))
        parts.append(text(left - 6, at + 4.5, name, anchor="end"))
    for unit, name in x.ticks:
        at = x.at(unit)
        parts.append(line(at, y.start, at, y.start + 4, opacity=0.5))
        parts.append(text(at, y.start + 19, name, anchor="middle"))
    parts.append(line(x.start, y.start, x.stop, y.start, opacity=0.5))
    return _Frame(x, y, "".join(parts))


def _gap(frame: _Frame, count: int, ends: tuple[float, float]) -> str:
    """Return the mark of the eigengap: the two heights, the line between them and a label."""
    upper, lower = (frame.y.place(value) for value in ends)
    start, stop = frame.x.place(count), frame.x.place(count + 1)
    label = f"eigengap {ends[0] - ends[1]:.3g}"
    above = min(upper, frame.y.place(0)) - 7
    return (
        line(start, upper, stop, upper, opacity=0.8, dash="3 3")
        + f'<line x1="{stop:.1f}" y1="{upper:.1f}" x2="{stop:.1f}" y2="{lower:.1f}" '
        f'stroke="{ORANGE}" stroke-width="2"/>'
        + text(min(stop + 6, frame.x.stop), above, label, anchor="end")
    )


def _legend(entries: list[tuple[str, str]], top: float) -> tuple[str, float]:
    """Return names with their colours, in lines from `top` downwards, and their total height."""
    shown = entries if len(entries) <= _MAX_ENTRIES else entries[: _MAX_ENTRIES - 1]
    x, y, parts = 14.0, top + 16, []
    for name, tint in shown:
        width = 22 + _LETTER * len(_cut(name))
        if x + width > _WIDTH and x > 14:
            x, y = 14.0, y + 20
        parts.append(f'<circle cx="{x + 5:.1f}" cy="{y - 4.5:.1f}" r="5" fill="{tint}"/>')
        parts.append(text(x + 15, y, _cut(name)))
        x += width + 8
    if len(shown) < len(entries):
        y += 20
        parts.append(text(14, y, f"and {len(entries) - len(shown)} more"))
    return "".join(parts), y + 8 - top


def _cut(name: str) -> str:
    """Return a name, cut to `_MAX_NAME` letters."""
    name = " ".join(name.split())
    return name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 1] + "…"
