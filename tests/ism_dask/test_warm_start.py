"""`warm_start`: a fit that begins at the W of the last one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from sklearn.base import clone

from ism_dask import SupervisedIKDR
from ism_dask.kernels import Gaussian


def _rows(n, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, 6))
    X[:, 5] = 2.0 * X[:, 4]  # the row space has five dimensions
    y = (X[:, 0] * X[:, 1] > 0).astype(int) + (X[:, 2] > 0.5)
    return X, y


@pytest.mark.parametrize(
    "options",
    [{}, {"whiten": True}, {"kernel": "distance"}, {"kernel": "polynomial"},
     {"kernel": Gaussian(1.5), "engine": "landmarks"}],
)  # fmt: skip
def test_the_same_rows_take_no_more_iterations(options):
    X, y = _rows(500)
    model = SupervisedIKDR(2, warm_start=True, **options).fit(X, y)
    first, J, W = model.n_iter_, model.objective_, model.components_
    model.fit(X, y)
    assert model.n_iter_ <= min(first, 3)
    assert model.converged_
    assert model.objective_ >= J * (1 - 1e-6)
    assert np.sin(subspace_angles(model.components_.T, W.T)[0]) < 2e-3


def test_more_rows_are_fitted_from_the_last_w():
    X, y = _rows(600)
    model = SupervisedIKDR(3, warm_start=True).fit(X[:500], y[:500])
    model.fit(X, y)
    cold = SupervisedIKDR(3).fit(X, y)
    assert model.n_iter_ < cold.n_iter_
    assert model.kernel_ == cold.kernel_
    assert model.converged_


def test_without_an_earlier_fit_it_changes_nothing():
    X, y = _rows(300)
    model = SupervisedIKDR(2).fit(X, y)
    for fresh in (SupervisedIKDR(2, warm_start=True), clone(model).set_params(warm_start=True)):
        np.testing.assert_array_equal(fresh.fit(X, y).components_, model.components_)


def test_another_shape_is_refused():
    X, y = _rows(300)
    model = SupervisedIKDR(2, warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match="new features, but `n_components` is 3; set warm"):
        model.set_params(n_components=3).fit(X, y)
    with pytest.raises(ValueError, match="`components_` of 6 features, but X has 4"):
        model.set_params(n_components=2).fit(X[:, :4], y)
