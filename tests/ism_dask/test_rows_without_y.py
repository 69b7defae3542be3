"""Rows without y: they count in the scales and the width of the kernel, by definition, alone."""

import warnings

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pytest
from models import CULTIVAR, SUPERVISED, StoredRows, assert_same_fit, curved, hsic_model
from models import WINE as X
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold

from ism_dask import PredictiveIKDR, hsic, intervals
from ism_dask.kernels import Gaussian
from ism_dask.linalg.subspaces import subspace_sine
from ism_dask.solvers import ISM

Y, RNG, N = CULTIVAR, np.random.default_rng(0), len(X)
HAS = RNG.random(N) < 0.6
NAMES = np.array(["barolo", "grignolino", "barbera"])[Y]
NUMBERS = X[:, 6] + 0.1 * RNG.normal(size=N)
WIDTH = Gaussian(sigma=2.0)


def gappy(values, mark=np.nan, dtype=None):
    """Return values (n,) with a mark in the rows without y."""
    objects = np.array(values, dtype=object)
    objects[~HAS] = mark
    return objects if dtype is None else objects.astype(dtype)


FLOATS = gappy(Y, dtype=float)


@pytest.fixture(scope="module")
def fitted():
    return hsic_model(2).fit(X, gappy(NAMES, None))


@pytest.mark.parametrize("y", [Y, NUMBERS], ids=["classes", "numbers"])
@pytest.mark.parametrize("make", SUPERVISED)
def test_rows_without_y_count_in_means_and_deviations_alone(make, y):
    given = gappy(y, dtype=float)
    one = make(2, kernel=WIDTH).fit(X, given)
    assert_allclose(one.mean_, X.mean(axis=0))
    assert_allclose(one.scale_, X.std(axis=0))
    assert one.report_.rows_without_y == N - HAS.sum()
    # The definition: rows scaled by those of all, of which the ones with y are fitted.
    scaled = ((X - X.mean(axis=0)) / X.std(axis=0))[HAS]
    expected = make(2, kernel=WIDTH, standardize=False).fit(scaled, y[HAS])
    assert one.objective_ == pytest.approx(expected.objective_, rel=1e-9)
    assert subspace_sine(one.components_.T, expected.components_.T) < 1e-6
    assert expected.report_.rows_without_y == 0
    assert np.isfinite(one.transform(X)).all()
    assert one.score(X, given) == pytest.approx(one.score(X[HAS], y[HAS]))


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("kernel", ["gaussian", "polynomial", "linear"])
def test_the_objective_is_that_of_the_new_features_of_rows_with_y(kernel, standardize):
    model = hsic_model(2, kernel=kernel, standardize=standardize, solver=ISM(max_iter=3))
    with warnings.catch_warnings(action="ignore"):
        model.fit(X / X.std(axis=0), FLOATS)
    Z, n = model.transform(X / X.std(axis=0))[HAS], HAS.sum()
    J = hsic(Z, Y[HAS], kernel=model.kernel_, engine="exact")
    assert J * (n - 1) ** 2 == pytest.approx(model.objective_, rel=1e-6)


def test_the_width_of_the_kernel_is_that_of_all_rows(fitted):
    every, few = hsic_model(2).fit(X, NAMES), hsic_model(2).fit(X[HAS], NAMES[HAS])
    assert fitted.kernel_.sigma == pytest.approx(every.kernel_.sigma, rel=1e-12)
    assert abs(few.kernel_.sigma / every.kernel_.sigma - 1) > 1e-4
    wide = PredictiveIKDR(2, kernel=Gaussian(sigma="median"), max_features=None)
    widths = [clone(wide).fit(X, y) for y in (NAMES, gappy(NAMES, None))]
    own = [fit.kernel_.sigma / fit.setting_.width for fit in widths]
    assert own[0] == pytest.approx(own[1], rel=1e-9)


