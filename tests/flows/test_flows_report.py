"""Reports of runs: their drawings, the HTML page in a real browser, the Markdown page."""

import html
import re
import shutil
from base64 import b64decode
from dataclasses import replace
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
import yaml
from browsing import Page
from matplotlib.figure import Figure as Canvas

from flows.reports import figures, pictures
from flows.reports.blocks import Block
from flows.reports.pages import render_markdown, write_report
from flows.reports.pictures import _add_legend_below, draw_lines, drawn, page_style
from flows.reports.summary import View, summary_of
from flows.results.runs import Selection
from flows.runs.fit import run_fit
from flows.settings.runs import FitSettings
from ism_dask.pictures import drawing
from ism_dask.records.fit_report import DimensionTrial
from storage import (
    DatasetInfo,
    Model,
    dataset_path,
    remove_run,
    reports_folder,
    run_folder,
    write_dataset,
)

HOSTILE = ("<script>alert(1)</script>", "a|b `c` **d**", "\x00 bell \x07", "]]>&amp;", "x" * 200)
# What a terminal would obey: colours, a cleared screen, a title, a link, the bell.
ESCAPES = ("\x1b[31mred", "\x1b[2J", "\x1b]0;title\x07", "\x9b5m", "a\rb", "\x1b]8;;http://x\x1b\\")
COMMAND = "ism-dask fit hostile --label 'a & \"*ö*\"<b>' --out `x`"
LINK = "](javascript:alert(1))"


@pytest.fixture
def page_of(home_of_runs):
    """Return what renders the page of a run, of which there is nothing but its folder."""

    def rendered(run):
        shutil.copytree(home_of_runs / "home" / "runs" / run, run_folder(run))
        return write_report(run).read_text()

    return rendered


# Some of the texts in the drawings of a page.
DRAWN = {
    "fit": {"new features", "eigengap 404.8", "class_1", "alcohol", "objective J", "iteration"},
    "mine": {"share of the label", "objective J"},
    "cluster": {"cluster 3", "round", "movement of W or the embedding"},
    "crossval": {"fold", "accuracy"},
}


@pytest.mark.parametrize("kind", DRAWN)
def test_a_page_is_sound_and_needs_nothing_but_the_folder_of_the_run(page_of, kind):
    page = page_of(kind)
    found = Page(page)
    assert page.startswith("<!DOCTYPE html>")
    assert len(found.all("main")) == len(found.all("h1")) == 1
    assert len(found.all("figure")) == len(found.all("figcaption")) > 0
    assert len(found.all("table")) == len(found.all("caption")) > 1
    images = [image["src"] or "" for image in found.all("img")]
    assert all(each.startswith("data:image/") for each in images)
    assert all(each["alt"] for each in found.all("img"))
    assert found.all("script") == []
    assert "http:" not in page
    assert "https:" not in page
    svg = "data:image/svg+xml;base64,"
    documents = [b64decode(each.removeprefix(svg)) for each in images if each.startswith(svg)]
    texts = re.findall("<text [^>]*>([^<]*)<", b"".join(documents).decode())
    assert DRAWN[kind] <= {*map(html.unescape, texts)}


@pytest.fixture
def _hostile():
    """Keep data of hostile names, and a fit to their classes."""
    names, classes = (*HOSTILE, *ESCAPES, LINK), ("<img src=x onerror=alert(0)>", *ESCAPES[:2])
    named = {"feature_names": names, "class_names": {"y": classes}, "default_label": "y"}
    X = np.random.default_rng(0).normal(size=(200, len(names)))
    labels = {"y": np.digitize(X[:, 0], [-0.5, 0.5])}
    write_dataset(dataset_path("hostile"), DatasetInfo("hostile", **named), [X], labels)
    settings = {"criterion": "dependence", "sigma": "median", "run": "y"}
    run_fit(FitSettings(dataset="hostile", n_components=2, **settings))


