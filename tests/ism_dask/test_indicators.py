"""Indicators of the levels of categories: rows do not vary in their sum, and W does not use it."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from models import hsic_model
from numpy.testing import assert_allclose

from ism_dask import SupervisedIKDR, UnsupervisedIKDR, hsic
from ism_dask.kernels import Gaussian, Polynomial
from ism_dask.solvers import ISM

N = 240


def _table(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return three numbers and two categories of 2 and 3 levels, as indicators, and y."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(N, 3))
    levels = [np.eye(k)[rng.integers(0, k, N)] for k in (2, 3)]
    X = np.hstack([numbers, *levels])
    y = numbers[:, 0] + numbers[:, 1] ** 2 + levels[1][:, 0] > 1.0
    return X, y.astype(int)


def _sums(fitted: SupervisedIKDR) -> np.ndarray:
    """Return the weights of the sums of indicators in W, per unit of the raw columns."""
    directions = np.zeros((2, 8))
    directions[0, 3:5] = directions[1, 5:] = 1.0
    directions = directions * fitted.scale_
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return fitted.components_ @ directions.T


@pytest.mark.parametrize("make", [SupervisedIKDR, hsic_model])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("q", [1, 2])
def test_no_feature_that_raises_j_has_weights_where_rows_are_constant(make, seed, q):
    X, y = _table(seed)
    fitted = make(q).fit(X, y)
    assert fitted.status_.is_requested
    useful = fitted.eigenvalues_ > 1e-9 * fitted.eigenvalues_[0]
    assert_allclose(_sums(fitted)[useful], 0.0, atol=1e-9)
    assert_allclose(fitted.components_ @ fitted.components_.T, np.eye(q), atol=1e-10)
    if make is hsic_model:
        value = hsic(fitted.transform(X), y, kernel=fitted.kernel_)
        assert value * (N - 1) ** 2 == pytest.approx(fitted.objective_, rel=1e-9)


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("whiten", [False, True])
def test_rows_in_blocks_and_in_memory_agree(standardize, whiten):
    X, y = _table(5)
    model = {"kernel": Gaussian(sigma=1.0), "standardize": standardize, "whiten": whiten}
    model |= {"solver": ISM(max_iter=500)}
    whole = hsic_model(2, **model).fit(X, y)
    chunked = hsic_model(2, **model).fit(da.from_array(X, chunks=(70, 8)), y)
    assert_allclose(chunked.objective_, whole.objective_, rtol=1e-6)
    # The rows are constant along sums of indicators: what W has of these directions is arbitrary.
    bases = [np.linalg.qr(_centred(fitted.transform(X)))[0] for fitted in (chunked, whole)]
    together = np.linalg.svd(bases[0].T @ bases[1], compute_uv=False)
    if not whiten:
        assert_allclose(together, 1.0, atol=1e-6)


def _centred(Z: np.ndarray) -> np.ndarray:
    return np.asarray(Z - Z.mean(axis=0))


def test_a_kernel_with_an_origin_keeps_all_columns():
    """Rows that are not centred are not constant in the sum of indicators: it is 1."""
    X, y = _table(6)
    kernel = Polynomial(degree=2, offset=0.0)
    fitted = hsic_model(2, kernel=kernel, standardize=False).fit(X, y)
    value = hsic(fitted.transform(X), y, kernel=fitted.kernel_)
    assert value * (N - 1) ** 2 == pytest.approx(fitted.objective_, rel=1e-9)


def test_clusters_come_from_the_same_space():
    X, _ = _table(7)
    fitted = UnsupervisedIKDR(2, n_components=2, random_state=0).fit(X)
    assert_allclose(_sums(fitted), 0.0, atol=1e-9)
