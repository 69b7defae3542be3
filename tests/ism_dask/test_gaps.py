"""Gaps in X get the means of their columns, rows without y count in the scales, by definition."""

import pickle

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pytest
from models import CULTIVAR as Y
from models import NAMES, SUPERVISED, StoredRows, apart, assert_same_fit, hsic_model, quick, quiet
from models import WINE as X
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.utils import get_tags

import ism_dask
from ism_dask import PredictiveIKDR, SupervisedIKDR, hsic, intervals
from ism_dask.solvers import ISM
from storage import Model, UnfitRows, ingest_table, load_model, save_model

RNG, N = np.random.default_rng(0), len(X)
NUMBERS = X[:, 6] + 0.1 * RNG.normal(size=N)
GAPPY = np.where(RNG.random(X.shape) < 0.1, np.nan, X)
GAPPY[:, 3] = X[:, 3]
MEANS = np.nanmean(GAPPY, axis=0)
FRAME = pd.DataFrame(GAPPY, columns=[f"c{number}" for number in range(13)])
HAS = RNG.random(N) < 0.6
FLOATS, PARTLY = (np.where(HAS, values, np.nan) for values in (Y, NUMBERS))
EVERY = [quick(PredictiveIKDR, 2), SupervisedIKDR(2), ism_dask.ColoredMVU()]
EVERY += [getattr(ism_dask, f"{name}IKDR")(3, 2) for name in ("Unsupervised", "Alternative")]
EVERY += [ism_dask.SemiSupervisedIKDR(3, 2)]
every_estimator = pytest.mark.parametrize("model", EVERY, ids=lambda model: type(model).__name__)


@pytest.fixture(scope="module")
def filled():
    return quick(hsic_model, 2, missing="mean").fit(GAPPY, Y)


@pytest.fixture(scope="module")
def partly():
    return hsic_model(2).fit(X, FLOATS)


@quiet
@every_estimator
def test_every_estimator_fills_gaps_with_the_means_of_the_fit(model):
    gappy = clone(model).set_params(missing="mean").fit(GAPPY, Y)
    assert get_tags(gappy).input_tags.allow_nan
    assert not get_tags(model).input_tags.allow_nan
    assert_allclose(gappy.gap_means_, MEANS, rtol=1e-14)
    assert_array_equal(gappy.gap_counts_, np.isnan(GAPPY).sum(axis=0))
    plain = clone(model).fit(np.where(np.isnan(GAPPY), gappy.gap_means_, GAPPY), Y)
    assert plain.gap_means_ is plain.gap_counts_ is None
    if hasattr(gappy, "certify"):
        gappy.certify(GAPPY, Y)
    names = {each for each in vars(gappy) if each.endswith("_")} - {"n_features_in_"}
    assert len(names) <= 20, names
    if isinstance(model, ism_dask.SemiSupervisedIKDR):
        assert_array_equal(gappy.classes_, [0, 1, 2])  # the most attributes of all
    unseen = np.where(RNG.random(X.shape) < 0.3, np.nan, 1.01 * X)
    complete = np.where(np.isnan(unseen), gappy.gap_means_, unseen)
    gappy = pickle.loads(pickle.dumps(gappy))
    assert_array_equal(gappy.transform(unseen), plain.transform(complete))
    if hasattr(gappy, "predict"):
        assert_array_equal(gappy.predict(unseen), plain.predict(complete))
    assert np.isnan(unseen).any()  # nobody has written into the rows


LAZY = da.from_array(GAPPY, chunks=(50, 4))
PLACES = {"list": GAPPY.tolist(), "pandas": FRAME, "NA": FRAME.astype("Float64")}
PLACES |= {"None": FRAME.astype(object).where(FRAME.notna(), None), "polars": pl.DataFrame(GAPPY)}
PLACES |= {"masked": np.ma.masked_invalid(GAPPY), "sparse": csr_array(GAPPY), "Dask": LAZY}
PLACES |= {"stored": StoredRows(GAPPY, 100)}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_gaps_are_filled_wherever_they_come_from(place, filled):
    other = quick(hsic_model, 2, missing="mean").fit(place, Y)
    assert_array_equal(other.components_, filled.components_)
    assert_allclose(np.asarray(other.transform(place)), filled.transform(GAPPY), atol=1e-12)