@pytest.mark.usefixtures("_hostile")
def test_names_are_shown_and_never_obeyed(here):
    found = Page(write_report("y").read_text())
    assert found.all("script") == []
    assert all((each["src"] or "").startswith("data:image/svg+xml") for each in found.all("img"))
    summary = summary_of(View.of("y"))
    page = render_markdown(replace(summary, blocks=(*summary.blocks, Block("A", command=COMMAND))))
    assert f"\n\n    {COMMAND}\n" in f"{page}\n"  # in a block of code, nothing is escaped
    page = page.replace(COMMAND, "")
    for sign in ("<script", "<img", *ESCAPES):
        assert sign not in page
    assert "](javascript" not in page.replace("\\](", "")
    assert r"a\|b \`c\` \*\*d\*\*" in page
    shown = here("show", "y")
    assert "red" in shown.out
    for each in (shown, here("runs"), here("datasets"), here("show", "\x1b[2J")):
        assert (each.out + each.err).replace("\n", "").isprintable(), each


@pytest.fixture
def canvases(monkeypatch):
    """Return a list to which each drawing adds its figure of matplotlib."""
    mpl.use("Agg")
    drawn = []
    monkeypatch.setattr(pictures, "svg_document", lambda figure, _: drawn.append(figure) or "-")
    return drawn


def test_a_picture_of_dimensions_shows_all_trials(canvases, known):
    trials = tuple(DimensionTrial(q, q + 0.1, q + 0.2, q + 0.3) for q in (1, 2, 3))
    selection = Selection(width=1.0, ridge=0.1, target="mean")
    result = replace(known["fit"], dimensions=trials, selection=selection)
    model = Model(np.eye(1, 3), np.zeros(3), np.ones(3), np.ones(1))
    first = next(figures.findings(result, model))
    assert first.title == "Explained by 1, 2, ... new features"
    assert "gap" not in first.caption  # of eigenvalues, which mean nothing to a prediction
    assert first.content
    explained, chosen = (line.get_xydata().T.tolist() for line in canvases[0].axes[0].lines)
    assert explained == [[1, 2, 3], [1.1, 2.1, 3.1]]
    assert chosen[0] == [2, 2]


@pytest.mark.usefixtures("canvases")
def test_a_spectrum_below_other_eigenvalues_says_so(known):
    model = Model(np.eye(1, 3), np.zeros(3), np.ones(3), np.ones(1))
    for gap, words in (
        (0.5, "The wider the gap"),
        (-0.5, "does not span the leading eigenvectors"),
    ):
        result = replace(known["cluster"], eigengap=gap)
        assert words in next(figures.findings(result, model)).caption


@pytest.mark.usefixtures("results")
def test_pages_in_markdown_end_with_links_and_stay_small(monkeypatch):
    links = {"Folder": "/home/me", "Report": "http://127.0.0.1:9/x"}
    text = render_markdown(summary_of(View.of("cluster")), links)
    assert text.startswith("# cluster\n")
    # No link to a file: a browser opens none from the page of a server.
    assert text.endswith("\n- Folder: /home/me\n\n- [Report](http://127.0.0.1:9/x)")
    assert "](data:image/svg+xml;base64," in text
    assert len(text) < 300_000
    assert text.count("(data:image/png;base64,") == 4  # the components
    # Those that a page has no room for are named.
    monkeypatch.setattr("flows.reports.pages._ROOM", 10)
    *_, output = render_markdown(summary_of(View.of("cluster"))).splitlines()
    assert output.startswith("Not shown here, but in the report of the run: ")
    assert "Spectrum, " in output


# The numbers of tables and cards that are broken into several lines.
_BROKEN = """() => [...document.querySelectorAll('.numbers td:not(.words), .glance dd')]
  .filter(each => { const range = document.createRange(); range.selectNodeContents(each);
    return new Set([...range.getClientRects()].map(box => box.top)).size > 1; })
  .map(each => each.textContent)"""


# The captions of the tables that are wider than their place.
_CUT = """all => all.filter(each => each.scrollWidth > each.clientWidth)
  .map(each => each.querySelector('caption').textContent)"""


