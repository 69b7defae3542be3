"""One summary of each kind of run: all that it says is on the terminal, the pages and in JSON."""

import json
import math
import platform
import re
import shlex
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from browsing import Page

from flows.progress.watching import in_context
from flows.reports import blocks
from flows.reports.fit_quality import fit_quality
from flows.reports.fits import certainty_block
from flows.reports.pages import render_markdown, write_report
from flows.reports.summary import View, summarise, summary_of
from flows.runs.fit import run_fit
from flows.settings.runs import FitSettings
from ism_dask.words import number

KINDS = ("fit", "cluster", "crossval")
CUT_SHORT = {"converged": False, "status": "max_iter"}


@pytest.fixture
def changed(known):
    """Return what changes entries of a result, by default of a fit, as if it were cut short."""

    def result(kind="fit", **changes):
        entries = {**known[kind].to_json(), **CUT_SHORT, **changes}
        return type(known[kind]).from_json(entries)

    return result


@pytest.fixture
def crossed(changed):
    """Return what makes a cross-validation of folds, each with changes."""

    def result(*folds):
        fold = {**changed("crossval").to_json()["results"][0], **CUT_SHORT}
        folds = [{**fold, **changes, "fold": k} for k, changes in enumerate(folds, start=1)]
        return changed("crossval", results=folds)

    return result


@pytest.fixture(autouse=True)
def _wide_and_without_pictures(monkeypatch):
    monkeypatch.setenv("COLUMNS", "500")  # no table is wrapped
    monkeypatch.setattr("flows.reports.pictures.Figure.content", b"<svg/>")


def facts(summary):
    return [*summary.facts, *(fact for block in summary.blocks for fact in block.facts)]


def values(found):
    return {fact.name: fact.value for fact in found}


def notes(summary):
    return [note for each in (*facts(summary), *summary.blocks) for note in each.notes]


def block_of(summary, title):
    (block,) = (each for each in summary.blocks if each.title == title)
    return block


def quality(result, name):
    return next(fact for fact in fit_quality(result) if fact.name == name)


def in_terminal(printed):
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    return lambda cells: any(line.startswith(" ".join(filter(None, cells))) for line in lines)


@pytest.mark.parametrize("kind", [*KINDS, "unfinished"])
def test_every_figure_is_in_all_renderings(here, results, tmp_path, kind):
    view = View.of(kind)
    summary = summary_of(view)
    tables = [table for block in summary.blocks for table in block.tables]
    assert len(facts(summary)) >= 4
    assert len(tables) >= 3
    shown = here("show", kind).out
    printed = in_terminal(shown)
    page = Page(write_report(view.run.name).read_text())
    markdown = render_markdown(summary).replace("\\", "")
    path = here("report", kind, "-o", tmp_path / "report.json", "--json").answer["path"]
    assert json.loads(Path(path).read_text()) == json.loads(json.dumps(summary.to_json()))
    text = json.dumps(summary.to_json(), ensure_ascii=False)
    for each in (*(fact.value for fact in facts(summary)), *notes(summary), *summary.warnings):
        assert json.dumps(each, ensure_ascii=False) in text
    for fact in facts(summary):
        assert printed((fact.name, fact.value))
        assert f"| {fact.name} | {fact.value} |" in markdown
        assert {fact.name, fact.value} <= set(page.texts)
    for table in tables:
        rows = (table.columns, *table.rows, *table.foot)
        assert all(map(printed, rows))
        assert all(f"| {' | '.join(row)} |" in markdown for row in rows)
        assert all(list(row) in page.rows for row in rows)
        assert json.dumps(asdict(table), ensure_ascii=False) in text
    said = [(note, note, note) for note in notes(summary)]
    said += [(each, f"> **Warning:** {each}", f"Warning: {each}") for each in summary.warnings]
    commands = filter(None, (block.command for block in summary.blocks))
    said += [(each, f"\n    {each}\n", each) for each in commands]
    for plain, in_markdown, on_page in said:
        assert plain in shown
        assert in_markdown in markdown
        assert on_page in page.texts


