"""Runs are kept, listed, shown, and found again by their names."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from support import store_own

from flows.errors import FlowError
from flows.reports.fits import row_table
from flows.reports.summary import View, summary_of
from flows.results.runs import ColumnOfRow, ExplainedRow, column_names
from flows.runs.crossval import run_crossval
from flows.runs.fit import run_fit
from flows.settings.runs import CrossvalSettings, FitSettings
from storage import (
    Model,
    list_runs,
    load_model,
    open_dataset,
    open_run,
    remove_dataset,
    remove_run,
    report_path,
    reports_folder,
    run_folder,
    runs_folder,
    save_model,
    save_results,
)

WINE = CrossvalSettings(
    dataset="wine", criterion="dependence", first=1, sigma="median", n_components=2
)
DEPENDENCE = ("--criterion", "dependence")


def test_every_run_is_listed_the_newest_first(here, results, monkeypatch):
    lines = here("runs", "--json").answer["runs"]
    assert [line["name"] for line in lines] == [*results][::-1]
    kinds = ["crossval", "cluster", "fit", "fit", "fit"]
    assert [line["kind"] for line in lines] == kinds
    for line in lines:
        age = datetime.now(UTC) - datetime.fromisoformat(line["created"])
        assert timedelta(0) < age < timedelta(minutes=60)
        sizes = [path.stat().st_size for path in Path(line["path"]).rglob("*") if path.is_file()]
        assert 0 < line["bytes"] <= sum(sizes)
    monkeypatch.setenv("COLUMNS", "80")
    shown = here("runs").out
    table = [line.split()[:2] for line in shown.splitlines()]
    assert all(table.count([line["name"], line["kind"]]) == 1 for line in lines)
    assert "accuracy" in shown
    # Each data set has one line, too.
    names = [each["name"] for each in here("datasets", "--json").answer["datasets"]]
    assert [line.split()[0] for line in here("datasets").out.splitlines()[3:-1]] == names


@pytest.mark.usefixtures("results")
def test_a_damaged_run_is_listed_with_its_problem(here):
    saved = open_run("crossval")
    metrics = {**saved.metrics, "results": [], "rows": 0}  # numbers that no run has
    save_results("odd", "crossval", config=saved.config, metrics=metrics, versions=saved.versions)
    (saved.path / "record.json").write_bytes(b"")
    problems = {line["name"]: line["problem"] for line in here("runs", "--json").answer["runs"]}
    assert [name for name, problem in problems.items() if problem] == ["crossval"]
    assert "`record.json`" in problems["crossval"]
    listed = [line.split()[:2] for line in here("runs").out.splitlines()]
    assert ["odd", "crossval"] in listed  # as a check says, its files are whole
    assert ["crossval", "damaged"] in listed
    for command in ("show", "report"):
        assert "`record.json`" in here(command, "crossval").failed(1)


def test_what_is_no_run_of_ours_is_in_nobodys_way(here, tmp_path):
    assert here("runs", "--json").answer["runs"] == []
    assert "no runs yet" in here("runs").out
    assert "nothing is stored yet" in here("check").out
    assert here("check", "--json").answer == {"command": "check", "checked": []}
    save_model("foreign", Model(np.eye(1, 3), np.zeros(3), np.ones(3), np.ones(1)))
    for folder in ("empty", "not a name", ".hidden"):
        (runs_folder() / folder).mkdir()
    (runs_folder() / "file").touch()
    (runs_folder() / "link").symlink_to(tmp_path)
    found = {line["name"]: line["problem"] for line in here("runs", "--json").answer["runs"]}
    assert set(found) == {"foreign", "not a name", "link"}
    assert found["foreign"] == ""
    assert "outside" in found["link"]
    assert here("runs").status == 0
    for command in ("show", "report"):
        assert "'foreign' has no record of how it came about" in here(command, "foreign").failed(1)
    words = ("fit", "wine", "--plain", "--sigma", "median", *DEPENDENCE, "--run", "mine")
    assert here(*words).status == 0
    # Its features have no names: columns are taken in their order, named or not.
    np.save(tmp_path / "rows.npy", np.ones((2, 3)))
    (tmp_path / "rows.csv").write_text("c,a,b\n1,1,1\n1,1,1\n")
    for source in (tmp_path / "rows.npy", tmp_path / "rows.csv"):
        assert here("transform", "foreign", source, "-o", tmp_path / "x.csv", "--force").status == 0


@pytest.mark.parametrize("kind", ["fit", "cluster", "crossval"])
def test_a_run_is_shown(here, results, kind):
    made = results[kind]
    answer = here("show", kind, "--json").answer
    assert answer["config"] == made.settings
    assert answer["metrics"]["data_hash"] == made.data_hash
    if kind != "crossval":
        assert load_model(kind).image_shape == {"fit": None, "cluster": (8, 8)}[kind]
        assert len(answer["loadings"][0]) == made.columns
        last = answer["history"][-1]["eigenvalues"]
        assert last == pytest.approx(answer["metrics"]["eigenvalues"], rel=0.01)


def _added(run, row):
    """Return by the definition what each column of a row adds to each new feature: (d, q)."""
    model, made = load_model(run), View.of(run).result
    x = open_dataset(made.dataset).X.read(row, row + 1)[0]
    return ((x - model.mean) / model.scale)[:, None] * model.components.T


@pytest.mark.usefixtures("results")
@pytest.mark.parametrize(("run", "columns"), [("mine", 13), ("cluster", 64)])
def test_a_row_is_explained_by_what_its_columns_add(here, run, columns):
    added, words = _added(run, 17), ("show", run, "--row", 17)
    answer = here(*words, "--json").answer
    assert [answer[key] for key in ("command", "run", "row")] == ["show", run, 17]
    np.testing.assert_allclose(answer["new_features"], added.sum(axis=0))
    names, order = column_names(load_model(run), columns), np.argsort(-np.abs(added).max(axis=1))
    assert [each["feature"] for each in answer["columns"]] == [names[j] for j in order]
    np.testing.assert_allclose([each["added"] for each in answer["columns"]], added[order])
    lines = [line.split() for line in here(*words).out.splitlines()]
    shown = [line for line in lines if line[-1:] and line[-1][0] in "+-"]
    assert [line[0] for line in shown[:-1]][:20] == [names[j] for j in order[:20]]
    *parts, whole = (np.array(line[-added.shape[1] :], dtype=float) for line in shown)
    np.testing.assert_allclose(np.sum(parts, axis=0), whole, atol=0.02)


def test_a_column_without_a_weight_adds_no_minus_and_one_column_is_no_others():
    column = ColumnOfRow(feature="age", value=-1.0, added=(-0.0,))
    row = ExplainedRow(row=0, new_features=(0.5,), n_columns=2, columns=(column,))
    assert row_table(row, "").rows == (("age", "-1", "+0"), ("1 other", "", "+0.5"))


@pytest.mark.parametrize("run", ["mine", "cluster"])
def test_a_report_explains_the_nearest_row_and_the_farthest(results, run):
    model, data, rows = load_model(run), open_dataset(results[run].dataset), results[run].explained
    Z = model.transform(data.X.read(0, len(data.X)))
    distances = np.linalg.norm((Z - Z.mean(axis=0)) / Z.std(axis=0), axis=1)
    assert [each.row for each in rows] == [distances.argmin(), distances.argmax()]
    for each in rows:
        added = _added(run, each.row)
        most = added[np.argsort(-np.abs(added).max(axis=1))[:5]]
        np.testing.assert_allclose([column.added for column in each.columns], most)
    (block,) = (b for b in summary_of(View.of(run)).blocks if b.title == "Why is this row here?")
    assert [table.foot[0][0] for table in block.tables] == [f"row {each.row}" for each in rows]
    assert block.tables[0].rows[-1][0] == f"{results[run].columns - 5} others"


@pytest.mark.usefixtures("results")
def test_a_row_that_is_not_there_is_refused(here):
    for run, row, message in (
        ("mine", 178, "`--row` is 178; wine has 178 rows, expected 0 to 177"),
        ("mine", -1, "`--row` is -1"),
        ("mine", 1.5, "'--row'"),
        ("crossval", 1, "has results but no model"),
    ):
        assert message in here("show", run, "--row", row).failed(2)
    store_own(100)
    run_fit(FitSettings(dataset="own", n_components=1, criterion="dependence", run="own"))
    remove_dataset("own")
    store_own(100, y=np.arange(100) % 2)
    assert "own has other rows than the run 'own' had" in here("show", "own", "--row", 0).failed(1)


def test_a_sample_is_of_two_thousand_rows_and_the_same_for_a_seed():
    store_own(2500)
    linear = FitSettings(dataset="own", kernel="linear", n_components=3, criterion="dependence")
    one, two, other = (
        load_model(run_fit(replace(linear, run=name, seed=seed)).run)
        for name, seed in (("one", 0), ("two", 0), ("other", 1))
    )
    assert one.sample.points.shape == (2000, 3)
    np.testing.assert_array_equal(one.sample.points, two.sample.points)
    assert not np.array_equal(one.sample.values, other.sample.values)


def test_a_crossval_replaces_by_itself_only_one_that_nobody_has_named(here):
    name = "wine-gaussian-q2-crossval"
    run_fit(FitSettings(dataset="wine", run=name, sigma="median", criterion="dependence"))
    report_path(name).parent.mkdir(parents=True)
    report_path(name).touch()
    with pytest.raises(FlowError, match="replace it with --force"):
        run_crossval(WINE)
    first = open_run(run_crossval(replace(WINE, force=True)).run)
    assert (first.name, first.kind) == (name, "crossval")
    assert not report_path(name).exists()
    run_crossval(WINE)
    assert open_run(name).created > first.created
    named = replace(WINE, run="named")
    run_crossval(named)
    with pytest.raises(FlowError, match="there is a run 'named' already"):
        run_crossval(named)


@pytest.mark.usefixtures("fitted_wine")
@pytest.mark.parametrize("command", ["show", "report"])
def test_a_wrong_name_tells_of_near_ones(here, command):
    assert "`ism-dask runs`" in here(command, "wine").failed(2)
    run_folder("mine").rename(run_folder("wine-2d"))
    output = here(command, "wine-2f").failed(2)
    assert "no run 'wine-2f' is saved; did you mean 'wine-2d'? `ism-dask runs` lists" in output
    assert "did you mean" not in here(command, "qqq").failed(2)
    assert "`run` is '../x'" in here(command, "../x").failed(2)


@pytest.mark.usefixtures("results")
@pytest.mark.parametrize("suffix", [".md", ".json", ".html", ".HTML"])
def test_a_report_is_put_where_it_is_wanted(here, tmp_path, suffix):
    """The name of the file chooses the format."""
    path = tmp_path / f"report{suffix}"
    assert here("report", "crossval", "-o", path, "--json").answer["path"] == str(path)
    first = {".md": "# crossval\n", ".json": "{\n"}.get(suffix, "<!DOCTYPE html>\n")
    assert path.read_text().startswith(first)
    odd = tmp_path / f"odd{suffix}.pdf"
    said = here("report", "crossval", "-o", odd).failed(2)
    assert f"`--out` is '{odd}'; expected a file name that ends in .html or .md or .json" in said
    assert not odd.exists()


HEAVY = re.compile(r"\| +(scipy|sklearn|dask|distributed|prefect)$", re.MULTILINE)


@pytest.mark.usefixtures("fitted_wine")
@pytest.mark.parametrize("command", ["runs", "show mine", "report mine --open"])
def test_what_is_kept_is_shown_at_once(apart, tmp_path, command):
    opener, opened = tmp_path / "opener", tmp_path / "opened"
    opener.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    opener.chmod(0o755)
    ended = apart(*command.split(), PYTHONPROFILEIMPORTTIME="1", BROWSER=f"{opener} %s")
    assert ended.status == 0
    assert all(line.startswith("import time: ") for line in ended.err.splitlines())
    assert not HEAVY.search(ended.err)
    if "--open" in command:
        report = report_path("mine")
        assert ended.out.strip() == str(report)
        assert opened.read_text().strip() == report.as_uri()


@pytest.mark.usefixtures("results")
def test_all_reports_have_an_index(here, browser, tmp_path):
    (open_run("crossval").path / "record.json").write_bytes(b"")
    index = Path(here("report", "--all", "-o", tmp_path / "pages", "--json").answer["path"])
    assert index == tmp_path / "pages" / "index.html"
    whole = {run.name for run in list_runs() if not run.problem}
    assert {each.stem for each in index.parent.glob("runs/*.html")} == whole

    def look(page):
        rows = dict.fromkeys(page.locator("tbody th").all_inner_texts())
        damaged = page.locator("tr.damaged th").all_inner_texts()
        page.get_by_role("link", name="cluster", exact=True).click()
        return [*rows], damaged, page.locator("h1").inner_text()

    visit = browser(index.as_uri(), look)
    assert visit.found == ([run.name for run in list_runs()], ["crossval"], "cluster")
    assert visit.complaints == []
    again = here("report", "--all", "-o", tmp_path / "pages").failed(2)
    assert f"{index} exists already; replace it with --force" in again
    assert here("report", "--all", "-o", tmp_path / "pages", "--force").status == 0
    assert "is a file; --all writes a folder" in here("report", "--all", "-o", index).failed(2)
    assert "exclude each other" in here("report", "mine", "--all").failed(2)
    assert "or --all" in here("report").failed(2)
    assert here("report", "--all").status == 0
    assert (reports_folder() / "index.html").read_text() == index.read_text()
    remove_run("mine")
    assert not report_path("mine").exists()
