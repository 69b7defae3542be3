"""What tables of users bring, and the places and types that their numbers come in."""

from functools import partial

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from distributed import Client
from models import CULTIVAR as Y
from models import (
    NAMES,
    SUPERVISED,
    apart,
    assert_same_fit,
    hsic_model,
    most_memory,
    quick,
    quiet,
    stored,
)
from models import WINE as X
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import coo_array, csr_array
from scipy.spatial.distance import pdist, squareform
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.class_weight import compute_sample_weight

from ism_dask import PredictiveIKDR, SupervisedIKDR, UnsupervisedIKDR, hsic
from ism_dask.estimators import input_rows
from ism_dask.estimators.preparation import prepare_rows
from ism_dask.kernels import Gaussian, Polynomial
from ism_dask.solvers import ISM

COLUMNS = {f"f{number}": column for number, column in enumerate(X.T)}
QUICK = {PredictiveIKDR: quick(PredictiveIKDR)}
QUICK[SupervisedIKDR] = SupervisedIKDR(1, solver=ISM(tol=0.01))  # of a width by these rows


@pytest.fixture(scope="module")
def fitted():
    return quick(PredictiveIKDR, 2).fit(X, Y)


@pytest.mark.parametrize(
    ("class_weight", "weights"),
    [
        ({"barolo": 2, "barbera": 0.5}, np.array([2.0, 1.0, 0.5])[Y]),
        ({"barolo": 0}, (NAMES != "barolo") * 1.0),
        ("balanced", compute_sample_weight("balanced", NAMES)),
    ],
)
def test_a_class_weight_is_the_weight_of_its_rows(class_weight, weights):
    given = quick(PredictiveIKDR, 2, class_weight=class_weight).fit(X, NAMES)
    assert_same_fit(given, quick(PredictiveIKDR, 2).fit(X, NAMES, weights), 1e-10, 1e-6)
    # They multiply the weights of rows, and balance these.
    counts = np.random.default_rng(0).integers(0, 4, len(X))
    model = quick(SupervisedIKDR, 2, class_weight=class_weight)
    repeated = clone(model).fit(X.repeat(counts, axis=0), NAMES.repeat(counts))
    assert_same_fit(model.fit(X, NAMES, counts), repeated, 1e-10, 1e-6)


@pytest.mark.parametrize("options", [{}, {"standardize": False}])
def test_inverse_transform_is_the_row_nearest_to_the_mean(options):
    fitted = hsic_model(2, kernel="linear", **options).fit(X, Y)
    Z = fitted.transform(X)
    back = fitted.inverse_transform(Z)
    assert_allclose(fitted.transform(back), Z, atol=1e-9 * np.abs(Z).max())
    # The least solution of the definition, by least squares.
    least = np.linalg.lstsq(fitted.components_, Z.T)[0].T
    assert_allclose(back, fitted.mean_ + fitted.scale_ * least, atol=1e-9 * np.abs(X).max())
    lazy = da.from_array(Z, chunks=(50, 2))
    assert_allclose(fitted.inverse_transform(lazy).compute(), back)
    assert fitted.inverse_transform(Z.astype(np.float32)).dtype == np.float32
    with pytest.raises(ValueError, match="2 new features"):
        fitted.inverse_transform(X)


def _share_explained(Z, indicators):
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


@pytest.mark.parametrize("make", [PredictiveIKDR, SupervisedIKDR])
def test_the_score_is_the_share_of_y_that_other_rows_explain(make):
    fitted = quick(make, 2).fit(X[::2], Y[::2])
    unseen, y = X[1::2], Y[1::2]
    best = _share_explained(fitted.transform(unseen), np.eye(3)[y])
    score = fitted.score(unseen, y)
    assert best - 0.02 < score < best + 1e-6
    assert score == fitted.score(da.from_array(unseen, chunks=(60, 13)), y)
    assert fitted.score(unseen, np.random.default_rng(0).permutation(y)) < 0.1
    with pytest.raises(ValueError, match=r"all 50 rows have the same `y` \(0\): .*StratifiedKFold"):
        fitted.score(X[:50], Y[:50])
    with pytest.raises(NotFittedError, match="not fitted yet"):
        clone(fitted).score(X, Y)


def test_the_score_of_numbers_is_that_of_their_mean_or_law():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 4))
    by_mean = np.sin(2 * rows[:, 0]) + 0.3 * rng.normal(size=400)
    by_law = np.exp(rows[:, 0]) * rng.normal(size=400)
    for y, target, low, high in ((by_mean, "mean", 0.8, 1.0), (by_law, "law", 0.05, 0.5)):
        fitted = quick(PredictiveIKDR).fit(rows[::2], y[::2])
        assert fitted.report_.target == target
        assert low < fitted.score(rows[1::2], y[1::2]) < high


