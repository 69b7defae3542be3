"""Clusters from the command line and under Prefect: labels, agreement with known ones."""

import re
from dataclasses import replace

import numpy as np
import pytest
from support import Diary, flown, store_own

from flows.errors import SettingsError
from flows.progress.watching import watch_progress
from flows.reports.summary import summary_of
from flows.reports.view import View
from flows.runs.clustering import PARADIGMS, run_cluster
from flows.runs.data import ensure_stored
from flows.settings.unsupervised import MU, MU_AVOIDED, SCORES_SHARE, ClusterSettings
from ism_dask import AlternativeIKDR
from storage import DatasetInfo, dataset_path, load_model, open_dataset, write_dataset


def test_each_paradigm_on_the_command_line(here, tmp_path):
    alone = here("cluster", "wine", "--plain", "--json", "--run", "alone").answer
    assert [*alone["nmi"]] == ["cultivar"]
    assert alone["nmi"]["cultivar"] > 0.85
    assert sum(alone["sizes"]) == 178
    assert alone["converged"] is True
    np.testing.assert_array_equal(np.bincount(load_model("alone").labels), alone["sizes"])

    output = here("cluster", "wine", "--plain", "--json", "--paradigm", "semisupervised")
    assert output.answer["paradigm"] == "semisupervised"

    avoiding = ("--paradigm", "alternative", "--avoid", "run:alone", "--run", "other")
    other = here("cluster", "wine", "--plain", "--json", *avoiding)
    assert max(other.answer["nmi"].values()) < 0.2

    assert here("transform", "alone", "wine", "-o", tmp_path / "new.csv").status == 0
    assert np.loadtxt(tmp_path / "new.csv", delimiter=",", skiprows=1).shape == (178, 3)


def test_columns_that_tell_the_clusters_apart_are_named(here, tmp_path):
    rng = np.random.default_rng(0)
    cities = rng.choice(["Oslo", "Rome", "Lima"], 150)
    noise = rng.normal(size=(150, 2)).round(3)
    lines = [f"{city},{a},{b}" for city, (a, b) in zip(cities, noise, strict=True)]
    (tmp_path / "towns.csv").write_text("\n".join(["city,a,b", *lines]))
    assert here("ingest", tmp_path / "towns.csv", "--plain").status == 0
    ended = here("cluster", "towns", "-k", 3, "-q", 2, "--plain", "--run", "towns")
    assert "the clusters are levels of the column city" in ended.out
    summary = summary_of(View.of("towns"))
    assert re.match(r"3 clusters of 150 rows; (city=\w+, ){2}|3 clusters .* city=", summary.finding)
    (table,) = (each for each in summary.blocks[0].tables if each.columns == ("column", "share"))
    shares = {name: float(share.rstrip("%")) for name, share in table.rows}
    assert max(shares["a"], shares["b"]) < 20 < 90 < min(shares[f"city={each}"] for each in cities)


@pytest.mark.long
@pytest.mark.usefixtures("reference_data")
def test_poses_are_found_where_persons_are_known():
    settings = ClusterSettings(dataset="face", paradigm="alternative", avoid="identity")
    result = run_cluster(replace(settings, n_clusters=4))
    assert result.nmi["pose"] > 0.4
    assert result.nmi["identity"] < 0.06


