"""What tables of users bring: uneven classes, gaps, frames of polars, searches, callbacks."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pytest
from models import StoredRows, Watcher, assert_same_fit, hsic_model
from numpy.testing import assert_allclose
from scipy.spatial.distance import pdist, squareform
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.utils.class_weight import compute_sample_weight

from ism_dask import SupervisedIKDR, UnsupervisedIKDR
from ism_dask.kernels import Gaussian

X, Y = load_wine(return_X_y=True)
NAMES = np.array(["barolo", "grignolino", "barbera"])[Y]
PLAIN = {"kernel": Gaussian(sigma=2.0)}


@pytest.fixture(scope="module")
def fitted():
    return SupervisedIKDR(2, **PLAIN).fit(X, Y)


def test_a_class_weight_is_the_weight_of_its_rows():
    given = SupervisedIKDR(2, **PLAIN, class_weight={"barolo": 2, "barbera": 0.5}).fit(X, NAMES)
    of_rows = np.select([NAMES == "barolo", NAMES == "barbera"], [2.0, 0.5], 1.0)
    assert_same_fit(given, SupervisedIKDR(2, **PLAIN).fit(X, NAMES, of_rows), 1e-10, 1e-6)
    none = SupervisedIKDR(1, **PLAIN, class_weight={"barolo": 0}).fit(X, NAMES)
    others = NAMES != "barolo"
    assert_same_fit(none, SupervisedIKDR(1, **PLAIN).fit(X[others], NAMES[others]), 1e-10, 1e-6)


def test_balanced_classes_count_alike_with_weights_and_with_repetitions():
    balanced = SupervisedIKDR(2, **PLAIN, class_weight="balanced")
    as_rows = SupervisedIKDR(2, **PLAIN).fit(X, Y, compute_sample_weight("balanced", Y))
    assert_same_fit(balanced.fit(X, Y), as_rows, 1e-10, 1e-6)
    weights = np.random.default_rng(0).integers(0, 4, len(X))
    balanced = hsic_model(2, **PLAIN, class_weight="balanced")
    repeated = clone(balanced).fit(X.repeat(weights, axis=0), Y.repeat(weights))
    assert_same_fit(balanced.fit(X, Y, weights), repeated, 1e-10, 1e-6)


@pytest.mark.parametrize("options", [{}, {"whiten": True}, {"standardize": False}])
def test_inverse_transform_is_the_row_nearest_to_the_mean(options):
    fitted = hsic_model(2, kernel="linear", **options).fit(X, Y)
    Z = fitted.transform(X)
    back = fitted.inverse_transform(Z)
    assert_allclose(fitted.transform(back), Z, atol=1e-9 * np.abs(Z).max())
    # The least solution of the definition, by least squares.
    least = np.linalg.lstsq(fitted.components_, Z.T)[0].T
    assert_allclose(back, fitted.mean_ + fitted.scale_ * least, atol=1e-9 * np.abs(X).max())
    lazy = fitted.inverse_transform(da.from_array(Z, chunks=(50, 2)))
    assert_allclose(lazy.compute(), back)
    assert fitted.inverse_transform(Z.astype(np.float32)).dtype == np.float32
    with pytest.raises(ValueError, match="2 new features"):
        fitted.inverse_transform(X)


def _share_explained(Z: np.ndarray, indicators: np.ndarray) -> float:
    """Return the largest share over a grid around the setting, each row predicted by the others."""
    n, T = len(Z), indicators - indicators.mean(axis=0)
    distances = squareform(pdist(Z))
    median, shares = np.median(pdist(Z)), []
    for width in (2, 1, 0.5, 0.25):
        K = np.exp(-(distances**2) / (2 * (width * median) ** 2))
        for ridge in (1e-4, 1e-3, 1e-2, 1e-1):
            errors = 0.0
            for i in range(n):
                rest = np.arange(n) != i
                system = K[np.ix_(rest, rest)] + n * ridge * np.eye(n - 1)
                errors += np.sum((T[i] - K[i, rest] @ np.linalg.solve(system, T[rest])) ** 2)
            shares.append(1 - errors / np.sum(T**2))
    return max(shares)


@pytest.mark.parametrize("make", [SupervisedIKDR, hsic_model])
def test_the_score_is_the_share_of_y_that_other_rows_explain(make):
    fitted = make(2, **PLAIN).fit(X[::2], Y[::2])
    unseen, y = X[1::2], Y[1::2]
    best = _share_explained(fitted.transform(unseen), np.eye(3)[y])
    score = fitted.score(unseen, y)
    assert best - 0.02 < score < best + 1e-6
    assert score == fitted.score(da.from_array(unseen, chunks=(60, 13)), y)
    assert fitted.score(unseen, np.random.default_rng(0).permutation(y)) < 0.1
    with pytest.raises(ValueError, match="StratifiedKFold"):
        fitted.score(X[:50], Y[:50])


def test_the_score_of_numbers_is_that_of_their_mean_or_law():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 4))
    by_mean = rows[:, 0] ** 2 + 0.5 * rng.normal(size=400)
    assert 0.8 < SupervisedIKDR(1).fit(rows[::2], by_mean[::2]).score(rows[1::2], by_mean[1::2]) < 1
    by_law = np.exp(rows[:, 0]) * rng.normal(size=400)
    fitted = SupervisedIKDR(1).fit(rows[::2], by_law[::2])
    assert fitted.target_ == "law"
    assert 0.05 < fitted.score(rows[1::2], by_law[1::2]) < 0.5


def test_frames_of_polars_in_and_out(fitted):
    frame = pl.DataFrame(X, schema=[f"f{i}" for i in range(13)])
    of_frames = SupervisedIKDR(2, **PLAIN).set_output(transform="polars")
    new = of_frames.fit(frame, pl.Series(Y)).transform(frame)
    assert isinstance(new, pl.DataFrame)
    assert new.columns == ["supervisedikdr0", "supervisedikdr1"]
    assert_allclose(new.to_numpy(), fitted.transform(X), atol=1e-9)
    assert of_frames.feature_names_in_.tolist() == frame.columns


def test_gaps_are_refused_with_the_imputer_that_fills_them(fitted):
    gaps = np.where(X.max() == X, np.nan, X)
    calls = [
        lambda: SupervisedIKDR(2).fit(gaps, Y),
        lambda: SupervisedIKDR(2).fit(StoredRows(gaps, 100), Y),
        lambda: SupervisedIKDR(2).fit(np.ma.masked_equal(X, X.max()), Y),
        lambda: fitted.transform(np.ma.masked_equal(X, X.max())),
        lambda: UnsupervisedIKDR(3).fit(gaps),
        lambda: fitted.transform(gaps),
        lambda: fitted.transform(da.from_array(gaps)).compute(),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"NaN.*SimpleImputer"):
            call()
    filled = make_pipeline(SimpleImputer(), SupervisedIKDR(2, **PLAIN)).fit(gaps, Y)
    assert filled.transform(gaps).shape == (178, 2)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_of_texts_and_dates_are_named(library, fitted):
    columns = {"length": X[:, 0], "width": X[:, 1], "maker": NAMES, "day": X[:, 2].astype("M8[D]")}
    frame = pd.DataFrame(columns) if library == "pandas" else pl.DataFrame(columns)
    for call in (lambda: SupervisedIKDR(1).fit(frame, Y), lambda: fitted.transform(frame)):
        with pytest.raises(ValueError, match=r"'maker', 'day'\. Encode texts"):
            call()
    numbers = pd.DataFrame({"a": X[:, 0].astype(object), "b": X[:, 1]})
    assert SupervisedIKDR(1).fit(numbers, Y).n_features_in_ == 2


def test_strings_of_numpy_are_labels():
    labels = NAMES.astype(np.dtypes.StringDType())
    fitted = SupervisedIKDR(2, **PLAIN).fit(X, labels)
    assert_same_fit(fitted, SupervisedIKDR(2, **PLAIN).fit(X, NAMES), 1e-10, 1e-6)
    assert fitted.classes_.tolist() == ["barbera", "barolo", "grignolino"]


@pytest.mark.skipif(not hasattr(SupervisedIKDR, "set_callbacks"), reason="scikit-learn < 1.9")
def test_callbacks_of_scikit_learn_see_every_iteration():
    watcher = Watcher(lambda fitted: fitted.score(X, Y))
    fitted = SupervisedIKDR(2, **PLAIN).set_callbacks(watcher).fit(X, Y)
    assert watcher.events == ["setup", *["iteration"] * fitted.n_iter_, "fit", "teardown"]
    assert watcher.seen[-1] == pytest.approx(fitted.score(X, Y))
    assert watcher.seen[-1] > 0.9
    rounds = Watcher(lambda fitted: fitted.transform(X).shape)
    UnsupervisedIKDR(3).set_callbacks(rounds).fit(X)
    assert len(rounds.seen) > 3
    assert set(rounds.seen) == {(178, 3)}
