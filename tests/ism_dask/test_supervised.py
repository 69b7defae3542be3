"""The supervised estimators: attributes, targets, warm starts; weights and what they add."""

import pickle
import warnings
from copy import copy
from itertools import product

import dask.array as da
import numpy as np
import pytest
from models import CULTIVAR as Y
from models import SUPERVISED, StoredRows, apart, hsic_model, quick
from models import WINE as X
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, NotFittedError
from sklearn.feature_selection import SelectFromModel

from ism_dask import (
    AlternativeIKDR,
    PredictiveIKDR,
    SemiSupervisedIKDR,
    SupervisedIKDR,
    UnsupervisedIKDR,
    WeightsWarning,
    hsic,
    intervals,
)
from ism_dask.kernels import Gaussian
from ism_dask.observe import FitWatcher, watching_fits
from ism_dask.solvers import ISM, Ascent
from ism_dask.status import Status

FRAME = load_wine(as_frame=True).data


@pytest.fixture(scope="module")
def plain():
    """Return a fit by dependence; no test may change it."""
    return hsic_model(2).fit(X, Y)


def test_history_tells_every_iteration():
    seen, watcher = [], FitWatcher()
    watcher.on_iteration = seen.append
    with watching_fits(watcher):
        fitted = hsic_model(2, solver=ISM(tol=1e-6)).fit(X, Y)
    assert len(fitted.history_) == len(seen) == fitted.n_iter_
    assert fitted.history_[-1].change < 1e-6 == fitted.report_.tolerance
    assert fitted.history_[-1].objective == pytest.approx(fitted.objective_)
    assert len(fitted.history_[0].eigenvalues) == 2
    assert fitted.eigengap_ > 0
    assert (fitted.report_.engine, fitted.report_.engine_error) == ("exact", 0.0)
    advice = r"raise `max_iter`, as by `solver=ISM\(max_iter=2\)`$"
    with pytest.warns(ConvergenceWarning, match=rf"in 1 iteration: .*`tol` is 1e-12.*{advice}"):
        fitted = hsic_model(2, solver=ISM(tol=1e-12, max_iter=1)).fit(X, Y)
    assert (fitted.converged_, fitted.n_iter_) == (False, 1)
    advice = r"residual is 0\.\d+; [\d.e-]+ was to be reached\..* `solver=Ascent\(max_iter=2\)`$"
    with pytest.warns(ConvergenceWarning, match=advice):
        PredictiveIKDR(2, kernel="linear", solver=Ascent(max_iter=1)).fit(X, X[:, :3] ** 2)


@pytest.mark.parametrize("auto", ["auto", None])
def test_default_components_are_the_classes_less_one_where_d_allows(auto):
    assert hsic_model(auto).fit(X, Y).components_.shape == (2, 13)
    assert PredictiveIKDR(auto).fit(X[:, [0, 6]], Y).components_.shape == (1, 2)
    for numbers, q in ((X[:, 0], 1), (X[:, :2], 2)):
        fitted = hsic_model(auto, target="linear").fit(X, numbers)
        assert fitted.components_.shape == (q, 13)


YS = ["barolo", "grignolino", "barbera"]


@pytest.mark.parametrize("labels", [YS, np.array(YS, "T"), [7, -1, 3]])
def test_labels_of_any_kind_give_the_same(labels, plain):
    names = np.array(labels)[Y]
    with pytest.warns(DataConversionWarning):
        named = hsic_model(2).fit(X, names[:, None])
    assert_allclose(named.components_, plain.components_, atol=1e-6)
    assert named.classes_.tolist() == sorted(set(names.tolist()))


@pytest.mark.parametrize("make", [PredictiveIKDR, SupervisedIKDR])
@pytest.mark.parametrize(
    ("target", "kernel"),
    [("linear", "gaussian"), ("gaussian", "polynomial"), ("multiscale", "linear")],
)
def test_numbers_lead_to_the_direction_they_depend_on(make, target, kernel):
    rng, direction = np.random.default_rng(0), np.array([2.0, -1.0, 0, 0, 0, 0]) / np.sqrt(5)
    rows = rng.normal(size=(300, 6))
    y = rows @ direction + 0.05 * rng.normal(size=300)
    fitted = make(1, target=target, kernel=kernel).fit(rows, y)
    # The cube of a gaussian has heavy tails: a few rows pull it aside.
    assert abs(fitted.components_[0] @ direction) > (0.94 if kernel == "polynomial" else 0.97)


# Whether W settles between classes that a step parts is another question.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fits_repeat(monkeypatch):
    monkeypatch.setattr("ism_dask.estimators.dependence_problem.SAMPLE_ROWS", 500)
    rows = np.random.default_rng(0).normal(size=(600, 3))
    y = (rows[:, 0] > 0).astype(int)
    # A median takes so many rows: of more than these some are drawn.
    first, second = (hsic_model(1).fit(rows, y) for _ in range(2))
    assert_array_equal(first.components_, second.components_)
    assert first.kernel_.sigma == second.kernel_.sigma
    other = hsic_model(1, random_state=5).fit(rows, y)
    assert other.kernel_.sigma != first.kernel_.sigma
    assert other.kernel_.sigma == pytest.approx(first.kernel_.sigma, rel=0.05)


