"""Clusters from the command line and under Prefect: labels, agreement with known ones."""

import re
from dataclasses import replace

import numpy as np
import pytest
from support import store_own

from flows.errors import SettingsError
from flows.reports.summary import View, summary_of
from flows.runs.clustering import PARADIGMS, run_cluster
from flows.runs.data import ensure_stored
from flows.settings.unsupervised import ClusterSettings
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
    lines = [f"{k % 3},{a},{b}" for k, (a, b) in enumerate(noise)]  # a number may be called so
    (tmp_path / "marks.csv").write_text("\n".join(["mark=x,a,b", *lines]))
    ended = here("cluster", tmp_path / "marks.csv", "-k", 3, "-q", 1, "--plain", "--run", "marks")
    assert load_model("marks").metrics["separating"][0]["feature"] == "mark=x"
    assert "are levels of" not in ended.out
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
def test_progress_goes_up_by_round_and_announces_none_that_does_not_come(diary, most):
    rounds = len(run_cluster(ClusterSettings(dataset="wine", max_outer=most)).rounds)
    assert diary.shares == sorted(diary.shares)
    assert diary.shares[-1] == 1.0
    assert "clusters" in diary.texts
    output = [text for text in diary.texts if text.startswith("round ")]
    assert {text.split(",")[0] for text in output} == {f"round {n + 1}" for n in range(rounds)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("wine -k 178", "`--clusters` is 178; wine has 178 rows, expected fewer"),
        ("wine --avoid cultivar", "only alternative clusters"),
        ("wine --mu 5", "`--mu` is 5.0, but `--paradigm` is 'unsupervised'"),
        ("wine --paradigm alternative --scores-share 0.2", "`--scores-share` is 0.2, but"),
        ("wine --paradigm semisupervised --scores-share 0.001", "is 0.001, which does not"),
        ("wine --paradigm alternative --avoid run:../up", "`--avoid` is '../up'"),
        ("own", "own has no classes to count"),
        ("own -k 2 --paradigm semisupervised", "`--label` is None; own has no labels"),
        ("own -k 2 --paradigm alternative", "name that run, --avoid run:NAME"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(here, options, message):
    X = np.random.default_rng(0).normal(size=(30, 3))
    write_dataset(dataset_path("own"), DatasetInfo("own"), [X], {})
    assert message in here("cluster", *options.split(), "--plain").failed(2)


def test_numbers_are_no_classes():
    store_own(40, y=np.linspace(0, 1, 40), sex=np.arange(40) % 2)  # y is the default
    semisupervised = {"paradigm": "semisupervised", "n_clusters": 2}
    for given, words in (({}, "say how many clusters, -k"), (semisupervised, "expected classes")):
        with pytest.raises(SettingsError, match=words):
            run_cluster(ClusterSettings(dataset="own", **given))  # type: ignore[arg-type]
    result = run_cluster(ClusterSettings(dataset="own", n_clusters=2))
    assert list(result.nmi) == ["sex"]


@pytest.mark.usefixtures("results")
@pytest.mark.parametrize(
    ("run", "message"),
    [
        ("cluster", "clusters of other rows (digits all); expected a run that has clustered own"),
        ("fit", "a run without clusters"),
    ],
)
def test_clusters_of_other_rows_are_not_avoided(here, run, message):
    store_own(1797, 5)  # as many rows as digits
    alternative = ("cluster", "own", "--plain", "--paradigm", "alternative", "--avoid")
    assert message in here(*alternative, f"run:{run}").failed(2)


@pytest.mark.parametrize(("k", "groups"), [(1, "1 group"), (39, "39 groups")])
def test_clusters_that_are_no_classes_cannot_be_avoided(here, k, groups):
    store_own(40)
    assert here("cluster", "own", "-k", k, "--plain", "--run", "odd").status == 0
    asked = ("cluster", "own", "--plain", "--paradigm", "alternative", "--avoid", "run:odd")
    output = here(*asked).failed(2)
    assert f"`--avoid` is 'run:odd', which makes {groups} of 40 rows; expected 2" in output


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


@pytest.mark.parametrize("words", ["cluster {}/t.csv --label y --avoid y,city", "run {}/t.toml"])
def test_a_column_of_a_table_to_avoid_is_no_feature(here, tmp_path, words):
    rows = np.random.default_rng(0).normal(size=(40, 3)).round(3).tolist()
    lines = [f"{a},{b},{c},{'uv'[k % 2]},{k % 3}" for k, (a, b, c) in enumerate(rows)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c,y,city", *lines]))
    (tmp_path / "t.toml").write_text(
        '[data]\nsource = "t.csv"\nlabel = "y"\n[cluster]\nparadigm = "alternative"\n'
        'avoid = "y,city"\n'
    )
    options = () if words.startswith("run") else ("--paradigm", "alternative")
    if options:
        alone = ("cluster", tmp_path / "t.csv", "--avoid", "city", *options, "--plain")
        assert "`--label` is not given; name the column" in here(*alone).failed(2)
    assert here(*words.format(tmp_path).split(), *options, "--plain").status == 0
    data = open_dataset("t")
    assert (data.feature_names, {*data.labels}) == (("a", "b", "c"), {"y", "city"})
    said = here("cluster", "t", "--paradigm", "alternative", "--avoid", "a", "--plain").failed(2)
    assert "`--avoid` is 'a'; t has city, y. A column of a table is one if --label" in said


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
