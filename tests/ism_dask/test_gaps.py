"""Gaps in X, filled with the means of their columns by definition, or refused by name."""

import pickle

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pytest
from models import CULTIVAR, SUPERVISED, StoredRows, assert_same_fit, curved, hsic_model, quiet
from models import WINE as X
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.utils import get_tags

from ism_dask import (
    AlternativeIKDR,
    ColoredMVU,
    PredictiveIKDR,
    SemiSupervisedIKDR,
    SupervisedIKDR,
    UnsupervisedIKDR,
    intervals,
)
from ism_dask.kernels import Gaussian
from storage import Model, UnfitRows, ingest_table, load_model, save_model

Y, RNG = CULTIVAR, np.random.default_rng(0)
GAPPY = np.where(RNG.random(X.shape) < 0.1, np.nan, X)
GAPPY[:, 3] = X[:, 3]
MEANS = np.nanmean(GAPPY, axis=0)
FILLED = np.where(np.isnan(GAPPY), MEANS, GAPPY)
NAMES = [f"c{number}" for number in range(13)]
FRAME = pd.DataFrame(GAPPY, columns=NAMES)
QUICK = {"kernel": Gaussian(sigma=2.0), "missing": "mean"}
EVERY = (
    PredictiveIKDR(2, max_features=None),
    SupervisedIKDR(2),
    UnsupervisedIKDR(3, 2),
    SemiSupervisedIKDR(3, 2),
    AlternativeIKDR(3, 2),
    ColoredMVU(),
)


@pytest.fixture(scope="module")
def fitted():
    return hsic_model(2, **QUICK).fit(GAPPY, Y)


@quiet
@pytest.mark.parametrize("model", EVERY, ids=lambda model: type(model).__name__)
def test_every_estimator_fills_gaps_with_the_means_of_the_fit(model):
    gappy = clone(model).set_params(missing="mean").fit(GAPPY, Y)
    assert_allclose(gappy.gap_means_, MEANS, rtol=1e-14)
    assert_array_equal(gappy.gap_counts_, np.isnan(GAPPY).sum(axis=0))
    plain = model.fit(np.where(np.isnan(GAPPY), gappy.gap_means_, GAPPY), Y)
    assert plain.gap_means_ is plain.gap_counts_ is None
    unseen = np.where(RNG.random(X.shape) < 0.3, np.nan, 1.01 * X)
    complete = np.where(np.isnan(unseen), gappy.gap_means_, unseen)
    assert_array_equal(gappy.transform(unseen), plain.transform(complete))
    assert np.isnan(unseen).any()  # nobody has written into the rows
    if hasattr(gappy, "predict"):
        assert_array_equal(gappy.predict(unseen), plain.predict(complete))
    again = pickle.loads(pickle.dumps(gappy))
    assert_array_equal(again.transform(unseen), gappy.transform(unseen))


@pytest.mark.parametrize(
    "place",
    [
        GAPPY.tolist(),
        FRAME,
        FRAME.astype("Float64"),
        FRAME.astype(object).where(FRAME.notna(), None),
        pl.DataFrame(GAPPY),
        np.ma.masked_invalid(GAPPY),
        csr_array(GAPPY),
        da.from_array(GAPPY, chunks=(50, 4)),
        StoredRows(GAPPY, 100),
    ],
    ids=["list", "pandas", "NA", "None", "polars", "masked", "sparse", "Dask", "stored"],
)
def test_gaps_are_filled_wherever_they_come_from(place, fitted):
    other = hsic_model(2, **QUICK).fit(place, Y)
    assert_array_equal(other.components_, fitted.components_)
    assert_allclose(np.asarray(other.transform(place)), fitted.transform(GAPPY), atol=1e-12)


def test_gaps_in_single_precision_and_sparse_zeros_count_as_numbers():
    few = np.where(np.median(X, axis=0) < X, 0.0, GAPPY)
    sparse = hsic_model(2, **QUICK).fit(csr_array(few), Y)
    assert_allclose(sparse.gap_means_, np.nanmean(few, axis=0), rtol=1e-13)
    single = hsic_model(2, **QUICK).fit(GAPPY.astype("f4"), Y)
    assert_allclose(single.gap_means_, MEANS, rtol=1e-6)
    assert single.transform(GAPPY.astype("f4")).dtype == np.float32


@pytest.mark.parametrize("kind", ["rows", "classes"])
def test_rows_count_in_the_means_by_their_weights(kind):
    weights, model = RNG.integers(0, 4, len(X)), hsic_model(2, **QUICK)
    if kind == "classes":
        weights, model = np.array([3, 1, 2])[Y], model.set_params(class_weight={0: 3, 2: 2})
    given = {"sample_weight": weights} if kind == "rows" else {}
    weighted = clone(model).fit(GAPPY, Y, **given)
    masked = np.ma.masked_invalid(GAPPY)
    assert_allclose(weighted.gap_means_, np.ma.average(masked, axis=0, weights=weights))
    repeated = hsic_model(2, **QUICK).fit(GAPPY.repeat(weights, axis=0), Y.repeat(weights))
    assert_array_equal(repeated.gap_means_, weighted.gap_means_)
    assert_same_fit(repeated, weighted, 1e-10, 1e-6)


