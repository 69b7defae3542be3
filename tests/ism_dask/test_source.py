"""Transfer: an earlier sample helps a small one."""

from functools import partial

import numpy as np
import pytest
from definition import kernel_matrix
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import block_diag

from ism_dask import SupervisedIKDR, intervals
from ism_dask.criteria.prediction import Block, RidgeRegression
from ism_dask.engines.blocks import BlocksInMemory
from ism_dask.kernels import Gaussian
from ism_dask.selection.source import Source

RNG = np.random.default_rng(0)
DIRECTION = np.eye(4)[0]
X_FIRST, X = RNG.normal(size=(120, 4)), RNG.normal(size=(40, 4))
Y_FIRST = X_FIRST @ DIRECTION + 0.2 * RNG.normal(size=120)
Y = np.abs(X @ DIRECTION) + 0.5 * RNG.normal(size=40)


def sine(model):
    """Return the sine of the angle between the new feature and the direction."""
    w = model.components_[0] / model.scale_
    return float(np.sqrt(max(1.0 - (w @ DIRECTION / np.linalg.norm(w)) ** 2, 0.0)))


@pytest.fixture(scope="module")
def helped():
    return SupervisedIKDR(1).fit(X, Y, source=(X_FIRST, Y_FIRST))


def test_a_source_with_the_same_direction_and_another_link_helps(helped):
    assert helped.converged_
    assert helped.source_weight_ >= 0.5
    assert sine(helped) < 0.6 * sine(SupervisedIKDR(1).fit(X, Y))
    assert helped.score(X, Y) > 0.25


def test_the_number_of_features_is_that_of_the_source():
    y_first = X_FIRST[:, 0] + X_FIRST[:, 1] ** 2 + 0.1 * np.random.default_rng(2).normal(size=120)
    assert len(SupervisedIKDR().fit(X, Y, source=(X_FIRST, y_first)).components_) == 2


def test_a_source_that_tells_nothing_has_no_weight():
    rng = np.random.default_rng(1)
    many, y_first = rng.normal(size=(100, 4)), X_FIRST[:, 3] ** 3
    y = np.abs(many[:, 0]) + 0.2 * rng.normal(size=100)
    model = SupervisedIKDR(1).fit(many, y, source=(X_FIRST, y_first))
    assert model.source_weight_ == 0.0
    assert_array_equal(model.components_, SupervisedIKDR(1).fit(many, y).components_)


def test_neither_rows_of_weight_zero_nor_units_and_means_of_the_source_count(helped):
    wild = np.vstack([X_FIRST + 7.0, 1e3 + np.zeros((5, 4))])
    weights = np.repeat([1.0, 0.0], [120, 5])
    y_first = 100.0 * np.append(Y_FIRST, np.full(5, 1e3))
    model = SupervisedIKDR(1).fit(X, Y, source=(wild, y_first, weights))
    assert model.source_weight_ == helped.source_weight_
    assert_allclose(model.components_, helped.components_, atol=1e-3)
    assert_allclose(model.mean_, X.mean(axis=0), atol=1e-12)


def test_j_of_both_samples_is_that_of_a_block_diagonal_gamma():
    """J and Phi W against plain code: pairs of rows of two samples have no part in them."""
    rng = np.random.default_rng(3)
    W = np.linalg.qr(rng.normal(size=(4, 2)))[0]
    samples, gammas, objectives = [], [], []
    for n, width, ridge in ((20, 1.0, 0.1), (30, 2.0, 0.01)):
        rows, y = rng.normal(size=(n, 4)), rng.normal(size=(n, 1))
        y -= y.mean()
        K = kernel_matrix(Gaussian(sigma=width), rows @ W)
        alpha = np.linalg.solve(K + n * ridge * np.eye(n), y)
        gammas.append(ridge * alpha @ alpha.T * K / -(2 * width**2))
        objectives.append(float((y**2).mean() - ridge * (y * alpha).sum()))
        regression = RidgeRegression(Gaussian(sigma=width), ridge)
        samples.append((rows, partial(BlocksInMemory((Block(rows, y),)).explained, regression)))
    weight = 0.25
    Psi = block_diag((1 - weight) * gammas[0], weight * gammas[1])
    all_rows = np.vstack([rows for rows, _ in samples])
    apart = all_rows[:, None] - all_rows
    product = np.einsum("ij,ijd,ijq->dq", Psi, apart, apart @ W)
    value = Source(W, samples[1][1], lambda W: W, weight).beside(samples[0][1], W)
    assert_allclose(value.product, product, atol=1e-12)
    assert value.objective == pytest.approx((1 - weight) * objectives[0] + weight * objectives[1])


def test_what_needs_a_maximum_of_these_rows_alone_refuses(helped):
    for call in (helped.certify, partial(intervals, helped)):
        with pytest.raises(ValueError, match="no maximum of J of these rows alone"):
            call(X, Y)
