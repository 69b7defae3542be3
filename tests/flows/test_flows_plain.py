"""What the flows compute, without Prefect."""

from __future__ import annotations

import pickle
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

import flows.data
from flows.data import Picked, ensure_stored, open_labelled
from flows.errors import FlowError, SettingsError
from flows.fitting import fit_plain, top_loadings
from flows.folds import cross_fold, crossval_plain, plan_folds
from flows.progress import link, report, settled_share, watching
from flows.settings import CrossvalSettings, FitSettings
from ism_dask import SupervisedIKDR
from ism_dask.rows import RowSource
from storage import DatasetInfo, dataset_path, load_model, write_dataset

WINE = CrossvalSettings(dataset="wine")


class Diary:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.shares: list[float] = []
        self.texts: list[str] = []
        self.links: list[str] = []

    def tick(self, share: float, text: str) -> None:
        self.shares.append(share)
        self.texts.append(text)

    def linked(self, url: str) -> None:
        self.links.append(url)


def test_crossval_is_what_scikit_learn_computes() -> None:
    summary = crossval_plain(WINE)
    data = ensure_stored("wine", None)
    pipeline = make_pipeline(SupervisedIKDR(random_state=0), SVC())
    folds = StratifiedKFold(10, shuffle=True, random_state=0)
    expected = cross_val_score(pipeline, data.X.read(0, 178), data.y, cv=folds)
    found = [result["accuracy"] for result in summary["results"]]
    np.testing.assert_array_equal(found, expected)
    assert summary["mean"]["accuracy"] == pytest.approx(expected.mean())
    assert summary["sd"]["accuracy"] == pytest.approx(expected.std())
    assert summary["mean"]["accuracy"] >= 0.95
    assert summary["n_components"] == 3
    assert all(result["converged"] for result in summary["results"])


def test_nothing_of_the_held_out_rows_reaches_the_fit() -> None:
    ensure_stored("wine", None)
    labelled = open_labelled(WINE)
    plan = plan_folds(labelled, WINE)[0]
    X, y = labelled.data.X.read(0, 178), labelled.y
    model = SupervisedIKDR(random_state=0).fit(X[plan.train], y[plan.train])
    assert cross_fold(WINE, 1).cost == pytest.approx(-model.objective_, rel=1e-12)
    np.testing.assert_array_equal(np.sort([*plan.train, *plan.test]), np.arange(178))
    shares = np.bincount(y[plan.test]) / len(plan.test)
    np.testing.assert_allclose(shares, np.bincount(y) / 178, atol=0.05)


