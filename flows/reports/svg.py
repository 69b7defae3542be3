"""Render matplotlib's figures as small SVG, in the look of the page around them.

matplotlib's own SVG backend takes its options from settings that all threads of a process share,
gives elements of different pictures the same ids, and writes a hundred characters for each point.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from unicodedata import combining, east_asian_width

import numpy as np
from matplotlib.backend_bases import FigureCanvasBase, GraphicsContextBase, RendererBase
from matplotlib.colors import to_hex
from matplotlib.dates import AutoDateLocator, DateFormatter
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.path import Path
from matplotlib.transforms import Affine2D, Transform

from ism_dask._types import Array
from ism_dask.pictures.drawing import add_legend, draw_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.text import Text

    from ism_dask.pictures.drawing import Draw, Entries

# Width of a picture in points; figures have 72 dots an inch, so that a point is a unit of SVG.
WIDTH, DPI = 480.0, 72
# The page's text colour replaces this colour; size of text without a size of its own.
INK, FONT_SIZE = "#010203", 13.0
# Most entries of a legend, the height of a line of them, and the space of the mark of one.
_MAX_ENTRIES, _LINE, _MARK = 24, 20.0, 24.0
# Most dates at an axis.
_MAX_DATES = 4
# Width, height above the baseline and depth of letters, as shares of the size of the text. They are
# estimates: the font is that of the page.
_LETTER, _WIDE_LETTER, _ASCENT, _DESCENT = 0.64, 1.0, 0.74, 0.22
_COMMANDS = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C"}
# matplotlib's settings can make formulas of the numbers at ticks: this finds the number again.
_NUMBER = re.compile(r"\$\\mathdefault\{(.*)\}\$")
_ANCHORS = {"left": (0.0, ""), "center": (0.5, "middle"), "right": (1.0, "end")}
# Stands for the beginning of all ids until the elements are known.
_ID = "\0"


def page_svg(draw: Draw, height: float) -> tuple[str, tuple[float, float]]:
    """Draw into Axes and return the SVG elements, and their width and height in points.

    The legend lies below, and adds to `height`. pyplot does not know the figure, and no setting of
    matplotlib is changed, so that threads can draw at the same time.
    """
    figure = Figure(figsize=(WIDTH / DPI, height / DPI), dpi=DPI, layout="constrained")
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
    return svg_elements(figure), (WIDTH, float(figure.bbox.height))


def draw_dated_lines(ax: Axes, lines: Sequence[tuple[str, Array]], quantity: str) -> Entries:
    """Draw named lines through points (m, 2) whose first numbers are days since 1970, as dates."""
    entries = draw_lines(ax, lines, ("", quantity))
    days = np.concatenate([points[:, 0] for _, points in lines])
    locator = AutoDateLocator(minticks=2, maxticks=_MAX_DATES)  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_locator(locator)
    form = "%b %d\n%H:%M" if np.ptp(days) < 2 else "%Y-%m-%d"
    ax.xaxis.set_major_formatter(DateFormatter(form))  # type: ignore[no-untyped-call]
    return entries


def set_page_look(ax: Axes) -> None:
    """Give Axes the text colour and the font size of a page."""
    ax.patch.set_visible(False)
    ax.spines[:].set(color=INK, alpha=0.5, linewidth=1)
    ax.tick_params(color=INK, labelcolor=INK, labelsize=FONT_SIZE, length=3, width=1)
    ax.tick_params(which="minor", length=0)
    for text in (ax.xaxis.label, ax.yaxis.label, *ax.texts):
        text.set(color=INK, fontsize=FONT_SIZE)


def _add_legend_below(figure: Figure, entries: Entries) -> None:
    """Add a legend below all Axes; the figure gets higher by its lines."""
    shown = entries
    if len(entries) > _MAX_ENTRIES:
        shown = entries[: _MAX_ENTRIES - 1]
        shown.append((Line2D([], [], ls=""), f"and {len(entries) - len(shown)} more"))
    widest = max(_text_width(name, FONT_SIZE) for _, name in shown)
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


def svg_elements(figure: Figure) -> str:
    """Return the SVG elements of a figure, to stand inside an `<svg>` of its size in points.

    Equal figures have equal elements; different figures have different ids. Nothing is clipped.
    """
    renderer = _Canvas(figure).get_renderer()
    figure.draw(renderer)
    body = "".join(renderer.elements)
    return body.replace(_ID, f"p{sha256(body.encode()).hexdigest()[:10]}-")


class _Renderer(RendererBase):
    """Collects the SVG elements of what matplotlib draws."""

    def __init__(self, width: float, height: float) -> None:
        super().__init__()
        self.elements: list[str] = []
        self._size = width, height
        self._page = Affine2D().scale(1, -1).translate(0, height)
        self._ids = 0

    def get_canvas_width_height(self) -> tuple[float, float]:
        return self._size

    def get_text_width_height_descent(
        self, s: str, prop: FontProperties, ismath: Any
    ) -> tuple[float, float, float]:
        size = prop.get_size_in_points()
        return _text_width(_plain(s, ismath), size), size * (_ASCENT + _DESCENT), size * _DESCENT

    def draw_path(
        self, gc: GraphicsContextBase, path: Path, transform: Transform, rgbFace: Any = None
    ) -> None:
        outline = _outline(path, transform + self._page)
        self.elements.append(f'<path d="{outline}"{_look(gc, rgbFace)}/>')

    def draw_markers(self, gc: GraphicsContextBase, *given: Any, **options: Any) -> None:
        marker_path, marker_trans, path, trans, *face = (*given, *options.values())
        points = (trans + self._page).transform(np.asarray(path.vertices, dtype=float))
        points = points[np.isfinite(points).all(axis=1)]
        marker = _outline(marker_path, marker_trans + Affine2D().scale(1, -1))
        shape = f'<path d="{marker}"{_look(gc, *face)}'
        if len(points) < 3:
            self.elements += [f'{shape} transform="translate({_numbers(at)})"/>' for at in points]
            return
        # A path with a marker at each vertex: some ten characters for each.
        self._ids += 1
        name = f"{_ID}{self._ids}"
        places = " ".join(f'marker-{place}="url(#{name})"' for place in ("start", "mid", "end"))
        units = 'overflow="visible" markerUnits="userSpaceOnUse"'
        self.elements += [
            f'<marker id="{name}" {units}>{shape}/></marker>',
            f'<path d="{_relative(points)}" fill="none" {places}/>',
        ]

    def draw_path_collection(self, gc: GraphicsContextBase, *given: Any, **options: Any) -> None:
        whole, paths, transforms, offsets, places, faces, _, widths, *_ = given
        differ_in_colour = len(paths) == len(transforms) == 1 and not any(widths)
        if not differ_in_colour or len(offsets) != len(faces):
            super().draw_path_collection(gc, *given, **options)
            return
        # The points of one colour are written together.
        gc.set_linewidth(0)
        for colour in np.unique(faces, axis=0):
            chosen = Path(np.asarray(offsets)[(faces == colour).all(axis=1)])
            self.draw_markers(gc, paths[0], Affine2D(transforms[0]) + whole, chosen, places, colour)

    def draw_text(
        self,
        gc: GraphicsContextBase,
        x: float,
        y: float,
        s: str,
        prop: FontProperties,
        angle: float,
        ismath: Any = False,
        mtext: Text | None = None,
    ) -> None:
        words = _plain(s, ismath)
        size = prop.get_size_in_points()
        share, anchor = _ANCHORS[mtext.get_horizontalalignment() if mtext else "left"]
        along = share * _text_width(words, size)
        x += along * math.cos(math.radians(angle))
        y -= along * math.sin(math.radians(angle))
        place = f'x="{_number(x)}" y="{_number(y)}"'
        if angle:
            place = f'transform="translate({_numbers((x, y))})rotate({_number(-angle)})"'
        look = _colour("fill", gc.get_rgb(), gc.get_alpha())
        look += f' text-anchor="{anchor}"' if anchor else ""
        look += f' font-size="{_number(size)}"' if size != FONT_SIZE else ""
        self.elements.append(f"<text {place}{look}>{html.escape(words)}</text>")

    def draw_tex(self, gc: GraphicsContextBase, *given: Any, **options: Any) -> None:
        # Called if the user's settings let TeX set all text.
        self.draw_text(gc, *given, **{**options, "ismath": "TeX"})


class _Canvas(FigureCanvasBase):
    """Measures text for the layout as the renderer writes it."""

    def get_renderer(self) -> _Renderer:
        return _Renderer(*self.figure.bbox.size)


def _text_width(words: str, size: float) -> float:
    """Return the estimated width of a line of text."""
    widths = (_WIDE_LETTER if east_asian_width(c) in "WF" else _LETTER for c in words)
    return size * sum(width for c, width in zip(words, widths, strict=True) if not combining(c))


def _plain(words: str, ismath: Any) -> str:
    number = _NUMBER.fullmatch(words) if ismath else None
    return number[1] if number else words


def _outline(path: Path, transform: Transform) -> str:
    """Return a path in the language of SVG."""
    return "".join(
        "Z" if code == Path.CLOSEPOLY else _COMMANDS[code] + _numbers(np.ravel(points))
        for points, code in path.iter_segments(transform, simplify=False)
    )


def _relative(points: Array) -> str:
    """Return a path from each of some points (n, 2) to the next, by moves in whole tenths."""
    tenths = np.round(10 * points).astype(int)
    steps = np.diff(tenths, axis=0, prepend=np.zeros((1, 2), dtype=int))
    return "m" + " ".join(f"{x / 10:g} {y / 10:g}" for x, y in steps.tolist())


def _look(gc: GraphicsContextBase, face: Any = None) -> str:
    """Return the attributes of fill and stroke."""
    alpha = gc.get_alpha() if gc.get_forced_alpha() else None
    filled = face is not None and (len(face) < 4 or face[3] > 0)
    look = _colour("fill", face, alpha) if filled else ' fill="none"'
    width = gc.get_linewidth()
    if not width or gc.get_rgb()[3] == 0:
        return look
    look += _colour("stroke", gc.get_rgb(), alpha)
    look += f' stroke-width="{_number(width)}"' if width != 1 else ""
    _, dashes = gc.get_dashes()
    return look + (f' stroke-dasharray="{_numbers(np.ravel(dashes))}"' if dashes else "")


def _colour(attribute: str, colour: Any, alpha: float | None = None) -> str:
    """Return the attributes of a colour and, where it is not 1, of its opacity."""
    opacity = (colour[3] if len(colour) > 3 else 1.0) if alpha is None else alpha
    name = "currentColor" if to_hex(colour[:3]) == INK else to_hex(colour[:3])
    return f' {attribute}="{name}"' + (
        f' {attribute}-opacity="{_number(opacity)}"' if opacity < 1 else ""
    )


def _numbers(values: Iterable[float]) -> str:
    return " ".join(map(_number, values))


def _number(value: float) -> str:
    """Return a number with at most two decimals."""
    return f"{round(float(value), 2) + 0.0:.2f}".rstrip("0").rstrip(".")