def _look(page):
    drawings = page.locator("img[src*=svg]")
    return {
        "broken": page.evaluate(_BROKEN),
        "images": page.evaluate("[...document.images].map(e => e.complete && e.naturalWidth)"),
        "heights": drawings.evaluate_all("all => all.map(each => each.clientHeight)"),
        "width": page.evaluate("document.documentElement.scrollWidth"),
        "cut": page.locator(".wide").evaluate_all(_CUT),
        "paper": page.evaluate("getComputedStyle(document.body).backgroundColor"),
    }


@pytest.mark.parametrize("kind", DRAWN)
def test_a_browser_shows_the_report_and_loads_nothing(browser, page_of, tmp_path, kind):
    path = tmp_path / "report.html"
    path.write_text(page_of(kind))
    for width, scheme in ((1000, "light"), (400, "dark"), (320, "dark")):
        screen = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
        visit = browser(path.as_uri(), _look, **screen)
        found = visit.found
        assert [url for url in visit.requests if not url.startswith("data:")] == [path.as_uri()]
        assert visit.complaints == []
        assert all(found["images"])
        assert min(found["heights"]) > 50
        assert found["width"] <= width
        assert found["cut"] == []
        if width == 320:
            assert not any(re.match(r"[-+\d]", each) for each in found["broken"])
        brightness = sum(map(int, re.findall(r"\d+", found["paper"])[:3]))
        assert (brightness > 380) is (scheme == "light")


@pytest.mark.usefixtures("_hostile")
def test_a_browser_runs_nothing_of_a_hostile_name(here, browser):
    path = Path(here("report", "y", "--json").answer["path"])
    visit = browser(path.as_uri(), lambda page: page.evaluate("document.scripts.length"))
    assert (visit.found, visit.complaints) == (0, [])
    assert [url for url in visit.requests if not url.startswith("data:")] == [path.as_uri()]