def test_the_seed_deals_the_folds() -> None:
    ensure_stored("wine", None)
    labelled = open_labelled(WINE)
    first, again, other = (
        plan_folds(labelled, replace(WINE, seed=seed))[0].test for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_only_the_first_folds() -> None:
    whole, part = crossval_plain(WINE), crossval_plain(replace(WINE, first=2))
    costs = [[result["cost"] for result in summary["results"]] for summary in (whole, part)]
    assert costs[1] == costs[0][:2]


def test_a_fit_that_does_not_settle_says_so() -> None:
    summary = crossval_plain(replace(WINE, first=1, tol=1e-15, max_iter=2))
    assert summary["results"][0]["converged"] is False


def test_rows_too_many_for_memory_are_read_from_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(WINE, first=2)
    expected = crossval_plain(settings)
    monkeypatch.setattr(flows.data, "_IN_MEMORY", 0)
    found = crossval_plain(settings)
    for one, two in zip(found["results"], expected["results"], strict=True):
        assert one["accuracy"] == two["accuracy"]
        assert one["cost"] == pytest.approx(two["cost"], rel=1e-9)
    objective = fit_plain(FitSettings(dataset="wine"))["objective"]
    monkeypatch.undo()
    assert objective > -expected["results"][0]["cost"]


def test_picked_rows_are_rows() -> None:
    source = ensure_stored("wine", None).X
    rows = np.sort(np.random.default_rng(0).choice(178, 100, replace=False))
    picked = pickle.loads(pickle.dumps(Picked.of(source, rows)))
    assert isinstance(picked, RowSource)
    assert picked.shape == (100, 13)
    np.testing.assert_array_equal(picked.read(7, 60), source.read(0, 178)[rows[7:60]])
    assert picked.read(5, 5).shape == (0, 13)
    assert len(pickle.dumps(picked)) < len(pickle.dumps(source)) + 300


def small(y: np.ndarray, **labels: np.ndarray) -> None:
    X = np.random.default_rng(0).normal(size=(40, 4))
    info = DatasetInfo("own", default_label="y")
    write_dataset(dataset_path("own"), info, [X], {"y": y, **labels})


def test_a_stored_data_set_of_ones_own() -> None:
    small(np.arange(40) % 4, size=np.linspace(0, 1, 40))
    settings = CrossvalSettings(dataset="own", folds=5)
    assert crossval_plain(settings)["n_components"] == 3  # 4 classes, but only 4 columns
    with pytest.raises(SettingsError, match="`label` is 'size', numbers"):
        crossval_plain(replace(settings, label="size"))
    fitted = fit_plain(FitSettings(dataset="own", label="size"))
    assert (fitted["run"], fitted["n_components"]) == ("own-gaussian-q1", 1)
    assert fitted["loadings"][0][0]["feature"].startswith("feature_")
    with pytest.raises(SettingsError, match="expected 1 to 3"):
        crossval_plain(replace(settings, n_components=4))
    with pytest.raises(SettingsError, match="`label` is 'colour'; own has size, y"):
        crossval_plain(replace(settings, label="colour"))
    with pytest.raises(SettingsError, match="`folds` is 11, but the smallest class of own has 10"):
        crossval_plain(replace(settings, folds=11))


def test_watchers_are_told_and_never_that_it_goes_back() -> None:
    outer, inner = Diary(), Diary()
    with watching(outer), watching(inner):
        crossval_plain(replace(WINE, first=2))
        link("somewhere")
    report(0.5, "nobody hears this")
    assert outer.shares == inner.shares == sorted(inner.shares)
    assert inner.shares[-1] == 1.0
    assert outer.links == ["somewhere"]
    assert any("fold 2 of 10, iteration 1, objective" in text for text in inner.texts)


def test_the_share_of_a_fit_follows_the_change() -> None:
    def state(*changes: float) -> SimpleNamespace:
        history = [SimpleNamespace(change=change) for change in changes]
        return SimpleNamespace(history=history, iteration=len(changes))

    assert settled_share(state(1.0), 0.01, 100) == 0.01
    assert settled_share(state(1.0, 0.1), 0.01, 100) == pytest.approx(0.5)
    assert settled_share(state(1.0, 0.1, 0.3), 0.01, 100) == pytest.approx(0.5)
    assert settled_share(state(1.0, 0.001), 0.01, 100) == 1.0
    assert settled_share(state(0.001), 0.01, 100) == 1.0
    assert settled_share(state(1.0, 0.9), 0.01, 2) == 1.0


def test_fit_keeps_the_model_that_it_tells_of() -> None:
    settings = FitSettings(dataset="wine", n_components=2)
    summary = fit_plain(settings)
    assert summary["run"] == "wine-gaussian-q2"
    model = load_model(summary["run"])
    data = ensure_stored("wine", None)
    expected = SupervisedIKDR(2, random_state=0).fit(data.X.read(0, 178), data.y)
    np.testing.assert_allclose(model.components, expected.components_, atol=1e-12)
    assert model.metrics["objective"] == summary["objective"]
    assert model.metrics["fitted_kernel"] == {"name": "gaussian", "sigma": expected.kernel_.sigma}
    assert model.config == settings.to_json()
    assert model.class_names == data.class_names["cultivar"]
    assert model.feature_names == data.feature_names
    with pytest.raises(FlowError, match="--force"):
        fit_plain(settings)
    fit_plain(replace(settings, force=True))


def test_top_loadings_are_the_largest_weights() -> None:
    found = top_loadings(np.array([[0.1, -0.9, 0.3, 0.0, 0.2, 0.25]]), tuple("abcdef"))
    assert [(each.feature, each.weight) for each in found[0][:2]] == [("b", -0.9), ("c", 0.3)]
    assert len(found[0]) == 5


def test_relative_gaussian_keeps_its_rows_out_of_the_summary() -> None:
    summary = fit_plain(FitSettings(dataset="wine", kernel="relative_gaussian", neighbor=5))
    assert summary["fitted_kernel"] == {"name": "relative_gaussian", "neighbor": 5}


def test_face_by_either_label(reference_data: object) -> None:
    settings = FitSettings(dataset="face", kernel="linear", label="pose")
    assert fit_plain(settings)["n_components"] == 4
