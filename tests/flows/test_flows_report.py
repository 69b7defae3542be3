"""Reports of runs: plots, the HTML page as a real browser shows it, the Markdown page."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import Browsing
from commandline import Command
from hypothesis import given
from hypothesis import strategies as st

from flows.paper.measure import tables_plain
from flows.paper.settings import TablesSettings
from flows.reports import plots
from flows.reports.axes import integer_axis, linear_axis, log_axis
from flows.reports.html import render_run
from flows.reports.markdown import cluster_page, crossval_page, fit_page, table_files
from flows.runs.clustering import cluster_plain
from flows.runs.crossval import crossval_plain
from flows.runs.fit import fit_plain
from flows.settings.runs import ClusterSettings, CrossvalSettings, FitSettings
from storage import (
    DatasetInfo,
    Model,
    dataset_path,
    run_folder,
    save_model,
    save_results,
    write_dataset,
)

HOSTILE = ("<script>alert(1)</script>", "a|b `c` **d**", "\x00 bell \x07", "]]>&amp;", "x" * 200)


Summaries = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Summaries]:
    """Return a home with a run of each kind, which bears the name of its kind."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISM_DASK_HOME", str(home))
        digits = ClusterSettings(dataset="digits", n_clusters=4, run="cluster")
        return home, {
            "fit": fit_plain(FitSettings(dataset="wine", run="fit")),
            "cluster": cluster_plain(digits),
            "crossval": crossval_plain(CrossvalSettings(dataset="wine", run="crossval")),
        }


@pytest.fixture
def summaries(made: tuple[Path, Summaries], monkeypatch: pytest.MonkeyPatch) -> Summaries:
    """Return what was found by the run of each kind, in the home of which the test is."""
    monkeypatch.setenv("ISM_DASK_HOME", str(made[0]))
    return made[1]


def store_hostile() -> None:
    X = np.random.default_rng(0).normal(size=(300, len(HOSTILE)))
    classes = tuple(f"<img src=x onerror=alert({k})>" for k in range(3))
    info = DatasetInfo(
        "hostile", feature_names=HOSTILE, class_names={"y": classes}, default_label="y"
    )
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    write_dataset(dataset_path("hostile"), info, [X], {"y": y, "number": X[:, 1] ** 3})


class Strict(HTMLParser):
    """Notes every element, and refuses one that is not closed in its turn."""

    VOID = ("meta", "link", "img", "br")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert "svg" in self.open
        self.seen.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.seen if name == tag]


@pytest.mark.usefixtures("summaries")
@pytest.mark.parametrize("kind", ["fit", "cluster", "crossval"])
def test_a_page_is_sound_and_asks_nobody_for_anything(kind: str) -> None:
    page = render_run(kind)
    found = Strict(page)
    assert page.startswith("<!DOCTYPE html>")
    assert len(found.all("main")) == len(found.all("h1")) == 1
    assert len(found.all("figure")) == len(found.all("figcaption")) > 0
    assert len(found.all("table")) == len(found.all("caption")) > 1
    assert all(image["src"].startswith("data:image/png") for image in found.all("img"))
    assert all(each["alt"] for each in found.all("img"))
    assert all(each["aria-label"] for each in found.all("svg"))
    assert found.all("script") == []
    assert "http:" not in page
    assert "https:" not in page


def test_a_page_says_what_was_measured(summaries: Summaries) -> None:
    summary, clustered, crossed = (summaries[kind] for kind in ("fit", "cluster", "crossval"))
    page = render_run("fit")
    assert f"{summary['objective']:.6g}" in page
    assert f"eigengap {summary['eigengap']:.3g}" in page
    assert page.count("<h3>feature_") == 2
    assert summary["loadings"][0][0]["feature"] in page
    page = render_run("crossval")
    assert "10 of 10" in page
    assert all(f"<td>{each['accuracy']:.4f}</td>" in page for each in crossed["results"])
    assert f"<td>{crossed['sd']['accuracy']:.4f}</td>" in page
    page = render_run("cluster")
    assert f"{clustered['nmi']['digit']:.3f}" in page
    assert all(f"<td>{size:,}</td>" in page for size in clustered["sizes"])


@pytest.mark.usefixtures("summaries")
def test_nothing_but_the_folder_of_the_run_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, folder = render_run("cluster"), run_folder("cluster")
    monkeypatch.setenv("ISM_DASK_HOME", str(tmp_path / "elsewhere"))
    shutil.copytree(folder, run_folder("cluster"))
    assert render_run("cluster") == page


