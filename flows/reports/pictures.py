"""Pictures to embed in a page, each with title, caption and description: drawings and images."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from flows.text import number, printable
from ism_dask._types import Array
from ism_dask.pictures import drawing
from ism_dask.pictures.colours import weight_colours

if TYPE_CHECKING:
    from ism_dask.pictures.drawing import Entries

# Font size and colours of drawings in files of their own; one inside a page takes the page's.
_FONT_SIZE, _FONT = 13, "system-ui,sans-serif"
_STYLE = (
    "<style>svg{color:#24292f}.paper{fill:#fff}@media (prefers-color-scheme:dark)"
    "{svg{color:#dfe2e7}.paper{fill:#16181c}}</style>"
)
_SECONDS_PER_DAY = 86_400
# The smallest height of an image in pixels.
_MIN_HEIGHT = 96


# The elements inside an `<svg>` element, in the colour and the font of the text around it, with its
# width and height.
Drawing = tuple[str, tuple[float, float]]


@dataclass(frozen=True)
class Figure:
    """A picture with its title and its caption."""

    title: str
    caption: str
    # Returns a drawing, or the content of a PNG file. It is called for pages only: drawing is slow.
    make: Callable[[], Drawing | bytes]

    @cached_property
    def content(self) -> Drawing | bytes:
        """The drawing, or the content of the PNG file."""
        return self.make()

    @property
    def alt(self) -> str:
        """The words for readers who cannot see it."""
        return f"{self.title}: {self.caption}"

    def to_html(self) -> str:
        """Return the picture as an HTML element."""
        alt = escape(self.alt)
        if isinstance(self.content, bytes):
            return f'<img src="{self.data_uri()}" alt="{alt}">'
        elements, size = self.content
        return f'<svg {_frame(size)} role="img" aria-label="{alt}">{elements}</svg>'

    def data_uri(self) -> str:
        """Return the picture itself as a data URI."""
        if isinstance(self.content, bytes):
            kind, content = "png", self.content
        else:
            kind, content = "svg+xml", self.document().encode()
        return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"

    def document(self) -> str:
        """Return a drawing as an SVG document of its own, light or dark as the reader's pages."""
        assert not isinstance(self.content, bytes)
        elements, (width, height) = self.content
        title = f"<title>{escape(self.alt)}</title>"
        paper = '<rect width="100%" height="100%" fill="#fff" class="paper"/>'
        name = 'xmlns="http://www.w3.org/2000/svg" role="img"'
        frame = f'{name} {_frame((width, height))} width="{width:g}" height="{height:g}"'
        colours = f'color="#24292f" font-family="{_FONT}"'
        return f"<svg {frame} {colours}>{title}{_STYLE}{paper}{elements}</svg>"


def _frame(size: tuple[float, float]) -> str:
    return f'viewBox="0 0 {size[0]:g} {size[1]:g}" font-size="{_FONT_SIZE}"'


def drawn(
    title: str,
    caption: str,
    draw: Callable[..., Entries | None],
    *,
    height: float = 280.0,
    **data: Any,
) -> Figure:
    """Return what a function of `ism_dask.pictures.drawing` draws of the data into Axes.

    A legend below them lists the entries it returns.
    """

    def make() -> Drawing:
        # matplotlib takes about a second to import, and most commands draw nothing.
        from flows.reports.svg import page_svg  # noqa: PLC0415

        return page_svg(lambda ax: draw(ax, **data), height)

    return Figure(title, caption, make)


def height_of_rows(count: int) -> float:
    """Return the height in points of a drawing with this number of named rows, such as bars."""
    return 22.0 * count + 50.0


def drawn_by_date(
    title: str,
    caption: str,
    dates: Sequence[datetime],
    lines: Mapping[str, Sequence[float | None]],
) -> Figure:
    """Draw named lines that have a value for each date, or None or NaN for none."""

    def draw(ax: Any) -> Entries:
        from flows.reports.svg import draw_dated_lines  # noqa: PLC0415

        return draw_dated_lines(ax, named, title.lower())

    days = [each.timestamp() / _SECONDS_PER_DAY for each in dates]
    points = {name: np.column_stack([days, np.array(each, float)]) for name, each in lines.items()}
    named = [(name, each[np.isfinite(each[:, 1])]) for name, each in points.items()]
    ends = ", ".join(f"{name} {number(each[-1, 1])}" for name, each in named if len(each))
    return drawn(title, f"{caption} The last: {ends}.", draw)


def drawn_rows(
    title: str,
    caption: str,
    points: Array,
    values: Array | None,
    *,
    label: str,
    axis_names: tuple[str, str],
    class_name: Callable[[int], str],
    height: float = 420.0,
) -> Figure:
    """Draw rows (n, 2) in the colours of their values (n,), classes or numbers, if they have some.

    `class_name` returns the name of a class by its code.
    """
    where: dict[str, Any] = {"points": points, "axis_names": axis_names, "height": height}
    if values is None:
        return drawn(title, caption, drawing.draw_points, **where)
    if not are_classes(values):
        return drawn(title, caption, drawing.draw_numbers, values=values, label=label, **where)
    present, codes = np.unique(values, return_inverse=True)
    names = [class_name(int(code)) for code in present]
    return drawn(title, caption, drawing.draw_classes, codes=codes, names=names, **where)


def are_classes(values: Array) -> bool:
    """Return whether the labels of rows are classes, not numbers."""
    return values.dtype.kind in "ui"


def weights_image(weights: Array, shape: tuple[int, ...], largest: float) -> Image.Image:
    """Draw weights (d,) of pixels as an image: red below 0 and blue above, up to +-`largest`."""
    colours = weight_colours(weights, largest)
    return enlarged(Image.fromarray(colours.reshape(*shape, 3), "RGB"))


def enlarged(image: Image.Image) -> Image.Image:
    """Return an image whose height is at least `_MIN_HEIGHT` pixels."""
    factor = -(-_MIN_HEIGHT // image.height)
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)


def png_bytes(image: Image.Image) -> bytes:
    """Return an image as the content of a PNG file."""
    content = BytesIO()
    image.save(content, format="PNG")
    return content.getvalue()


def escape(words: str) -> str:
    """Return text escaped for HTML and XML, its unprintable characters replaced by spaces."""
    return html.escape(printable(words))