def test_a_fit_that_did_not_converge_warns(results):
    converged, eigenvalues = summarise(results["unfinished"]).warnings
    assert converged == (
        "not converged: the best W so far was saved. It did not converge. Raise --max-iter"
    )
    assert eigenvalues.startswith("New feature 3 has an eigenvalue of -")
    assert eigenvalues.endswith("2 new features would do")


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_run_has_the_result_that_its_flow_returned(results, kind):
    view, result = View.of(kind), results[kind]
    expected = result.to_json()
    assert view.result.to_json() == expected
    assert type(result).from_json(json.loads(json.dumps(expected))).to_json() == expected


@pytest.mark.parametrize("kind", ["fit", "crossval"])
def test_a_page_has_the_command_that_repeats_the_run(here, results, kind):
    block = block_of(summary_of(View.of(kind)), "How to repeat it")
    assert here(*shlex.split(block.command)[1:], "--plain").status == 0
    again, known = View.of(f"{kind}-again").result, results[kind]
    if kind == "fit":
        assert again.objective == known.objective
        assert again.loadings == known.loadings
    else:
        assert [each.cost for each in again.results] == [each.cost for each in known.results]
    assert values(block.facts) == {"Data": known.data_hash, "Computed on": platform.node()}


def test_a_flow_run_is_linked_from_its_page():
    page = "http://127.0.0.1:4200/runs/flow-run/7"
    with in_context(page=page):
        run_fit(FitSettings(dataset="wine", criterion="dependence", max_iter=1, run="shown"))
    assert f'<a href="{page}">{page}</a>' in write_report("shown").read_text()


def test_numbers_have_four_significant_digits():
    values = (0.9444444444444444, 4297.673, 3715954.2, 1.23456e9, -123.8499, 0.000012345, 10.0)
    words = ["0.9444", "4,298", "3,716,000", "1.235e+09", "-123.8", "1.234e-05", "10"]
    assert [number(each) for each in values] == words
    assert [number(each) for each in (0.0, math.inf, math.nan)] == ["0", "inf", "nan"]


def test_a_fit_by_prediction_says_what_was_chosen_and_what_j_is(changed):
    tried = [
        {"start": "gradient", "width": None, "ridge": None, "explained": 0.8, "error": 0.1},
        {"start": "linear", "width": 0.5, "ridge": 0.01, "explained": 0.75, "error": 0.1},
    ]
    selection = {"width": 0.25, "ridge": 0.1, "target": "law", "tried": tried}
    for status, start in (("start kept", "gradient, kept"), ("converged", "linear")):
        result = changed(selection=selection, status=status, converged=status == "converged")
        summary = summarise(result)
        assert not summary.warnings
        found = values(facts(summary))
        assert found["Criterion"] == "prediction: J is the share explained"
        assert (found["Start"], found["Width"], found["Ridge"]) == (start, "0.25", "0.1")
        assert ("Residual" in found) is (status == "converged")
        assert not {"Eigengap", "Error of J", "Maximum of J"} & found.keys()
        (table,) = block_of(summary, "What was chosen").tables
        assert table.rows[0] == ("gradient", "the start", "the start", "80.0%")
    advised = changed(selection=selection, components_advice="take fewer `n_components`")
    assert quality(advised, "Number of new features").warnings == ("Take fewer --components",)
    assert values(summarise(changed()).facts)["Criterion"] == "dependence: J is HSIC"


def test_a_fit_by_prediction_opens_with_four_answers(results):
    result = results["mine"]
    (tried, *_), facts = result.selection.tried, values(summarise(result).facts)
    assert list(facts) == ["Explained in unseen rows", "Rows", "New features", "Sure"]
    assert facts["Explained in unseen rows"].startswith(f"{tried.explained:.1%}"[:3])
    assert (facts["Rows"], facts["Sure"]) == ("178", "yes")
    others = replace(result, selection=replace(result.selection, other_maximum=0.5))
    assert result.certainty is not None
    doubted = replace(result, certainty=replace(result.certainty, doubts=("few rows",)))
    for unsure in (replace(result, converged=False, status="max_iter"), others, doubted):
        assert values(summarise(unsure).facts)["Sure"] == "no"
        assert summarise(unsure).opening.endswith("1 warning speaks against it.")


