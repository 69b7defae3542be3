"""The paper's tables: what is measured, what is kept, what is shown, and where ISM loses."""

from dataclasses import replace
from multiprocessing import resource_tracker

import numpy as np
import psutil
import pytest
from browsing import Page
from scipy.spatial.distance import pdist
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import scale
from support import Diary, interrupted, noted_calls

from flows.builtin import ingest
from flows.errors import FlowError, SettingsError
from flows.paper import cells, figures, measure, methods, series
from flows.paper.aligned_sum import aligned_sum
from flows.paper.measure import plan, run_tables, save
from flows.paper.settings import DATA, METHODS, PARTS, TablesSettings
from flows.paper.verdicts import cells_of, published
from flows.progress.watching import ProgressShare, watch_progress
from flows.reports.html import render_run
from flows.reports.markdown import table_files
from flows.reports.paper_tables import tables_by_part
from flows.reports.summary import summarise
from flows.results.paper import SeriesResult
from flows.services.leases import HeldLease, hold_lease
from ism_dask import SupervisedIKDR
from ism_dask.kernels import Gaussian, Polynomial
from storage import PartialResults, home, open_run, save_results

NAMES, RULES = ("paradigm", "data", "kernel"), ("ism-0.01",)
WINE = TablesSettings(parts="table-4", data="wine", methods="ism,ism-0.01,stiefel", folds=3)


def test_a_cell_is_what_the_definition_makes_of_it():
    settings = replace(WINE, methods="ism")
    cell = next(iter(cells.table_cells("table-4", settings)))
    result = cell.measure(1, ProgressShare())
    data = ingest("wine")
    X, y = data.X.read(0, 178), np.asarray(data.y)
    dealt = StratifiedKFold(3, shuffle=True, random_state=0)
    train, _ = next(iter(dealt.split(X, y)))
    published = SupervisedIKDR(3, kernel=Gaussian("median"), random_state=0)
    model = published.fit(X[train], y[train])
    Z = scale(X[train]) @ model.components_.T
    K = rbf_kernel(Z, gamma=0.5 / model.kernel_.sigma**2)
    H = np.eye(len(Z)) - 1 / len(Z)
    gamma = H @ np.equal.outer(y[train], y[train]) @ H
    assert result["objective"] == pytest.approx((gamma * K).sum(), rel=1e-9)
    np.fill_diagonal(K, 0)
    assert result["cost"] == pytest.approx(-(gamma * K).sum(), rel=1e-9)
    assert 0.9 < result["score"] <= 1


@pytest.mark.parametrize("method", ["ism", "ism-graph"])
def test_costs_of_clusters_have_no_degrees(method):
    ingest("wine")
    request = methods.Request(q=3, kernel="gaussian", cap=600.0, seed=0)
    result = cells.cluster_score(0, ProgressShare(), data="wine", method=method, request=request)
    X, _ = methods.rows_in_memory("wine")
    model = methods.fit_clusters(method, request, X).model
    assert model.graph == ("kernel" if method == "ism-graph" else "regularised")
    U = model.embedding_ - model.embedding_.mean(axis=0)
    K = rbf_kernel(model.transform(X), gamma=0.5 / model.kernel_.sigma**2)
    np.fill_diagonal(K, 0)
    assert result["cost"] == pytest.approx(-(U @ U.T * K).sum())
    if method == "ism":
        # A gaussian has ones on its diagonal, and the embedding three columns of length 1.
        assert result["cost"] == pytest.approx(-(result["objective"] - 3), rel=1e-6)
        assert result["score"] > 0.8


