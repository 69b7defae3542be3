"""What the flows compute, without Prefect."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from support import Diary, store_own

from flows.errors import FlowError, SettingsError
from flows.progress.watching import ProgressShare, watch_progress
from flows.reports.summary import View, summarise
from flows.runs.crossval import plan_folds, run_crossval, run_fold
from flows.runs.data import ensure_stored, label_of
from flows.runs.fit import run_fit
from flows.settings.runs import CrossvalSettings, FitSettings
from ism_dask import PredictiveIKDR, SupervisedIKDR, intervals
from ism_dask.kernels import Gaussian
from storage import load_model

WINE = CrossvalSettings(dataset="wine")
# The fast one.
PLAIN = replace(WINE, criterion="dependence", sigma="median")
FIT = FitSettings(dataset="wine", criterion="dependence", sigma="median")


def test_nothing_of_the_held_out_rows_reaches_the_fit():
    labelled = label_of(ensure_stored("wine", None), PLAIN)
    plan, other = (plan_folds(labelled, PLAIN.folds, seed)[0] for seed in (0, 1))
    assert not np.array_equal(plan.test, other.test)
    X, y = labelled.data.X.read(0, 178), labelled.y
    model = SupervisedIKDR(2, kernel=Gaussian("median"), random_state=0)
    model.fit(X[plan.train], y[plan.train])
    cost = run_fold(labelled, X, plan, PLAIN, ProgressShare()).cost
    assert cost == pytest.approx(-model.objective_, rel=1e-12)
    np.testing.assert_array_equal(np.sort([*plan.train, *plan.test]), np.arange(178))
    shares = np.bincount(y[plan.test]) / len(plan.test)
    np.testing.assert_allclose(shares, np.bincount(y) / 178, atol=0.05)


def test_rows_of_a_group_are_in_one_fold():
    labelled, groups = label_of(ensure_stored("wine", None), PLAIN), np.arange(178) // 3
    for plan in plan_folds(labelled, PLAIN.folds, 0, groups):
        assert not set(groups[plan.train]) & set(groups[plan.test])
        np.testing.assert_array_equal(np.sort([*plan.train, *plan.test]), np.arange(178))
    with pytest.raises(SettingsError, match="`folds` is 10, but there are 3 groups; expected one"):
        plan_folds(labelled, 10, 0, groups % 3)
    with pytest.raises(SettingsError, match="one class alone to train on"):
        plan_folds(replace(labelled, y=np.arange(178) % 2), 2, 0, np.arange(178) % 2)
    with watch_progress(diary := Diary()):
        plan_folds(labelled, 2, 0, np.where(labelled.y == 1, 0, 1 + np.arange(178) % 3))
    (note,) = diary.notes
    assert note.split(" ", 2)[2].startswith("has no row of the class class_1 to train on")


def test_first_folds_of_rows_too_many_for_memory_are_read_from_disk(monkeypatch):
    settings = replace(PLAIN, folds=3)
    expected = run_crossval(settings).results[:2]
    monkeypatch.setattr("flows.runs.data._IN_MEMORY", 0)
    results = run_crossval(replace(settings, first=2)).results
    for one, two in zip(results, expected, strict=True):
        assert one.accuracy == two.accuracy
        assert one.cost == pytest.approx(two.cost, rel=1e-9)
    assert run_fit(FIT).objective > -expected[0].cost


@pytest.mark.long
def test_a_stored_data_set_of_ones_own():
    store_own(40, y=np.arange(40) % 4, size=np.linspace(0, 1, 40))
    settings = CrossvalSettings(dataset="own", folds=5)
    assert run_crossval(settings).n_components is None
    # 4 classes, but only 4 columns.
    assert run_crossval(replace(settings, criterion="dependence")).n_components == 3
    with pytest.raises(SettingsError, match="`label` is 'size', numbers"):
        run_crossval(replace(settings, label="size"))
    result = run_fit(FitSettings(dataset="own", label="size", criterion="dependence"))
    assert (result.run, result.n_components) == ("own-gaussian", 1)
    assert result.loadings[0][0].feature.startswith("feature_")


def test_fit_keeps_the_model_that_it_tells_of():
    settings = FitSettings(dataset="wine", n_components=2)
    result = run_fit(settings)
    chosen = result.selection
    assert result.run == "wine-gaussian-q2"
    model = load_model(result.run)
    data = ensure_stored("wine", None)
    expected = PredictiveIKDR(2, random_state=0).fit(data.X.read(0, 178), data.y)
    np.testing.assert_allclose(model.components, expected.components_, atol=1e-12)
    assert model.metrics["objective"] == result.objective
    assert (chosen.width, chosen.ridge) == (expected.setting_.width, expected.setting_.ridge)
    trials = expected.report_.trials[:5]
    assert [each.start for each in chosen.tried] == [each.start for each in trials]
    assert model.metrics["selection"] == chosen.to_json()
    sure = intervals(expected, data.X.read(0, 178), data.y)
    assert result.certainty.distance_interval == pytest.approx(sure.distance_interval)
    objectives = [each.objective for each in expected.history_]
    assert [each["objective"] for each in model.history] == pytest.approx(objectives)
    assert {"eigenvalues", "change", "angle", "seconds"} <= set(model.history[0])
    assert model.sample.points.dtype == np.float32
    points = expected.transform(data.X.read(0, 178))
    np.testing.assert_allclose(model.sample.points, points, atol=1e-5)
    np.testing.assert_array_equal(model.sample.values, data.y)
    assert model.metrics["solver"] == expected.report_.solver == "ascent"
    assert model.metrics["fitted_kernel"] == {"name": "gaussian", "sigma": expected.kernel_.sigma}
    assert model.config == settings.to_json()
    assert model.class_names == data.class_names["cultivar"]
    assert model.feature_names == data.feature_names


def test_fits_of_the_width_root_and_of_balanced_classes():
    X, y = load_wine(return_X_y=True)
    given = {"dataset": "wine", "criterion": "dependence", "n_components": 2, "force": True}
    for sigma, settings, parameters in (
        ("root", {}, {}),
        ("median", {"balanced": True}, {"kernel": Gaussian("median"), "class_weight": "balanced"}),
    ):
        run_fit(FitSettings(**given, sigma=sigma, **settings))
        expected = SupervisedIKDR(2, random_state=0, **parameters).fit(X, y)
        model = load_model("wine-gaussian-q2")
        np.testing.assert_allclose(model.components, expected.components_, atol=1e-9)


@pytest.mark.long
def test_crossval_and_its_baselines_are_what_scikit_learn_computes():
    result = run_crossval(CrossvalSettings(dataset="wine", n_components=2, folds=3))
    X, y = load_wine(return_X_y=True)
    prediction = PredictiveIKDR(2, random_state=0)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    models = {
        "": make_pipeline(prediction, SVC()),
        "PCA": make_pipeline(StandardScaler(), PCA(2), SVC()),
        "LDA": make_pipeline(StandardScaler(), LinearDiscriminantAnalysis(n_components=2), SVC()),
        "all features": make_pipeline(StandardScaler(), SVC()),
        "chance": DummyClassifier(),
    }
    for name, model in models.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the result says how fits ended
            expected = cross_val_score(model, X, y, cv=folds)
        found = [{"": each.accuracy, **each.baselines}[name] for each in result.results]
        np.testing.assert_allclose(found, expected, atol=1e-12)
        if not name:
            assert result.mean.accuracy == pytest.approx(expected.mean())
            assert result.sd.accuracy == pytest.approx(expected.std())
    assert result.mean.accuracy >= 0.95
    assert result.predicts
    assert all(fold.selection.tried for fold in result.results if fold.selection)
    counts = np.array([each.confusion for each in result.results])
    assert result.class_names == ("class_0", "class_1", "class_2")
    np.testing.assert_array_equal(counts.sum(axis=(0, 2)), np.bincount(y))
    right, sizes = np.trace(counts, axis1=1, axis2=2), counts.sum(axis=(1, 2))
    np.testing.assert_allclose(right / sizes, [each.accuracy for each in result.results])


def test_baselines_that_take_too_long_are_left_out_and_named(monkeypatch):
    monkeypatch.setattr("flows.runs.crossval._MOST_WORK", 1e5)
    result = run_crossval(replace(WINE, n_components=2, first=1, max_iter=1))
    assert set(result.results[0].baselines) == {"PCA", "LDA", "chance"}
    (block,) = (each for each in summarise(result).blocks if each.title == "Beside other features")
    assert [row[0] for row in block.tables[0].rows] == ["prediction", "PCA", "LDA", "chance"]
    one_row, note = block.notes
    assert one_row.startswith("One row of 18 is 0.0556 of the accuracy: ")
    assert note.endswith("178 rows of 13 columns are too many or too few: all features.")


def test_both_criteria_are_fitted_to_the_same_folds():
    settings = replace(WINE, first=1)
    both = run_crossval(replace(settings, criterion="both", run="both"))
    assert both.n_components == 2  # of prediction, too, which would choose
    for criterion, found in (("dependence", both.methods["ISM"]), ("prediction", both)):
        alone = run_crossval(replace(settings, n_components=2, criterion=criterion))
        assert list(alone.methods) == ["ISM" if criterion == "dependence" else "prediction"]
        for one, other in zip(found.results, alone.results, strict=True):
            assert {**one.to_json(), "seconds": 0} == {**other.to_json(), "seconds": 0}
        assert found.mean.accuracy == alone.mean.accuracy
    summary = summarise(both)
    accuracies = {name: one.mean.accuracy for name, one in both.methods.items()}
    assert summary.headline == ", ".join(f"{n} {a:.3f}" for n, a in accuracies.items())
    titles = [block.title for block in summary.blocks]
    assert len(set(titles)) == len(titles)
    assert {"Folds of ISM", "Folds of prediction", "How far to trust ISM"} < set(titles)
    assert View.of(both.run).result.to_json() == both.to_json()


def test_an_interrupted_cross_validation_by_both_criteria_repeats_no_fit(monkeypatch):
    settings = replace(WINE, first=1, criterion="both", run="again")

    def interrupted(*_):
        raise FlowError("interrupted")

    with monkeypatch.context() as patch:
        patch.setattr("flows.runs.crossval.save_crossval", interrupted)
        with pytest.raises(FlowError, match="interrupted"):
            run_crossval(settings)
    monkeypatch.setattr("flows.runs.crossval.fit", pytest.fail)
    assert set(run_crossval(settings).methods) == {"ISM", "prediction"}


def test_relative_gaussian_keeps_its_rows_out_of_the_summary():
    given = {"kernel": "relative_gaussian", "neighbor": 5, "criterion": "dependence"}
    result = run_fit(FitSettings(dataset="wine", **given))
    assert result.fitted_kernel == {"name": "relative_gaussian", "neighbor": 5}


def test_tolerances_reach_the_fit():
    given = replace(FIT, tol=0.01)
    loose = run_fit(replace(given, run="loose"))
    tight = run_fit(replace(given, run="tight", angle_tol=1e-6))
    assert tight.iterations > loose.iterations
    store_own(600)
    own = replace(given, dataset="own", engine="landmarks")
    rough, fine = (run_fit(replace(own, run=str(tol), engine_tol=tol)) for tol in (0.1, 1e-8))
    assert 0 < fine.engine_error < rough.engine_error
