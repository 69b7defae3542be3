"""Pictures to embed in a page: drawings (SVG) and images (PNG), and the elements of drawings."""

from __future__ import annotations

import base64
import html
from dataclasses import dataclass
from typing import Protocol

from flows.text import printable

# Colours and font of drawings in files of their own; a drawing inside a page takes the page's.
_INK, _PAPER, _FONT = "#24292f", "#fff", "system-ui,sans-serif"
SIZE = 13


class Picture(Protocol):
    """A picture, with a description in words for readers who cannot see it."""

    @property
    def alt(self) -> str:
        """A description of the picture in words."""

    def element(self) -> str:
        """Return the picture as an HTML element."""

    def address(self) -> str:
        """Return the picture itself as a data URI."""


@dataclass(frozen=True)
class Drawing:
    """A drawing in the colour of the text around it.

    Attributes
    ----------
    alt : str
    width, height : float
    body : str
        The SVG elements inside its `<svg>` element.
    """

    alt: str
    width: float
    height: float
    body: str

    def element(self) -> str:
        """Return the drawing as an HTML element."""
        return f'<svg {self._frame} role="img" aria-label="{escape(self.alt)}">{self.body}</svg>'

    def address(self) -> str:
        """Return the drawing as a data URI."""
        return _uri("image/svg+xml", self.document().encode())

    def document(self) -> str:
        """Return the drawing as an SVG document of its own, on a white background."""
        title = f"<title>{escape(self.alt)}</title>"
        paper = f'<rect width="100%" height="100%" fill="{_PAPER}"/>'
        size = f'width="{self.width:g}" height="{self.height:g}"'
        look = f'color="{_INK}" font-family="{_FONT}"'
        name = 'xmlns="http://www.w3.org/2000/svg"'
        return f"<svg {name} {self._frame} {size} {look}>{title}{paper}{self.body}</svg>"

    @property
    def _frame(self) -> str:
        return f'viewBox="0 0 {self.width:g} {self.height:g}" font-size="{SIZE}"'


@dataclass(frozen=True)
class Pixels:
    """A PNG image.

    Attributes
    ----------
    alt : str
    content : bytes
        Content of the PNG file.
    """

    alt: str
    content: bytes

    def element(self) -> str:
        """Return the image as an HTML element."""
        return f'<img src="{self.address()}" alt="{escape(self.alt)}">'

    def address(self) -> str:
        """Return the image as a data URI."""
        return _uri("image/png", self.content)


def escape(words: str) -> str:
    """Return text escaped for HTML and XML, its unprintable characters replaced by spaces."""
    return html.escape(printable(words))


def text(x: float, y: float, words: str, *, anchor: str = "start", look: str = "") -> str:
    """Return a text element that begins, has its middle or ends at (x, y), as `anchor` says."""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="currentColor"{look and " " + look}>{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, *, opacity: float = 1, dash: str = "") -> str:
    """Return a thin line in the colour of the text."""
    look = f'stroke="currentColor" stroke-opacity="{opacity:g}"'
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {look}{dashed}/>'


def box(x: float, y: float, width: float, height: float, *, fill: str, look: str = "") -> str:
    """Return a filled rectangle."""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect {place} fill="{fill}"{look and " " + look}/>'


def dots(points: list[tuple[float, float]], colour: str, width: float) -> str:
    """Return round dots of one colour: a path of lines without length, with round caps."""
    # Relative moves in whole tenths are short, and rounding errors do not add up along the path.
    steps, last = [], (0, 0)
    for x, y in points:
        now = (round(10 * x), round(10 * y))
        steps.append(f"m{(now[0] - last[0]) / 10:g} {(now[1] - last[1]) / 10:g}h0")
        last = now
    look = f'stroke="{colour}" stroke-width="{width:g}" stroke-linecap="round"'
    return f'<path d="{"".join(steps)}" fill="none" {look} stroke-opacity=".75"/>'


def _uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
