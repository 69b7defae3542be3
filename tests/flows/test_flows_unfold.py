"""`ism-dask unfold`: coordinates of all rows as a saved run."""

from __future__ import annotations

import subprocess
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
from commandline import Command
from support import artifacts_of, doomed_command, store_own

from flows.reports.html import render_run
from flows.settings.unfolding import UnfoldSettings
from ism_dask import ColoredMVU
from ism_dask.unfolding.neighbour_search import ExactSearch
from storage import PieceStore, open_dataset, open_run, result_arrays


def test_coordinates_are_those_of_the_estimator(here: Command) -> None:
    answer = here("unfold", "wine", "--plain", "--json", "--nu", "3").answer
    data = open_dataset("wine")
    model = ColoredMVU(nu=3.0).fit(data.X.read(0, 178), data.y)
    saved = result_arrays("wine-unfolding-q2")
    np.testing.assert_array_equal(saved["coordinates"], model.embedding_)
    np.testing.assert_array_equal(saved["values"], data.y)
    assert answer["label"] == "cultivar"
    assert answer["distance_error"] == model.distance_error_
    assert answer["eigenvalues"] == model.eigenvalues_.tolist()
    assert answer["converged"] is True
    assert answer["class_names"] == list(data.class_names["cultivar"])
    assert 0.5 < answer["same_class"] < 1
    assert open_run("wine-unfolding-q2").metrics["hsic"] == model.hsic_


def test_people_see_the_figures_and_a_page(here: Command) -> None:
    ended = here("unfold", "wine", "--plain", "--run", "seen", "--max-iter", "2")
    assert "Distance error" in ended.out
    assert "did not converge. Raise --max-iter" in " ".join(ended.out.split())
    page = render_run("seen")
    for words in ("178 of 178 rows by their coordinates", "eigenvalues of K", "Duality gap"):
        assert words in page
    assert page.count("<svg") >= 2
    assert "ism-dask unfold wine --max-iter 2 --run seen-again" in page
    plain = here("unfold", "wine", "--plain", "--json", "--target", "none", "--run", "plain").answer
    assert plain["label"] == ""
    assert plain["same_class"] is None
    assert "values" not in result_arrays("plain")
    assert "rows by their coordinates." in render_run("plain")


def test_a_table_of_numbers_and_one_coordinate(here: Command, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 3))
    lines = ["a,b,c,y", *(",".join(map(str, (*row, row.sum()))) for row in rows)]
    (tmp_path / "own.csv").write_text("\n".join(lines))
    answer = here(
        *("unfold", tmp_path / "own.csv", "--label", "y", "-q", "1", "--smooth"),
        *("--plain", "--json", "--run", "own"),
    ).answer
    assert answer["iterations"] == 0
    assert result_arrays("own")["coordinates"].shape == (60, 1)
    assert "in the colours of y" in render_run("own")


def test_a_run_file_unfolds_a_table(here: Command, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(50, 3))
    lines = ["a,b,c,y", *(",".join(map(str, (*row, "pq"[i % 2]))) for i, row in enumerate(rows))]
    (tmp_path / "own.csv").write_text("\n".join(lines))
    text = '[data]\nsource = "own.csv"\nlabel = "y"\n[unfold]\nnu = 2.0\n'
    (tmp_path / "own.toml").write_text(f'run = "filed"\nreport = "own.html"\n{text}')
    assert here("run", tmp_path / "own.toml", "--plain").status == 0
    assert open_run("filed").config["nu"] == 2.0
    assert "in the colours of y" in (tmp_path / "own.html").read_text()
    (tmp_path / "own.toml").write_text(
        f'{text}[[transform]]\nsource = "own.csv"\nout = "new.csv"\n'
    )
    assert "unfold saves no W" in here("run", tmp_path / "own.toml", "--plain").failed(2)


def _no_search(*_: object) -> None:
    raise AssertionError("the neighbours were saved, and are searched again")


def test_a_killed_run_goes_on_after_the_neighbours(
    here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_own(300, 4)
    arguments = ("unfold", "own", "--run")
    assert here(*arguments, "whole", "--plain").status == 0
    command = doomed_command("cut/results", 1, *arguments, "cut", "--plain")
    assert subprocess.run(command, capture_output=True, check=False).returncode == -9
    assert len(PieceStore.of_run("cut").entries) == 1
    monkeypatch.setattr(ExactSearch, "_search_own_rows", _no_search)
    assert here("resume", "cut", "--plain").status == 0
    whole, cut = result_arrays("whole"), result_arrays("cut")
    np.testing.assert_array_equal(cut["coordinates"], whole["coordinates"])
    assert not PieceStore.of_run("cut").folder.exists()


def test_wrong_settings_are_refused(here: Command, tmp_path: Path) -> None:
    both = ("--target", "none", "--label", "cultivar")
    assert "leave one of them out" in here("unfold", "wine", "--plain", *both).failed(2)
    assert "`--target` is 'colour'" in here(
        *("unfold", "wine", "--plain", "--target", "colour")
    ).failed(2)
    assert "1 to 177" in here("unfold", "wine", "--plain", "--neighbors", "178").failed(1)
    assert here("unfold", "wine", "--plain", "--run", "once").status == 0
    assert "--force" in here("unfold", "wine", "--plain", "--run", "once").failed(1)
    assert "has results but no model" in here(
        *("transform", "once", "wine", "-o", tmp_path / "new.csv")
    ).failed(2)


@pytest.mark.usefixtures("prefect_server")
def test_a_flow_shows_its_pictures() -> None:
    from flows.unfold import run_unfold

    result = run_unfold(UnfoldSettings(dataset="wine", run="flown"))
    page = artifacts_of(UUID(result.flow_run["id"]))["unfold-wine-unfolding"].data
    assert f"| {result.distance_error:.3f} |" in page
    assert page.count("data:image/svg+xml;base64,") == 2
