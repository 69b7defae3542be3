from __future__ import annotations

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from contract import contract_of
from models import hsic_model
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, NotFittedError
from sklearn.feature_selection import SelectFromModel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC
from watchers import watching_iterations

from flows.builtin import ingest
from ism_dask import SupervisedIKDR, hsic
from ism_dask.kernels import KERNELS, Gaussian, Polynomial
from ism_dask.solvers import ISM, Ascent

X, Y = load_wine(return_X_y=True)
FRAME = load_wine(as_frame=True).data


def _weights_differ(estimator):
    folds = "a row of weight 2 is in one fold, two equal rows may be in two"
    return folds if estimator.criterion == "prediction" else ""


# Labels drawn at random, as some checks have them, may leave the iteration swinging.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@contract_of(
    [SupervisedIKDR(1, solver=Ascent(max_iter=5)), SupervisedIKDR(criterion="dependence")],
    _weights_differ,
)
def test_the_contract_of_scikit_learn(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # else it skips its checks of other arrays
    check(estimator)


@pytest.fixture(scope="module")
def plain():
    """Return a fit by dependence; no test may change it."""
    return hsic_model(2).fit(X, Y)


@pytest.mark.parametrize(
    "model",
    [
        *(SupervisedIKDR(2, kernel=kernel) for kernel in ("linear", "gaussian", "polynomial")),
        *(hsic_model(2, kernel=kernel) for kernel in KERNELS),
    ],
)
def test_components_are_orthonormal_and_transform_is_their_product(model):
    fitted = clone(model).fit(X, Y)
    np.testing.assert_allclose(fitted.components_ @ fitted.components_.T, np.eye(2), atol=1e-10)
    standardised = (X - X.mean(axis=0)) / X.std(axis=0)
    expected = standardised @ fitted.components_.T
    np.testing.assert_allclose(fitted.transform(X), expected, atol=1e-10)
    peaks = fitted.components_[[0, 1], np.abs(fitted.components_).argmax(axis=1)]
    assert (peaks > 0).all()


def test_history_tells_every_iteration():
    seen = []
    with watching_iterations(seen.append):
        fitted = hsic_model(2, solver=ISM(tol=1e-6)).fit(X, Y)
    assert len(fitted.history_) == len(seen) == fitted.n_iter_
    assert fitted.history_[-1].change < 1e-6
    assert fitted.history_[-1].objective == pytest.approx(fitted.objective_)
    assert len(fitted.history_[0].eigenvalues) == 2
    assert fitted.eigengap_ > 0
    assert fitted.engine_ == "exact"
    assert 0 < fitted.engine_error_ < 1e-9  # rounding alone
    assert fitted.tolerance_ == 1e-6


@pytest.mark.parametrize("auto", ["auto", None])
def test_default_components_are_the_classes_less_one_where_d_allows(auto):
    assert hsic_model(auto).fit(X, Y).components_.shape == (2, 13)
    iris = load_iris()
    narrow = SupervisedIKDR(auto).fit(iris.data[:, :2], iris.target)
    assert narrow.components_.shape == (1, 2)
    plain = hsic_model(auto, target="linear")
    assert plain.fit(X, X[:, 0]).components_.shape == (1, 13)


@pytest.mark.parametrize("labels", [["barolo", "grignolino", "barbera"], [7, -1, 3]])
def test_labels_of_any_kind_give_the_same(labels, plain):
    names = np.array(labels)[Y]
    named = hsic_model(2).fit(X, names)
    np.testing.assert_allclose(named.components_, plain.components_, atol=1e-6)
    np.testing.assert_array_equal(named.classes_, np.unique(names))


@pytest.mark.parametrize("rows", [X.tolist(), np.asfortranarray(X), FRAME, X.astype(object)])
def test_rows_of_any_kind_give_the_same(rows, plain):
    fitted = hsic_model(2).fit(rows, Y.tolist())
    np.testing.assert_array_equal(fitted.components_, plain.components_)


@pytest.mark.parametrize("make", [SupervisedIKDR, hsic_model])
@pytest.mark.parametrize(
    ("target", "kernel"),
    [("linear", "gaussian"), ("gaussian", "polynomial"), ("multiscale", "linear")],
)
def test_numbers_lead_to_the_direction_they_depend_on(make, target, kernel):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 6))
    direction = np.array([2.0, -1.0, 0, 0, 0, 0]) / np.sqrt(5)
    y = rows @ direction + 0.05 * rng.normal(size=300)
    fitted = make(1, target=target, kernel=kernel).fit(rows, y)
    # The cube of a gaussian has heavy tails: a few rows pull it aside.
    assert abs(fitted.components_[0] @ direction) > (0.94 if kernel == "polynomial" else 0.97)