def test_folds_that_kept_a_start_need_no_warning(crossed):
    for first, value in (("converged", "yes"), ("start kept", "a start was kept")):
        folds = ({"status": first, "converged": value == "yes"}, {"status": "start kept"})
        converged = quality(crossed(*folds), "Converged")
        assert (converged.value, converged.warnings) == (value, ())
        assert converged.notes == (("1 fold kept a start",) if value == "yes" else ())


CERTAINTY = {
    "distance_interval": [0.2, 0.3],
    "standardized_interval": [0.123, 0.456],
    "stability": [0.5, 0.4],
    "retention": [0.99, 0.98],
    "separated": 1,
    "shares": [
        {"feature": "age", "share": 0.4, "low": 0.3, "high": 0.5, "pvalue": 1e-5},
        {"feature": "income", "share": 0.1, "low": 0.0, "high": 0.2, "pvalue": 0.34},
    ],
    "doubts": ["few rows"],
}


def test_intervals_have_a_block(changed):
    assert "How sure" not in [block.title for block in summarise(changed()).blocks]
    result = changed(certainty=CERTAINTY)
    assert result.to_json()["certainty"] == CERTAINTY
    block = block_of(summarise(result), "How sure")
    assert values(block.facts) == {
        "Distance from the truth": "0.12 to 0.46",
        "Columns clear of all others": "age",
        "Doubts": "1",
    }
    assert block.facts[-1].warnings == ("Few rows",)
    assert "curvature" in block.about
    assert block.tables[0].rows[0] == ("age", "40.0%", "30.0%", "50.0%", "1e-05")
    assert block.tables[1].rows[1][1:] == ("0.40", "0.98")
    for count, words in ((0, "none"), (5, "age, income and 3 more")):
        result = changed(certainty={**CERTAINTY, "separated": count})
        _, clear, *_ = certainty_block(result.certainty).facts
        assert clear.value == words


_CHANGE, _ROUNDS = {"tolerance": 0.01, "measure": "change"}, {"settings": {"outer_tol": 0.01}}
_TURNED = {"status": "tolerance met", "measure": "change", "tolerance": 1e-5}


@pytest.mark.parametrize(
    ("name", "changes", "value", "meaning"),
    [
        ("Error of J", {"engine_error": 2.345e-11}, "2.3e-11 at most", "leaves nothing out"),
        ("Error of J", {"engine_error": 7.1e-4}, "7.1e-04 at most", "approximates"),
        ("Error of J", {"engine_error": math.inf}, "no bound", "no bound"),
        ("Residual", {"residual": 0.1}, "0.1, true", "is not small"),
        ("Residual", {"residual": 0.1, "tolerance": 0.2}, "0.1, true", "is within the tolerance"),
        ("Residual", {"residual": 0.0018}, "0.0018, true kernel, all 178 rows", ""),
        ("Tolerance", {}, "residual at most 0.0001", "only such a W counts as converged"),
        ("Tolerance", {**_CHANGE, "settings": {"tol": 0.01}}, "eigenvalues below 0.01", "by --tol"),
        ("Tolerance", {"tolerance": 0.01, **_ROUNDS}, "residual at most 0.01", "by --outer-tol"),
        ("Last turn of W", {**_TURNED, "angle": 0.001}, "0.001", "last iteration turned W"),
    ],
)
def test_words_for_a_figure_of_the_fit(changed, name, changes, value, meaning):
    fact = quality(changed(**changes), name)
    assert value in fact.value
    assert meaning in fact.meaning
    assert not fact.warnings


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("Converged", {"status": "over the cap"}, "Raise --max-seconds"),
        ("Converged", {"status": "swings"}, "It swings between two subspaces, each of which leads"),
        ("Residual", {"residual": 0.9}, "try --sigma median"),
        ("Last turn of W", {**_TURNED, "angle": 0.99999}, "the sine 1: this W has not settled"),
        ("Number of new features", {"components_advice": "one would do"}, "One would do"),
    ],
)
def test_what_speaks_against_a_fit_is_warned_of(changed, name, changes, words):
    (warning,) = quality(changed(**changes), name).warnings
    assert words in warning


