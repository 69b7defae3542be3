"""Reports of runs: plots, the HTML page as a real browser shows it, the Markdown page."""

import html
import re
import shutil
from base64 import b64decode
from io import BytesIO
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from browsing import Page
from matplotlib.colors import same_color, to_rgba
from PIL import Image
from support import FITTED

from flows.reports import figures, pictures
from flows.reports.html import render_view
from flows.reports.markdown import render_markdown
from flows.reports.pictures import drawn
from flows.reports.summary import summary_of
from flows.reports.view import View
from flows.results.runs import FitResult, column_names
from flows.runs.fit import run_fit
from flows.settings.runs import FitSettings
from flows.text import number
from ism_dask import PredictiveIKDR, SupervisedIKDR, plot
from ism_dask.pictures.drawing import draw_weights, short_name
from ism_dask.records.fit_report import DimensionTrial
from storage import (
    DatasetInfo,
    Model,
    dataset_path,
    open_dataset,
    run_folder,
    save_model,
    write_dataset,
)

HOSTILE = ("<script>alert(1)</script>", "a|b `c` **d**", "\x00 bell \x07", "]]>&amp;", "x" * 200)
# What a terminal would obey: colours, a cleared screen, a title, a link, the bell.
ESCAPES = ("\x1b[31mred", "\x1b[2J", "\x1b]0;title\x07", "\x9b5m", "a\rb", "\x1b]8;;http://x\x1b\\")
LINK = "](javascript:alert(1))"


@pytest.fixture(scope="module")
def rendered(home_of_runs):
    """Return the page of the run of each kind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISM_DASK_HOME", str(home_of_runs / "home"))
        return {kind: render_view(View.of(kind)) for kind in DRAWN}


# Some of the texts in the drawings of a page.
DRAWN = {
    "fit": {"new features", "eigengap 404.8", "class_1", "alcohol", "objective J", "iteration"},
    "mine": {"share of the label", "objective J"},
    "cluster": {"cluster 3", "round", "movement of W or the embedding"},
    "crossval": {"fold", "accuracy"},
}


@pytest.mark.parametrize("kind", DRAWN)
def test_a_page_is_sound_and_needs_nothing_but_the_folder_of_the_run(rendered, home_of_runs, kind):
    shutil.copytree(home_of_runs / "home" / "runs" / kind, run_folder(kind))
    page = render_view(View.of(kind))
    assert page == rendered[kind]
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
    assert DRAWN[kind] <= {text for each in drawings(images) for text in each}


def drawings(addresses):
    """Yield the texts of each drawing among the addresses of pictures."""
    kind = "data:image/svg+xml;base64,"
    for each in addresses:
        if each.startswith(kind):
            document = b64decode(each.removeprefix(kind)).decode()
            yield [html.unescape(text) for text in re.findall("<text [^>]*>([^<]*)<", document)]


def test_a_page_says_what_was_found_and_chosen(results, rendered):
    page = rendered["mine"]
    assert "prediction: J is the share explained" in page
    assert "<h2>What was chosen</h2>" in page
    assert "<h2>How many new features</h2>" in page
    assert "<dd>4,298</dd>" in rendered["fit"]  # J with four significant digits
    page = rendered["cluster"]
    J = number(results["cluster"].objective)
    assert f"the last W has J = {J}." in page
    assert page.index('class="opening">4 clusters of 1,797 rows agree') < page.index("Clusters of")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Return a home with data of hostile names, and fits to their classes and to their numbers."""
    home, names = tmp_path_factory.mktemp("hostile") / "home", (*HOSTILE, *ESCAPES, LINK)
    X = np.random.default_rng(0).normal(size=(200, len(names)))
    classes = ("<img src=x onerror=alert(0)>", *ESCAPES[:2])
    info = DatasetInfo(
        "hostile", feature_names=names, class_names={"y": classes}, default_label="y"
    )
    labels = {"y": np.digitize(X[:, 0], [-0.5, 0.5]), "number": X[:, 1] ** 3}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISM_DASK_HOME", str(home))
        write_dataset(dataset_path("hostile"), info, [X], labels)
        for label, criterion in (("y", "prediction"), ("number", "dependence")):
            settings = {"label": label, "criterion": criterion, "sigma": "median"}
            run_fit(FitSettings(dataset="hostile", n_components=2, run=label, **settings))
    return home


