"""Clusters from the command line and under Prefect: labels, agreement with known ones, pictures."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
from commandline import Command
from PIL import Image
from support import Diary, artifacts_of

from flows.clusters import cluster_plain
from flows.errors import FlowError, SettingsError
from flows.progress import watching
from flows.settings import ClusterSettings
from storage import load_model


def test_each_paradigm_on_the_command_line(here: Command, tmp_path: Path) -> None:
    alone = here("cluster", "wine", "--plain", "--json", "--run", "alone").answer
    assert alone["nmi"][_only(alone["nmi"])] > 0.85
    assert sum(alone["sizes"]) == 178
    assert alone["converged"] is True
    kept = load_model("alone")
    assert kept.labels is not None
    np.testing.assert_array_equal(np.bincount(kept.labels), alone["sizes"])

    told = here("cluster", "wine", "--plain", "--json", "--paradigm", "semisupervised")
    assert told.answer["paradigm"] == "semisupervised"

    other = here(
        *("cluster", "wine", "--plain", "--json", "--paradigm", "alternative"),
        *("--avoid", "run:alone", "--run", "other"),
    )
    assert max(other.answer["nmi"].values()) < 0.2

    assert here("transform", "alone", "wine", "-o", tmp_path / "new.csv").status == 0
    assert np.loadtxt(tmp_path / "new.csv", delimiter=",", skiprows=1).shape == (178, 3)


def _only(names: dict[str, float]) -> str:
    (name,) = names
    return name


def test_people_see_sizes_and_agreement(here: Command) -> None:
    ended = here("cluster", "wine", "--plain", "--run", "seen")
    assert ended.status == 0
    assert "3 clusters in 2 rounds" in ended.out
    assert "NMI" in ended.out
    assert "scatter.png" in ended.out


def test_pictures_are_images(tmp_path: Path) -> None:
    summary = cluster_plain(ClusterSettings(dataset="digits", n_clusters=4, n_components=3))
    assert set(summary["pictures"]) == {"components", "clusters", "scatter", "objective"}
    for file in summary["pictures"].values():
        with Image.open(file) as image:
            image.verify()
    with Image.open(summary["pictures"]["clusters"]) as sheet:
        assert np.ptp(np.asarray(sheet)) > 100  # something is on it


@pytest.mark.reference_data
def test_poses_are_found_where_persons_are_known() -> None:
    summary = cluster_plain(
        ClusterSettings(dataset="face", paradigm="alternative", avoid="identity", n_clusters=4)
    )
    assert summary["nmi"]["pose"] > 0.4
    assert summary["nmi"]["identity"] < 0.06
    assert "clusters" in summary["pictures"]


@pytest.mark.reference_data
def test_a_picture_is_segmented_and_then_otherwise() -> None:
    first = cluster_plain(ClusterSettings(dataset="flower", n_clusters=2, run="petals"))
    assert first["nmi"] == {}
    second = cluster_plain(
        ClusterSettings(
            dataset="flower", n_clusters=2, paradigm="alternative", avoid="run:petals", run="other"
        )
    )
    for summary in (first, second):
        with Image.open(summary["pictures"]["segments"]) as image:
            left, right = np.hsplit(np.asarray(image), 2)
            assert left.shape == right.shape
            assert len(np.unique(right.reshape(-1, 3), axis=0)) == 2
    labels = [load_model(name).labels for name in ("petals", "other")]
    assert (labels[0] != labels[1]).any()


def test_progress_goes_up_by_round() -> None:
    diary = Diary()
    with watching(diary):
        cluster_plain(ClusterSettings(dataset="wine", run="watched"))
    assert diary.shares == sorted(diary.shares)
    assert diary.shares[-1] == 1.0
    assert any("round 2, iteration 1" in text for text in diary.texts)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"paradigm": "supervised"}, "`paradigm` is 'supervised'"),
        ({"avoid": "identity"}, "only alternative clusters"),
        ({"n_clusters": 0}, "`n_clusters` is 0; expected 1 or more"),
        ({"mu": 0.0}, "`mu` is 0.0"),
        ({"scores_share": 1.5}, "`scores_share` is 1.5"),
    ],
)
def test_settings_that_cannot_be(given: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        ClusterSettings(dataset="wine", **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_clusters": 178}, "`n_clusters` is 178; wine has 178 rows"),
        ({"paradigm": "semisupervised", "scores_share": 0.001}, "too few of 178 rows"),
        ({"paradigm": "alternative", "avoid": "colour"}, "`label` is 'colour'; wine has"),
    ],
)
def test_settings_that_the_data_refuse(given: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        cluster_plain(ClusterSettings(dataset="wine", **given))  # type: ignore[arg-type]


def test_a_run_is_not_lost(here: Command) -> None:
    settings = ClusterSettings(dataset="wine", run="once")
    cluster_plain(settings)
    with pytest.raises(FlowError, match="there is a run 'once' already"):
        cluster_plain(settings)
    ended = here("cluster", "wine", "--plain", "--run", "once", "--force")
    assert ended.status == 0


@pytest.mark.usefixtures("prefect_server")
def test_a_flow_shows_its_pictures() -> None:
    from flows.clustering import run_cluster

    summary = run_cluster(ClusterSettings(dataset="wine", run="flown"))
    artifacts = artifacts_of(UUID(summary["flow_run"]["id"]))
    page = artifacts["cluster-wine-unsupervised-gaussian"].data
    assert "NMI with" in page
    assert page.count("data:image/png;base64,") == len(summary["pictures"])
    assert artifacts["cluster-wine-unsupervised-gaussian-progress"].data == 100
