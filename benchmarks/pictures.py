"""Draw pictures for the documentation, byte for byte the same for the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from benchmarks.measure import Figure
from ism_dask.pictures.drawing import COLOURS, GREY, MARKERS

# Without these, matplotlib writes random identifiers, and every letter as a path.
_STABLE: Any = {
    "svg.hashsalt": "ism-dask",
    "svg.fonttype": "none",
    "font.sans-serif": ["DejaVu Sans", "sans-serif"],
    "font.size": 9,
}


def draw_recovery(lines: Sequence[Figure], methods: Sequence[str], path: Path) -> None:
    """Write a dot plot: one row for each line, one mark for each method, the last emphasised."""
    with mpl.rc_context(_STABLE):
        canvas = Canvas(figsize=(8, 6.2), layout="constrained")
        ax = canvas.subplots()
        heights = range(len(lines), 0, -1)
        for place, method in enumerate(reversed(methods)):
            distances = [line[method] for line in lines]
            ax.plot(distances, heights, label=method, **_style(place))
        _draw_frame(ax, [line["design"] for line in lines], heights)
        canvas.legend(loc="outside upper center", ncols=5, frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        canvas.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def line_plot(
    lines: Sequence[tuple[str, Any]], axis_names: tuple[str, str], *, logarithmic: bool = False
) -> bytes:
    """Return an SVG document of named lines through points (m, 2)."""
    with mpl.rc_context(_STABLE):
        canvas = Canvas(figsize=(8, 5), layout="constrained")
        ax = canvas.subplots()
        for place, (name, points) in enumerate(lines):
            style = {**_style(place), "linestyle": "-", "markersize": 5}
            ax.plot(*points.T, label=name, **style)
        if logarithmic:
            ax.set_xscale("log")
            ax.set_yscale("log")
        ax.set_xlabel(axis_names[0])
        ax.set_ylabel(axis_names[1])
        ax.legend(frameon=False)
        document = BytesIO()
        canvas.savefig(document, format="svg", metadata={"Date": None, "Creator": None})
    return document.getvalue()


def _style(place: int) -> dict[str, Any]:
    """Return the style of a method: filled and large for place 0, coloured for the next, then grey.

    The palette sets how many places are coloured.
    """
    colour = COLOURS[place] if place < len(COLOURS) else GREY
    style = {"marker": MARKERS[place % len(MARKERS)], "color": colour, "linestyle": "none"}
    emphasis = {"markersize": 9, "zorder": 3} if place == 0 else {"markersize": 5, "mfc": "none"}
    return {**style, **emphasis}


def _draw_frame(ax: Axes, names: Sequence[str], heights: Sequence[int]) -> None:
    ax.set_yticks(list(heights), names)
    ax.set_xlim(0, 1)
    ax.set_xlabel("distance from the true subspace (0: the same, 1: orthogonal)")
    ax.grid(axis="y", lw=0.5, color="#dddddd")
    ax.set_axisbelow(True)
    ax.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
