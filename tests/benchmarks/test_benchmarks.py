"""The tools of the benchmarks: what they measure has to be what they say."""

import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks import results
from benchmarks.registry import all_figures, figures_of_make_bench
from benchmarks.results import Result, page
from benchmarks.studies.designs import (
    DESIGNS,
    UNSEEN,
    Design,
    Noisy,
    distance,
    efficiency_bound,
    seeded,
)
from benchmarks.studies.methods import OTHERS, PAPER, ROTATED, projection


def test_every_command_and_link_of_the_documentation_names_a_figure():
    folder = Path(__file__).parents[2]
    pages = [folder / "README.md", folder / "Makefile", *(folder / "docs").rglob("*.md")]
    commands = [
        words.split()
        for page in pages
        for words in re.findall(
            r"(?:python -m benchmarks |figures\.md#)([a-z][\w ]*)[`)]", page.read_text()
        )
    ]
    assert len(commands) > 2
    assert {name for words in commands for name in words} <= set(all_figures())
    # Scale is measured only where it is named.
    assert set(all_figures()) - set(figures_of_make_bench()) >= {"scale", "soak"}


def test_the_page_of_figures_is_written_from_their_record(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    assert page(Result.saved()) == results.PAGE.read_text()


def test_what_was_tried_is_told_of_each_missed_figure_and_of_no_other(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    missed = {result.name for result in Result.saved() if not result.figure["met"]}
    assert set(results.tried()) == missed


@pytest.mark.parametrize("design", [*DESIGNS, *UNSEEN], ids=lambda design: design.name)
def test_y_depends_on_all_of_the_subspace_and_on_nothing_else(design):
    rng = np.random.default_rng(0)
    X, B = design.inputs(200, design.d, rng), design.B
    assert X.shape == (200, design.d)
    assert B.shape == (design.d, design.q)
    assert np.allclose(B.T @ B, np.eye(design.q))
    others = rng.normal(size=X.shape)
    replaced = X @ B @ B.T + others - others @ B @ B.T
    y, again = (design.response(rows @ B, np.random.default_rng(1)) for rows in (X, replaced))
    assert np.allclose(y, again)
    for column in range(design.q):
        moved = X @ B
        moved[:, column] = moved[::-1, column]
        assert not np.allclose(y, design.response(moved, np.random.default_rng(1)))


def test_the_efficiency_bound_is_the_error_of_the_best_estimate_of_a_linear_index():
    linear = Design("linear", "y = x1 + 0.3 e", np.eye(1), Noisy(lambda z: z, 0.3), d=6)
    bound = efficiency_bound(linear, 800)
    assert bound == pytest.approx(0.3 * np.sqrt(5 / 800), rel=0.02)
    rng, distances = np.random.default_rng(0), []
    for _ in range(200):
        draw = linear.draw(800, rng)
        distances.append(distance(draw.B, np.linalg.lstsq(draw.X, draw.y)[0][:, None]) ** 2)
    assert np.sqrt(np.mean(distances)) == pytest.approx(bound, rel=0.1)


each_method = pytest.mark.parametrize(
    "method",
    [
        # It trains a network from several starts.
        pytest.param(name, marks=[pytest.mark.long] * (name == "network"))
        for name in (*OTHERS, PAPER, ROTATED)
    ],
)


@each_method
def test_every_method_recovers_a_line_in_columns_of_unequal_units(method):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 5)) * [1, 2, 5, 0.5, 1]
    b = np.array([[1.0, -0.5, 0.1, 0.0, 0.0]]).T
    y = (X @ b).ravel() + 0.2 * rng.normal(size=400)
    assert distance(b, projection(method, X, y, 1).in_units_of_rows) < 0.15


@each_method
def test_every_method_recovers_the_plane_of_three_classes(method):
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=400)
    centres = np.zeros((3, 6))
    centres[:, :2] = [[0, 0], [3, 0], [0, 3]]
    X = rng.normal(size=(400, 6)) + centres[y]
    assert distance(np.eye(6)[:, :2], projection(method, X, y, 2).in_units_of_rows) < 0.3


@pytest.mark.parametrize("method", ["OPG", "RFM"])
def test_methods_of_the_law_of_y_see_what_moves_its_variance_alone(method):
    drawn = seeded([design.name for design in DESIGNS].index("KDR C"), 0, 300)
    assert distance(drawn.B, projection(method, drawn.X, drawn.y, 1).in_units_of_rows) < 0.3