@pytest.mark.parametrize("run", ["y", "number"])
def test_names_are_shown_and_never_obeyed(here, hostile, monkeypatch, run):
    monkeypatch.setenv("ISM_DASK_HOME", str(hostile))
    found = Page(render_view(View.of(run)))
    assert found.all("script") == []
    assert all((each["src"] or "").startswith("data:image/svg+xml") for each in found.all("img"))
    page = render_markdown(summary_of(View.of(run)))
    for sign in ("<script", "<img", *ESCAPES):
        assert sign not in page
    assert "](javascript" not in page.replace("\\](", "")
    assert r"a\|b \`c\` \*\*d\*\*" in page
    shown = here("show", run)
    assert "red" in shown.out
    for each in (shown, here("runs"), here("datasets"), here("show", "\x1b[2J")):
        assert (each.out + each.err).replace("\n", "").isprintable(), each


def test_a_model_without_history_or_sample_has_a_page():
    metrics = {**FITTED, "status": "tolerance met", "measure": "change"}
    arrays = np.eye(1, 3), np.zeros(3), np.ones(3), np.ones(1)
    save_model("old", Model(*arrays, metrics=metrics, config={"tol": 0.01, "angle_tol": None}))
    found = Page(render_view(View.of("old")))
    assert len(found.all("figure")) == 2  # the spectrum and one component


@pytest.fixture
def canvases(monkeypatch):
    """Return a list to which each drawing adds its figure of matplotlib."""
    mpl.use("Agg")
    drawn = []
    monkeypatch.setattr(pictures, "svg_document", lambda figure, _: drawn.append(figure) or "-")
    return drawn


def _data(ax):
    """Return what is drawn into Axes: values and colours as numbers, marks, text."""
    values = [
        *(line.get_xydata() for line in ax.lines),
        *(each.get_offsets() for each in ax.collections),
        *([bar.get_y(), bar.get_width()] for bar in ax.patches),
        *(to_rgba(each.get_color()) for each in ax.lines if not _is_neutral(each)),
        *(each.get_facecolor() for each in [*ax.collections, *ax.patches]),
    ]
    marks = [line.get_marker() for line in ax.lines]
    texts = [each.get_text() for each in ax.texts]
    return np.concatenate([np.ravel(each) for each in values]), [marks, texts]


def _is_neutral(line):
    """Return whether a line has the colour of the frame, which is that of text on a page."""
    return same_color(line.get_color(), line.axes.spines["left"].get_edgecolor())


@pytest.mark.usefixtures("results")
def test_the_report_shows_what_plot_shows(canvases):
    data = open_dataset("wine")
    X, y = data.X.read(0, len(data.X)), data.labels["cultivar"]
    fitted = SupervisedIKDR().fit(X, y)
    render_view(View.of("fit"))
    known = [plot.spectrum(fitted), plot.scatter(fitted, X, y), *plot.response(fitted, X, y)]
    known += [*plot.components(fitted, top=figures.WEIGHTS), *plot.convergence(fitted)]
    _assert_same(canvases, known)


def test_a_picture_of_dimensions_shows_all_trials(canvases):
    trials = tuple(DimensionTrial(q, q + 0.1, q + 0.2, q + 0.3) for q in (1, 2, 3))
    record = {**FITTED, "kernel": "gaussian", "dimensions": [vars(trial) for trial in trials]}
    prediction = {"width": 1.0, "ridge": 0.1, "target": "mean"}
    result = FitResult.from_json({**record, "run": "x", "selection": prediction})
    model = Model(np.eye(1, 3), np.zeros(3), np.ones(3), np.ones(1))
    first = next(figures.findings(result, model))
    assert first.title == "Explained by 1, 2, ... new features"
    assert "gap" not in first.caption  # of eigenvalues, which mean nothing to a prediction
    assert first.content
    explained, chosen = (line.get_xydata().T.tolist() for line in canvases[0].axes[0].lines)
    assert explained == [[1, 2, 3], [1.1, 2.1, 3.1]]
    assert chosen[0] == [len(FITTED["eigenvalues"])] * 2