@pytest.mark.parametrize("label", ["y", "number"])
@pytest.mark.parametrize("q", [1, 2])
def test_names_are_shown_and_never_obeyed(label: str, q: int) -> None:
    store_hostile()
    summary = fit_plain(FitSettings(dataset="hostile", label=label, n_components=q, run="bad"))
    found = Strict(render_run("bad"))
    assert found.all("script") == found.all("img") == []
    page = fit_page(summary)
    assert "<script" not in page
    assert "<img" not in page
    assert r"a\|b \`c\` \*\*d\*\*" in page


def test_a_model_without_history_or_sample_has_a_page() -> None:
    told = {"dataset": "own", "rows": 9, "columns": 3, "kernel": "linear", "n_components": 1}
    account = {"residual": 0.1, "residual_rows": 9, "engine": "closed", "engine_error": 0.0}
    account |= {"engine_note": "", "iterations": 1, "seconds": 0.1, "converged": True}
    model = Model(
        components=np.eye(1, 3),
        mean=np.zeros(3),
        scale=np.ones(3),
        eigenvalues=np.ones(1),
        metrics={**told, **account, "objective": 1.0, "eigengap": 0.5},
        config={"tol": 0.01, "angle_tol": None},
    )
    save_model("old", model)
    found = Strict(render_run("old"))
    assert len(found.all("figure")) == 2  # the spectrum and one component


def test_two_thousand_dots_are_small() -> None:
    points = np.random.default_rng(0).normal(size=(2000, 2)).tolist()
    groups = [plots.Group(str(k), plots.colour(k), points[k::40]) for k in range(40)]
    drawn = plots.scatter("dots", groups, ("x", "y"))
    assert len(drawn.element()) < 60_000
    assert drawn.body.count("<path") == 40
    assert drawn.body.count("h0") == 2000


def test_dots_lie_where_they_belong() -> None:
    values = [(1, 3.0), (2, 9.0), (3, 6.0)]
    drawn = plots.line_plot("alt", values, ("k", "v"), joined=False).body
    (path,) = re.findall(r'<path d="([^"]*)"', drawn)
    steps = re.findall(r"m(\S+) (\S+)h0", path)
    places = np.cumsum(np.array(steps, dtype=float), axis=0)
    assert places[1, 0] - places[0, 0] == pytest.approx(places[2, 0] - places[1, 0], abs=0.2)
    # The highest value lies highest, and the third half way between the others.
    assert places[2, 1] == pytest.approx((places[0, 1] + places[1, 1]) / 2, abs=0.2)
    assert places[1, 1] < places[2, 1] < places[0, 1]


NUMBERS = st.floats(-1e12, 1e12, allow_nan=False, allow_subnormal=False)


@given(st.lists(NUMBERS, min_size=1, max_size=5))
def test_ticks_are_within_and_told_apart(values: list[float]) -> None:
    axis = linear_axis(values)
    places = [place for place, _ in axis.ticks]
    assert 3 <= len(places) <= 9
    assert places == sorted(places)
    assert len({name for _, name in axis.ticks}) == len(places)
    assert axis.low <= places[0] < places[-1] <= axis.high
    assert all(axis.low < value < axis.high for value in values)


@given(st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=5))
def test_decades_hold_what_they_are_made_for(values: list[float]) -> None:
    axis = log_axis(values)
    assert 2 <= len(axis.ticks) <= 8
    assert all(0 <= axis.place(value) <= 1 for value in values)


@given(st.integers(1, 50), st.integers(0, 500))
def test_whole_numbers_have_few_ticks(least: int, more: int) -> None:
    ticks = integer_axis(least, least + more).ticks
    assert 1 <= len(ticks) <= 8
    assert all(name == f"{place:g}" for place, name in ticks)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ((0.0, 1.0), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        ((0.0, 10.0), ["0", "2", "4", "6", "8", "10"]),
        ((1e6, 3e6), ["1.0e6", "1.5e6", "2.0e6", "2.5e6", "3.0e6"]),
        ((-0.0004, 0.0), ["-0.0004", "-0.0003", "-0.0002", "-0.0001", "0"]),
    ],
)
def test_names_of_ticks(values: tuple[float, float], names: list[str]) -> None:
    assert [name for _, name in linear_axis(values).ticks] == names


