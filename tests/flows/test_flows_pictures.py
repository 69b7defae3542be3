"""The drawings of pages: small SVG documents that show every name as it is and change nothing."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure as Canvas
from PIL import Image

from flows.reports.pictures import (
    _add_legend_below,
    draw_lines,
    drawn,
    image_of_weights,
    page_style,
)
from ism_dask.pictures import drawing
from ism_dask.pictures.drawing import BLUE, COLOURS, RED, class_style

HOSTILE = (
    "<script>alert(1)</script>",
    "$x^2$ and $",
    "a\\b_{",
    "\u05e9\u05dc\u05d5\u05dd",
    "\U0001f600 \u6f22\u5b57",
    "_hidden",
    "]]>&amp;",
    "\x00 bell \x07",
    "0.123456",
    "x" * 300,
)
SHOWN = (*HOSTILE[:-3], "bell", "0.123456", "x" * 29 + "…")
POINTS = np.random.default_rng(0).normal(size=(1000, 2))
AXES = {"axis_names": ("x", "y")}
ROWS = {"points": POINTS, **AXES}
LINES = {"places": [1, 2, 3], "lines": {key: [1.0, np.nan, 0.1] for key in HOSTILE}}
SETTLING = {"numbers": [1, 2, 3], "values": [1e-2, 0.0, 1e-5], "unit": "iteration"}
SVG = "{http://www.w3.org/2000/svg}"

figure = partial(drawn, "<b>", "&\x00")
WEIGHTS = partial(
    figure, drawing.draw_weights, names=HOSTILE, weights=np.linspace(0.9, -0.7, len(HOSTILE))
)
SOME_CLASSES = partial(figure, drawing.draw_classes, **ROWS)
NUMBERS = partial(figure, drawing.draw_numbers, label="y", **ROWS)
PICTURES = {
    "weights": WEIGHTS,
    "classes": partial(SOME_CLASSES, codes=np.arange(1000) % len(HOSTILE), names=HOSTILE),
    "numbers": partial(NUMBERS, values=POINTS[:, 0] ** 3),
    "equal numbers": partial(NUMBERS, values=np.ones(1000)),
    "points": partial(figure, drawing.draw_points, **ROWS),
    "one value": partial(figure, drawing.draw_spectrum, values=np.array([5e8]), next_value=None),
    "measure": partial(figure, drawing.draw_measure, measure="residual", limit=1e-4, **SETTLING),
    "lines": partial(figure, draw_lines, **LINES, **AXES),
}


def texts(picture):
    root = ElementTree.fromstring(picture.content)
    return [each.text or "" for each in root.iter(f"{SVG}text")]


@pytest.mark.parametrize("name", PICTURES)
def test_a_drawing_is_small_complete_and_the_same_each_time(name):
    picture = PICTURES[name]()
    assert picture.content == PICTURES[name]().content
    assert len(picture.content) < 120_000
    root = ElementTree.fromstring(picture.content)
    title = root.find(f"{SVG}title")
    assert title is not None
    assert (root.attrib["role"], title.text) == ("img", "<b>: & ")
    tags = {each.tag.removeprefix(SVG) for each in root.iter()}
    assert not tags & {"script", "metadata", "foreignObject", "a"}
    text = picture.content.decode()
    assert set(re.findall(r'href="(.)', text)) <= {"#", "d"}  # inside the document, or data
    assert not re.search(r"#010203|[\" ]nan[\" ]", text)
    if name in ("weights", "classes", "lines"):
        assert [each for each in texts(picture) if each in SHOWN] == list(SHOWN)


def test_a_legend_has_room_for_some_classes_alone():
    picture = SOME_CLASSES(codes=np.arange(1000) % 40, names=[str(k) for k in range(40)])
    assert "and 17 more" in texts(picture)
    assert len(picture.content) < 120_000


@pytest.mark.parametrize("names", ["0123456789", ["some class", "other class"] * 4])
def test_a_legend_is_as_wide_as_its_drawing(names):
    ax = Canvas(figsize=(480 / 72, 4), dpi=72).add_subplot()
    with page_style():
        entries = [(ax.plot([0, 1])[0], name) for name in names]
        _add_legend_below(ax.figure, entries)
        ax.figure.draw_without_rendering()
        (legend,) = ax.figure.legends
        box = legend.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= 480


def test_equal_looks_mean_equal_classes():
    looks = {tuple(sorted(class_style(index).items())) for index in range(48)}
    assert len(looks) == 48
    assert len({class_style(index)["color"] for index in range(10)}) == 10
    assert [class_style(index)["color"] for index in range(6)] == list(COLOURS)


def test_colours_of_weights_are_those_of_their_bars():
    bars = WEIGHTS().content.decode()
    counts = [bars.count(f"fill: {colour.lower()}") for colour in (BLUE, RED)]
    assert counts == [6, 4]
    content = image_of_weights(np.array([2.0, -2.0, 0.0]), (3, 1), 2.0)
    image = np.asarray(Image.open(BytesIO(content)).convert("RGB"))
    above, below, zero = image[16::32, 0].astype(int)
    assert above[2] > above[0]
    assert below[0] > below[2]
    assert zero.min() > 240


@pytest.mark.long
def test_threads_draw_at_the_same_time():
    known = {name: picture().content for name, picture in PICTURES.items()}

    def redrawn(name):
        return name, PICTURES[name]().content

    with ThreadPoolExecutor(8) as threads:
        again = threads.map(redrawn, [*PICTURES] * 3)
    assert all(known[name] == content for name, content in again)


def test_settings_are_not_changed_and_decide_nothing():
    mpl.use("Agg")
    known = WEIGHTS().content
    settings = {"text.usetex": True, "svg.fonttype": "path", "text.color": "red", "font.size": 3}
    with mpl.rc_context(settings):
        before = mpl.rcParams.copy()
        assert WEIGHTS().content == known
        assert mpl.rcParams == before


def test_pyplot_is_not_needed():
    code = (
        "import sys\nfrom ism_dask.pictures.drawing import draw_objective\n"
        "from flows.reports.pictures import drawn\n"
        "assert 'matplotlib' not in sys.modules\n"
        "drawn('', '', draw_objective, numbers=[1], values=[2.0], unit='round').content\n"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
