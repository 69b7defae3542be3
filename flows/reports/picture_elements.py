"""Pictures to embed in a page: drawings (SVG) and images (PNG), each with its description."""

from __future__ import annotations

import base64
import html
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from flows.text import printable

if TYPE_CHECKING:
    from ism_dask.pictures.drawing import Draw

# Colours and font of drawings in files of their own; a drawing inside a page takes the page's.
_FONT = "system-ui,sans-serif"
_STYLE = (
    "<style>svg{color:#24292f}.paper{fill:#fff}@media (prefers-color-scheme:dark)"
    "{svg{color:#dfe2e7}.paper{fill:#16181c}}</style>"
)
_FONT_SIZE = 13


class Picture(Protocol):
    """A picture, with a description in words for readers who cannot see it."""

    @property
    def alt(self) -> str:
        """A description of the picture in words."""

    def to_html(self) -> str:
        """Return the picture as an HTML element."""

    def data_uri(self) -> str:
        """Return the picture itself as a data URI."""


@dataclass(frozen=True)
class Drawing:
    """A drawing in the colour and the font of the text around it.

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

    def to_html(self) -> str:
        """Return the drawing as an HTML element."""
        return f'<svg {self._frame} role="img" aria-label="{escape(self.alt)}">{self.body}</svg>'

    def data_uri(self) -> str:
        """Return the drawing as a data URI."""
        return _data_uri("image/svg+xml", self.document().encode())

    def document(self) -> str:
        """Return the drawing as an SVG document of its own, light or dark as the reader's pages."""
        title = f"<title>{escape(self.alt)}</title>"
        paper = '<rect width="100%" height="100%" fill="#fff" class="paper"/>'
        size = f'width="{self.width:g}" height="{self.height:g}"'
        name = 'xmlns="http://www.w3.org/2000/svg" role="img"'
        frame = f'{name} {self._frame} {size} color="#24292f" font-family="{_FONT}"'
        return f"<svg {frame}>{title}{_STYLE}{paper}{self.body}</svg>"

    @property
    def _frame(self) -> str:
        return f'viewBox="0 0 {self.width:g} {self.height:g}" font-size="{_FONT_SIZE}"'


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

    def to_html(self) -> str:
        """Return the image as an HTML element."""
        return f'<img src="{self.data_uri()}" alt="{escape(self.alt)}">'

    def data_uri(self) -> str:
        """Return the image as a data URI."""
        return _data_uri("image/png", self.content)


def draw_axes(alt: str, draw: Draw, *, height: float = 280.0) -> Drawing:
    """Return what `draw` draws into Axes; a legend below them lists the entries it returns."""
    # matplotlib takes about a second to import, and most commands draw nothing.
    from flows.reports.page import WIDTH, page_svg  # noqa: PLC0415

    body, full_height = page_svg(draw, height)
    return Drawing(alt, WIDTH, full_height, body)


def escape(words: str) -> str:
    """Return text escaped for HTML and XML, its unprintable characters replaced by spaces."""
    return html.escape(printable(words))


def _data_uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