def test_the_first_sentence_says_what_was_found_and_how_far_to_trust_it(changed, crossed):
    fitted = changed(certainty=CERTAINTY, residual=0.9)
    assert summarise(fitted).opening == (
        "2 new features depend on cultivar with J = 4,298 (HSIC); W is 0.12 to 0.46 from the "
        "truth, where 1 is a right angle; 3 warnings speak against it."
    )
    good = changed(status="converged", converged=True)
    assert summarise(good).opening.endswith("(HSIC); no check speaks against it.")
    tried = [{"start": "linear", "width": 1.0, "ridge": 0.1, "explained": 0.667, "error": 0.05}]
    selection = {"width": 1.0, "ridge": 0.1, "target": "mean", "tried": tried}
    chosen = summarise(changed(selection=selection)).finding
    assert chosen == "2 new features explain 66.7% +- 5.0% of cultivar in rows that W has not seen"
    assert summarise(crossed({})).opening == (
        "2 new features classify 97.2% of the held-out rows, ± 2.8% between folds, all features "
        "100.0%, chance 38.9%; 1 warning speaks against it."
    )
    assert summarise(changed("cluster")).finding == (
        "4 clusters of 1,797 rows agree 0.46 with digit (NMI, from 0 to 1); pixel_3_4, pixel_4_1 "
        "and pixel_4_5 tell them apart most"
    )


@pytest.mark.parametrize(
    ("texts", "notes"),
    [
        (["", ""], ()),
        (["a", "", "a"], ("fold 1, 3: a",)),
        ([*"abac"], ("fold 1, 3: a (fold 2, 4: with other numbers, which --json has)",)),
    ],
)
def test_one_line_for_the_notes_of_all_folds(crossed, texts, notes):
    result = crossed(*({"engine_note": each} for each in texts))
    assert quality(result, "Engine").notes == notes


def test_words_for_clusters_and_folds_that_did_not_converge(changed, crossed):
    rounds = "Raise --max-outer or --outer-tol"
    early = "Raise --outer-tol, or take --engine exact"  # the rounds ended before their limit
    for status, least, most, words in (
        ("max_iter", 1e-9, 1, f"W did not converge. Raise --max-iter. {rounds}"),
        ("max_iter", 1.0, 1, "W did not converge. Raise --max-iter"),
        ("converged", 1e-9, 1, f"W did converge, but the rounds did not. {rounds}"),
        ("converged", 1e-9, 100, f"W did converge, but the rounds did not. {early}"),
        ("over the cap", 1e-9, 100, "W reached its time limit. Raise --max-seconds"),
    ):
        settings = {"outer_tol": least, "max_outer": most}
        result = changed("cluster", settings=settings, status=status)
        (warning,) = quality(result, "Converged").warnings
        assert warning == f"not converged: the last round was saved. {words}"
    settled = changed("cluster", settings={"outer_tol": 0.01}, status="converged", converged=True)
    assert "W and the embedding stay" in quality(settled, "Converged").meaning
    folds = crossed({}, {"status": "", "converged": True}, {"status": "swings"}, {})
    first, second = quality(folds, "Converged").warnings
    assert first == "not converged: fold 1, 4 did not converge. Raise --max-iter"
    assert second.startswith("not converged: fold 3 swings between two subspaces")


def test_every_sentence_that_a_report_names_is_there():
    code = "".join(path.read_text() for path in Path(blocks.__file__).parent.glob("*.py"))
    for name in re.findall(r'say\(\s*"([^"]+)"', code):
        part, _, key = name.partition(".")
        assert key in blocks.sentences()[part], name