@pytest.mark.parametrize("library", [pd, pl])
def test_frames_in_and_out(library, fitted):
    frame, lazy = library.DataFrame(COLUMNS), da.from_array(X, chunks=(50, 4))
    model = quick(PredictiveIKDR, 2).set_output(transform=library.__name__)
    new = model.fit(frame, library.Series(Y)).transform(frame)
    assert model.feature_names_in_.tolist() == [*COLUMNS]
    assert isinstance(new, library.DataFrame)
    assert [*new.columns] == ["predictiveikdr0", "predictiveikdr1"]
    assert_allclose(new.to_numpy(), fitted.transform(X), atol=1e-9)
    for rows in (model.fit_transform(lazy, Y), model.transform(lazy)):
        assert isinstance(rows, da.Array)
        assert_allclose(rows.compute(), new.to_numpy(), atol=1e-9)


def _bytes(n, d=5):
    """Return rows of bytes and classes of which the first two columns decide."""
    rng = np.random.default_rng(n)
    X = rng.integers(256, size=(n, d)).astype(np.uint8)
    score = X[:, 0] / 64.0 + np.sin(X[:, 1] / 32.0) + 0.3 * rng.normal(size=n)
    return X, np.digitize(score, np.quantile(score, [0.3, 0.6]))


@pytest.mark.parametrize("kind", SUPERVISED)
def test_a_fit_is_the_same_in_memory_on_disk_on_a_cluster_and_as_any_type(
    kind, tmp_path, thread_cluster
):
    X, y = _bytes(100)
    made = partial(clone, QUICK[kind])
    lazy = da.from_array(np.asfortranarray(X), chunks=(60, 3))
    on_disk, whole = stored(X * 1.0, tmp_path, 50), X * 1.0
    places = [whole, X, X.astype(np.float32), coo_array(X), on_disk, on_disk.X, lazy]
    fits = [made().fit(place, y) for place in places]
    kinds = whole.tolist(), np.asfortranarray(whole), whole.astype(object), pd.DataFrame(whole)
    for rows in kinds:
        same = made().fit(rows, y.tolist())
        assert_array_equal(same.components_, fits[0].components_)
        assert_allclose(same.transform(rows), fits[0].transform(whole), atol=1e-8)
    for rows in (da.from_array(whole, chunks=(60, 3)), lazy[lazy[:, 0] >= 0] * 1.0):
        chunked = made().fit(rows, da.from_array(y, chunks=40))
        assert_allclose(chunked.components_, fits[0].components_, rtol=0, atol=1e-9)
    with Client(thread_cluster):
        fits += [made().fit(place, y) for place in (X, lazy)]
    for alone, spread in ((fits[1], fits[-2]), (fits[6], fits[-1])):
        assert_array_equal(spread.components_, alone.components_)
    # Few rows of bytes are in single precision for dependence, as ever, and numbers are not.
    assert apart(*fits) < (1e-12 if kind is PredictiveIKDR else 1e-5)
    assert fits[2].transform(places[2]).dtype == np.float32
    new = fits[0].transform(whole)
    for place in (csr_array(X), on_disk, on_disk.X):
        assert_allclose(fits[0].transform(place), new, atol=1e-8)
    for few in (X[:, :4], stored(X[:, :4], tmp_path, 100), da.from_array(X[:, :4])):
        with pytest.raises(ValueError, match=f"4 features, but {kind.__name__} is expecting 5"):
            fits[0].transform(few)


@pytest.mark.parametrize("kind", SUPERVISED)
def test_a_fit_to_larger_rows_is_the_same_wherever_they_are(
    kind, tmp_path, monkeypatch, thread_cluster
):
    monkeypatch.setattr("ism_dask.rows.raw.MEMORY_NUMBERS", 600)
    # Of so many rows some are drawn, which are the same however they are cut.
    monkeypatch.setattr("ism_dask.estimators.dependence_problem.SAMPLE_ROWS", 300)
    monkeypatch.setattr("ism_dask.estimators.dependence_problem._SAMPLED_ROWS", 200)
    X, y = _bytes(320, 3)
    weights = np.random.default_rng(0).integers(0, 3, size=len(X))
    lazy, on_disk = da.from_array(X, chunks=(160, 3)), stored(X * 1.0, tmp_path, 128)
    places = (X, csr_array(X), on_disk, stored(X, tmp_path, 2048))
    fits = [clone(QUICK[kind]).fit(place, y, weights) for place in places]
    with Client(thread_cluster):
        fits.append(clone(QUICK[kind]).fit(lazy, y, weights))
    assert apart(*fits) < (1e-12 if kind is PredictiveIKDR else 1e-5)


def test_many_rows_are_in_single_precision_if_it_holds_their_numbers():
    X, _ = _bytes(10_000)
    few = X[:500] * 1.0, np.float64
    for values, precision in ((X * 1.0, np.float32), (X / 7.0, np.float64), few):
        for place in (values, da.from_array(values, chunks=(3000, 5))):
            prepared = prepare_rows(place, Gaussian(), standardize=True)
            assert prepared.shards.dtype == precision