def test_every_cell_of_the_paper_has_one_of_ours_and_variants_where_they_differ():
    ours = [
        (each.part, *(each.subject[name] for name in (*NAMES, "method")))
        for table in ("table-4", "table-5")
        for each in cells.table_cells(table, TablesSettings())
    ]
    known = {(*names, METHODS[method].published) for _, *names, method in ours}
    kernels = (("gaussian", "polynomial"), ("linear", "squared", "multiquadric"))
    wanted = {
        (paradigm, data, kernel, method)
        for paradigm in ("supervised", "unsupervised")
        for data in DATA
        for kernel in (*kernels[0], *kernels[1], "gaussian+polynomial")
        for method in (("ism", "dg", "sm", "gm") if kernel in kernels[0] else ("ism",))
        if kernel in kernels[0] or published(paradigm, data, kernel, method)
    }
    assert len([each for each in wanted if published(*each)]) == 64 + 28
    assert wanted <= known
    graphs = {each[:2] + each[3:4] for each in ours if "graph" in each[-1]}
    parts = zip(("table-4", "table-5"), kernels, strict=True)
    assert graphs == {(part, "unsupervised", kernel) for part, some in parts for kernel in some}
    assert {paradigm for _, paradigm, *_, method in ours if method in RULES} == {"supervised"}


def test_published_figures_are_as_printed():
    times, costs = {"seconds": 0.02, "seconds_sd": 0.01}, {"cost": -1311, "cost_sd": 26}
    known = {**times, **costs, "score": 0.95, "score_sd": 0.05}
    assert published("supervised", "wine", "gaussian", "ism") == known
    assert published("unsupervised", "face", "squared", "ism")["score"] == 0.95
    assert published("supervised", "mnist", "gaussian", "gm") == {"over_cap": "3 days"}
    assert published("supervised", "wine", "gaussian", "") == {}


def test_what_is_measured_is_shown_and_not_measured_again(monkeypatch):
    first = run_tables(WINE)
    assert [cell.folds for cell in first.cells] == [3] * 6 + [1] * 4
    for name in ("fold_score", "cluster_score"):
        monkeypatch.setattr(cells, name, lambda *_, **__: pytest.fail("measured again"))
    assert run_tables(WINE).cells == first.cells
    # What is not asked for now, but was before, stays in the tables.
    part = run_tables(replace(WINE, methods="ism"))
    assert part.cells == first.cells
    assert open_run("tables").metrics["cells"] == first.to_json()["cells"]
    # Pages and files have every cell.
    page, files = Page(render_run("tables")), table_files(first)
    assert set(files) == {"table-4.md"}
    made = tables_by_part(first)["table-4"]
    assert [len(each.tables[0].rows) for each in made] == [6, 4]
    assert all(f"{cell.score.mean:.3f}" in files["table-4.md"] for cell in first.cells)
    # The published figures of Wine.
    for figure in ("0.950 ± 0.050", "-1,311.0 ± 26.0", "0.860"):
        assert figure in files["table-4.md"]
        assert any(figure in row for row in page.rows)
    assert len(page.all("table")) == 4
    for changed in ({"seed": 1}, {"force": True}):
        with pytest.raises(pytest.fail.Exception, match="measured again"):
            run_tables(replace(WINE, **changed))


def test_a_run_of_tables_has_a_lease_and_is_resumed(here, monkeypatch):
    settings = replace(WINE, methods="ism", folds=2)
    folds = noted_calls(monkeypatch, "flows.paper.cells.fold_score")
    counted = cells.fold_score

    def interrupted_later(*given, **named):
        return interrupted() if folds else counted(*given, **named)

    monkeypatch.setattr(cells, "fold_score", interrupted_later)
    with pytest.raises(KeyboardInterrupt):
        run_tables(settings)
    (entry,) = here("runs", "--json").answer["unfinished"]
    assert (entry["name"], entry["kind"], entry["running"]) == ("tables", "tables", False)
    assert "takes no `--scheduler`" in here("resume", "tables", "--scheduler", "up").failed(2)

    monkeypatch.setattr(cells, "fold_score", counted)
    assert here("resume", "tables", "--plain").status == 0
    # Two folds of two kernels, none of them twice.
    assert [number for _, number in folds] == [1, 2, 1, 2]
    assert here("runs", "--json").answer["unfinished"] == []
    held = hold_lease("tables", "tables", {}, lambda: True)
    with held, pytest.raises(FlowError, match="is being computed"):
        run_tables(settings)


