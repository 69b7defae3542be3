"""The tools of the benchmarks: what they measure has to be what they say."""

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import psutil
import pytest
from sklearn.datasets import load_wine
from waiting import wait

from benchmarks import dense, results
from benchmarks.fits import determined, fit, leading_sine
from benchmarks.measure import PeakMemory, high_water
from benchmarks.registry import all_figures, figures_of_make_bench
from benchmarks.results import Result, page, plain
from benchmarks.rows import Labelled
from benchmarks.studies.designs import (
    DESIGNS,
    UNSEEN,
    Counts,
    Design,
    LocationAndScale,
    Logistic,
    Noisy,
    distance,
    efficiency_bound,
    seeded,
)
from benchmarks.studies.methods import LASSO, METHODS, projection
from benchmarks.studies.recovery import _figure
from benchmarks.studies.rivals_of_packages import PACKAGED, lasso_network, missing
from ism_dask.kernels import Gaussian, Polynomial


def test_scale_is_measured_only_where_it_is_named():
    figures = all_figures()
    assert set(figures) - set(figures_of_make_bench()) >= {"scale", "soak"}
    assert all(figure.__doc__ for figure in figures.values())


def test_every_command_of_the_documentation_names_a_figure():
    folder = Path(__file__).parents[2]
    pages = [folder / "README.md", folder / "Makefile", *(folder / "docs").rglob("*.md")]
    commands = [
        words.split()
        for page in pages
        for words in re.findall(r"python -m benchmarks ([a-z][\w ]*)`", page.read_text())
    ]
    assert len(commands) > 2
    assert {name for words in commands for name in words} <= set(all_figures())


@pytest.mark.parametrize("kernel", ["gaussian", "polynomial"])
def test_the_dense_fit_is_the_one_of_the_library(kernel):
    wine = Labelled(*load_wine(return_X_y=True))
    X = dense.standardised(wine.X)
    if kernel == "gaussian":
        ours = fit(wine, Gaussian("median"), 2)
        found = dense.dense_gaussian_fit(X, wine.y, 2, sigma=dense.median_distance(X))
    else:
        ours = fit(wine, Polynomial(degree=3), 2)
        found = dense.dense_polynomial_fit(X, wine.y, 2)
    assert found.n_iter == ours.model.n_iter_ == len(found.seconds)
    assert found.objective == pytest.approx(ours.model.objective_, rel=1e-9)
    assert leading_sine(found.W[:, ::-1], ours.W, 2) < 1e-7
    assert determined(ours.model) == 2


def test_peak_memory_counts_children():
    own = psutil.Process()
    once = high_water(own.pid)
    # Enough to be seen beside what this process has held at some time, and given back.
    size = 300_000_000 + once - own.memory_info().rss
    code = f"import sys; block = bytearray({size}); sys.stdin.read()"
    with (
        PeakMemory() as peak,
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as child,
    ):
        # The census that the watching thread repeats every second has to find the child.
        wait(lambda: peak.together > once + 250_000_000)
        child.stdin.close()


def test_the_page_has_every_figure_and_its_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RECORD", tmp_path / "bench.json")
    words = ("cores", "memory_gb", "processor", "python", "when")
    machine = {**dict.fromkeys(words, "one"), "packages": {"numpy": "2"}}
    figure = {
        "seconds": np.float64(1.25),
        "bound": np.inf,
        "table": [{"n": 2000, "ok": True}, {"n": 5000, "extra": 0.5}],
        "more_tables": {
            "Others": [{"design": "two", "default": 0.3}],
            "Long": [{"n": n} for n in range(13)],
        },
        "picture": "docs/images/recovery.svg",
        "notes": ["one: y = x1"],
        "must": "2 s",
        "met": False,
        "peak_gb": 0.5,
    }
    Result("workers", machine, figure).save()
    json.loads((tmp_path / "bench.json").read_text(), parse_constant=pytest.fail)
    text = page(Result.saved())
    assert "## workers" in text
    assert "## tiles" not in text
    assert "Required: 2 s; **missed**. Measured: seconds 1.25; bound inf." in text
    assert "| n | ok | extra |" in text
    assert "| 5,000 |  | 0.5 |" in text
    assert "| n |\n" not in text  # a table of 13 lines
    assert "![workers](../images/recovery.svg)" in text
    assert "Others:\n\n| design | default |" in text
    assert "y = x1" not in text
    assert plain(figure)["bound"] == "inf"