def _assert_same(drawings, axes):
    """Check that each figure shows what the Axes in its place show."""
    for figure, ax in zip(drawings, axes, strict=True):
        (own,) = figure.axes
        (shown, looks), (known, known_looks) = _data(own), _data(ax)
        np.testing.assert_allclose(shown, known, rtol=1e-4, atol=1e-6)
        assert looks == known_looks
    plt.close("all")


@pytest.mark.usefixtures("results")
def test_images_of_components_have_the_colours_of_plot():
    mpl.use("Agg")
    model, fitted = View.of("cluster").model, PredictiveIKDR(4)
    fitted.components_, fitted.eigenvalues_ = model.components, model.eigenvalues
    fitted.n_features_in_ = 64
    panels = plot.components(fitted, image_shape=(8, 8))
    images = [Image.open(BytesIO(each.content)) for each in figures.components(model)]
    for ax, image in zip(panels, images, strict=True):
        (drawn,) = ax.images
        known = drawn.to_rgba(drawn.get_array(), bytes=True)[..., :3]
        np.testing.assert_array_equal(np.asarray(image)[6::12, 6::12, :3], known)
    plt.close("all")


@pytest.mark.usefixtures("results")
def test_pages_in_markdown_end_with_links_and_stay_small(monkeypatch):
    for kind in ("mine", "cluster"):
        links = {"Folder": "/home/me", "Report": "http://127.0.0.1:9/x"}
        text = render_markdown(summary_of(View.of(kind)), links)
        assert text.startswith(f"# {kind}\n")
        # No link to a file: a browser opens none from the page of a server.
        assert text.endswith("\n- Folder: /home/me\n\n- [Report](http://127.0.0.1:9/x)")
        assert "](data:image/svg+xml;base64," in text
        assert len(text) < 300_000
        images = text.count("(data:image/png;base64,")
        assert images == 4 * (kind == "cluster")  # the components
    # Those that a page has no room for are named.
    monkeypatch.setattr("flows.reports.markdown._ROOM", 10)
    *_, output = render_markdown(summary_of(View.of("cluster"))).splitlines()
    assert output.startswith("Not shown here, but in the report of the run: ")
    assert "Spectrum, " in output


# The numbers of tables and cards that are broken into several lines.
_BROKEN = """() => [...document.querySelectorAll('.numbers td:not(.words), .glance dd')]
  .filter(each => { const range = document.createRange(); range.selectNodeContents(each);
    return new Set([...range.getClientRects()].map(box => box.top)).size > 1; })
  .map(each => each.textContent)"""


def _brightness(colour):
    """Return the sum of red, green and blue."""
    return sum(map(int, re.findall(r"\d+", colour)[:3]))


# The captions of the tables that are wider than their place.
_CUT = """all => all.filter(each => each.scrollWidth > each.clientWidth)
  .map(each => each.querySelector('caption').textContent)"""


def _look(page):
    drawings = page.locator("img[src*=svg]")
    return {
        "broken": page.evaluate(_BROKEN),
        "tables": page.locator("table caption").count(),
        "drawings": drawings.count(),
        "images": page.evaluate("[...document.images].map(e => e.complete && e.naturalWidth)"),
        "heights": drawings.evaluate_all("all => all.map(each => each.clientHeight)"),
        "width": page.evaluate("document.documentElement.scrollWidth"),
        "cut": page.locator(".wide").evaluate_all(_CUT),
        "paper": page.evaluate("getComputedStyle(document.body).backgroundColor"),
        "scripts": page.evaluate("document.scripts.length"),
        "title": page.locator("h1").inner_text(),
    }