def test_constant_columns_have_loading_zero_and_change_nothing(plain):
    padded = np.insert(X, [0, 5], [7.0, 1e9 / 3], axis=1)
    fitted = hsic_model(2).fit(padded, Y)
    constant = [0, 6]
    assert (fitted.components_[:, constant] == 0).all()
    np.testing.assert_allclose(
        np.delete(fitted.components_, constant, axis=1), plain.components_, atol=1e-9
    )
    np.testing.assert_allclose(fitted.transform(padded), plain.transform(X), atol=1e-8)


@pytest.mark.parametrize("kernel", ["gaussian", "polynomial", "linear", "relative_gaussian"])
def test_more_features_than_rows_are_solved_in_the_row_space(kernel):
    rng = np.random.default_rng(1)
    wide = rng.normal(size=(30, 3)) @ rng.normal(size=(3, 80)) + 0.1 * rng.normal(size=(30, 80))
    y = (wide[:, 0] > 0).astype(int)
    fitted = hsic_model(1, kernel=kernel).fit(wide, y)
    assert fitted.components_.shape == (1, 80)
    np.testing.assert_allclose(np.linalg.norm(fitted.components_), 1.0)
    assert fitted.residual_ < 0.1
    if kernel != "relative_gaussian":  # whose widths are those of the rows before the projection
        value = hsic(fitted.transform(wide), y, kernel=fitted.kernel_)
        assert value * 29**2 == pytest.approx(fitted.objective_, rel=1e-8)


def test_dask_arrays_fit_and_transform_lazily():
    model = hsic_model(2)
    plain = clone(model).fit(X, Y)
    lazy = da.from_array(X, chunks=(50, 4))
    fitted = clone(model).fit(lazy, da.from_array(Y, chunks=50))
    np.testing.assert_allclose(fitted.components_, plain.components_, atol=1e-9)
    projected = fitted.transform(lazy)
    assert isinstance(projected, da.Array)
    assert projected.shape == (178, 2)
    np.testing.assert_allclose(projected.compute(), plain.transform(X), atol=1e-8)
    unknown = lazy[lazy[:, 0] > 0]
    assert np.isnan(unknown.shape[0])
    np.testing.assert_allclose(
        clone(model).fit(unknown, Y).components_, plain.components_, atol=1e-9
    )


def test_opened_data_sets_are_rows(plain):
    stored = ingest("wine")
    for rows in (stored, stored.X):
        fitted = hsic_model(2).fit(rows, stored.y)
        np.testing.assert_allclose(fitted.components_, plain.components_, atol=1e-9)
        np.testing.assert_allclose(fitted.transform(rows), plain.transform(X), atol=1e-8)
    with pytest.raises(ValueError, match="64 features, but SupervisedIKDR is expecting 13"):
        plain.transform(ingest("digits"))