def test_a_refit_forgets_the_fit_before():
    rows, numbers = da.from_array(X[::3]), X[::3, 0] + np.random.default_rng(0).normal(size=60)
    model = PredictiveIKDR(2, kernel="linear", max_features=3).fit(FRAME[::3], Y[::3])
    model.set_params(max_features=None).fit(rows, numbers)
    assert vars(model).keys() == vars(clone(model).fit(rows, numbers)).keys()


def test_a_fitted_local_kernel_can_be_used_again():
    padded = np.insert(X, 4, 1.0, axis=1)
    first = hsic_model(2, kernel="relative_gaussian").fit(padded, Y)
    again = hsic_model(2, kernel=first.kernel_).fit(padded, Y)
    assert_allclose(again.components_, first.components_, atol=1e-9)
    with pytest.raises(ValueError, match="rows of 14 features, X has 2"):
        hsic(first.transform(padded), Y, kernel=first.kernel_)


def test_importances_are_shares_of_the_subspace():
    model = hsic_model(2)
    with pytest.raises(NotFittedError):
        _ = model.feature_importances_
    model.fit(X, Y)
    shares = model.feature_importances_
    projector = model.components_.T @ np.linalg.pinv(model.components_.T)
    assert_allclose(shares, np.diag(projector) / 2, atol=1e-12)
    # Neither a rotation nor other lengths of the new features matter.
    model.components_ = np.array([[1.2, 1.6], [-2.4, 1.8]]) @ model.components_
    assert_allclose(model.feature_importances_, shares, atol=1e-12)
    chosen = SelectFromModel(model, prefit=True, max_features=4, threshold=-np.inf)
    assert set(np.flatnonzero(chosen.get_support())) == set(np.argsort(-shares)[:4])


# `warm_start`: a fit that begins at the W of the last one.


def _rows(n, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, 6))
    X[:, 5] = 2.0 * X[:, 4]  # the row space has five dimensions
    y = (X[:, 0] * X[:, 1] > 0).astype(int) + (X[:, 2] > 0.5)
    return X, y


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (PredictiveIKDR, {}),
        (PredictiveIKDR, {"kernel": "polynomial"}),
        (hsic_model, {}),
        (hsic_model, {"kernel": "distance"}),
        (hsic_model, {"kernel": Gaussian(1.5), "engine": "landmarks"}),
    ],
)
def test_the_same_rows_take_no_more_iterations(make, options):
    model = make(2, warm_start=True, **options).fit(*_rows(200))
    first = copy(model)
    model.fit(*_rows(200))
    assert model.n_iter_ <= min(first.n_iter_, 3)
    assert model.converged_
    assert model.objective_ >= first.objective_ * (1 - 1e-6)
    assert apart(first, model) < 1.4e-3


def test_more_rows_are_fitted_from_the_last_w():
    X, y = _rows(600)
    model = hsic_model(3, warm_start=True).fit(X[:500], y[:500])
    model.fit(X, y)
    cold = hsic_model(3).fit(X, y)
    assert model.n_iter_ < cold.n_iter_
    assert model.kernel_ == cold.kernel_
    assert model.converged_
    with pytest.raises(ValueError, match="of 6 features, but `n_components` is 3 and X has 4"):
        model.fit(X[:, :4], y)
    with pytest.raises(ValueError, match="of 6 features, but `n_components` is 2 and X has 6"):
        model.set_params(n_components=2).fit(X, y)


def test_predictions_go_on_with_the_last_setting():
    X, y = _rows(240)
    model = PredictiveIKDR(2, warm_start=True).fit(X[:200], y[:200])
    setting = model.setting_
    model.fit(X, y)
    assert model.setting_ == setting
    assert model.converged_
    with pytest.raises(ValueError, match="to the same kind of y"):
        model.set_params(target="gaussian").fit(X, X[:, 0])


def test_a_start_that_unseen_rows_preferred_to_all_steps_stays():
    X, y = _rows(60)[0], np.random.default_rng(2).integers(0, 2, 60)
    model = PredictiveIKDR(1, warm_start=True).fit(X, y)
    assert model.status_ is Status.START
    W = model.components_
    assert_allclose(model.fit(X, y).components_, W, atol=1e-14)


# What goes into a paper: weights in tables, and what each column adds to the new features of a row.


@pytest.fixture(scope="module")
def fitted():
    return SupervisedIKDR(2).fit(FRAME, Y)


def test_the_table_has_the_largest_share_first(fitted):
    table = fitted.weights_table()
    assert list(table) == [*fitted.get_feature_names_out(), "share"]
    assert table["share"].is_monotonic_decreasing
    assert_array_equal(table.loc[FRAME.columns].iloc[:, :2].T, fitted.components_)
    assert_array_equal(table.loc[FRAME.columns, "share"], fitted.feature_importances_)
    assert r"color\_intensity" in table.to_latex(float_format="%.2f", escape=True)
    without_names = SupervisedIKDR(1).fit(FRAME.to_numpy(), Y)
    assert set(without_names.weights_table().index) == {f"feature {j}" for j in range(13)}


