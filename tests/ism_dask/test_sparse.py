"""Sparse X: few columns give what dense rows give; with many, W is stationary in all of them."""

from unittest.mock import Mock

import numpy as np
import pytest
import scipy.sparse
from definition import Definition, dense_gamma
from models import Watcher, assert_same_fit, hsic_model
from numpy.testing import assert_allclose
from sklearn.base import clone

from ism_dask import PredictiveIKDR, SupervisedIKDR
from ism_dask.estimators import wide_rows
from ism_dask.gamma.labels import class_dependence
from ism_dask.kernels import Gaussian, Linear, Polynomial
from ism_dask.rows import execution

N, D = 300, 60
GIVEN = {"kernel": Gaussian(sigma=3.0)}


def _texts(n=N, d=D):
    """Return counts of words, of which each class has some of its own, and one word in no text."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    rates = np.tile(3.0 / np.arange(1, d + 1), (3, 1))
    for label in range(3):
        rates[label, 3 + label :: 7] *= 4
    rates[:, -1] = 0
    return scipy.sparse.csr_array(rng.poisson(rates[y]).astype(float)), y


X, Y = _texts()
GAP = X.copy()
GAP.data[3] = np.nan


@pytest.fixture
def _many_columns(monkeypatch):
    """Treat X as if it had many columns, in a subspace of few."""
    monkeypatch.setattr(wide_rows, "MOST_DENSE_COLUMNS", 10)
    monkeypatch.setattr(wide_rows, "_FEW_ROWS", 10)
    monkeypatch.setattr(wide_rows, "_DIRECTIONS", 4)


@pytest.mark.usefixtures("_many_columns")
@pytest.mark.parametrize("kernel", [Gaussian(sigma=3.0), Polynomial(degree=2), Linear()])
@pytest.mark.parametrize("standardize", [True, False])
def test_many_columns_give_the_fit_of_dense_rows_and_its_residual(kernel, standardize):
    model = hsic_model(2, kernel=kernel, standardize=standardize)
    dense, fitted = (clone(model).fit(rows, Y) for rows in (X.toarray(), X))
    rows = (X.toarray() - fitted.mean_) / fitted.scale_
    definition = Definition(rows, dense_gamma(class_dependence(Y)), fitted.kernel_)
    residual = definition.residual(fitted.components_.T)
    assert fitted.converged_
    assert residual <= 1e-4
    assert_allclose(fitted.residual_, residual, rtol=1e-3, atol=1e-8)
    assert_same_fit(fitted, dense, 1e-6, 1e-3)
    assert_allclose(fitted.components_ @ fitted.components_.T, np.eye(2), atol=1e-10)


@pytest.mark.skipif(not hasattr(SupervisedIKDR, "set_callbacks"), reason="scikit-learn < 1.9")
@pytest.mark.usefixtures("_many_columns")
def test_callbacks_get_weights_of_all_columns():
    watcher = Watcher(lambda fitted: fitted.components_.shape)
    hsic_model(2, **GIVEN).set_callbacks(watcher).fit(X, Y)
    assert set(watcher.seen) == {(2, D)}


@pytest.mark.usefixtures("_many_columns")
def test_many_columns_are_never_dense(monkeypatch):
    """Neither X nor a part of its rows becomes an array, also with weights and with landmarks."""
    for name in ("toarray", "todense"):
        monkeypatch.setattr(scipy.sparse.csr_array, name, Mock(side_effect=AssertionError))
    weights = np.random.default_rng(1).integers(0, 3, N)
    fitted = hsic_model(2, engine="landmarks", **GIVEN).fit(X, Y, weights)
    repeated = scipy.sparse.csr_array(X[np.repeat(np.arange(N), weights)])
    other = hsic_model(2, **GIVEN).fit(repeated, Y.repeat(weights))
    assert fitted.engine_ == "landmarks"
    assert_same_fit(fitted, other, 1e-3, 0.02)


def test_wide_rows_in_single_precision():
    """With more than 2,000 columns and few rows, the subspace has all directions of the rows."""
    wide = scipy.sparse.random_array((60, 2500), density=0.01, rng=np.random.default_rng(0))
    wide = scipy.sparse.csr_array(wide.astype(np.float32))
    y = np.arange(60) % 2
    fitted, dense = (hsic_model(1, **GIVEN).fit(each, y) for each in (wide, wide.toarray()))
    assert fitted.transform(wide).dtype == np.float32
    assert_allclose(fitted.objective_, dense.objective_, rtol=1e-4)


@pytest.mark.usefixtures("_many_columns")
@pytest.mark.parametrize(
    ("model", "rows", "message"),
    [
        (hsic_model(2), GAP, "NaN: 1 of 300 rows.*SimpleImputer"),
        (PredictiveIKDR(2), X, "300 x 60 numbers are too many.*SupervisedIKDR takes more"),
        (hsic_model(2, kernel="relative_gaussian"), X, "belong to rows"),
    ],
)
def test_what_sparse_rows_cannot_have_is_refused(monkeypatch, model, rows, message):
    monkeypatch.setattr("ism_dask.rows.blocks.MEMORY_NUMBERS", 10_000)
    with pytest.raises(ValueError, match=message):
        model.fit(rows, Y)


@pytest.mark.parametrize(
    ("model", "sides"),
    [
        (PredictiveIKDR(1), {}),
        (PredictiveIKDR(1), {"given": np.arange(40.0) % 7}),
        (PredictiveIKDR(1, max_features=4), {"sample_weight": np.arange(40) % 3}),
        (PredictiveIKDR(1, max_features=4), {"avoid": np.arange(40.0) % 7}),
        (hsic_model(1), {"given": np.arange(40.0) % 7}),
    ],
)
def test_few_rows_of_many_columns_have_all_that_dense_rows_have(model, sides):
    texts, y = _texts(40, 2100)
    dense = clone(model).fit(texts.toarray(), y, **sides)
    fitted = model.fit(texts, y, **sides)
    assert_allclose(fitted.components_, dense.components_, atol=1e-12)
    assert_allclose(fitted.objective_, dense.objective_, rtol=1e-12)


@pytest.mark.usefixtures("_many_columns")
def test_too_little_memory_is_an_error_before_the_work(monkeypatch):
    monkeypatch.setattr(execution.psutil, "virtual_memory", lambda: Mock(available=2**10))
    with pytest.raises(MemoryError, match="sparse rows of 60 columns"):
        hsic_model(2).fit(X, Y)
