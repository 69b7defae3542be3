"""What a page shows of a fit: small, self-contained SVG in the colours of `ism_dask.plot`."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest

from flows.reports.svg import WIDTH, page_svg
from ism_dask.pictures import drawing
from ism_dask.pictures.colours import BLUE, COLOURS, RED, class_style, weight_colours

HOSTILE = (
    "<script>alert(1)</script>",
    "$x^2$ and $",
    "a\\b_{",
    "\u05e9\u05dc\u05d5\u05dd",
    "\U0001f600 \u6f22\u5b57",
    "_hidden",
    "]]>&amp;",
    "\x00 bell \x07",
    "x" * 300,
)
SHOWN = (*HOSTILE[:-2], "bell", "x" * 29 + "…")
POINTS = np.random.default_rng(0).normal(size=(2000, 2))
AXES = ("x", "y")


def parsed(draw: drawing.Draw, height: float = 280.0) -> ElementTree.Element:
    body, (_, full_height) = page_svg(draw, height)
    assert full_height >= height
    return ElementTree.fromstring(f"<svg>{body}</svg>")


def texts(root: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in root.iter("text")]


def places(path: str) -> np.ndarray:
    """Return the points of a path of relative moves."""
    return np.cumsum(np.array(path.removeprefix("m").split(), dtype=float).reshape(-1, 2), axis=0)


WEIGHTS = partial(drawing.draw_weights, names=HOSTILE, weights=np.linspace(0.9, -0.7, len(HOSTILE)))
CLASSES = partial(
    drawing.draw_classes,
    points=POINTS,
    codes=np.arange(2000) % len(HOSTILE),
    names=HOSTILE,
    axis_names=AXES,
)
NUMBERS = partial(
    drawing.draw_numbers, points=POINTS, values=POINTS[:, 0] ** 3, label="y", axis_names=AXES
)
PICTURES = {
    "weights": WEIGHTS,
    "classes": CLASSES,
    "numbers": NUMBERS,
    "equal numbers": partial(
        drawing.draw_numbers, points=POINTS, values=np.ones(2000), label="y", axis_names=AXES
    ),
    "points": partial(drawing.draw_points, points=POINTS, axis_names=AXES),
    "spectrum": partial(drawing.draw_spectrum, values=np.array([5.0, 3.0]), next_value=-1.0),
    "one value": partial(drawing.draw_spectrum, values=np.array([5e8]), next_value=None),
    "objective": partial(drawing.draw_objective, numbers=[1, 2], values=[7.0, 9.0], unit="round"),
    "measure": partial(
        drawing.draw_measure,
        numbers=[1, 2, 3],
        values=[1e-2, 0.0, 1e-5],
        unit="iteration",
        measure="residual",
        limit=1e-4,
    ),
    "accuracy": partial(drawing.draw_accuracy, folds=[0, 1], values=[0.9, 1.0], mean=0.95),
    "lines": partial(
        drawing.draw_lines,
        lines=[(name, np.array([[1.0, 2.0], [100.0, 0.1]])) for name in HOSTILE],
        axis_names=AXES,
        logarithmic=True,
    ),
}


def test_pictures_are_small_complete_and_the_same_each_time() -> None:
    every: list[str] = []
    for draw in PICTURES.values():
        body, size = page_svg(draw, 280.0)
        assert (body, size) == page_svg(draw, 280.0)
        root = ElementTree.fromstring(f"<svg>{body}</svg>")
        ids = [each.attrib["id"] for each in root.iter() if "id" in each.attrib]
        assert set(re.findall(r"url\(([^)]*)\)", body)) == {f"#{each}" for each in ids}
        assert not re.search(r"href|http|font-family|style=|<image|#000000|#010203|nan", body)
        assert {each.attrib["fill"] for each in root.iter("text")} == {"currentColor"}
        assert len(body) < 60_000
        every += ids
    assert len(every) == len(set(every)) > 10


@pytest.mark.parametrize("name", ["weights", "classes", "lines"])
def test_names_are_text_and_nothing_else(name: str) -> None:
    root = parsed(PICTURES[name])
    assert set(root.iter()) - set(root.iter("svg")) == {
        each for tag in ("text", "path", "marker") for each in root.iter(tag)
    }
    assert [each for each in texts(root) if each in SHOWN] == list(SHOWN)


def test_two_thousand_dots_of_forty_classes_are_small() -> None:
    draw = partial(
        drawing.draw_classes,
        points=POINTS,
        codes=np.arange(2000) % 40,
        names=[str(k) for k in range(40)],
        axis_names=AXES,
    )
    body, _ = page_svg(draw, 420.0)
    assert len(body) < 60_000
    many = re.findall(r'd="(m[^"]*)" fill="none" marker', body)
    assert [len(places(each)) for each in many] == [50] * 40
    assert "and 17 more" in texts(ElementTree.fromstring(f"<svg>{body}</svg>"))


def test_dots_lie_where_they_belong() -> None:
    draw = partial(drawing.draw_objective, numbers=[1, 2, 3], values=[3.0, 9.0, 6.0], unit="k")
    body, (_, height) = page_svg(draw, 280.0)
    (path,) = re.findall(r'd="(m[^"]*)"', body)
    x, y = places(path).T
    assert x[1] - x[0] == pytest.approx(x[2] - x[1], abs=0.2)
    # The highest value lies highest, and the third half way between the others.
    assert y[2] == pytest.approx((y[0] + y[1]) / 2, abs=0.2)
    assert 0 < y[1] < y[2] < y[0] < height
    assert (x > 0).all()
    assert (x < WIDTH).all()


def test_ticks_lie_where_their_values_are() -> None:
    root = parsed(PICTURES["spectrum"])
    ticks = {each.text: each for each in root.iter("text") if each.attrib.get("y")}
    x = [float(ticks[number].attrib["x"]) for number in "123"]
    assert x[2] - x[1] == pytest.approx(x[1] - x[0], abs=0.05)
    y = [float(ticks[value].attrib["y"]) for value in ("4", "2", "0")]
    assert y[2] - y[1] == pytest.approx(y[1] - y[0], abs=0.05)
    assert y[2] > y[0]


def test_numbers_have_few_colours_that_outliers_leave_apart() -> None:
    body, _ = page_svg(NUMBERS, 420.0)
    dots = re.findall(r'<marker [^>]*><path [^>]* fill="(#[0-9a-f]{6})"', body)
    assert 20 < len(set(dots)) == len(dots) <= 32
    assert "stroke" not in re.findall(r"<marker.*?</marker>", body)[0]


def test_equal_looks_mean_equal_classes() -> None:
    looks = {tuple(sorted(class_style(index).items())) for index in range(48)}
    assert len(looks) == 48
    assert len({class_style(index)["color"] for index in range(10)}) == 10
    assert [class_style(index)["color"] for index in range(6)] == list(COLOURS)


def test_colours_of_weights_are_those_of_their_bars() -> None:
    body, _ = page_svg(WEIGHTS, 280.0)
    assert len(re.findall(f'fill="{BLUE.lower()}"', body)) == 5
    assert len(re.findall(f'fill="{RED.lower()}"', body)) == 4
    above, below, zero = weight_colours(np.array([2.0, -2.0, 0.0]), 2.0).astype(int)
    assert above[2] > above[0]
    assert below[0] > below[2]
    assert zero.min() > 240


@pytest.mark.long
def test_threads_draw_at_the_same_time() -> None:
    bodies = {name: page_svg(draw, 280.0) for name, draw in PICTURES.items()}
    with ThreadPoolExecutor(8) as threads:
        drawn = threads.map(lambda name: (name, page_svg(PICTURES[name], 280.0)), [*PICTURES] * 3)
    assert all(bodies[name] == body for name, body in drawn)


def test_settings_are_not_changed_and_make_no_formulas_of_names() -> None:
    mpl.use("Agg")
    with mpl.rc_context({"text.usetex": True, "svg.fonttype": "path", "text.color": "red"}):
        before = mpl.rcParams.copy()
        root = parsed(WEIGHTS)
        assert mpl.rcParams == before
    assert [each for each in texts(root) if each in SHOWN] == list(SHOWN)
    assert not any("mathdefault" in each for each in texts(root))
    assert {each.attrib["fill"] for each in root.iter("text")} == {"currentColor"}


def test_pyplot_is_not_needed() -> None:
    code = (
        "import sys\nfrom ism_dask.pictures.drawing import draw_objective\n"
        "from flows.reports.svg import page_svg\n"
        "page_svg(lambda ax: draw_objective(ax, [1], [2.0], 'round'), 200.0)\n"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
