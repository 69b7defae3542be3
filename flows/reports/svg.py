"""Render a figure of matplotlib as small SVG, in the colour and the font of the page around it.

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
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.transforms import Affine2D, Transform

from ism_dask._types import Array

if TYPE_CHECKING:
    from matplotlib.text import Text

# The page's text colour replaces this colour.
INK = "#010203"
# Size of text without a size of its own. Figures have 72 dots an inch: a point is a unit of SVG.
FONT_SIZE, DPI = 13.0, 72
# Width, height above the baseline and depth of letters, as shares of the size of the text. They are
# estimates: the font is that of the page.
_LETTER, _WIDE_LETTER, _ASCENT, _DESCENT = 0.64, 1.0, 0.74, 0.22
_COMMANDS = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C"}
# matplotlib's settings can make formulas of the numbers at ticks: this finds the number again.
_NUMBER = re.compile(r"\$\\mathdefault\{(.*)\}\$")
_ANCHORS = {"left": (0.0, ""), "center": (0.5, "middle"), "right": (1.0, "end")}


def svg_elements(figure: Figure) -> str:
    """Return the SVG elements of a figure, to stand inside an `<svg>` of its size in points.

    Equal figures have equal elements; different figures have different ids. Nothing is clipped.
    """
    renderer = _Canvas(figure).get_renderer()
    figure.draw(renderer)
    body = "".join(renderer.elements)
    return body.replace(_ID, f"p{sha256(body.encode()).hexdigest()[:10]}-")


def text_width(words: str, size: float = FONT_SIZE) -> float:
    """Return the estimated width of a line of text."""
    widths = (_WIDE_LETTER if east_asian_width(c) in "WF" else _LETTER for c in words)
    return size * sum(width for c, width in zip(words, widths, strict=True) if not combining(c))


# Stands for the beginning of all ids until the elements are known.
_ID = "\0"


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
        return text_width(_plain(s, ismath), size), size * (_ASCENT + _DESCENT), size * _DESCENT

    def draw_path(
        self, gc: GraphicsContextBase, path: Path, transform: Transform, rgbFace: Any = None
    ) -> None:
        outline = _outline(path, transform + self._page)
        self.elements.append(f'<path d="{outline}"{_look(gc, rgbFace)}/>')

    def draw_markers(
        self,
        gc: GraphicsContextBase,
        marker_path: Path,
        marker_trans: Transform,
        path: Path,
        trans: Transform,
        rgbFace: Any = None,
    ) -> None:
        points = (trans + self._page).transform(np.asarray(path.vertices, dtype=float))
        points = points[np.isfinite(points).all(axis=1)]
        marker = _outline(marker_path, marker_trans + Affine2D().scale(1, -1))
        shape = f'<path d="{marker}"{_look(gc, rgbFace)}'
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

    def draw_path_collection(
        self,
        gc: GraphicsContextBase,
        master_transform: Transform,
        paths: Any,
        all_transforms: Any,
        offsets: Any,
        offset_trans: Transform,
        facecolors: Any,
        edgecolors: Any,
        linewidths: Any,
        *rest: Any,
        **options: Any,
    ) -> None:
        differ_in_colour = len(paths) == len(all_transforms) == 1 and not any(linewidths)
        if not differ_in_colour or len(offsets) != len(facecolors):
            shapes = master_transform, paths, all_transforms, offsets, offset_trans
            look = facecolors, edgecolors, linewidths
            super().draw_path_collection(gc, *shapes, *look, *rest, **options)
            return
        # The points of one colour are written together.
        gc.set_linewidth(0)
        shape = Affine2D(all_transforms[0]) + master_transform
        for colour in np.unique(facecolors, axis=0):
            chosen = Path(np.asarray(offsets)[(facecolors == colour).all(axis=1)])
            self.draw_markers(gc, paths[0], shape, chosen, offset_trans, colour)

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
        along = share * text_width(words, size)
        x += along * math.cos(math.radians(angle))
        y -= along * math.sin(math.radians(angle))
        place = f'x="{_number(x)}" y="{_number(y)}"'
        if angle:
            place = f'transform="translate({_numbers((x, y))})rotate({_number(-angle)})"'
        look = _colour("fill", gc.get_rgb(), gc.get_alpha())
        look += f' text-anchor="{anchor}"' if anchor else ""
        look += f' font-size="{_number(size)}"' if size != FONT_SIZE else ""
        self.elements.append(f"<text {place}{look}>{html.escape(words)}</text>")

    def draw_tex(
        self,
        gc: GraphicsContextBase,
        x: float,
        y: float,
        s: str,
        prop: FontProperties,
        angle: float,
        *,
        mtext: Text | None = None,
    ) -> None:
        # Called if the user's settings let TeX set all text.
        self.draw_text(gc, x, y, s, prop, angle, ismath="TeX", mtext=mtext)


class _Canvas(FigureCanvasBase):
    """Measures text for the layout as the renderer writes it."""

    def get_renderer(self) -> _Renderer:
        return _Renderer(*self.figure.bbox.size)


def _plain(words: str, ismath: Any) -> str:
    number = _NUMBER.fullmatch(words) if ismath else None
    return number[1] if number else words


def _outline(path: Path, transform: Transform) -> str:
    """Return a path in the language of SVG."""
    parts = []
    for points, code in path.iter_segments(transform, simplify=False):
        if code == Path.CLOSEPOLY:
            parts.append("Z")
            continue
        parts.append(_COMMANDS[code] + _numbers(np.asarray(points).ravel()))
    return "".join(parts)


def _relative(points: Array) -> str:
    """Return a path from each of some points (n, 2) to the next, by moves in whole tenths."""
    tenths = np.round(10 * points).astype(int)
    steps = np.diff(tenths, axis=0, prepend=np.zeros((1, 2), dtype=int))
    return "m" + " ".join(f"{x / 10:g} {y / 10:g}" for x, y in steps.tolist())


def _look(gc: GraphicsContextBase, face: Any) -> str:
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