@pytest.mark.parametrize("kind", ["rows", "classes"])
def test_rows_count_in_the_means_by_their_weights(kind):
    weights, model = RNG.integers(0, 4, N), quick(hsic_model, 2, missing="mean")
    if kind == "classes":
        weights, model = np.array([3, 1, 2])[Y], model.set_params(class_weight={0: 3, 2: 2})
    weighted = clone(model).fit(GAPPY, Y, sample_weight=weights if kind == "rows" else None)
    rows = GAPPY.repeat(weights, axis=0)
    repeated = quick(hsic_model, 2, missing="mean").fit(rows, Y.repeat(weights))
    assert_allclose(repeated.gap_means_, np.nanmean(rows, axis=0))
    assert_allclose(repeated.gap_means_, weighted.gap_means_, rtol=1e-14)
    assert_same_fit(repeated, weighted, 1e-10, 1e-6)


def test_what_judges_a_fit_takes_its_rows_as_they_are():
    rows, y = GAPPY[:, 5:10], PARTLY
    fitted = quick(PredictiveIKDR, missing="mean").fit(rows, y)
    assert_allclose(fitted.gap_means_, np.nanmean(rows, axis=0))
    assert fitted.certify(rows, y).is_certified
    assert intervals(fitted, rows, y).shares.shape == (5,)
    with pytest.raises(ValueError, match="these rows are not those of the fit"):
        fitted.certify(np.where(np.isnan(y)[:, None], rows + 1.0, rows), y)
    model, folds = quick(hsic_model, missing="mean"), KFold(3)
    search = GridSearchCV(model, {"n_components": [1, 2]}, cv=folds).fit(rows, y)
    assert np.isfinite(search.best_score_)


def test_rows_too_large_for_memory_are_filled_by_shards(monkeypatch, filled, partly):
    monkeypatch.setattr("ism_dask.rows.raw.MEMORY_NUMBERS", 600)
    for place in (LAZY, csr_array(GAPPY)):
        large = quick(hsic_model, 2, missing="mean").fit(place, Y)
        assert_allclose(large.gap_means_, MEANS, rtol=1e-13)
        assert_same_fit(large, filled, 1e-9, 1e-6)
        assert_allclose(np.asarray(large.transform(place)), filled.transform(GAPPY), atol=1e-6)
    for missing in (None, "mean"):
        with pytest.raises(ValueError, match=r"12 columns.*=\"mean\", fill them at ingestion"):
            hsic_model(2, missing=missing).fit(StoredRows(GAPPY, 100), Y)
    assert_same_fit(hsic_model(2).fit(da.from_array(X, chunks=(50, 4)), FLOATS), partly, 1e-6, 1e-5)
    with pytest.raises(ValueError, match=r"no value in \d\d of 178 rows, .* give X as a Dask"):
        hsic_model(2).fit(StoredRows(X, 100), FLOATS)


NOTHING = np.where(np.arange(13) == 4, np.nan, X)
COUNT = r"12 of 13 columns with 2\d\d gaps, the first 'c0' \(\d+\), .*'c5' \(\d+\) and 7 more\. Fit"
UNFIT = [
    (FRAME, None, rf"NaN: 1\d\d of 178 rows .* {COUNT} with missing=\"mean\""),
    (GAPPY, None, r"the first number 0 \(\d+\), number 1"),
    (NOTHING, "mean", r"no number at all in 1 of 13 columns with 178 gaps, .* number 4 \("),
    (FRAME.assign(c4=np.nan), "mean", r"the first 'c4' \(178\).* Leave such columns out"),
    (X, "median", "`missing` must be 'mean' or None; got 'median'"),
    (np.where(np.isnan(GAPPY), np.inf, GAPPY), "mean", "infinity"),
]


@quiet
@pytest.mark.parametrize(("rows", "missing", "message"), UNFIT, ids=range(len(UNFIT)))
@every_estimator
def test_what_cannot_be_filled_is_refused(model, rows, missing, message):
    with pytest.raises(ValueError, match=message):
        clone(model).set_params(missing=missing).fit(rows, Y)
    if missing is None and rows is FRAME:
        with pytest.raises(ValueError, match=rf"NaN: .* {COUNT}"):
            clone(model).fit(FRAME.fillna(1.0), Y).transform(FRAME)