def test_pages_in_markdown_end_with_links_and_stay_small(summaries: Summaries) -> None:
    pages = {"fit": fit_page, "cluster": cluster_page, "crossval": crossval_page}
    for kind, page in pages.items():
        text = page(summaries[kind], {"Report": "http://127.0.0.1:9/x"})
        assert text.startswith(f"# {kind}\n")
        assert text.endswith("\n- [Report](http://127.0.0.1:9/x)")
        assert "](data:image/svg+xml;base64," in text
        assert len(text) < 300_000


def _look(page: Any) -> dict[str, Any]:
    return {
        "tables": page.locator("table caption").count(),
        "drawings": page.locator("figure svg").count(),
        "images": page.evaluate(
            "[...document.images].map(each => each.complete && each.naturalWidth)"
        ),
        "heights": page.evaluate(
            "[...document.querySelectorAll('figure svg')].map(each => each.clientHeight)"
        ),
        "width": page.evaluate("document.documentElement.scrollWidth"),
        "paper": page.evaluate("getComputedStyle(document.body).backgroundColor"),
        "scripts": page.evaluate("document.scripts.length"),
        "title": page.locator("h1").inner_text(),
    }


@pytest.mark.usefixtures("summaries")
@pytest.mark.parametrize("kind", ["fit", "cluster", "crossval"])
def test_a_browser_shows_the_report(here: Command, browser: Browsing, kind: str) -> None:
    path = Path(here("report", kind, "--json").answer["path"])
    for width, scheme in ((1200, "light"), (400, "dark")):
        screen = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
        visit = browser.visit(path.as_uri(), _look, **screen)
        found = visit.found
        assert found["title"] == kind
        assert found["tables"] >= 2
        assert found["drawings"] >= 1
        assert min(found["heights"]) > 50
        assert all(found["images"])
        assert bool(found["images"]) is (kind == "cluster")
        assert found["width"] <= width
        assert (sum(map(int, re.findall(r"\d+", found["paper"])[:3])) > 380) is (scheme == "light")
        assert [url for url in visit.requests if not url.startswith("data:")] == [path.as_uri()]
        assert visit.complaints == []


def test_a_browser_shows_the_tables_of_the_paper(here: Command, browser: Browsing) -> None:
    asked = TablesSettings(parts="table-5", data="wine", folds=2, run="paper")
    cells = tables_plain(asked)["cells"]
    name = "<i>line</i>"
    features = [{"count": q, "score": 0.1 * q} for q in (1, 3, 9)]
    growth = [{"rows": n, "seconds": 1e-6 * n**2} for n in (500, 1000, 2000)]
    others = [
        {"part": "features", "subject": {"line": name}, "results": features},
        {"part": "figure-1b", "subject": {"line": name, "kernel": "k"}, "results": growth},
    ]
    metrics = {"cells": cells, "others": others, "problems": []}
    save_results("paper", "tables", config=asked.to_json(), metrics=metrics, versions={})
    path = Path(here("report", "paper", "--json").answer["path"])
    for width in (1200, 400):
        screen = {"viewport": {"width": width, "height": 800}, "color_scheme": "light"}
        visit = browser.visit(path.as_uri(), _look, **screen)
        assert visit.found["drawings"] == 2
        assert min(visit.found["heights"]) > 150
        assert visit.found["tables"] >= 4
        assert visit.found["width"] <= width
        assert visit.complaints == []
    page = path.read_text()
    assert "with three of them: &lt;i&gt;line&lt;/i&gt; 0.30" in page
    assert "<i>" not in page
    files = table_files(metrics)
    assert set(files) == {"table-5.md", "features.svg", "figure-1b.svg"}
    assert all(files[name].startswith("<svg") for name in ("features.svg", "figure-1b.svg"))


def test_a_browser_runs_nothing_of_a_hostile_name(here: Command, browser: Browsing) -> None:
    store_hostile()
    assert here("fit", "hostile", "--plain", "--run", "bad").status == 0
    path = Path(here("report", "bad", "--json").answer["path"])
    visit = browser.visit(path.as_uri(), _look)
    assert (visit.found["scripts"], visit.found["images"]) == (0, [])
    assert visit.requests == [path.as_uri()]
    assert visit.complaints == []


def test_a_drawing_stands_alone_in_a_browser(browser: Browsing) -> None:
    drawn = plots.ranked_bars("<b>&\x00", [(name, 0.5) for name in HOSTILE])
    size = browser.visit(
        drawn.address(),
        lambda page: page.evaluate(
            "[document.documentElement.tagName, document.querySelectorAll('rect').length]"
        ),
    )
    # An error in its XML would leave another document there.
    assert size.found == ["svg", len(HOSTILE) + 1]