def test_float32_and_bytes_use_single_precision_tiles(plain):
    single = hsic_model(2).fit(X.astype(np.float32), Y)
    assert single.transform(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(single.components_, plain.components_, atol=1e-3)
    pixels = (X / X.max(axis=0) * 255).astype(np.uint8)
    wide, narrow = (hsic_model(2).fit(each, Y) for each in (pixels.astype(np.float64), pixels))
    np.testing.assert_allclose(narrow.components_, wide.components_, atol=1e-4)


def test_frames_keep_their_names():
    fitted = hsic_model(2).set_output(transform="pandas").fit(FRAME, Y)
    assert fitted.feature_names_in_.tolist() == FRAME.columns.tolist()
    out = fitted.transform(FRAME)
    assert isinstance(out, pd.DataFrame)
    assert out.columns.tolist() == ["supervisedikdr0", "supervisedikdr1"]
    # Lazy rows stay lazy.
    lazy = da.from_array(X, chunks=(50, 4))
    fitted.fit(X, Y)
    for new in (fitted.transform(lazy), fitted.fit_transform(lazy, Y)):
        assert isinstance(new, da.Array)
        np.testing.assert_allclose(new.compute(), fitted.transform(X).to_numpy(), atol=1e-9)


def test_pipelines_and_searches():
    search = GridSearchCV(
        make_pipeline(hsic_model(2), SVC()),
        {
            "supervisedikdr__kernel": [Gaussian(4.0), 0.5 * Gaussian() + 0.5 * Polynomial()],
            "supervisedikdr__n_components": [1, 2],
        },
        cv=3,
    )
    assert search.fit(X, Y).best_score_ > 0.95
    copy = clone(SupervisedIKDR(kernel=2.0 * Gaussian(3.0)))
    assert copy.kernel == 2.0 * Gaussian(3.0)


# Whether W settles between classes that a step parts is another question.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fits_repeat(monkeypatch):
    monkeypatch.setattr("ism_dask.estimators.fit_rows.SAMPLE_ROWS", 500)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(600, 3))
    y = (rows[:, 0] > 0).astype(int)
    # A median takes so many rows: of more than these some are drawn.
    first, second = (hsic_model(1).fit(rows, y) for _ in range(2))
    np.testing.assert_array_equal(first.components_, second.components_)
    assert first.kernel_.sigma == second.kernel_.sigma
    other = hsic_model(1, random_state=5).fit(rows, y)
    assert other.kernel_.sigma != first.kernel_.sigma
    assert other.kernel_.sigma == pytest.approx(first.kernel_.sigma, rel=0.05)


def test_not_converging_is_a_warning():
    with pytest.warns(ConvergenceWarning, match=r"in 1 iterations.*`tol` is 1e-12"):
        fitted = hsic_model(2, solver=ISM(tol=1e-12, max_iter=1)).fit(X, Y)
    assert not fitted.converged_
    assert fitted.n_iter_ == 1


def _with(value):
    broken = X.copy()
    broken[3, 2] = value
    return broken


@pytest.mark.parametrize(
    ("estimator", "rows", "y", "message"),
    [
        (SupervisedIKDR(), da.from_array(_with(np.nan)), Y, "NaN or infinity, in 1 columns, .* 2"),
        (SupervisedIKDR(), X, np.zeros(178, int), "one class only"),
        (SupervisedIKDR(13), X, Y, "from 1 to 12 for 13 features, .* got 13"),
        (SupervisedIKDR(0), X, Y, '`n_components` must be .*, "auto" or None; got 0'),
        (SupervisedIKDR(1.5), X, Y, "`n_components` must be .* got 1.5"),
        (SupervisedIKDR(True), X, Y, "`n_components` must be .* got True"),
        (SupervisedIKDR(), np.ones((178, 4)), Y, "nothing to reduce"),
        (SupervisedIKDR(), X, Y[:-1], "inconsistent numbers of samples"),
        (SupervisedIKDR(), da.from_array(X), Y[:-1], "inconsistent numbers of samples"),
        (SupervisedIKDR(kernel="rbf"), X, Y, "`kernel` must be .* got 'rbf'"),
        (SupervisedIKDR(kernel=3), X, Y, "`kernel` must be .* got 3"),
        (SupervisedIKDR(target="x"), X, Y, "`target` must be one of .* got 'x'"),
        (hsic_model(engine="x"), X, Y, "`engine` must be one of .* got 'x'"),
        (hsic_model(engine="closed"), X, Y, "`engine`='closed' cannot serve"),
        (SupervisedIKDR("all"), X, Y, "`n_components` must be .* got 'all'"),
        (SupervisedIKDR(), X, np.full(178, 0.5), "`y` is constant"),
        (SupervisedIKDR(whiten="yes"), X, Y, "`whiten` must be True or False; got 'yes'"),
        (SupervisedIKDR(target="gaussian"), X, np.ones(178), "`y` is constant"),
        (SupervisedIKDR(), X, np.arange(178), "178 different whole numbers"),
        (SupervisedIKDR(), da.from_array(X[0]), Y[:13], "rows and columns; got shape"),
    ],
)
def test_bad_input_is_refused(estimator, rows, y, message):
    with pytest.raises(ValueError, match=message):
        estimator.fit(rows, y)


