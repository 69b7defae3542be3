"""Whitened rows, the distance kernel, awkward rows, and samples of rows."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from definition import centred
from models import StoredRows, hsic_model
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

from ism_dask import SupervisedIKDR, hsic
from ism_dask.estimators.fit_rows import FitRows
from ism_dask.estimators.preparation import prepare_rows
from ism_dask.gamma.targets import target_dependence
from ism_dask.kernels import DistanceKernel, Gaussian
from ism_dask.linalg.subspaces import subspace_sine

WINE, CULTIVAR = load_wine(return_X_y=True)
N, D = 300, 6


def _rows(seed=0, n=N):
    rng = np.random.default_rng(seed)
    return rng, rng.normal(size=(n, D))


def _fit(X, y, *given, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return hsic_model(*given, **parameters).fit(X, y)


# Whitened rows.


@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
def test_whitened_features_are_uncorrelated(kernel):
    rng, X = _rows(7)
    X = X @ rng.normal(size=(D, D))
    y = np.digitize(X[:, 0], [-1, 1])
    model = _fit(X, y, 2, kernel=kernel, whiten=True)
    Z = model.transform(X)
    np.testing.assert_allclose(Z, (X - model.mean_) / model.scale_ @ model.components_.T)
    sigma = np.corrcoef(X.T)
    np.testing.assert_allclose(Z.T @ Z / N, model.components_ @ sigma @ model.components_.T)
    # But for the ridge of a thousandth of the mean eigenvalue, which is 1.
    ridge = model.components_ @ model.components_.T * 1e-3
    np.testing.assert_allclose(Z.T @ Z / N + ridge, np.eye(2), atol=1e-8)
    assert hsic(Z, y, kernel=model.kernel_) * (N - 1) ** 2 == pytest.approx(model.objective_)


# The distance kernel.


def _dcov(Z, y):
    """Return n^2 times the squared distance covariance, of doubly centred distances."""
    apart = (np.linalg.norm(points[:, None] - points[None], axis=2) for points in (Z, y))
    one, other = map(centred, apart)
    return (one * other).sum()


def test_j_of_the_distance_kernel_is_the_distance_covariance():
    """Of classes the distance between rows is 0 or 1: one less what `Y Y^T` has."""
    labels = np.eye(3)[CULTIVAR] / np.sqrt(2)
    model = _fit(WINE, CULTIVAR, 2, kernel="distance")
    expected = _dcov(model.transform(WINE), labels)
    # The offset is a fiftieth of the distances.
    assert model.objective_ == pytest.approx(expected, rel=2e-3)
    small = DistanceKernel(1e-4)
    exact = hsic(model.transform(WINE), CULTIVAR, kernel=small) * (len(WINE) - 1) ** 2
    assert exact == pytest.approx(expected, rel=1e-6)
    width = Gaussian("root").resolve(scale(WINE), 2 / WINE.shape[1]).sigma
    assert model.kernel_.offset == pytest.approx(0.02 * width)


# Input that is not as one would wish.

FEW = WINE[:, 8:]


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.repeat(FEW[::3], 3, axis=0), np.repeat(CULTIVAR[::3], 3)),
        (WINE[::12], CULTIVAR[::12]),
        (FEW, np.repeat(np.arange(20), [9] * 18 + [8] * 2)),
        (FEW, np.arange(178) == 3),
        (FEW, np.repeat(np.arange(3.0), [1, 2, 175]) + 0.5),
        (np.hstack([FEW, np.ones((178, 3)), FEW[:, :2]]), CULTIVAR),
        (np.repeat(WINE[:5], 8, axis=0), np.tile([0, 1], 20)),
    ],
    ids=["repeated", "few", "small classes", "one row", "ties", "columns", "undecided"],
)
@pytest.mark.parametrize("make", [SupervisedIKDR, hsic_model])
def test_awkward_rows_are_fitted(X, y, make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = make().fit(X, y)
    q = len(model.components_)
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(q), atol=1e-10)
    assert np.isfinite(model.objective_)
    assert model.transform(X).shape == (len(X), q)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [240, 560])
def test_a_sample_has_the_same_rows_in_memory_and_on_disk_however_they_are_cut(
    n, weighted, monkeypatch
):
    monkeypatch.setattr("ism_dask.estimators.fit_rows.SAMPLE_ROWS", 500)
    monkeypatch.setattr("ism_dask.estimators.fit_rows._SAMPLED_ROWS", 200)
    rng = np.random.default_rng(n)
    X, y = rng.integers(256, size=(n, 4)).astype(np.uint8), rng.integers(3, size=n)
    weights = rng.integers(1, 3, size=n).astype(float) if weighted else None

    def seen(rows):
        prepared = prepare_rows(rows, Gaussian(), standardize=True, weights=weights)
        fit_rows = FitRows.of(prepared, Gaussian(), 0, 2, weights=weights)
        dependence = target_dependence(y, weights=weights)
        W = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 2)))[0]
        return fit_rows.contributing(dependence)().value(W).objective, fit_rows.kernel.sigma

    value, sigma = seen(X)
    for chunk_rows in (50, 70):
        other, width = seen(StoredRows(X, chunk_rows))
        assert other == pytest.approx(value, rel=1e-10)
        assert width == pytest.approx(sigma, rel=1e-13)


@pytest.mark.parametrize("seed", [3, 24])
def test_fits_to_classes_depend_on_neither_order_nor_units_of_columns(seed):
    """Rows of a class have no order of their own, and with two classes starts are incomplete."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(40, 120)), int(rng.integers(3, 9))
    X = rng.normal(size=(n, d)).round(1 if seed % 2 else 8)
    y = (X[:, 0] + X[:, 1] ** 2 + 0.5 * rng.normal(size=n) > 0).astype(int)
    order, units = rng.permutation(d), 10.0 ** rng.integers(-3, 4, size=d)
    plain = SupervisedIKDR(2).fit(X, y)
    other = SupervisedIKDR(2).fit((X * units)[:, order], y)
    assert subspace_sine(plain.components_[:, order].T, other.components_.T) < 1e-6
    assert other.objective_ == pytest.approx(plain.objective_, rel=1e-9)


@pytest.mark.parametrize("seed", [2, 3])
def test_fits_to_equal_rows_depend_on_neither_names_nor_order(seed):
    """Rows of few values are equal, and may have different classes."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(60, 120)), int(rng.integers(2, 6))
    X = (rng.poisson(0.7, (n, d)) if seed % 2 else rng.integers(0, 2, (n, d))).astype(float)
    y = np.digitize(X[:, 0] + rng.normal(size=n), [0.3, 1.2])
    order, rows = rng.permutation(d), rng.permutation(n)
    plain = SupervisedIKDR(1).fit(X, y)
    other = SupervisedIKDR(1).fit(X[rows][:, order], np.array(["z", "a", "k"])[y[rows]])
    assert subspace_sine(plain.components_[:, order].T, other.components_.T) < 1e-6
    assert other.objective_ == pytest.approx(plain.objective_, rel=1e-9)