def _looked_at(browser, path, width=1000, scheme="light"):
    """Return how a saved page looks, which loads nothing and of which a browser complains not."""
    screen = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
    visit = browser.visit(path.as_uri(), _look, **screen)
    assert [url for url in visit.requests if not url.startswith("data:")] == [path.as_uri()]
    assert visit.complaints == []
    assert all(visit.found["images"])
    return visit.found


@pytest.mark.parametrize("kind", DRAWN)
def test_a_browser_shows_the_report(browser, rendered, tmp_path, kind):
    path = tmp_path / "report.html"
    path.write_text(rendered[kind])
    for width, scheme in ((1000, "light"), (400, "dark"), (320, "dark")):
        found = _looked_at(browser, path, width, scheme)
        assert found["title"] == kind
        assert found["tables"] >= 2
        assert found["drawings"] >= 1
        assert min(found["heights"]) > 50
        assert (len(found["images"]) > found["drawings"]) is (kind == "cluster")
        assert found["width"] <= width
        assert found["cut"] == []
        if width == 320:
            assert not any(re.match(r"[-+\d]", each) for each in found["broken"])
        assert (_brightness(found["paper"]) > 380) is (scheme == "light")


def test_a_browser_runs_nothing_of_a_hostile_name(here, browser, hostile, monkeypatch):
    monkeypatch.setenv("ISM_DASK_HOME", str(hostile))
    path = Path(here("report", "y", "--json").answer["path"])
    assert _looked_at(browser, path)["scripts"] == 0


# How many boxes of numbers beside bars meet a bar or another text.
_CROSSED = """() => {
  const meets = (a, b) => a.left < b.right - 1 && b.left < a.right - 1
    && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const box = each => each.getBoundingClientRect();
  const texts = [...document.querySelectorAll('text')];
  const numbers = texts.filter(each => /^[+-]\\d\\.\\d\\d$/.test(each.textContent)).map(box);
  const names = texts.filter(each => !/^[+-]\\d\\.\\d\\d$/.test(each.textContent)).map(box);
  const bars = [...document.querySelectorAll('path[style^="fill: #"]')].map(box);
  const crossed = numbers.filter(n => [...names, ...bars].some(other => meets(n, other))).length;
  return [numbers.length, bars.length, crossed];
}"""


@pytest.mark.parametrize("weights", [[0.6, -0.5, 0.4, -0.02], [-0.9, -0.3, -0.2], [0.9, -0.01]])
def test_numbers_beside_bars_cross_nothing(browser, weights):
    names = [f"a long name of a feature no {k}" for k in range(len(weights))]
    bars = drawn("bars", "", draw_weights, names=names, weights=np.array(weights))
    visit = browser.visit(bars.data_uri(), lambda page: page.evaluate(_CROSSED))
    assert visit.found == [len(weights), len(weights), 0]


def test_columns_of_images_are_named_by_row_and_column():
    assert column_names(None, (2, 3), 6)[3:5] == ("pixel_1_0", "pixel_1_1")
    assert column_names(("a", "b"), (1, 2), 2) == ("a", "b")
    assert column_names(None, None, 2) == ("feature_0", "feature_1")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_drawing_stands_alone_and_follows_the_scheme(browser, scheme):
    names = [short_name(name) for name in HOSTILE]
    weights = np.full(len(HOSTILE), 0.5)
    found = browser.visit(
        drawn("<b>", "&\x00", draw_weights, names=HOSTILE, weights=weights).data_uri(),
        lambda page: page.evaluate(
            "[document.documentElement.tagName, document.querySelector('title').textContent, "
            "[...document.querySelectorAll('text')].map(each => each.textContent), "
            "...['text', 'rect'].map(each => getComputedStyle(document.querySelector(each)).fill)]"
        ),
        color_scheme=scheme,
    ).found
    # An error in its XML would leave another document there.
    tag, title, texts, *fills = found
    assert (tag, title) == ("svg", "<b>: & ")
    assert [text for text in texts if text in names] == names
    ink, paper = map(_brightness, fills)
    assert paper - ink > 500 if scheme == "light" else ink - paper > 500
