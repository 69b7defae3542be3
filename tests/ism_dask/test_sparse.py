"""Sparse X gives what dense rows give, or an error that names what to do first."""

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose
from sklearn.base import clone

from ism_dask import PredictiveIKDR, SupervisedIKDR, UnsupervisedIKDR
from ism_dask.estimators import input_rows
from ism_dask.kernels import Gaussian
from ism_dask.linalg.subspaces import subspace_sine

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


@pytest.mark.parametrize(
    ("model", "rows", "message"),
    [
        (SupervisedIKDR(2), GAP, "NaN: 1 of 300 rows.*SimpleImputer"),
        (PredictiveIKDR(2), X, "300 x 60 numbers are too many.*TruncatedSVD"),
        (SupervisedIKDR(2), X, "300 x 60 numbers are too many.*TruncatedSVD"),
        (UnsupervisedIKDR(2), X, "300 x 60 numbers are too many.*TruncatedSVD"),
    ],
)
def test_what_sparse_rows_cannot_have_is_refused(monkeypatch, model, rows, message):
    monkeypatch.setattr(input_rows, "MOST_SPARSE_COLUMNS", 10)
    monkeypatch.setattr("ism_dask.rows.raw.MEMORY_NUMBERS", 10_000)
    with pytest.raises(ValueError, match=message):
        model.fit(rows, Y)


def test_sparse_rows_that_do_not_fit_memory_are_made_dense_in_pieces(monkeypatch):
    dense = SupervisedIKDR(2, **GIVEN).fit(X.toarray(), Y)
    monkeypatch.setattr("ism_dask.rows.raw.MEMORY_NUMBERS", 1000)
    streamed = SupervisedIKDR(2, **GIVEN).fit(X, Y)
    assert subspace_sine(streamed.components_.T, dense.components_.T) < 1e-2
    assert_allclose(streamed.transform(X), streamed.transform(X.toarray()), atol=1e-8)


def test_words_in_single_precision():
    wide = scipy.sparse.random_array((60, 2500), density=0.01, rng=np.random.default_rng(0))
    wide = scipy.sparse.csr_array(wide.astype(np.float32))
    y = np.arange(60) % 2
    fitted, dense = (SupervisedIKDR(1, **GIVEN).fit(each, y) for each in (wide, wide.toarray()))
    assert fitted.transform(wide).dtype == np.float32
    assert_allclose(fitted.objective_, dense.objective_, rtol=1e-4)


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
