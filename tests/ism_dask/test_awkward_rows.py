"""Whitened rows, the distance kernel, awkward rows, and samples of rows."""

import numpy as np
import pytest
from definition import centred
from models import CULTIVAR, WINE, StoredRows, hsic_model, quiet
from numpy.testing import assert_allclose
from scipy.spatial.distance import pdist, squareform
from sklearn.preprocessing import scale

from ism_dask import PredictiveIKDR, SupervisedIKDR, UnsupervisedIKDR, hsic
from ism_dask.estimators.dependence_problem import DependenceRows
from ism_dask.estimators.preparation import prepare_rows
from ism_dask.gamma.targets import target_dependence
from ism_dask.kernels import DistanceKernel, Gaussian, Polynomial
from ism_dask.linalg.subspaces import subspace_sine

# The distance kernel.


@quiet
def test_j_of_the_distance_kernel_is_the_distance_covariance():
    """Of classes the distance between rows is 0 or 1: one less what `Y Y^T` has."""
    model = hsic_model(2, kernel="distance").fit(WINE, CULTIVAR)
    points = model.transform(WINE), np.eye(3)[CULTIVAR] / np.sqrt(2)
    one, other = (centred(squareform(pdist(each))) for each in points)
    expected = (one * other).sum()
    # The offset is a fiftieth of the distances.
    assert model.objective_ == pytest.approx(expected, rel=2e-3)
    exact = hsic(points[0], CULTIVAR, kernel=DistanceKernel(1e-4)) * (len(WINE) - 1) ** 2
    assert exact == pytest.approx(expected, rel=1e-6)
    width = Gaussian("root").resolve(scale(WINE), 2 / WINE.shape[1]).sigma
    assert model.kernel_.offset == pytest.approx(0.02 * width)


# Input that is not as one would wish.

FEW, FEW_CLASSES = WINE[::2, 8:], CULTIVAR[::2]


@quiet
@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.repeat(FEW[::3], 3, axis=0), np.repeat(FEW_CLASSES[::3], 3)),
        (WINE[::12], CULTIVAR[::12]),
        (FEW, np.repeat(np.arange(10), [9] * 9 + [8])),
        (FEW, np.arange(89) == 3),
        (FEW, np.repeat(np.arange(3.0), [1, 2, 86]) + 0.5),
        (np.hstack([FEW, np.ones((89, 3)), FEW[:, :2]]), FEW_CLASSES),
        (np.repeat(WINE[:5], 8, axis=0), np.tile([0, 1], 20)),
    ],
    ids=["repeated", "few", "small classes", "one row", "ties", "columns", "undecided"],
)
@pytest.mark.parametrize("make", [PredictiveIKDR, SupervisedIKDR])
def test_awkward_rows_are_fitted(X, y, make):
    model = make().fit(X, y)
    q = len(model.components_)
    assert_allclose(model.components_ @ model.components_.T, np.eye(q), atol=1e-10)
    assert np.isfinite(model.objective_)
    assert model.transform(X).shape == (len(X), q)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [240, 560])
def test_a_sample_has_the_same_rows_in_memory_and_on_disk_however_they_are_cut(
    n, weighted, monkeypatch
):
    monkeypatch.setattr("ism_dask.estimators.dependence_problem.SAMPLE_ROWS", 500)
    monkeypatch.setattr("ism_dask.estimators.dependence_problem._SAMPLED_ROWS", 200)
    rng = np.random.default_rng(n)
    X, y = rng.integers(256, size=(n, 4)).astype(np.uint8), rng.integers(3, size=n)
    weights = rng.integers(1, 3, size=n).astype(float) if weighted else None

    def seen(rows):
        prepared = prepare_rows(rows, Gaussian(), standardize=True, weights=weights)
        rows = DependenceRows.sampled(prepared, Gaussian(), 0, 2, weights=weights)
        dependence = target_dependence(y, weights=weights)
        W = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 2)))[0]
        return rows.contributing(dependence).value(W).objective, rows.kernel.sigma

    value, sigma = seen(X)
    for chunk_rows in (50, 70):
        other, width = seen(StoredRows(X, chunk_rows))
        assert other == pytest.approx(value, rel=1e-10)
        assert width == pytest.approx(sigma, rel=1e-13)


