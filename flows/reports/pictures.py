"""Pictures to embed in a page, each with title, caption and description: drawings and images.

Drawings are small SVG documents of matplotlib, which is imported when the first one is drawn.
"""

from __future__ import annotations

import base64
import html
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from importlib.resources import files
from io import BytesIO, StringIO
from math import isfinite
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from flows.errors import ALTERED, FlowError
from ism_dask._types import Array
from ism_dask.pictures import drawing
from ism_dask.words import number, printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

    from ism_dask.pictures.drawing import Entries

# Width of a drawing in points, and dots an inch, so that a point is a unit of SVG.
_WIDTH, DPI = 480.0, 72
# The reader's text colour replaces this colour.
_INK = "#010203"
_STYLE = files("flows.reports") / "templates" / "page.mplstyle"
# A drawing is light or dark as the pages of its reader.
_COLOURS = (
    "<style>svg{color:#24292f}.paper{fill:#fff}@media (prefers-color-scheme:dark)"
    '{svg{color:#dfe2e7}.paper{fill:#1c1f24}}</style><rect width="100%" height="100%" '
    'class="paper"/>'
)
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))
# More dots than this are drawn as an image within the drawing, with so many dots an inch.
_MOST_DOTS, _IMAGE_DPI = 300, 100
# Most entries of a legend, the height of a line of them, the letters of a line, and those that
# have the room of the sign of an entry and the space around it.
_MAX_ENTRIES, _LINE, _LETTERS, _SIGN = 24, 20.0, 60, 9
# The smallest height of an image in pixels.
_MIN_HEIGHT = 96
# The settings of matplotlib are those of a process: one thread draws at a time.
_drawing = RLock()


@dataclass(frozen=True)
class Figure:
    """A picture with its title and its caption."""

    title: str
    caption: str
    # Returns the content of an SVG or PNG file. It is called for pages only: drawing is slow.
    make: Callable[[], bytes]

    @cached_property
    def content(self) -> bytes:
        """The content of the SVG or PNG file."""
        try:
            return self.make()
        except ALTERED as error:
            raise FlowError(
                f"the picture {self.title!r} cannot be drawn ({type(error).__name__}: {error}); "
                "compute the run again"
            ) from error

    @property
    def alt(self) -> str:
        """The words for readers who cannot see it."""
        return f"{self.title}: {self.caption}"

    def data_uri(self) -> str:
        """Return the picture itself as a data URI."""
        kind = "svg+xml" if self.content.startswith(b"<svg") else "png"
        return f"data:image/{kind};base64,{base64.b64encode(self.content).decode()}"


@contextmanager
def page_style() -> Iterator[None]:
    """Draw in the look of a page, whatever the settings of matplotlib."""
    import matplotlib.style  # noqa: PLC0415 - it takes a second, and most commands draw nothing

    with _drawing, matplotlib.style.context(["default", str(_STYLE)]), warnings.catch_warnings():
        # The reader's fonts may have the letters that matplotlib's font lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        yield


def svg_document(figure: Canvas, words: str) -> str:
    """Return a figure of matplotlib as a small SVG document, with words for its title."""
    written = StringIO()
    figure.savefig(written, format="svg", dpi=_IMAGE_DPI, metadata=_NO_METADATA)
    text = written.getvalue()
    text = text[text.index("<svg") :].replace(f": {_INK}", ": currentColor")
    # Hundredths of a point are not seen. What stands between the tags is text, and stays.
    text = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0]), text)
    head = f'{text[: text.index(">")]} role="img"><title>{escape(words)}</title>{_COLOURS}'
    return head + text[text.index(">") + 1 :]