def test_an_altered_result_is_measured_again_and_told():
    settings = replace(WINE, methods="ism", folds=2)
    first = run_tables(settings)
    results = PartialResults.of_run("tables")
    path = results.path("table-4-supervised-wine-gaussian-ism-1") / "zarr.json"
    path.write_text(path.read_text().replace('score\\": ', 'score\\": 1'))
    diary = Diary()
    with watch_progress(diary):
        again = run_tables(settings)
    assert [cell.score for cell in again.cells] == [cell.score for cell in first.cells]
    assert len(diary.notes) == 1
    assert "bytes, expected" in diary.notes[0]
    assert diary.shares == sorted(diary.shares)
    assert diary.shares[-1] == pytest.approx(1.0)


def test_cells_of_few_rows_are_measured_side_by_side_with_the_same_result(monkeypatch):
    settings = replace(WINE, methods="ism", folds=2)
    alone = run_tables(settings).cells
    monkeypatch.setattr(measure, "_LITTLE_WORK", 0.0)
    diary = Diary()
    with watch_progress(diary):
        together = run_tables(replace(settings, run="together")).cells
    assert [each.method for each in together] == [each.method for each in alone]
    for one, other in zip(alone, together, strict=True):
        assert other.objectives == pytest.approx(one.objectives, rel=1e-6)
        assert other.score.mean == pytest.approx(one.score.mean, abs=0.02)
    assert diary.shares == sorted(diary.shares)
    assert diary.shares[-1] == pytest.approx(1.0)


@pytest.mark.long
def test_processes_of_cells_end_with_a_run_that_fails(monkeypatch):
    def fail(*_):
        raise FlowError("taken over")

    monkeypatch.setattr(measure, "_LITTLE_WORK", 0.0)
    monkeypatch.setattr(HeldLease, "check", fail)
    resource_tracker.ensure_running()  # a process of this one, which stays
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(FlowError, match="taken over"):
        run_tables(replace(WINE, methods="ism"))
    assert set(psutil.Process().children(recursive=True)) <= before
    assert PartialResults.of_run("tables").keys()


def _slow(calls, error="", **result):
    """Return a cell that notes its steps, and fails at the second one with an error."""

    def measure(step, _part):
        calls.append(step)
        if error and step == 2:
            raise ValueError(error)
        return {"seconds": 1.0, "status": "converged", "score": 1.0, **result}

    subject = {"paradigm": "supervised", "data": "wine", "kernel": "gaussian", "method": "ism"}
    return series.Series("table-4", subject, ("wine", None), 1.0, measure, (1, 2, 3))


@pytest.mark.parametrize(
    ("result", "steps"), [({"status": "over the cap"}, [1]), ({"seconds": 700.0}, [1, 2])]
)
def test_a_cell_ends_at_the_cap_or_when_its_budget_is_spent(result, steps):
    calls = []
    settings = replace(WINE, budget=1000.0)
    (cell,) = cells_of([series.measure_series(_slow(calls, **result), settings, ProgressShare())])
    assert calls == steps
    assert cell.status == result.get("status", "converged")
    assert (cell.folds, cell.of) == (len(steps), 3)


def test_what_goes_wrong_with_one_is_told_and_leaves_the_others(monkeypatch):
    bad = _slow([], "no such thing")
    found = series.measure_series(bad, WINE, ProgressShare())
    assert found.problem == "ValueError: no such thing"
    assert len(found.results) == 1
    cell = cells_of([found])[0]
    assert cell.problem == "ValueError: no such thing"
    monkeypatch.setattr(cells, "cluster_score", lambda *_, **__: 1 / 0)
    result = run_tables(replace(WINE, methods="ism"))
    assert [bool(cell.folds) for cell in result.cells] == [True, True, False, False]
    assert len(result.problems) == 2
    assert "ZeroDivisionError" in result.problems[0]


def _found(method, *objectives, paradigm="supervised", **changes):
    subject = {"paradigm": paradigm, "data": "wine", "kernel": "gaussian", "method": method}
    result = {"seconds": 1.0, "score": 0.95, "status": "converged", **changes}
    results = [{**result, "objective": each} for each in objectives]
    return SeriesResult(part="table-4", subject=subject, results=results, steps=3)