@pytest.mark.parametrize("most", [1, 20])
def test_progress_goes_up_by_round_and_announces_none_that_does_not_come(most):
    diary = Diary()
    with watch_progress(diary):
        settings = ClusterSettings(dataset="wine", run="watched", max_outer=most)
        rounds = len(run_cluster(settings).rounds)
    assert diary.shares == sorted(diary.shares)
    assert diary.shares[-1] == 1.0
    assert "clusters" in diary.texts
    output = [text for text in diary.texts if text.startswith("round ")]
    assert {text.split(",")[0] for text in output} == {f"round {n + 1}" for n in range(rounds)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("wine --paradigm supervised", "`--paradigm` is 'supervised'"),
        ("wine -k 0", "`--clusters` is 0; expected 1 or more"),
        ("wine -k 178", "`--clusters` is 178; wine has 178 rows, expected fewer"),
        ("wine --avoid cultivar", "only alternative clusters"),
        ("wine --paradigm semisupervised --avoid cultivar", "only alternative clusters"),
        ("wine --mu 5", "`--mu` is 5.0, but `--paradigm` is 'unsupervised'"),
        ("wine --mu 0", "`--mu` is 0.0"),
        ("wine --scores-share 0.2", "only semisupervised clusters"),
        ("wine --paradigm alternative --scores-share 0.2", "`--scores-share` is 0.2, but"),
        ("wine --paradigm semisupervised --scores-share 1.5", "`--scores-share` is 1.5"),
        ("wine --paradigm semisupervised --scores-share 0.001", "is 0.001, which does not"),
        ("wine --label colour -k 3", "`--label` is 'colour'; wine has cultivar"),
        ("wine --paradigm alternative --avoid run:../up", "`--avoid` is '../up'"),
        ("wine --paradigm alternative --avoid colour", "`--avoid` is 'colour'; wine has"),
        ("wine --paradigm alternative --avoid=", "`--avoid` is ''; wine has cultivar"),
        ("own", "own has no labels to count"),
        ("own -k 2 --paradigm semisupervised", "`--label` is None; own has no labels"),
        ("own -k 2 --paradigm alternative", "`--avoid` is None; own has no labels"),
        ("own -k 2 --paradigm alternative", "name that run, --avoid run:NAME"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(here, options, message):
    X = np.random.default_rng(0).normal(size=(30, 3))
    write_dataset(dataset_path("own"), DatasetInfo("own"), [X], {})
    assert message in here("cluster", *options.split(), "--plain").failed(2)


def test_numbers_are_no_classes():
    store_own(40, y=np.linspace(0, 1, 40))
    for given in ({}, {"paradigm": "semisupervised", "n_clusters": 2}):
        with pytest.raises(SettingsError, match="expected classes"):
            run_cluster(ClusterSettings(dataset="own", **given))  # type: ignore[arg-type]
    result = run_cluster(ClusterSettings(dataset="own", n_clusters=2))
    assert result.nmi == {}


@pytest.mark.usefixtures("results")
@pytest.mark.parametrize(
    ("run", "message"),
    [
        ("cluster", "clusters of other rows (digits all); expected a run that has clustered own"),
        ("fit", "a run without clusters"),
        ("nobody", "no run 'nobody' is saved"),
    ],
)
def test_clusters_of_other_rows_are_not_avoided(here, run, message):
    store_own(1797, 5)  # as many rows as digits
    alternative = ("cluster", "own", "--plain", "--paradigm", "alternative", "--avoid")
    assert message in here(*alternative, f"run:{run}").failed(2)


@pytest.mark.parametrize(("k", "groups"), [(1, "1 group"), (177, "177 groups")])
def test_clusters_that_are_no_classes_cannot_be_avoided(here, k, groups):
    assert here("cluster", "wine", "-k", k, "--plain", "--run", "odd").status == 0
    asked = ("cluster", "wine", "--plain", "--paradigm", "alternative", "--avoid", "run:odd")
    output = here(*asked).failed(2)
    assert f"`--avoid` is 'run:odd', which makes {groups} of 178 rows; expected 2" in output


@pytest.mark.parametrize(
    ("paradigm", "given"),
    [
        ("semisupervised", {"mu": MU, "scores_share": SCORES_SHARE}),
        ("alternative", {"mu": MU_AVOIDED}),
    ],
)
def test_a_default_is_what_the_help_says(here, paradigm, given):
    words = " ".join(here("cluster", "--help").out.replace("│", " ").split())
    assert f"clusters. Default: {MU}, and {MU_AVOIDED} for labels to avoid." in words
    assert f"whose class the fit uses. Default: {SCORES_SHARE}." in words
    settings = ClusterSettings(dataset="wine", paradigm=paradigm, run="default", max_outer=1)
    named = replace(settings, run="named", **given)
    default, output = (run_cluster(each) for each in (settings, named))
    assert default.objective == output.objective
    assert default.sizes == output.sizes


def test_the_own_label_is_avoided_whatever_label_counts():
    rng = np.random.default_rng(0)
    store_own(60, y=rng.integers(0, 3, 60), other=rng.integers(0, 2, 60))
    output = {"dataset": "own", "paradigm": "alternative", "label": "other"}
    for avoid, run in ((None, "default"), ("y", "named")):
        run_cluster(ClusterSettings(**output, avoid=avoid, run=run))  # type: ignore[arg-type]
    default, named = (load_model(run) for run in ("default", "named"))
    assert default.metrics["n_clusters"] == 2  # classes of `other`; y has three
    np.testing.assert_array_equal(default.labels, named.labels)


def test_several_labels_and_runs_are_avoided_at_once(here):
    rng = np.random.default_rng(0)
    store_own(60, y=rng.integers(0, 3, 60), other=rng.integers(0, 2, 60))
    run_cluster(ClusterSettings(dataset="own", n_clusters=2, run="first"))
    words = ("cluster", "own", "--plain", "--paradigm", "alternative", "-k", 2, "--avoid")
    assert here(*words, "y, run:first", "--run", "both").status == 0
    data, both = open_dataset(dataset_path("own")), load_model("both")
    y = np.column_stack([data.labels["y"], load_model("first").labels])
    direct = AlternativeIKDR(2, random_state=0).fit(data.X.read(0, 60), y)
    np.testing.assert_array_equal(both.labels, direct.labels_)
    alone = AlternativeIKDR(2, random_state=0).fit(data.X.read(0, 60), y[:, 0])
    assert direct.objective_ != alone.objective_
    assert "`--avoid` is 'colour'; own has" in here(*words, "y,colour").failed(2)
    assert "no run 'no' is saved" in here(*words, "y,run:no").failed(2)


def test_scores_are_of_a_share_of_each_class():
    data = ensure_stored("wine", None)
    settings = ClusterSettings(dataset="wine", paradigm="semisupervised", scores_share=0.25)
    scores = PARADIGMS["semisupervised"].target(settings, data)
    known = scores >= 0
    np.testing.assert_array_equal(scores[known], data.y[known])
    shares = np.bincount(scores[known]) / np.bincount(data.y)
    np.testing.assert_allclose(shares, 0.25, atol=0.02)
    other = PARADIGMS["semisupervised"].target(replace(settings, seed=1), data)
    assert (scores != other).any()


def test_people_see_sizes_agreement_and_what_helps(here):
    limits = ("--max-outer", 1, "--outer-tol", 1e-12, "--max-iter", 1, "--tol", 1e-12)
    output = here("cluster", "wine", "--plain", "--run", "seen", *limits).out
    assert re.search(r"^ Clusters +3 *$", output, re.MULTILINE)
    assert re.search(r"^ Rounds +1 *$", output, re.MULTILINE)
    assert "NMI" in output
    advice = "Raise --max-iter. Raise --max-outer or --outer-tol"
    assert f"not converged: the last round was saved. W did not converge. {advice}\n" in output


@pytest.mark.usefixtures("prefect_server")
def test_a_flow_shows_its_pictures():
    result, run, artifacts = flown("cluster", ClusterSettings(dataset="wine", run="flown"))
    page = artifacts["cluster-wine-unsupervised-gaussian"].data
    assert f"| cultivar | {result.nmi['cultivar']:.3f} |" in page
    # Convergence, settling of the rounds, spectrum, rows and three components; settling of the last
    # round where there is more to draw.
    assert page.count("data:image/svg+xml;base64,") in (7, 8)
    assert artifacts["cluster-wine-unsupervised-gaussian-progress"].data == 100
    name = "wine unsupervised gaussian k=3"
    assert run.name == f"flown: {name}, engine auto, on this machine"
    where = {"engine auto", "this machine"}
    assert set(run.tags) == {"flown", "wine", "unsupervised", "gaussian", "k=3"} | where