# Sparse X gives what dense rows give, or an error that names what to do first.


def _texts(n=300, d=60):
    """Return counts of words, of which each class has some of its own, and one word in no text."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    rates = np.tile(3.0 / np.arange(1, d + 1), (3, 1))
    for label in range(3):
        rates[label, 3 + label :: 7] *= 4
    rates[:, -1] = 0
    return scipy.sparse.csr_array(rng.poisson(rates[y]).astype(float)), y


TEXTS, TOPICS = _texts()


def test_sparse_rows_that_do_not_fit_memory_are_made_dense_in_pieces_or_refused(monkeypatch):
    dense = SupervisedIKDR(2, kernel=Gaussian(sigma=3.0)).fit(TEXTS.toarray(), TOPICS)
    monkeypatch.setattr("ism_dask.rows.raw.MEMORY_NUMBERS", 1000)
    streamed = clone(dense).fit(TEXTS, TOPICS)
    assert apart(streamed, dense) < 1e-2
    assert_allclose(streamed.transform(TEXTS), streamed.transform(TEXTS.toarray()), atol=1e-8)
    monkeypatch.setattr(input_rows, "MOST_SPARSE_COLUMNS", 10)
    for make in (*SUPERVISED, UnsupervisedIKDR):
        with pytest.raises(ValueError, match=r"300 x 60 numbers are too many.*TruncatedSVD"):
            make(2).fit(TEXTS, TOPICS)


@pytest.mark.parametrize(
    ("model", "sides"),
    [
        (PredictiveIKDR(1), {}),
        (PredictiveIKDR(1), {"given": np.arange(40.0) % 7}),
        (PredictiveIKDR(1, max_features=4), {"sample_weight": np.arange(40) % 3}),
        (PredictiveIKDR(1, max_features=4), {"avoid": np.arange(40.0) % 7}),
        (SupervisedIKDR(1), {"given": np.arange(40.0) % 7}),
    ],
)
def test_few_rows_of_many_columns_have_all_that_dense_rows_have(model, sides):
    texts, y = _texts(40, 2100)
    dense = clone(model).fit(texts.toarray(), y, **sides)
    fitted = model.fit(texts, y, **sides)
    assert_allclose(fitted.components_, dense.components_, atol=1e-12)
    assert_allclose(fitted.objective_, dense.objective_, rtol=1e-12)


@quiet
@pytest.mark.parametrize("make", SUPERVISED)
def test_many_classes_and_rows_that_decide_nothing_are_fitted(make):
    undecided = np.repeat(X[:5], 8, axis=0), np.tile([0, 1], 20)
    for rows, y in ((X[::2, 8:], np.arange(89) // 9), undecided):
        fitted = make().fit(rows, y)
        W = fitted.components_.T
        assert_allclose(W.T @ W, np.eye(W.shape[1]), atol=1e-10)
        assert np.isfinite(fitted.transform(rows)).all()


def test_many_rows_of_few_values_take_little_memory():
    """They are few rows with large weights: widths are those of some copies."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2, (20_000, 4)).astype(float)
    y = rows[:, 0] + rows[:, 1] * rows[:, 2] > 0
    model = PredictiveIKDR(1, max_features=None)
    assert most_memory(lambda: model.fit(rows, y)) < 500e6
    assert model.converged_


@pytest.mark.parametrize("make", [PredictiveIKDR, SupervisedIKDR, UnsupervisedIKDR])
def test_the_sum_of_the_indicators_of_a_category_has_no_weight(make):
    """Rows do not vary in it, so that a feature that raises J has none of it."""
    rng = np.random.default_rng(1)
    numbers, levels = rng.normal(size=(240, 3)), np.eye(3)[rng.integers(0, 3, 240)]
    rows = np.hstack([numbers, levels])
    y = (numbers[:, 0] + numbers[:, 1] ** 2 + levels[:, 0] > 1.0).astype(int)
    # Of few columns, no indicators may add up to one.
    every = {"max_features": None} if make is PredictiveIKDR else {}
    fitted = make(2, **every).fit(rows, y)
    useful = fitted.components_[fitted.eigenvalues_ > 1e-9 * fitted.eigenvalues_[0]]
    assert_allclose(useful[:, 3:] @ fitted.scale_[3:], 0.0, atol=1e-9)
    if make is SupervisedIKDR:
        # A kernel with an origin keeps all columns: the sum of indicators is 1, and not constant.
        origin = {"kernel": Polynomial(degree=2, offset=0.0), "standardize": False}
        each = make(2, **origin).fit(rows, y)
        value = hsic(each.transform(rows), y, kernel=each.kernel_) * 239**2
        assert value == pytest.approx(each.objective_, rel=1e-9)