def test_storage_fills_gaps_as_a_fit_does(filled):
    names = ("components", "mean", "scale", "eigenvalues", "gap_means")
    arrays = {name: getattr(filled, f"{name}_") for name in names}
    save_model("gappy", Model(**arrays))
    assert_allclose(load_model("gappy").transform(GAPPY), filled.transform(GAPPY), atol=1e-12)
    assert_allclose(filled.explain(np.full((1, 13), np.nan)), 0.0, atol=1e-12)
    with pytest.raises(UnfitRows, match="NaN"):
        Model(**{**arrays, "gap_means": None}).transform(GAPPY)
    data = ingest_table(FRAME.assign(y=Y), "gappy", label="y", missing="mean")
    assert_allclose(data.X.read(0, N), np.where(np.isnan(GAPPY), filled.gap_means_, GAPPY))
    assert_same_fit(quick(hsic_model, 2).fit(data, Y), filled, 1e-9, 1e-6)


# Rows without y. By definition all rows are scaled, of which the ones with y are fitted.

SCALED = ((X - X.mean(axis=0)) / X.std(axis=0))[HAS]


@pytest.mark.parametrize("y", [FLOATS, PARTLY], ids=["classes", "numbers"])
@pytest.mark.parametrize("make", SUPERVISED)
def test_rows_without_y_count_in_means_and_deviations_alone(make, y):
    one = quick(make, 2).fit(X, y)
    assert_allclose(one.mean_, X.mean(axis=0))
    assert_allclose(one.scale_, X.std(axis=0))
    expected = quick(make, 2, standardize=False).fit(SCALED, y[HAS])
    assert one.objective_ == pytest.approx(expected.objective_, rel=1e-9)
    assert apart(one, expected) < 1e-6
    assert (one.report_.rows_without_y, expected.report_.rows_without_y) == (N - HAS.sum(), 0)
    assert np.isfinite(one.transform(X)).all()
    assert one.score(X, y) == pytest.approx(one.score(X[HAS], y[HAS]))


@quiet
@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("kernel", ["gaussian", "polynomial", "linear"])
def test_the_objective_is_that_of_the_new_features_of_rows_with_y(kernel, standardize):
    rows = X / X.std(axis=0)
    model = hsic_model(2, kernel=kernel, standardize=standardize, solver=ISM(max_iter=3))
    Z = model.fit(rows, FLOATS).transform(rows)[HAS]
    J = hsic(Z, Y[HAS], kernel=model.kernel_, engine="exact")
    assert J * (len(Z) - 1) ** 2 == pytest.approx(model.objective_, rel=1e-6)


def test_the_width_of_the_kernel_is_that_of_all_rows(partly):
    every, few = hsic_model(2).fit(X, NAMES), hsic_model(2).fit(X[HAS], NAMES[HAS])
    assert partly.kernel_.sigma == pytest.approx(every.kernel_.sigma, rel=1e-12)
    assert abs(few.kernel_.sigma / every.kernel_.sigma - 1) > 1e-4
    model = PredictiveIKDR(2, max_features=None)
    own = [model.fit(X, y).kernel_.sigma / model.setting_.width for y in (Y, FLOATS)]
    assert own[0] == pytest.approx(own[1], rel=1e-9)


def marked(values, mark=None):
    """Return values (n,) as objects, with a mark in the rows without y."""
    return np.where(HAS, np.array(values, dtype=object), mark)


TEXTS = [marked(NAMES, mark) for mark in (None, np.nan, pd.NA)]
TEXTS += [pd.Series(TEXTS[0], dtype=kind) for kind in ("category", "string")]
TEXTS += [TEXTS[0].tolist(), pl.Series(TEXTS[0].tolist())]
CODES = [FLOATS[:, None], pd.array(marked(Y, pd.NA), dtype="Int64"), np.ma.masked_array(Y, ~HAS)]
CODES += [marked(Y), pl.Series(marked(Y).tolist())]
MARKED = [*((y, NAMES) for y in TEXTS), *((y, Y) for y in CODES), (marked(NUMBERS), NUMBERS)]
MARKED += [(pd.Series(marked(NUMBERS, pd.NA), dtype="Float64"), NUMBERS)]
MARKED += [(pd.DataFrame({"a": FLOATS, "b": TEXTS[0]}), np.c_[Y, NAMES])]
MARKED += [(np.where(HAS[:, None], X[:, :2], np.nan), X[:, :2])]