def test_the_table_has_the_intervals(fitted):
    model = PredictiveIKDR(2, kernel="linear").fit(FRAME, Y)
    result = intervals(model, FRAME, Y)
    table = model.weights_table(result).loc[FRAME.columns]
    new = model.get_feature_names_out()
    assert list(table) == [*product((*new, "share"), ("estimate", "low", "high"))]
    assert_array_equal(table["share", "high"], result.shares_high)
    assert_array_equal(table[new[1], "low"], result.components_low[1])
    with pytest.raises(ValueError, match="`result` is of another fit; give that of `intervals`"):
        fitted.weights_table(result)


@pytest.mark.parametrize("kind", SUPERVISED)
def test_a_column_that_could_have_the_weight_of_another_is_named(kind):
    rng = np.random.default_rng(0)
    rows = FRAME.assign(minus=-FRAME["proline"] + rng.normal(size=178), pale=-FRAME["flavanoids"])
    model = quick(kind, 2)
    with pytest.warns(WeightsWarning, match=r"'flavanoids' and 'pale' \(-1.000\)"):
        model.fit(rows, Y)
    assert "'proline' and 'minus' (-1.000)" in model.report_.weights_advice
    assert pickle.loads(pickle.dumps(model)).report_.weights_advice == model.report_.weights_advice
    with warnings.catch_warnings():
        warnings.simplefilter("error", WeightsWarning)
        assert model.fit(FRAME, Y).report_.weights_advice == ""


def test_copies_that_have_no_weight_are_no_reason_to_warn():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(150, 6))
    rows[:, 5] = rows[:, 4] + 0.01 * rng.normal(size=150)
    rows[:, 1] += 2 * rows[:, 0]  # a correlation of .89, which the weights depend on
    y = rows[:, 0] - rows[:, 1] + 0.1 * rng.normal(size=150)
    assert PredictiveIKDR(1).fit(rows, y).report_.weights_advice == ""


@pytest.mark.parametrize(
    ("model", "rows"),
    [
        (hsic_model(2, rotation="varimax"), X),
        (hsic_model(2, kernel="polynomial", standardize=False), X),  # no mean is subtracted
        (hsic_model(2, kernel="linear", standardize=False), X),
        (PredictiveIKDR(2, max_features=3), X),
        (hsic_model(2, missing="mean"), np.where(X > 1500, np.nan, X)),
        (UnsupervisedIKDR(2), X),
        (AlternativeIKDR(2), X),
        (SemiSupervisedIKDR(3, 2), X),
    ],
    ids=lambda each: repr(each) if hasattr(each, "fit") else "",
)
def test_the_contributions_are_those_of_the_definition(model, rows):
    model.fit(rows, Y)
    added, Z = model.explain(rows), model.transform(rows)
    whole = np.where(np.isnan(rows), np.nanmean(rows, axis=0), rows)
    deviations = (whole - model.mean_) / model.scale_
    assert_allclose(added, deviations[..., None] * model.components_.T, rtol=1e-12, atol=1e-14)
    near = {"rtol": 1e-12, "atol": 1e-12 * np.abs(added).max()}
    assert_allclose(added.sum(axis=1), Z, **near)
    assert_allclose(whole @ model.weights_ + model.offset_, Z, **near)


CONTAINERS = {
    "sparse": csr_array,
    "stored": lambda rows: StoredRows(rows, 50),
    "dask": lambda rows: da.from_array(rows, chunks=(5000, 5)),
    "list": list,
    "single": lambda rows: rows.astype(np.float32),
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_the_contributions_are_the_same_from_all_containers(container, plain):
    rows, tol = CONTAINERS[container](np.tile(X, (50, 1))), 1e-5 if container == "single" else 1e-12
    added, Z = plain.explain(rows), plain.transform(rows)
    assert isinstance(added, da.Array) == (container == "dask")
    assert added.dtype == Z.dtype
    assert_allclose(np.asarray(added), np.tile(plain.explain(X), (50, 1, 1)), atol=tol)
    assert_allclose(np.asarray(added).sum(axis=1), np.asarray(Z), atol=tol)


def test_rows_that_cannot_be_transformed_cannot_be_explained(fitted):
    for model, rows, message in (
        (PredictiveIKDR(2), FRAME, "not fitted"),
        (fitted, FRAME.iloc[:, :12], "(?s)yet now missing.*proline"),
        (fitted, FRAME.iloc[:, ::-1], "must be in the same order"),
        (fitted, FRAME.mask(FRAME > 1500), "4 of 178 rows have missing numbers, in 1 of 13 col"),
        (fitted, FRAME.replace({1680.0: np.inf}), "infinity"),
    ):
        with pytest.raises(ValueError, match=message):
            model.explain(rows)