def test_what_is_lost_is_marked():
    rival, fewer = (_found("stiefel", *each, seconds=20.0) for each in ((2.0, 1.0), (2.0,)))
    for own, other, *lost in (
        (_found("ism", 2.0, 1.0), rival),
        (_found("ism", 2.0, 0.9), rival, "J 3.3e-02 below that of Stiefel (SM)"),
        (_found("ism", 2.0, 1.0, seconds=4.0), rival, "5.0 times as fast as Stiefel (SM)"),
        (_found("ism", 2.0, 1.0, score=0.89), rival, "accuracy below the published 0.950 - 0.050"),
        # What a rival has of fewer folds is held against the same folds.
        (_found("ism", 2.0, 1.0), fewer),
    ):
        assert cells_of([own, other])[0].lost == tuple(lost)


def test_the_published_graph_is_held_to_the_published_agreement():
    methods = (("ism-graph", 0.3), ("ism", 0.3), ("stiefel", 9.0))
    measured = [_found(*each, score=0.85, paradigm="unsupervised") for each in methods]
    (alone,) = cells_of(measured[:1])
    assert alone.lost == ("NMI below the published 0.860 - 0.000",)
    # Its J has degrees in it, so that it is compared with nobody's.
    assert cells_of(measured)[0].lost == alone.lost


def test_nca_ends_when_its_time_is_up():
    data = ingest("digits")
    X, y = data.X.read(0, 600).astype(float), np.asarray(data.y)[:600]
    request = methods.Request(q=3, kernel="", cap=1e-3, seed=0)
    found = methods.fit_method("nca", request, X, y)
    assert methods.fit_facts(found)["status"] == "over the cap"
    assert found.model.transform(X).shape == (600, 3)
    settled = methods.fit_method("lda", request, X, y)
    assert methods.fit_facts(settled)["status"] == "converged"


@pytest.mark.parametrize("method", [name for name, each in METHODS.items() if not each.solver])
def test_reference_points_learn_from_the_training_rows_alone(method):
    ingest("wine")
    settings = replace(WINE, parts="references", methods=method)
    cell = next(iter(cells.table_cells("references", settings)))
    result = cell.measure(1, ProgressShare())
    assert 0.85 < result["score"] <= 1
    assert "cost" not in result


def test_the_weights_of_a_sum_are_alignments_with_the_classes():
    data = ingest("wine")
    X, y = data.X.read(0, 178), np.asarray(data.y)
    Z, H = scale(X), np.eye(178) - 1 / 178
    L = np.equal.outer(y, y).astype(float)
    sigma = np.median(pdist(Z))

    def measured(K):
        K, centred = H @ K @ H, H @ L @ H
        return (K * centred).sum() / np.linalg.norm(K) / np.linalg.norm(centred), np.linalg.norm(K)

    one, first = measured(rbf_kernel(Z, gamma=0.5 / sigma**2))
    two, second = measured((Z @ Z.T + 1.0) ** 3)
    kernel = aligned_sum([Gaussian("median"), 10.0 * Polynomial()], X, y)
    weights = [weight for weight, _ in kernel.terms]
    assert weights == pytest.approx([one / (one + two), two / (one + two) * first / second])


def test_lines_stop_where_they_would_take_too_long():
    lines = {line.subject["line"]: line for line in figures.figure_1b(WINE)}
    exact, linear = lines["ISM, all pairs"], lines["ISM, landmarks (polynomial)"]
    for status, seconds, ends in (("converged", 16, True), ("converged", 14, False)):
        assert exact.ends_with({"seconds": seconds, "status": status}) is ends
    for line in (exact, linear):
        assert line.ends_with({"seconds": 1.0, "status": "over the cap"})
    assert not linear.ends_with({"seconds": 50.0, "status": "converged"})


@pytest.mark.long
def test_points_of_lines_are_measured(reference_data, monkeypatch):
    # The 10,000 images that the other figure takes; and fewer of them for training.
    monkeypatch.setattr(figures, "GROWTH_SPLIT", "test")
    monkeypatch.setattr(figures, "FEW_ROWS", 2000)
    point = next(iter(figures.figure_1b(WINE))).measure(500, ProgressShare())
    assert point["rows"] == 500
    *_, default = figures.features(WINE)
    assert default.measure(2, ProgressShare())["score"] > 0.5