@quiet
@pytest.mark.parametrize(("y", "whole"), MARKED, ids=range(len(MARKED)))
def test_every_mark_of_a_missing_y_is_known(y, whole):
    one = quick(hsic_model, 2).fit(X, y)
    expected = quick(hsic_model, 2, standardize=False).fit(SCALED, whole[HAS])
    assert one.objective_ == pytest.approx(expected.objective_, rel=1e-9)
    assert_array_equal(getattr(one, "classes_", 0), getattr(expected, "classes_", 0))


def test_rows_without_y_count_by_their_weights():
    weights = RNG.integers(0, 3, N)
    weighted = hsic_model(1).fit(X, PARTLY, sample_weight=weights)
    repeated = hsic_model(1).fit(X.repeat(weights, axis=0), PARTLY.repeat(weights))
    assert_same_fit(weighted, repeated, 1e-9, 1e-6)
    assert weighted.report_.rows_without_y == np.count_nonzero(weights[~HAS])
    none = hsic_model(1).fit(X, PARTLY, sample_weight=HAS * 1.0)
    assert_same_fit(none, hsic_model(1).fit(X[HAS], PARTLY[HAS]), 1e-9, 1e-6)


@pytest.mark.parametrize("model", [PredictiveIKDR(1), hsic_model(1)])
def test_one_row_is_not_enough(model):
    one = np.where(np.arange(N) == 5, 1.0, 0.0)
    with pytest.raises(ValueError, match="`y` counts in 1 of 178 rows"):
        model.fit(X, np.where(one, 1.5, np.nan))
    with pytest.raises(ValueError, match="`y` counts in 1 of 178 rows"):
        model.fit(X, Y, sample_weight=one)


@pytest.mark.parametrize("name", ["avoid", "given", "groups"])
def test_what_is_known_beside_y_is_that_of_the_rows_with_y(name):
    values = RNG.integers(0, 12, N) if name == "groups" else RNG.normal(size=N)
    model = quick(PredictiveIKDR)
    every = model.fit(X, FLOATS, **{name: values}).components_
    assert model.certify(X, FLOATS, **{name: values.tolist()}).residual_rows == HAS.sum()
    some = pd.Series(np.where(HAS, values, np.nan))
    assert_array_equal(model.fit(X, FLOATS, **{name: some}).components_, every)


def test_columns_that_vary_without_y_alone_and_more_columns_than_rows():
    varying = np.column_stack([X, np.where(HAS, 3.0, NUMBERS)])
    assert_array_equal(hsic_model(2).fit(varying, FLOATS).components_[:, 13], 0.0)
    wide = RNG.normal(size=(30, 60))
    fitted = hsic_model(1).fit(wide, np.where(np.arange(30) < 20, wide[:, 0], np.nan))
    assert_allclose(fitted.scale_, wide.std(axis=0))
    assert np.isfinite(fitted.transform(wide)).all()


NONE = [
    (np.full(N, np.nan), "no value in 178 of 178 rows .* or take UnsupervisedIKDR"),
    ([None] * N, "no value in 178 of 178 rows"),
    (np.c_[FLOATS, NUMBERS], r"a part of its columns in \d\d of 178 rows, the first number"),
    (FLOATS[:-1], "inconsistent numbers of samples"),
    (np.where(HAS, NUMBERS, np.inf), "infinity"),
    (np.where(Y == 0, 0.0, np.nan), "one class only"),
]


@pytest.mark.parametrize("make", SUPERVISED)
@pytest.mark.parametrize(("y", "message"), NONE, ids=range(len(NONE)))
def test_what_is_no_y_of_any_row_is_refused(make, y, message):
    with pytest.raises(ValueError, match=message):
        make(1).fit(X, y)