@pytest.mark.parametrize(
    ("rows", "y", "message"),
    [
        (da.from_array(X), np.where(Y == 1, np.nan, Y), "Input y contains NaN"),
        (da.from_array(X.astype(complex)), Y, "real numbers; got dtype complex128"),
        (da.from_array(X.astype(str)), Y, "real numbers; got dtype <U"),
        (X, np.arange(178), "178 different labels for 178 rows"),
    ],
)
def test_lazy_rows_are_checked_too(rows, y, message):
    with pytest.raises(ValueError, match=message):
        SupervisedIKDR(target="classes").fit(rows, y)


def test_a_column_of_labels_is_taken_with_a_warning(plain):
    with pytest.warns(DataConversionWarning):
        fitted = hsic_model(2).fit(X, Y[:, None])
    np.testing.assert_array_equal(fitted.components_, plain.components_)


def test_a_refit_forgets_the_fit_before():
    fitted = hsic_model(2).fit(FRAME, Y)
    fitted.fit(da.from_array(X), X[:, 0] + np.random.default_rng(0).normal(size=len(X)))
    assert not hasattr(fitted, "classes_")
    assert not hasattr(fitted, "feature_names_in_")
    assert not hasattr(fitted.fit(FRAME, Y).fit(X, Y), "feature_names_in_")


def test_a_fitted_local_kernel_can_be_used_again():
    padded = np.insert(X, 4, 1.0, axis=1)
    first = hsic_model(2, kernel="relative_gaussian").fit(padded, Y)
    again = hsic_model(2, kernel=first.kernel_).fit(padded, Y)
    np.testing.assert_allclose(again.components_, first.components_, atol=1e-9)
    with pytest.raises(ValueError, match="rows of 14 features, X has 2"):
        hsic(first.transform(padded), Y, kernel=first.kernel_)


def test_transform_checks_its_rows(plain):
    with pytest.raises(NotFittedError):
        SupervisedIKDR().transform(X)
    for rows in (X[:, :5], da.from_array(X[:, :5])):
        with pytest.raises(ValueError, match="5 features, but SupervisedIKDR is expecting 13"):
            plain.transform(rows)


def test_importances_are_shares_of_the_subspace():
    model = hsic_model(2)
    with pytest.raises(NotFittedError):
        _ = model.feature_importances_
    model.fit(X, Y)
    shares = model.feature_importances_
    projector = model.components_.T @ np.linalg.pinv(model.components_.T)
    np.testing.assert_allclose(shares, np.diag(projector) / 2, atol=1e-12)
    assert shares.sum() == pytest.approx(1.0)
    # Neither a rotation nor other lengths of the new features matter.
    turn = np.array([[0.6, 0.8], [-0.8, 0.6]]) * [[2.0], [3.0]]
    model.components_ = turn @ model.components_
    np.testing.assert_allclose(model.feature_importances_, shares, atol=1e-12)
    chosen = SelectFromModel(model, prefit=True, max_features=4, threshold=-np.inf)
    assert set(np.flatnonzero(chosen.get_support())) == set(np.argsort(-shares)[:4])