@pytest.mark.parametrize("make", SUPERVISED)
def test_the_order_of_rows_with_gaps_changes_no_bit(make):
    order = RNG.permutation(len(X))
    one, other = (make(2, missing="mean").fit(GAPPY[i], Y[i]) for i in (np.arange(len(X)), order))
    assert_array_equal(one.gap_means_, other.gap_means_)
    assert_array_equal(one.components_, other.components_)


def test_what_judges_a_fit_takes_its_rows_with_their_gaps():
    rows, y = curved()
    rows[::7, 4] = np.nan
    fitted = PredictiveIKDR(2, missing="mean", max_features=None).fit(rows, y)
    assert fitted.certify(rows, y).is_certified
    assert intervals(fitted, rows, y).shares.shape == (5,)
    assert fitted.score(rows, y) > 0.8


def test_rows_too_large_for_memory_are_filled_by_shards_or_refused(monkeypatch):
    monkeypatch.setattr("ism_dask.rows.raw.MEMORY_NUMBERS", 600)
    lazy = da.from_array(GAPPY, chunks=(50, 4))
    model = hsic_model(2, **QUICK)
    fitted = clone(model).fit(lazy, Y)
    assert_allclose(fitted.gap_means_, MEANS, rtol=1e-13)
    assert_same_fit(fitted, clone(model).fit(FILLED, Y), 1e-9, 1e-6)
    assert_allclose(fitted.transform(lazy).compute(), fitted.transform(FILLED), atol=1e-12)
    stored, complete = StoredRows(GAPPY, 100), StoredRows(FILLED, 100)
    assert_array_equal(clone(model).fit(complete, Y).gap_counts_, 0)
    with pytest.raises(ValueError, match=r"fill them at ingestion, as by `ism-dask ingest --miss"):
        clone(model).fit(stored, Y)
    with pytest.raises(ValueError, match=r'NaN or infinity, in 12 columns.*missing="mean"'):
        hsic_model(2).fit(lazy, Y)


NOTHING = np.where(np.arange(13) == 4, np.nan, X)
COUNT = r"the first 'c0' \(1\d\), .*'c5' \(\d+\) and 7 more\. Fit with missing=\"mean\""


@quiet
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"X": FRAME}, rf"NaN: 1\d\d of 178 rows .* 12 of 13 columns with 2\d\d gaps, {COUNT}"),
        ({"X": GAPPY}, r"the first number 0 \(1\d\), number 1"),
        ({"X": NOTHING, "missing": "mean"}, "no number at all in 1 of 13 columns, .* number 4: "),
        ({"X": FRAME.assign(c4=np.nan), "missing": "mean"}, "the first 'c4': .* Leave these"),
        ({"missing": "median"}, "`missing` must be 'mean' or None; got 'median'"),
        ({"X": np.where(np.isnan(GAPPY), np.inf, GAPPY), "missing": "mean"}, "infinity"),
    ],
)
@pytest.mark.parametrize("model", EVERY, ids=lambda model: type(model).__name__)
def test_what_cannot_be_filled_is_refused(model, given, message):
    given = {"X": X, "missing": None, **given}
    with pytest.raises(ValueError, match=message):
        clone(model).set_params(missing=given["missing"]).fit(given["X"], Y)


def test_a_column_without_a_number_in_the_rows_that_count_is_refused():
    rows = np.where((Y[:, None] == 0) | (np.arange(13) != 4), X, np.nan)
    with pytest.raises(ValueError, match="no number at all in 1 of 13 columns, the first number 4"):
        hsic_model(1, **QUICK).fit(rows, Y, sample_weight=(Y > 0) * 1.0)


@pytest.mark.parametrize("model", EVERY, ids=lambda model: type(model).__name__)
def test_the_tag_follows_what_the_estimator_does_about_gaps(model):
    assert not get_tags(model).input_tags.allow_nan
    assert get_tags(clone(model).set_params(missing="mean")).input_tags.allow_nan


def test_a_fit_without_missing_names_the_gaps_of_new_rows(fitted):
    plain = hsic_model(1, kernel=Gaussian(sigma=2.0)).fit(pd.DataFrame(X, columns=NAMES), Y)
    with pytest.raises(ValueError, match=r"the first 'c0' \(\d+\), 'c1'"):
        plain.transform(FRAME)
    assert_allclose(fitted.explain(np.full((1, 13), np.nan)), 0.0, atol=1e-12)


def test_a_stored_model_fills_gaps_as_the_fit_did(fitted):
    names = ("components", "mean", "scale", "eigenvalues", "gap_means")
    arrays = {name: getattr(fitted, f"{name}_") for name in names}
    save_model("gappy", Model(**arrays))
    loaded = load_model("gappy")
    assert_array_equal(loaded.gap_means, fitted.gap_means_)
    assert_allclose(loaded.transform(GAPPY), fitted.transform(GAPPY), atol=1e-12)
    with pytest.raises(UnfitRows, match="NaN"):
        Model(**{**arrays, "gap_means": None}).transform(GAPPY)


def test_a_table_is_filled_at_ingestion_as_by_a_fit(fitted):
    data = ingest_table(FRAME.assign(y=Y), "gappy", label="y", missing="mean")
    assert_allclose(data.X.read(0, len(X)), np.where(np.isnan(GAPPY), fitted.gap_means_, GAPPY))
    assert_same_fit(hsic_model(2, kernel=QUICK["kernel"]).fit(data, Y), fitted, 1e-9, 1e-6)
