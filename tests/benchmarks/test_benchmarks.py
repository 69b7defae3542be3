"""The tools of the benchmarks: what they measure has to be what they say."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import psutil
import pytest
from sklearn.datasets import load_wine
from waiting import wait

from benchmarks import results
from benchmarks.dense import (
    dense_gaussian_fit,
    dense_polynomial_fit,
    median_distance,
    standardised,
)
from benchmarks.figures import FIGURES, UNASKED
from benchmarks.fits import determined, fit, leading_sine
from benchmarks.measure import PeakMemory, crossing, high_water, log_slope
from benchmarks.results import Result, page, plain
from benchmarks.rows import Head, Labelled
from benchmarks.shifted import shifted
from ism_dask.kernels import Gaussian, Polynomial
from ism_dask.rows.source import RowSource
from storage import DatasetInfo, open_dataset, write_dataset


@pytest.fixture(scope="module")
def wine():
    return Labelled(*load_wine(return_X_y=True))


def test_scale_is_measured_only_where_it_is_named():
    assert set(UNASKED) < set(FIGURES)
    assert all(figure.__doc__ for figure in FIGURES.values())
    # A submodule of the same name would take the place of a figure.
    assert all(callable(figure) and name.isidentifier() for name, figure in FIGURES.items())


@pytest.mark.parametrize("kernel", ["gaussian", "polynomial"])
def test_the_dense_fit_is_the_one_of_the_library(wine, kernel):
    X = standardised(wine.X)
    if kernel == "gaussian":
        ours = fit(wine, Gaussian("median"), 2)
        found = dense_gaussian_fit(X, wine.y, 2, sigma=median_distance(X))
    else:
        ours = fit(wine, Polynomial(degree=3), 2)
        found = dense_polynomial_fit(X, wine.y, 2)
    assert found.n_iter == ours.model.n_iter_ == len(found.seconds)
    assert found.objective == pytest.approx(ours.model.objective_, rel=1e-9)
    assert leading_sine(found.W[:, ::-1], ours.W, 2) < 1e-7
    assert determined(ours.model) == 2


def test_head_is_the_first_rows_of_a_source(tmp_path):
    X = np.arange(60, dtype=np.uint8).reshape(20, 3)
    y = np.arange(20) % 2
    info = DatasetInfo("numbers", default_label="half")
    write_dataset(tmp_path / "numbers", info, [X], {"half": y}, chunk_rows=4)
    data = open_dataset(tmp_path / "numbers")
    head = Head(data.X, 10)
    assert isinstance(head, RowSource)
    assert head.shape == (10, 3)
    assert np.array_equal(head.read(3, 12), X[3:10])
    rows = Labelled(data.X, y).head(10)
    assert np.array_equal(rows.in_memory().X, X[:10])
    assert np.array_equal(rows.y, y[:10])


def test_slope_and_crossing_are_those_of_powers():
    sizes = np.array([100, 1000, 10_000])
    assert log_slope(sizes, 3e-5 * sizes**1.5) == pytest.approx(1.5)
    assert crossing(sizes, (sizes / 2000.0) ** 0.7) == pytest.approx(2000)
    assert crossing(sizes, [1.5, 2, 3]) is None


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


def test_shifting_moves_pictures_and_fills_with_zeros():
    picture = np.zeros((1, 28, 28), np.uint8)
    picture[0, 0, 5] = 9
    flat = picture.reshape(1, -1)
    assert np.array_equal(shifted(flat, np.array([[2, 2]])), flat)
    down = shifted(flat, np.array([[0, 1]])).reshape(28, 28)  # a frame's corner further up and left
    assert down[2, 6] == 9
    assert down.sum() == 9
    assert not shifted(flat, np.array([[3, 2]])).any()  # out at the top


def test_the_page_has_every_figure_and_its_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    machine = {
        "cores": 2,
        "memory_gb": 8.0,
        "processor": "one",
        "python": "3.11",
        "packages": {"numpy": "2"},
        "when": "today",
    }
    figure = {
        "seconds": np.float64(1.25),
        "bound": np.inf,
        "table": [{"n": 2000, "ok": True}, {"n": 5000, "extra": 0.5}],
        "must": "2 s",
        "met": False,
        "peak_gb": 0.5,
    }
    Result("slope", machine, figure).save()
    json.loads((tmp_path / "slope.json").read_text(), parse_constant=pytest.fail)
    text = page(Result.kept(["tiles", "slope"]))
    assert "## slope" in text
    assert "## tiles" not in text
    assert "| n | ok | extra |" in text
    assert "| 5,000 |  | 0.5 |" in text
    assert "**missed**" in text
    assert plain(figure)["bound"] == "inf"