def drawn(
    title: str,
    caption: str,
    draw: Callable[..., Entries | None],
    *,
    height: float = 280.0,
    **data: Any,
) -> Figure:
    """Return what a function of `ism_dask.pictures.drawing` draws of the data into Axes.

    A legend of the entries that it returns lies below them, and adds to the height in points.
    """

    def make() -> bytes:
        with page_style():
            # pyplot does not know the figure, and keeps no figures.
            from matplotlib.figure import Figure as Canvas  # noqa: PLC0415

            canvas = Canvas(figsize=(_WIDTH / DPI, height / DPI), dpi=DPI)
            ax = canvas.add_subplot()
            if entries := draw(ax, **data):
                _add_legend_below(canvas, entries)
            dots = {each: np.shape(each.get_offsets())[0] for each in ax.collections}
            if sum(dots.values()) > _MOST_DOTS:
                for each, count in dots.items():
                    each.set_rasterized(count > 1)
            return svg_document(canvas, figure.alt).encode()

    figure = Figure(title, caption, make)
    return figure


def _add_legend_below(canvas: Canvas, entries: Entries) -> None:
    """Add a legend below the Axes; the figure gets higher by its lines."""
    from matplotlib.lines import Line2D  # noqa: PLC0415

    shown = entries
    if len(entries) > _MAX_ENTRIES:
        shown = entries[: _MAX_ENTRIES - 1]
        shown.append((Line2D([], [], ls=""), f"and {len(entries) - len(shown)} more"))
    longest = max(len(name) for _, name in shown)
    columns = min(len(shown), max(1, _LETTERS // (longest + _SIGN)))
    lines = -(-len(shown) // columns)
    canvas.set_figheight(canvas.get_figheight() + _LINE * lines / DPI)
    drawing.add_legend(canvas, shown, loc="outside lower center", ncols=columns)


def height_of_rows(count: int) -> float:
    """Return the height in points of a drawing with this number of named rows, such as bars."""
    return 22.0 * count + 50.0


def drawn_by_date(
    title: str, caption: str, times: Sequence[str], lines: Mapping[str, Sequence[float]]
) -> Figure:
    """Draw named lines that have a value for each time (ISO 8601), or NaN for none."""
    known = {name: [each for each in values if isfinite(each)] for name, values in lines.items()}
    ends = ", ".join(f"{name} {number(values[-1])}" for name, values in known.items() if values)
    about, names = f"{caption} The last: {ends}.", ("", title.lower())
    dates = [*map(datetime.fromisoformat, times)]
    return drawn(title, about, draw_lines, places=dates, lines=lines, axis_names=names)


def draw_lines(
    ax: Any,
    places: Sequence[Any],
    lines: Mapping[str, Sequence[float]],
    axis_names: tuple[str, str],
    chosen: int | None = None,
) -> Entries:
    """Draw named lines by date or by a whole number, and which number was chosen.

    Values that are NaN are left out.
    """
    entries: Entries = []
    for index, (full_name, values) in enumerate(lines.items()):
        points = [point for point in zip(places, values, strict=True) if isfinite(point[1])]
        name, style = drawing.short_name(full_name), drawing.class_style(index)
        entries.append((ax.plot(*zip(*points, strict=True), label=name, **style)[0], name))
    unit, quantity = axis_names
    if isinstance(places[0], int):
        if chosen is not None:
            ax.axvline(chosen, color=drawing.GREY, ls=":")
            unit = f"{unit} (dotted: {chosen}, chosen)"
        drawing.name_whole_numbers(ax, unit, quantity, places)
    else:
        ax.set_ylabel(quantity, parse_math=False)
    return entries if len(entries) > 1 else []


def image_of_weights(weights: Array, shape: Sequence[int], largest: float) -> bytes:
    """Return weights (d,) of pixels as a PNG: red below 0 and blue above, up to +-`largest`."""
    from matplotlib.image import imsave  # noqa: PLC0415 - slow to import, and few runs have images

    factor = -(-_MIN_HEIGHT // shape[0])
    pixels = np.kron(weights.reshape(shape), np.ones((factor, factor)))
    content, scale = BytesIO(), drawing.DIVERGING
    imsave(content, pixels, format="png", cmap=scale, vmin=-largest, vmax=largest)
    return content.getvalue()


def escape(words: str) -> str:
    """Return text escaped for HTML and XML, its unprintable characters replaced by spaces."""
    return html.escape(printable(words))
