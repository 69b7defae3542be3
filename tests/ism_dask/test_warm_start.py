"""`warm_start`: a fit that begins at the W of the last one."""

from __future__ import annotations

import numpy as np
import pytest
from models import hsic_model
from scipy.linalg import subspace_angles
from scipy.sparse import csr_array
from sklearn.base import clone

from ism_dask import SupervisedIKDR
from ism_dask.kernels import Gaussian
from ism_dask.status import Status


def _rows(n, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, 6))
    X[:, 5] = 2.0 * X[:, 4]  # the row space has five dimensions
    y = (X[:, 0] * X[:, 1] > 0).astype(int) + (X[:, 2] > 0.5)
    return X, y


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (SupervisedIKDR, {}),
        (SupervisedIKDR, {"whiten": True}),
        (SupervisedIKDR, {"kernel": "polynomial"}),
        (hsic_model, {}),
        (hsic_model, {"kernel": "distance", "whiten": True}),
        (hsic_model, {"kernel": Gaussian(1.5), "engine": "landmarks"}),
    ],
)
def test_the_same_rows_take_no_more_iterations(make, options):
    X, y = _rows(200)
    model = make(2, warm_start=True, **options).fit(X, y)
    first, J, W = model.n_iter_, model.objective_, model.components_
    model.fit(X, y)
    assert model.n_iter_ <= min(first, 3)
    assert model.converged_
    assert model.objective_ >= J * (1 - 1e-6)
    assert np.sin(subspace_angles(model.components_.T, W.T)[0]) < 2e-3


def test_more_rows_are_fitted_from_the_last_w():
    X, y = _rows(600)
    model = hsic_model(3, warm_start=True).fit(X[:500], y[:500])
    model.fit(X, y)
    cold = hsic_model(3).fit(X, y)
    assert model.n_iter_ < cold.n_iter_
    assert model.kernel_ == cold.kernel_
    assert model.converged_


def test_predictions_go_on_with_the_last_setting():
    X, y = _rows(240)
    model = SupervisedIKDR(2, warm_start=True).fit(X[:200], y[:200])
    setting = model.setting_
    model.fit(X, y)
    assert model.setting_ == setting
    assert model.converged_
    with pytest.raises(ValueError, match="of the same kind of y"):
        hsic_model(2).fit(X, y).set_params(criterion="prediction", warm_start=True).fit(X, y)


def test_without_an_earlier_fit_it_changes_nothing():
    X, y = _rows(150)
    model = SupervisedIKDR(1).fit(X, y)
    for fresh in (SupervisedIKDR(1, warm_start=True), clone(model).set_params(warm_start=True)):
        np.testing.assert_array_equal(fresh.fit(X, y).components_, model.components_)


def test_another_shape_is_refused():
    X, y = _rows(100)
    model = hsic_model(2, warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match="new features, but `n_components` is 3; set warm"):
        model.set_params(n_components=3).fit(X, y)
    with pytest.raises(ValueError, match="`components_` of 6 features, but X has 4"):
        model.set_params(n_components=2).fit(X[:, :4], y)


def test_sparse_rows_with_many_columns_are_fitted_from_the_last_w():
    X, y = _rows(150)
    words = csr_array(np.hstack([X, np.zeros((150, 2500))]))
    model = hsic_model(2, warm_start=True).fit(words, y)
    steps = model.n_iter_
    assert model.fit(words, y).n_iter_ <= steps
    assert model.components_.shape == (2, 2506)


def test_a_fit_by_another_criterion_leaves_no_attribute_of_the_last_one():
    X, y = _rows(100)
    model = SupervisedIKDR(2, max_features=3).fit(X, y)
    model.set_params(criterion="dependence", max_features=None).fit(X, X[:, 0])
    fresh = hsic_model(2).fit(X, X[:, 0])
    assert vars(model).keys() == vars(fresh).keys()


def test_a_start_that_unseen_rows_preferred_to_all_steps_stays():
    X, _ = _rows(60)
    y = np.random.default_rng(2).integers(0, 2, 60)
    model = SupervisedIKDR(1, warm_start=True).fit(X, y)
    assert model.status_ is Status.START
    W = model.components_
    np.testing.assert_array_equal(model.fit(X, y).components_, W)
