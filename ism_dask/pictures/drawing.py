"""Draw the data of a fit into matplotlib's Axes.

The functions take plain data, so that a fitted estimator and a saved run are drawn alike. They set
neither fonts nor sizes of text. Names are cut if they are long, and a dollar sign in them starts no
formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from ism_dask._types import Array
from ism_dask.words import printable

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    # What a legend lists: what was drawn, and its name.
    Entries = list[tuple[Artist, str]]
    # The names of the x and the y axis.
    AxisNames = tuple[str, str]

# Colour-blind safe, by Okabe and Ito; classes beyond the colours get the next marker.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
# Classes with the next marker begin with these: ten classes have ten colours.
_FURTHER = ("#8A6FC9", "#A65F3E", "#7D8A3C", "#B03A5B")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
BLUE, RED, GREY = COLOURS[0], COLOURS[4], "#999999"
# Red and blue with white at 0; and a colour map whose lightness rises, which is colour-blind safe.
DIVERGING, _SEQUENTIAL = "RdBu", "viridis"

# Labels of the axis of the measure that decides convergence.
MEASURE_LABELS = {
    "residual": "residual of W",
    "change": "change of the eigenvalues",
    "movement": "movement of W or the embedding",
}
WEIGHT_LABEL = "weight, in standardised units"
_SHARE_LABEL = "share in the space of the new features, with 90% interval"
# Free space beside the bars for their numbers, as a share of the width of the bars.
_ROOM = 0.4
# Values on a logarithmic axis are this far from its ends, in decades.
_DECADE_MARGIN = 0.1
# Longest name in letters.
_MAX_NAME = 30
# Different colours of numbers, few enough for small files.
_SHADES = 32
# Numbers at ticks are written out: a factor or an offset beside the axis is easily overlooked.
_TICKS = "{x:,.10g}"
# Height of the strip of the rows of a class, where the shares of classes are from 0 to 1.
_STRIP = 0.05
# Quantiles of numbers between which their colours differ.
_SHADED = (0.02, 0.98)
# The share of places at which the band is to contain the mean.
_LEVEL = 0.9
# The most rows that a curve is fitted to, and the number of its places.
_MAX_ROWS, _PLACES = 1_000, 100
# The shares of the rows, on each side of a place, that count there; and their fewest.
_SPANS, _FEWEST = (0.04, 0.06, 0.1, 0.16, 0.25, 0.4, 0.65, 1.0), 6
# The least variance of the rows around a place, as a share of that of all rows.
_LEAST_VARIANCE = 1e-6


def draw_weights(ax: Axes, names: Sequence[str], weights: Array, ends: Array | None = None) -> None:
    """Draw named weights (m,) as bars from the top down, blue above 0 and red below.

    If the `ends` (2, m) of their intervals are given, lines show them.
    """
    heights, errors = np.arange(len(weights)), None if ends is None else np.abs(ends - weights)
    colours, ink = np.where(weights >= 0, BLUE, RED), ax.spines["left"].get_edgecolor()
    bars = ax.barh(heights, weights, color=colours, xerr=errors, ecolor=ink)
    ax.bar_label(bars, [f"{weight:+.2f}" for weight in weights], padding=3, fontsize="small")
    _name_rows(ax, names, WEIGHT_LABEL + (", with 90% interval" if ends is not None else ""))
    ax.axvline(0.0, color=ink, lw=0.8)
    reached = np.append(weights, [] if ends is None else ends)
    low, high = min(0.0, *reached), max(0.0, *reached)
    if low < high:
        room = _ROOM * (high - low)
        ax.set_xlim(low - room * (low < 0), high + room * (high > 0))


def draw_shares(ax: Axes, names: Sequence[str], intervals: Array, clear: int) -> Entries:
    """Draw named shares from the top down, each with its interval, the first `clear` ones in blue.

    The rows of `intervals` (3, m) are the shares and the ends of their intervals.
    """
    shares, low, high = intervals
    heights = np.arange(len(shares))
    groups = ((slice(clear), BLUE, "clear of all others"), (slice(clear, None), GREY, "not clear"))
    for part, colour, name in groups:
        if len(heights[part]):
            ax.hlines(heights[part], low[part], high[part], color=colour, lw=2)
            ax.plot(shares[part], heights[part], "o", color=colour, label=name)
    _name_rows(ax, names, _SHARE_LABEL)
    ax.set_xlim(left=0.0)
    return labelled(ax)


def draw_objective(ax: Axes, numbers: Sequence[int], values: Sequence[float], unit: str) -> None:
    """Draw the objective J by iteration or round, as `unit` names it."""
    ax.plot(numbers, values, color=BLUE, marker="o")
    name_whole_numbers(ax, unit, "objective J", numbers)


def draw_measure(
    ax: Axes,
    numbers: Sequence[int],
    values: Sequence[float],
    unit: str,
    *,
    measure: str,
    limit: float,
) -> Entries:
    """Draw the measure of convergence on a logarithmic axis, and its tolerance as a dotted line.

    `measure` is a key of `MEASURE_LABELS`. Values of 0, which have no logarithm, are left out.
    """
    heights = np.array(values, dtype=float)
    positive = heights > 0
    ax.plot(numbers, np.where(positive, heights, np.nan), color=RED, marker="s", ls="--")
    ax.axhline(limit, color=RED, ls=":", label=f"tolerance {limit:.4g}")
    name_whole_numbers(ax, unit, MEASURE_LABELS[measure], numbers)
    reached = np.log10(np.append(heights[positive], limit))
    least, most = reached.min() - _DECADE_MARGIN, reached.max() + _DECADE_MARGIN
    ax.set(yscale="log", ylim=(10.0 ** np.floor(least), 10.0 ** np.ceil(most)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter("")
    return labelled(ax)


def draw_spectrum(ax: Axes, values: Array, next_value: float | None) -> Entries:
    """Draw the eigenvalues (q,) of the new features, the next one of Phi, and the eigengap."""
    q = len(values)
    ax.plot(np.arange(1, q + 1), values, "o", color=BLUE, label="new features")
    if next_value is not None:
        gap = f"eigengap {values[-1] - next_value:.4g}"
        ax.plot([q + 1], [next_value], "o", color=GREY, mfc="none", label="the next one")
        ax.vlines(q + 0.5, next_value, values[-1], color=RED, lw=2, label=gap)
    numbers = range(1, q + 1 + (next_value is not None))
    name_whole_numbers(ax, "new feature", "eigenvalue of Phi", numbers)
    return labelled(ax)


def draw_classes(
    ax: Axes, points: Array, codes: Array, names: Sequence[str], axis_names: AxisNames
) -> Entries:
    """Draw rows (n, 2) by their class: `codes` (n,) are indices of `names`."""
    name_axes(ax, axis_names)
    entries: Entries = []
    for code, name in enumerate(map(short_name, names)):
        x, y = points[codes == code].T
        drawn = ax.scatter(x, y, s=16, alpha=0.8, lw=0, label=name, **class_style(code))
        entries.append((drawn, name))
    return entries


def draw_numbers(ax: Axes, points: Array, values: Array, label: str, axis_names: AxisNames) -> None:
    """Draw rows (n, 2) in the colours of their numbers (n,), with a colour bar of this label.

    The 2% of the largest numbers share a colour, as do the 2% of the smallest, so that a few
    extreme numbers do not leave one colour for all others.
    """
    from matplotlib import colormaps  # noqa: PLC0415 - imported when Axes exist

    colours = colormaps[_SEQUENTIAL].resampled(_SHADES)
    numbers = values.astype(float)
    low, high = np.quantile(numbers, _SHADED)
    x, y = points.T
    drawn = ax.scatter(x, y, c=numbers, s=12, cmap=colours, vmin=low, vmax=high, lw=0)
    solids = ax.figure.colorbar(drawn, ax=ax, label=label, extend="both", format=_TICKS).solids
    if solids is not None:
        solids.set_edgecolor("face")  # no gaps between the colours in vector graphics
    name_axes(ax, axis_names)


def draw_response(
    ax: Axes, z: Array, values: Array, classes: Sequence[str] | None, axis_names: AxisNames
) -> Entries:
    """Draw the mean of `values` (n,) along a feature z (n,), and the rows.

    With the names of `classes`, the values are their indices: drawn is the share of each class, and
    below it where its rows are.
    """
    if classes is None:
        names, Y = ["mean"], values[:, None]
        ax.scatter(z, values, s=10, color=GREY, alpha=0.5, lw=0)
        name_axes(ax, axis_names)
    else:
        names, Y = list(map(short_name, classes)), values[:, None] == np.arange(len(classes))
        name_axes(ax, (axis_names[0], "share of each class; below: its rows"))
        ax.set_yticks(np.linspace(0, 1, 6))
        ax.set_ylim(-_STRIP * (len(classes) + 1), 1.03)
    places, curves = mean_along(z, Y)
    entries: Entries = []
    for code, name in enumerate(names):
        colour, (mean, low, high) = class_style(code)["color"], curves[:, :, code]
        ax.fill_between(places, low, high, alpha=0.2, lw=0, color=colour)
        entries.append((ax.plot(places, mean, lw=2, label=name, color=colour)[0], name))
        if classes is not None:
            rows = z[values == code]
            heights = np.full(len(rows), -_STRIP * (code + 1))
            ax.scatter(rows, heights, s=24, marker="|", lw=0.8, alpha=0.6, color=colour)
    return entries


def mean_along(z: Array, Y: Array) -> tuple[Array, Array]:
    """Return places (m,) along a feature z (n,), and the mean of Y (n, r) there with its band.

    The second array (3, m, r) has the mean and the ends of its band, by local linear regression.

    A place takes the rows that lie nearest in the order of z (as LOESS does); how many, the errors
    decide with which the other rows predict each row. The band counts how much rows differ around
    the place, so that it is wide where they are few, or y varies much.
    """
    order = np.argsort(z, kind="stable")
    if len(z) > _MAX_ROWS:
        order = order[np.linspace(0, len(z) - 1, _MAX_ROWS).astype(int)]
    z, Y = z[order], Y[order].astype(float)
    ranks = (np.searchsorted(z, z) + np.searchsorted(z, z, side="right")) / (2 * len(z))
    spans = [each for each in _SPANS if each * len(z) >= _FEWEST] or [1.0]
    fits = []  # the errors with which the other rows predict each row
    for span in spans:
        smoother = _smoother(z, ranks, z, ranks, span)
        own = np.minimum(np.diag(smoother), 0.99)
        fits.append((Y - smoother @ Y) / (1 - own)[:, None])
    # One span less than the best, whose bias would be as large as its noise.
    best = max(int(np.argmin([(errors**2).sum() for errors in fits])) - 1, 0)
    places = np.linspace(z[0], z[-1], _PLACES)
    smoother = _smoother(z, ranks, places, np.interp(places, z, ranks), spans[best])
    mean, squares = smoother @ Y, fits[best] ** 2
    # Few rows may be alike by chance: one row more has the variance of all.
    counts = smoother**2
    totals = counts.sum(axis=1, keepdims=True)
    variance = counts @ squares + 2 * totals**2 * squares.mean(axis=0)
    width = NormalDist().inv_cdf((1 + _LEVEL) / 2) * np.sqrt(variance)
    # A mean lies among the values.
    curve = np.stack([mean, mean - width, mean + width])
    return places, np.clip(curve, Y.min(axis=0), Y.max(axis=0))


def _smoother(z: Array, ranks: Array, places: Array, at: Array, span: float) -> Array:
    """Return the matrix (m, n) that maps y of rows at z (n,) to its mean at `places` (m,).

    `ranks` (n,) and `at` (m,) are their ranks from 0 to 1.
    """
    distances = np.abs(ranks - at[:, None])
    # Rows that share a value leave places without any rows near by.
    distances /= np.maximum(span, 2 * distances.min(axis=1, keepdims=True))
    roots = np.maximum(1 - distances * distances * distances, 0)
    weights = roots * roots * roots
    weights /= weights.sum(axis=1, keepdims=True)
    offset = z - places[:, None]
    centre = (weights * offset).sum(axis=1, keepdims=True)
    variance = (weights * (offset - centre) ** 2).sum(axis=1, keepdims=True)
    slope = (offset - centre) / np.maximum(variance, _LEAST_VARIANCE * (z.var() or 1.0))
    return weights * (1 - centre * slope)


def class_style(index: int) -> dict[str, Any]:
    """Return the colour and the marker of class number `index`, as arguments of matplotlib."""
    colours = COLOURS + _FURTHER
    marker = MARKERS[index // len(COLOURS) % len(MARKERS)]
    return {"color": colours[index % len(colours)], "marker": marker}


def largest_weight(weights: Array) -> float:
    """Return the largest absolute weight, which has the strongest colour; 1 if all are 0."""
    return float(np.abs(weights).max()) or 1.0


def add_legend(place: Axes | Figure, entries: Entries, **options: Any) -> None:
    """Add a legend to Axes or a figure; `options` are those of its method `legend`."""
    # Listed here, for matplotlib by itself leaves out names that begin with an underscore.
    handles, names = zip(*entries, strict=True)
    for text in place.legend(handles, names, **options).get_texts():
        text.set_parse_math(False)


def labelled(ax: Axes) -> Entries:
    """Return the entries of all that was drawn with a label that begins with no underscore."""
    return list(zip(*ax.get_legend_handles_labels(), strict=True))


def short_name(name: str) -> str:
    """Return a name as pictures have room for it: one line of printable characters, cut if long."""
    name = " ".join(printable(name).split())
    return name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 1] + "…"


def name_axes(ax: Axes, names: AxisNames) -> None:
    """Name both axes, with numbers at their ticks written out."""
    ax.set_xlabel(names[0], parse_math=False)
    ax.set_ylabel(names[1], parse_math=False)
    ax.xaxis.set_major_formatter(_TICKS)
    ax.yaxis.set_major_formatter(_TICKS)


def _name_rows(ax: Axes, names: Sequence[str], quantity: str) -> None:
    """Name what is drawn from the top down, and the x axis."""
    ax.set_yticks(range(len(names)), list(map(short_name, names)), parse_math=False)
    ax.grid(visible=False)  # its lines would cross the numbers
    ax.invert_yaxis()
    ax.set_xlabel(quantity)
    ax.xaxis.set_major_formatter(_TICKS)


def name_whole_numbers(ax: Axes, unit: str, quantity: str, numbers: Sequence[int]) -> None:
    """Name the axes, and give whole numbers of a `unit` a place each on the x axis."""
    ax.set_xlabel(unit)
    ax.set_ylabel(quantity)
    ax.yaxis.set_major_formatter(_TICKS)
    ax.set_xlim(numbers[0] - 0.5, numbers[-1] + 0.5)
    ax.locator_params(axis="x", integer=True, min_n_ticks=1)