@pytest.mark.parametrize(("q", "seed"), [(2, 3), (2, 24), (1, 2), (1, 3)])
def test_fits_to_classes_depend_on_neither_order_nor_units_nor_names(q, seed):
    """Starts of two classes are incomplete; rows of few values are equal, and differ in class."""
    rng = np.random.default_rng(seed)
    if q == 2:
        n, d = int(rng.integers(40, 120)), int(rng.integers(3, 9))
        X = rng.normal(size=(n, d)).round(1 if seed % 2 else 8)
        y = (X[:, 0] + X[:, 1] ** 2 + 0.5 * rng.normal(size=n) > 0).astype(int)
    else:
        n, d = int(rng.integers(60, 120)), int(rng.integers(2, 6))
        X = (rng.poisson(0.7, (n, d)) if seed % 2 else rng.integers(0, 2, (n, d))).astype(float)
        y = np.digitize(X[:, 0] + rng.normal(size=n), [0.3, 1.2])
    order, units, rows = rng.permutation(d), 10.0 ** rng.integers(-3, 4, size=d), rng.permutation(n)
    plain = PredictiveIKDR(q).fit(X, y)
    other = PredictiveIKDR(q).fit((X * units)[rows][:, order], np.array(["z", "a", "k"])[y[rows]])
    assert subspace_sine(plain.components_[:, order].T, other.components_.T) < 1e-6
    assert other.objective_ == pytest.approx(plain.objective_, rel=1e-9)


# Indicators of the levels of categories: rows do not vary in their sum, and W does not use it.

N_LEVELS = 240


def _table(seed):
    """Return three numbers and two categories of 2 and 3 levels, as indicators, and y."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(N_LEVELS, 3))
    levels = [np.eye(k)[rng.integers(0, k, N_LEVELS)] for k in (2, 3)]
    X = np.hstack([numbers, *levels])
    y = numbers[:, 0] + numbers[:, 1] ** 2 + levels[1][:, 0] > 1.0
    return X, y.astype(int)


def _sums(fitted):
    """Return the weights of the sums of indicators in W, per unit of the raw columns."""
    directions = np.zeros((2, 8))
    directions[0, 3:5] = directions[1, 5:] = 1.0
    directions = directions * fitted.scale_
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return fitted.components_ @ directions.T


@pytest.mark.parametrize("make", [PredictiveIKDR, SupervisedIKDR])
@pytest.mark.parametrize("q", [1, 2])
def test_no_feature_that_raises_j_has_weights_where_rows_are_constant(make, q):
    X, y = _table(q)
    fitted = make(q, **({"max_features": None} if make is PredictiveIKDR else {})).fit(X, y)
    assert fitted.status_.is_requested
    useful = fitted.eigenvalues_ > 1e-9 * fitted.eigenvalues_[0]
    assert_allclose(_sums(fitted)[useful], 0.0, atol=1e-9)
    assert_allclose(fitted.components_ @ fitted.components_.T, np.eye(q), atol=1e-10)
    if make is hsic_model:
        # A kernel with an origin keeps all columns: the sum of indicators is 1, and not constant.
        origin = {"kernel": Polynomial(degree=2, offset=0.0), "standardize": False}
        for each in (fitted, make(2, **origin).fit(X, y)):
            value = hsic(each.transform(X), y, kernel=each.kernel_)
            assert value * (N_LEVELS - 1) ** 2 == pytest.approx(each.objective_, rel=1e-9)


def test_clusters_come_from_the_same_space():
    X, _ = _table(7)
    fitted = UnsupervisedIKDR(2, n_components=2, random_state=0).fit(X)
    assert_allclose(_sums(fitted), 0.0, atol=1e-9)