@pytest.mark.parametrize(
    ("y", "whole"),
    [
        (gappy(NAMES), NAMES),
        (gappy(NAMES, pd.NA), NAMES),
        (gappy(NAMES, None).tolist(), NAMES),
        (pd.Series(gappy(NAMES, None), dtype="category"), NAMES),
        (pd.Series(gappy(NAMES, pd.NA), dtype="string"), NAMES),
        (pl.Series(gappy(NAMES, None)), NAMES),
        (FLOATS, Y),
        (pd.array(gappy(Y, pd.NA), dtype="Int64"), Y),
        (np.ma.masked_array(Y, ~HAS), Y),
        (FLOATS[:, None], Y),
        (gappy(NUMBERS, None), NUMBERS),
        (pd.Series(gappy(NUMBERS, dtype=float)), NUMBERS),
        (pd.Series(gappy(NUMBERS, pd.NA), dtype="Float64"), NUMBERS),
        (pd.DataFrame({"a": FLOATS, "b": gappy(NAMES, None)}), np.c_[Y, NAMES]),
        (np.where(HAS[:, None], X[:, :2], np.nan), X[:, :2]),
    ],
    ids=range(15),
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
@pytest.mark.filterwarnings("ignore::ism_dask.status.ComponentsWarning")
def test_every_mark_of_a_missing_y_is_known(y, whole):
    marked, plain = hsic_model(2).fit(X, y), hsic_model(2, kernel=WIDTH).fit(X, whole)
    assert marked.report_.rows_without_y == N - HAS.sum()
    assert hasattr(marked, "classes_") == hasattr(plain, "classes_")
    if hasattr(plain, "classes_"):
        assert_array_equal(marked.classes_, plain.classes_)
    nan = np.where(HAS, np.unique(NAMES, return_inverse=True)[1], np.nan)
    if whole is NAMES:
        assert_array_equal(marked.components_, hsic_model(2).fit(X, nan).components_)


@pytest.mark.parametrize("make", SUPERVISED)
def test_the_order_of_rows_changes_no_bit(make):
    order, y = RNG.permutation(N), gappy(NUMBERS, dtype=float)
    one, other = (make(1).fit(X[rows], y[rows]) for rows in (np.arange(N), order))
    for name in ("components_", "mean_", "scale_"):
        assert_array_equal(getattr(one, name), getattr(other, name))


def test_rows_without_y_count_by_their_weights():
    weights, y = RNG.integers(0, 3, N), gappy(NUMBERS, dtype=float)
    weighted = hsic_model(1, missing="mean").fit(X, y, sample_weight=weights)
    repeated = hsic_model(1, missing="mean").fit(X.repeat(weights, axis=0), y.repeat(weights))
    assert_same_fit(weighted, repeated, 1e-9, 1e-6)
    assert weighted.report_.rows_without_y == np.count_nonzero(weights[~HAS])
    none = hsic_model(1).fit(X, y, sample_weight=HAS * 1.0)
    assert_same_fit(none, hsic_model(1).fit(X[HAS], y[HAS]), 1e-9, 1e-6)
    balanced = hsic_model(1, class_weight="balanced").fit(X, FLOATS)
    counts = np.ones(N)
    counts[HAS] = HAS.sum() / 3 / np.bincount(Y[HAS])[Y[HAS]]
    assert_allclose(balanced.mean_, np.average(X, axis=0, weights=counts))


@pytest.mark.parametrize("name", ["avoid", "given", "groups"])
def test_what_is_known_beside_y_is_that_of_the_rows_with_y(name):
    values = RNG.integers(0, 12, N) if name == "groups" else RNG.normal(size=N)
    other = pd.Series(np.where(HAS, values, np.nan))
    models = [
        PredictiveIKDR(1, kernel=WIDTH, max_features=None).fit(X, FLOATS, **{name: each})
        for each in (values, values.tolist(), other)
    ]
    for model in models[1:]:
        assert_array_equal(model.components_, models[0].components_)
    assert models[0].certify(X, FLOATS, **{name: values}).residual_rows == HAS.sum()


def test_what_judges_a_fit_leaves_rows_without_y_out():
    rows, y = curved()
    y[::4] = np.nan
    fitted = PredictiveIKDR(2, max_features=None).fit(rows, y)
    assert fitted.certify(rows, y).is_certified
    assert intervals(fitted, rows, y).shares.shape == (5,)
    with pytest.raises(ValueError, match="these rows are not those of the fit"):
        fitted.certify(np.where(np.isnan(y)[:, None], rows + 1.0, rows), y)
    search = GridSearchCV(hsic_model(1), {"n_components": [1, 2]}, cv=KFold(3)).fit(rows, y)
    assert np.isfinite(search.best_score_)


def test_gaps_get_the_means_of_rows_without_y_as_well():
    gaps = np.where(RNG.random(X.shape) < 0.2, np.nan, X)
    fitted = hsic_model(2, missing="mean").fit(gaps, FLOATS)
    assert_allclose(fitted.gap_means_, np.nanmean(gaps, axis=0))
    assert fitted.gap_counts_.sum() == np.isnan(gaps).sum()


def test_columns_that_vary_without_y_alone_and_more_columns_than_rows():
    rows = np.column_stack([X, np.where(HAS, 3.0, RNG.normal(size=N))])
    fitted = hsic_model(2).fit(rows, FLOATS)
    assert_array_equal(fitted.components_[:, 13], 0.0)
    wide = RNG.normal(size=(30, 60))
    y = np.where(np.arange(30) < 20, wide[:, 0], np.nan)
    fitted = hsic_model(1).fit(wide, y)
    assert_allclose(fitted.scale_, wide.std(axis=0))
    assert np.isfinite(fitted.transform(wide)).all()


def test_rows_too_large_for_memory_may_be_without_y(monkeypatch, fitted):
    monkeypatch.setattr("ism_dask.rows.raw.MEMORY_NUMBERS", 600)
    lazy, y = da.from_array(X, chunks=(50, 4)), gappy(NAMES, None)
    assert_same_fit(hsic_model(2).fit(lazy, y), fitted, 1e-6, 1e-5)
    with pytest.raises(ValueError, match=r"no value in \d\d of 178 rows, .* give X as a Dask"):
        hsic_model(2).fit(StoredRows(X, 100), y)


@pytest.mark.parametrize("make", SUPERVISED)
@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.full(N, np.nan), "no value in 178 of 178 rows .* or take UnsupervisedIKDR"),
        ([None] * N, "no value in 178 of 178 rows"),
        (np.c_[FLOATS, NUMBERS], r"a part of its columns in \d\d of 178 rows, the first number"),
        (FLOATS[:-1], "inconsistent numbers of samples"),
        (np.where(HAS, NUMBERS, np.inf), "infinity"),
        (np.where(Y == 0, 0.0, np.nan), "one class only"),
    ],
)
def test_what_is_no_y_of_any_row_is_refused(make, y, message):
    with pytest.raises(ValueError, match=message):
        make(1).fit(X, y)