# Names that a drawing may be given, and how it shows them.
NAMES = {
    "<script>alert(1)</script>": "<script>alert(1)</script>",
    "$x^2$ and $": "$x^2$ and $",
    "a\\b_{": "a\\b_{",
    "\u05e9\u05dc\u05d5\u05dd": "\u05e9\u05dc\u05d5\u05dd",
    "\U0001f600 \u6f22\u5b57": "\U0001f600 \u6f22\u5b57",
    "_hidden": "_hidden",
    "]]>&amp;": "]]>&amp;",
    "\x00 bell \x07": "bell",
    "x" * 300: "x" * 29 + "…",
}
POINTS = np.random.default_rng(0).normal(size=(1000, 2))
AXES = {"axis_names": ("x", "y")}
CODES = np.arange(1000) % len(NAMES)
LINES = {"places": [1, 2, 3], "lines": {key: [1.0, np.nan, 0.1] for key in NAMES}}
SETTLING = {"numbers": [1, 2, 3], "values": [1e-2, 0.0, 1e-5], "unit": "iteration"}
SVG = "{http://www.w3.org/2000/svg}"
FIGURE = partial(drawn, "<b>", "&\x00")
BARS = {"names": list(NAMES), "weights": np.linspace(0.9, -0.7, len(NAMES))}
ROWS = {"points": POINTS, **AXES}
DRAWINGS = {
    "weights": partial(FIGURE, drawing.draw_weights, **BARS),
    "classes": partial(FIGURE, drawing.draw_classes, codes=CODES, names=list(NAMES), **ROWS),
    "numbers": partial(FIGURE, drawing.draw_numbers, label="y", values=np.ones(1000), **ROWS),
    "one value": partial(FIGURE, drawing.draw_spectrum, values=np.array([5e8]), next_value=None),
    "measure": partial(FIGURE, drawing.draw_measure, measure="residual", limit=1e-4, **SETTLING),
    "lines": partial(FIGURE, draw_lines, **LINES, **AXES),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_is_small_shows_every_name_and_changes_no_settings(name):
    mpl.use("Agg")
    content = DRAWINGS[name]().content
    settings = {"text.usetex": True, "svg.fonttype": "path", "text.color": "red", "font.size": 3}
    with mpl.rc_context(settings):
        before = mpl.rcParams.copy()
        assert DRAWINGS[name]().content == content
        assert mpl.rcParams == before
    assert len(content) < 120_000
    root = ElementTree.fromstring(content)
    assert (root.attrib["role"], root.findtext(f"{SVG}title")) == ("img", "<b>: & ")
    tags = {each.tag.removeprefix(SVG) for each in root.iter()}
    assert not tags & {"script", "metadata", "foreignObject", "a"}
    text = content.decode()
    assert set(re.findall(r'href="(.)', text)) <= {"#", "d"}  # inside the document, or data
    assert "@media (prefers-color-scheme:dark)" in text
    assert not re.search(r"[\" ]nan[\" ]", text)
    if name in ("weights", "classes", "lines"):
        texts = [each.text for each in root.iter(f"{SVG}text")]
        assert [each for each in texts if each in NAMES.values()] == list(NAMES.values())


@pytest.mark.parametrize("names", ["0123456789", ["some class", "other class"] * 4])
def test_a_legend_is_as_wide_as_its_drawing(names):
    ax = Canvas(figsize=(480 / 72, 4), dpi=72).add_subplot()
    with page_style():
        _add_legend_below(ax.figure, [(ax.plot([0, 1])[0], name) for name in names])
        ax.figure.draw_without_rendering()
        (legend,) = ax.figure.legends
        box = legend.get_window_extent()
    assert 0 <= box.x0 <= box.x1 <= 480


@pytest.mark.parametrize(
    ("run", "measured"),
    [
        ("mine", ["objective", "explained_in_unseen_rows"]),
        ("fit", ["objective"]),
        ("cluster", ["objective", "nmi_digit"]),
    ],
)
def test_a_model_card_has_the_header_that_hubs_read(here, results, run, measured):
    """The header is YAML between two lines; `model-index` is as in the docs of Hugging Face."""
    made, path = results[run], Path(here("report", run, "--card", "--json").answer["path"])
    assert path == reports_folder() / "runs" / f"{run}.md"
    before, header, text = path.read_text().split("---\n", 2)
    card = yaml.safe_load(header)
    assert (before, card["library_name"], card["metrics"]) == ("", "ism-dask", measured)
    tags = ["dimensionality-reduction", "interpretability", "tabular", made.command]
    ((index,), (found,)) = card["model-index"], card["model-index"][0]["results"]
    assert (card["tags"], index["name"]) == (tags, run)
    data = {"type": made.dataset, "name": made.dataset, "split": made.split}
    assert (found["task"], found["dataset"]) == ({"type": "feature-extraction"}, data)
    values = [made.objective, *getattr(made, "nmi", {}).values()]
    if run == "mine":
        values.append(made.selection.tried[0].explained)
    assert [each["type"] for each in found["metrics"]] == measured
    assert [each["value"] for each in found["metrics"]] == values
    assert f"# {run}\n\n{summary_of(View.of(run)).opening}\n" in text.replace("\\", "")
    # It is for others: no rows, no name of a machine, no pictures within the text.
    hidden = ("Computed on", "Why is this row here?", "data:image")
    assert not [each for each in hidden if each in text]
    remove_run(run)
    assert not path.exists()


@pytest.mark.usefixtures("results")
def test_a_model_card_is_put_where_it_is_wanted_or_refused(here, tmp_path):
    path = tmp_path / "README.md"
    assert here("report", "mine", "--card", "-o", path).status == 0
    assert path.read_text().startswith("---\nlibrary_name: ism-dask\n")
    for words, status, message in (
        (("mine", "-o", tmp_path / "card.html"), 2, "expected a file name that ends in .md"),
        (("crossval",), 1, "'crossval' has no model; name a run of `ism-dask fit` or `cluster`"),
        (("--all",), 2, "--all and --card exclude each other"),
    ):
        assert message in here("report", "--card", *words).failed(status)
