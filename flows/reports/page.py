"""Draw a picture for a page: in its colour and font, in one width, the legend below the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from flows.reports.svg import DPI, FONT_SIZE, INK, svg_elements, text_width
from ism_dask.pictures.drawing import add_legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ism_dask.pictures.drawing import Draw, Entries

WIDTH = 480.0
# Most entries of a legend, the height of a line of them, and the space of the mark of one.
_MAX_ENTRIES, _LINE, _MARK = 24, 20.0, 24.0


def page_svg(draw: Draw, height: float) -> tuple[str, float]:
    """Draw into Axes and return the SVG elements, `WIDTH` points wide, and their height in points.

    `height` is that without the legend. pyplot does not know the figure, and no setting of
    matplotlib is changed, so that threads can draw at the same time.
    """
    size = (WIDTH / DPI, height / DPI)
    figure = Figure(figsize=size, dpi=DPI, layout="constrained")
    figure.patch.set_visible(False)
    ax = figure.add_subplot()
    set_page_look(ax)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color=INK, alpha=0.12, linewidth=1)
    ax.set_axisbelow(True)
    entries = draw(ax)
    if entries:
        _add_legend_below(figure, entries)
    for each in figure.axes:
        set_page_look(each)
    return svg_elements(figure), float(figure.bbox.height)


def _add_legend_below(figure: Figure, entries: Entries) -> None:
    """Add a legend below all Axes; the figure gets higher by its lines."""
    shown = entries
    if len(entries) > _MAX_ENTRIES:
        shown = entries[: _MAX_ENTRIES - 1]
        shown.append((Line2D([], [], ls=""), f"and {len(entries) - len(shown)} more"))
    widest = max(text_width(name) for _, name in shown)
    columns = min(len(shown), max(1, int(WIDTH / (widest + _MARK))))
    lines = -(-len(shown) // columns)
    figure.set_figheight(figure.get_figheight() + _LINE * lines / DPI)
    add_legend(
        figure,
        shown,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=FONT_SIZE,
        labelcolor=INK,
        markerscale=1.4,
        handlelength=1.4,
        handletextpad=0.4,
        columnspacing=1.2,
    )


def set_page_look(ax: Axes) -> None:
    """Give Axes the text colour and the font size of a page."""
    ax.patch.set_visible(False)
    ax.spines[:].set(color=INK, alpha=0.5, linewidth=1)
    ax.tick_params(color=INK, labelcolor=INK, labelsize=FONT_SIZE, length=3, width=1)
    ax.tick_params(which="minor", length=0)
    for text in (ax.xaxis.label, ax.yaxis.label, *ax.texts):
        text.set(color=INK, fontsize=FONT_SIZE)
