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
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from flows.errors import ALTERED, FlowError
from flows.text import number, printable
from ism_dask._types import Array
from ism_dask.pictures import drawing

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
# Most dates at an axis.
_MAX_DATES, _SECONDS_PER_DAY = 5, 86_400
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
    title: str,
    caption: str,
    dates: Sequence[datetime],
    lines: Mapping[str, Sequence[float | None]],
) -> Figure:
    """Draw named lines that have a value for each date, or None or NaN for none."""

    def draw(ax: Any) -> Entries:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter  # noqa: PLC0415

        locator = AutoDateLocator(minticks=2, maxticks=_MAX_DATES)  # type: ignore[no-untyped-call]
        ax.xaxis.set_major_locator(locator)
        entries = draw_lines(ax, named, ("", title.lower()))
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        return entries

    days = [each.timestamp() / _SECONDS_PER_DAY for each in dates]
    points = {name: np.column_stack([days, np.array(each, float)]) for name, each in lines.items()}
    named = [(name, each[np.isfinite(each[:, 1])]) for name, each in points.items()]
    ends = ", ".join(f"{name} {number(each[-1, 1])}" for name, each in named if len(each))
    return drawn(title, f"{caption} The last: {ends}.", draw)


def draw_lines(ax: Any, lines: Sequence[tuple[str, Array]], axis_names: tuple[str, str]) -> Entries:
    """Draw named lines through points (m, 2), each in the order of its points."""
    entries: Entries = []
    for index, (full_name, points) in enumerate(lines):
        name = drawing.short_name(full_name)
        line = ax.plot(*points.T, label=name, **drawing.class_style(index))[0]
        entries.append((line, name))
    drawing.name_axes(ax, axis_names)
    return entries


def drawn_rows(
    title: str,
    caption: str,
    points: Array,
    values: Array | None,
    classes: Sequence[str] | None,
    *,
    label: str,
    axis_names: tuple[str, str],
) -> Figure:
    """Draw rows (n, 2) in the colours of their values (n,), if they have some: see `coded`."""
    where: dict[str, Any] = {"points": points, "axis_names": axis_names, "height": 420.0}
    if values is None:
        return drawn(title, caption, drawing.draw_points, **where)
    if classes is None:
        return drawn(title, caption, drawing.draw_numbers, values=values, label=label, **where)
    return drawn(title, caption, drawing.draw_classes, codes=values, names=classes, **where)


def coded(
    values: Array, names: Sequence[str] | None, what: str
) -> tuple[Array, Sequence[str] | None]:
    """Return classes as indices of their names, with the names; numbers as they are, with None.

    `names` are those by value; a class without one is named by its number and `what` it is.
    """
    if values.dtype.kind not in "ui":
        return values, None
    present, codes = np.unique(values, return_inverse=True)
    known = dict(enumerate(names or ()))
    return codes, [known.get(int(value), f"{what} {value}") for value in present]


def weights_image(weights: Array, shape: tuple[int, ...], largest: float) -> Image.Image:
    """Draw weights (d,) of pixels as an image: red below 0 and blue above, up to +-`largest`."""
    from matplotlib import colormaps  # noqa: PLC0415 - slow to import, and few runs have images

    shares = 0.5 + 0.5 * np.asarray(weights, dtype=float) / largest
    colours = colormaps[drawing.DIVERGING](shares, bytes=True)[:, :3]
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