def test_settings_say_what_there_is():
    for name, given in (("parts", ""), ("data", "wine,"), ("methods", "")):
        with pytest.raises(SettingsError, match=f"`{name}` has 'nonsense'; .*expected all, or"):
            replace(WINE, **{name: f"{given}nonsense"})
    with pytest.raises(SettingsError, match="`cap` is 0"):
        TablesSettings.parse({"cap": 0})
    with pytest.raises(SettingsError, match="run"):
        replace(WINE, run="../x")
    with pytest.raises(SettingsError, match=r"has 'pca', which .* add references to `parts`"):
        plan(replace(WINE, parts="table-4", methods="ism,pca"))
    with pytest.raises(SettingsError, match="nothing in common"):
        plan(replace(WINE, methods="pca"))
    assert replace(WINE, data=" cancer , wine").chosen("data") == ("wine", "cancer")


def test_a_run_of_another_kind_is_not_replaced():
    save_results("mine", "crossval", config={}, metrics={}, versions={})
    with pytest.raises(FlowError, match="there is a run 'mine' already"):
        run_tables(replace(WINE, run="mine"))


def _alternative_series(**fit):
    """Return the result of a part of Figure 1a with one fit."""
    known = {"clusters": "4 others", "nmi": {"pose": 0.6}, "seconds": 2.0, "png": "cG5n"}
    result = {"fits": [known | fit], "original": ""}
    subject = {"data": "face", "kernel": "gaussian"}
    return SeriesResult(part="figure-1a", subject=subject, results=[result])


def test_the_figure_of_clusters_tells_agreement_and_endings(here):
    result = save(TablesSettings(run="figure"), [_alternative_series(ended="over the cap")])
    (block,) = (each for each in summarise(result).blocks if each.pictures)
    (figure,) = block.pictures
    assert figure.title == "face, gaussian: 4 others"
    assert figure.caption == "NMI: pose 0.60; over the cap"
    shown = here("show", "figure").words
    assert "face, gaussian 4 others pose 0.60 over the cap" in shown
    assert "Cells" not in shown
    assert "lines and pictures 1" in here("runs").words
    row = "| face, gaussian | 4 others | pose 0.60 | over the cap | 2.0 |"
    assert row in table_files(result)["figure-1a.md"]


def test_kernels_of_the_figure_of_clusters(monkeypatch):
    every = list(figures.figure_1a(TablesSettings(cap=20.0)))
    assert [each.title for each in every[:2]] == ["flower gaussian", "flower polynomial"]
    subject = figures.Subject("three clusters", "two others", 3, 2, "cultivar", "clusters")
    monkeypatch.setattr(figures, "_SUBJECTS", {"wine": subject})
    ended = {}
    for each in figures.figure_1a(TablesSettings(cap=20.0)):
        result = each.measure(0, ProgressShare())
        first, other = result["fits"]
        assert other["nmi"]["cultivar"] < 0.2 < 0.8 < first["nmi"]["cultivar"]
        ended[each.subject["kernel"]] = result["status"]
    assert ended["gaussian"] == "converged"
    stopped = next(iter(figures.figure_1a(TablesSettings(cap=1e-6))))
    assert stopped.measure(0, ProgressShare())["status"] == "over the cap"


def test_the_command_tells_and_writes(here, tmp_path):
    options = ("tables", "--parts", "table-4", "--data", "wine", "--methods", "ism")
    options += ("--folds", "2", "--plain", "--run", "mine")
    assert "Table 4, supervised" in here(*options, "--out", tmp_path).out
    assert (tmp_path / "table-4.md").exists()
    assert (tmp_path / "tables.html").read_text().startswith("<!DOCTYPE html>")
    assert "4 cells" in here("runs").out
    assert "Tables 4 and 5" in here("show", "mine").out
    result = here(*options, "--json").answer
    assert [cell["folds"] for cell in result["cells"]] == [2, 2, 1, 1]


def test_plans_cover_all_parts():
    settings = TablesSettings()
    every = plan(settings)
    assert {series.part for series, _ in every} == set(PARTS)
    names = [series.name for series, _ in every]
    assert len(names) == len(set(names))
    starts = [part.start for _, part in every]
    assert starts == sorted(starts)
    assert every[-1][1].stop == pytest.approx(1.0)
    assert not home().joinpath("datasets").exists()