def test_the_page_of_figures_is_written_from_their_record(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    assert page(Result.saved()) == results.PAGE.read_text()


_ALL = (*DESIGNS, *UNSEEN)
each_design = pytest.mark.parametrize("design", _ALL, ids=lambda design: design.name)


@each_design
def test_y_depends_on_the_subspace_alone(design):
    rng = np.random.default_rng(0)
    X, B = design.inputs(200, design.d, rng), design.B
    assert X.shape == (200, design.d)
    assert B.shape == (design.d, design.q)
    assert np.allclose(B.T @ B, np.eye(design.q))
    others = rng.normal(size=X.shape)
    replaced = X @ B @ B.T + others - others @ B @ B.T
    y, again = (design.response(rows @ B, np.random.default_rng(1)) for rows in (X, replaced))
    assert np.allclose(y, again)
    assert len(np.unique(y)) > 1


@each_design
def test_y_depends_on_each_direction(design):
    Z = design.draw(200, np.random.default_rng(0)).X @ design.B
    for column in range(design.q):
        moved = Z.copy()
        moved[:, column] = moved[::-1, column]
        y, other = (design.response(rows, np.random.default_rng(1)) for rows in (Z, moved))
        assert not np.allclose(y, other)


def test_draws_repeat_and_unseen_designs_follow_the_others_with_rows_of_their_own():
    number = len(DESIGNS) + [design.name for design in UNSEEN].index("two products")
    draw, again, other = (seeded(number, k) for k in (0, 0, 1))
    assert np.array_equal(draw.X, again.X)
    assert np.array_equal(draw.y, again.y)
    assert not np.array_equal(draw.B, other.B)
    assert draw.X.shape == (2000, 10)
    # The columns are in another order, and so are the rows of B.
    t, u, v, w = (draw.X @ draw.B).T
    assert np.std(draw.y - t * u - v * w) == pytest.approx(0.3, abs=0.03)
    assert len({design.name for design in _ALL}) == len(_ALL)


def test_the_efficiency_bound_is_the_error_of_the_best_estimate_of_a_linear_index():
    linear = Design("linear", "y = x1 + 0.3 e", np.eye(1), Noisy(lambda z: z, 0.3), d=6)
    bound = efficiency_bound(linear, 800)
    assert bound == pytest.approx(0.3 * np.sqrt(5 / 800), rel=0.02)
    rng, distances = np.random.default_rng(0), []
    for _ in range(200):
        draw = linear.draw(800, rng)
        distances.append(distance(draw.B, np.linalg.lstsq(draw.X, draw.y)[0][:, None]) ** 2)
    assert np.sqrt(np.mean(distances)) == pytest.approx(bound, rel=0.1)


@pytest.mark.parametrize(
    ("response", "log_density"),
    [
        (Noisy(np.sin, 0.5), lambda y, z: -0.5 * ((y - np.sin(z)) / 0.5) ** 2),
        (Logistic(lambda z: 2 * z), lambda y, z: 2 * z * y - np.log1p(np.exp(2 * z))),
        (Counts(np.exp), lambda y, z: y * z - np.exp(z)),
        (
            LocationAndScale(lambda z: z, np.exp),
            lambda y, z: -0.5 * ((y - z) / np.exp(z)) ** 2 - z,
        ),
    ],
)
def test_the_information_of_a_response_is_the_variance_of_its_score(response, log_density):
    z, step = 0.4, 1e-4
    y = response(np.full((200_000, 1), z), np.random.default_rng(0))
    score = (log_density(y, z + step) - log_density(y, z - step)) / (2 * step)
    information = response.information(np.array([[z]]))[0, 0, 0]
    assert information == pytest.approx(np.mean(score**2), rel=0.02)


def test_distance_is_0_for_the_truth_and_1_for_what_is_orthogonal():
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0]
    B = Q[:, :2]
    assert distance(B, B @ np.array([[3.0, 1.0], [0.0, -2.0]])) == pytest.approx(0, abs=1e-12)
    assert distance(B, Q[:, 2:4]) == pytest.approx(1)
    assert distance(B, Q[:, 1:3]) == pytest.approx(np.sqrt(0.5))


each_method = pytest.mark.parametrize(
    "method",
    [
        *METHODS,
        *(
            pytest.param(name, marks=pytest.mark.skip(missing(name)))
            for name in PACKAGED
            if name != LASSO and missing(name)
        ),
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


@pytest.mark.long
@pytest.mark.skipif(bool(missing(LASSO)), reason=missing(LASSO))
def test_a_lasso_network_finds_the_columns_of_a_product_among_others():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 10))
    y = X[:, 3] * X[:, 6] + 0.1 * rng.normal(size=300)
    assert distance(np.eye(10)[:, [3, 6]], lasso_network(X, y, 2)) < 0.1


@pytest.mark.parametrize("method", ["OPG", "RFM"])
def test_methods_of_the_law_of_y_see_what_moves_its_variance_alone(method):
    drawn = seeded([design.name for design in DESIGNS].index("KDR C"), 0, 300)
    assert distance(drawn.B, projection(method, drawn.X, drawn.y, 1).in_units_of_rows) < 0.3


@pytest.fixture
def pieces(tmp_path, monkeypatch):
    module = import_module("benchmarks.studies.recovery")
    monkeypatch.setattr(module, "_PIECES", tmp_path / "pieces")
    monkeypatch.setattr(module, "_PICTURE", tmp_path / "recovery.svg")
    (tmp_path / "pieces").mkdir()
    return tmp_path / "pieces"


def test_recovery_counts_designs_near_the_best_and_compares_with_the_simplest(pieces):
    seconds = {method: [1.0, 5.0, 2.0] for method in METHODS}
    for design in _ALL:
        distances = {method: [0.1, 0.3] for method in METHODS} | {"default": [0.17, 0.2]}
        if design is _ALL[0]:
            distances["LDA"] = [0.05, 0.15]
        path = pieces / f"{design.name}.json"
        path.write_text(json.dumps({"distances": distances, "seconds": seconds}))
    figure = _figure()
    assert len(figure["table"]) == len(DESIGNS) + 3
    (unseen,) = figure["more_tables"].values()
    assert len(unseen) == len(UNSEEN) + 3
    assert figure["mean_distance"] == pytest.approx(0.185)
    assert figure["near_the_best"] == len(DESIGNS) - 1
    assert figure["most_above_LDA_and_PLS"] == pytest.approx(0.085)
    assert unseen[-2]["default"] == unseen[-2]["SIR"] == len(UNSEEN)
    assert unseen[-1]["SIR"] == pytest.approx(2)
    assert not figure["met"]
