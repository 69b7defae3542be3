"""Tests of the intervals that the curvature of a prediction gives, and of its certificate."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_wine

from ism_dask import SupervisedIKDR, bootstrap, intervals
from ism_dask.criteria.curvature import Tangents, curvature
from ism_dask.criteria.prediction import Block, RidgeRegression, kernel_matrix
from ism_dask.engines.blocks import BlocksInMemory, BlocksOfShards
from ism_dask.kernels import Gaussian, Linear, Polynomial
from ism_dask.linalg.subspaces import subspace_distance
from ism_dask.rows.shards import cut
from ism_dask.status import Status
from tests.ism_dask.models import hsic_model

_N, _D, _Q, _RIDGE = 40, 4, 2, 1e-2
SCALES = 10.0 ** np.arange(-2, 4)


def _rows(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and numbers that depend on the first two of six columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    return X, X[:, 0] * (X[:, 0] + X[:, 1] + 1) + 0.5 * rng.normal(size=n)


def _line(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows (n, 4) and numbers that depend on the first column."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    return X, np.sin(X[:, 0]) + 0.5 * rng.normal(size=n)


@pytest.fixture(scope="module")
def fitted():
    X, y = _rows(300)
    return SupervisedIKDR(2).fit(X / SCALES, y)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("signs", [None, np.array([1.0, -0.5])])
@pytest.mark.parametrize(
    "kernel",
    [Gaussian(1.3), Polynomial(3, 1.0), Linear(), 0.5 * Gaussian(1.0) + 0.3 * Polynomial(2, 1.0)],
)
def test_curvature_and_influences_are_differences_of_the_loss(kernel, signs, weighted):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(_N, _D))
    Y = np.stack([np.sin(X[:, 0]) + 0.1 * rng.normal(size=_N), X[:, 1] ** 2], axis=1)
    weights = rng.uniform(0.5, 2.0, size=_N) if weighted else None
    counts = np.ones(_N) if weights is None else weights
    each_sign = np.ones(2) if signs is None else signs
    tangents = Tangents.at(np.linalg.qr(rng.normal(size=(_D, _Q)))[0])
    regression = RidgeRegression(kernel, _RIDGE, signs)
    hessian, squares, size = curvature(regression, tangents, Block(X, Y, weights))

    def loss(direction, rows):
        # The ridge stays that of all rows if some are left out.
        Z = X[rows] @ tangents.turned(direction)
        noise = counts.sum() * _RIDGE / counts[rows]
        alpha = np.linalg.solve(kernel_matrix(kernel, Z, Z) + np.diag(noise), Y[rows])
        return float(counts.sum() * _RIDGE * ((Y[rows] * alpha).sum(axis=0) @ each_sign))

    everything, p, h = np.arange(_N), tangents.size, 1e-4
    steps = h * np.eye(p)
    second = [
        [
            sum(a * b * loss(a * first + b * other, everything) for a in (1, -1) for b in (1, -1))
            for other in steps
        ]
        for first in steps
    ]
    influences = np.array(
        [
            [
                loss(step, everything) - loss(step, rows)
                - loss(-step, everything) + loss(-step, rows)
                for step in steps
            ]
            for rows in (np.delete(everything, i) for i in everything)
        ]
    ) / (2 * h)  # fmt: skip
    assert size == pytest.approx(counts.sum())
    scale = np.abs(hessian).max()
    assert_allclose(hessian, np.array(second) / (4 * h**2), atol=1e-5 * scale)
    scale = np.abs(squares).max()
    assert_allclose(squares, influences.T @ influences, atol=1e-5 * scale)


def test_blocks_of_shards_add_up_like_blocks_in_memory():
    X, y = _rows(90)
    weights = np.ones(90)
    weights[:30] = 0.0  # the first shard has no rows that count
    tangents = Tangents.at(np.linalg.qr(X[:6, :2])[0])
    regression = RidgeRegression(Gaussian(1.0), _RIDGE)
    shards = cut(X, 30)
    ours = BlocksOfShards.of(shards, y[:, None], weights, 0).curvature(regression, tangents)
    blocks = tuple(Block(X[a : a + 30], y[a : a + 30, None], np.ones(30)) for a in (30, 60))
    theirs = BlocksInMemory(blocks).curvature(regression, tangents)
    for one, other in zip(ours, theirs, strict=True):
        assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_intervals_agree_with_refits(fitted):
    X, y = _rows(300)
    X = X / SCALES
    sure, refits = intervals(fitted, X, y), bootstrap(fitted, X, y, 59)
    for name in ("distance_interval", "standardized_interval"):
        ratio = np.divide(getattr(sure, name), getattr(refits, name))
        assert ((ratio > 0.6) & (ratio < 1.6)).all(), name
    assert sorted(sure.separated) == sorted(refits.separated) == [0, 1]
    assert_allclose(sure.standard_errors, refits.standard_errors, rtol=0.6, atol=5e-3)
    low, high = sure.standardized_interval
    assert low < subspace_distance(np.eye(6)[:, :2], fitted.components_.T) < high


def test_intervals_depend_on_neither_order_nor_units_nor_storage(fitted):
    X, y = _rows(300)
    X = X / SCALES
    sure, order = intervals(fitted, X, y), np.random.default_rng(1).permutation(300)
    others = [
        intervals(fitted, X[order], y[order]),
        intervals(fitted, da.from_array(X, chunks=(75, 6)), y),
        intervals(SupervisedIKDR(2).fit(10 * X, y), 10 * X, y),
    ]
    for other in others:
        assert_allclose(sure.shares_high, other.shares_high, atol=1e-6)
        assert_allclose(sure.standard_errors, other.standard_errors, atol=1e-6)


def test_whole_weights_count_rows_of_weight_zero_not_at_all(fitted):
    X, y = _rows(300)
    X = X / SCALES
    alone = intervals(fitted, X, y)
    X, y, weights = (
        np.vstack([X, 9 * X[:30]]),
        np.append(y, y[30:60]),
        np.repeat([1.0, 0.0], [300, 30]),
    )
    other = SupervisedIKDR(2).fit(X, y, weights)
    sure = intervals(other, X, y, sample_weight=weights)
    assert_allclose(sure.shares_low, alone.shares_low, atol=1e-6)


def test_features_outside_of_the_support_have_no_uncertainty():
    X, y = _rows(150)
    few = SupervisedIKDR(2, max_features=3).fit(X, y)
    sure = intervals(few, X, y)
    outside = ~few.get_support()
    assert (sure.standard_errors[:, outside] == 0).all()
    assert (sure.standard_errors[:, ~outside] > 0).all()


@pytest.fixture(scope="module")
def a_start():
    """A fit that no W which was fitted improves."""
    model = SupervisedIKDR(2, kernel=Gaussian(sigma=2.0)).fit(*load_wine(return_X_y=True))
    assert model.status_ is Status.START
    return model


def test_what_intervals_refuse(fitted, a_start):
    X, y = _rows(300)
    X = X / SCALES
    with pytest.raises(ValueError, match="`bootstrap` has intervals for it"):
        intervals(hsic_model(2).fit(X, y), X, y)
    with pytest.raises(ValueError, match="`intervals` has avoid"):
        intervals(fitted, X, y, avoid=y)
    with pytest.raises(ValueError, match=r"has not converged \(start kept\)"):
        intervals(a_start, *load_wine(return_X_y=True))


def test_certify_proves_a_maximum_of_the_prediction(fitted, a_start, monkeypatch):
    X, y = _rows(300)
    X = X / SCALES
    proved = fitted.certify(X, y)
    assert proved.is_certified, proved.reason
    assert proved.largest_eigenvalue < 0 < proved.distance < 1e-2
    assert fitted.deal_error_ == 0.0  # one block has all rows
    others, of_others = _rows(300, seed=1)
    other = fitted.certify(others / SCALES, of_others)
    assert not other.is_certified
    assert other.reason.startswith("not certified: ")
    assert not a_start.certify(*load_wine(return_X_y=True)).is_certified
    assert np.isnan(a_start.deal_error_)
    monkeypatch.setattr("ism_dask.estimators.prediction_fit.MOST_WEIGHTS", 7)
    with pytest.raises(ValueError, match=r"W has 8 free weights.*for up to 7\."):
        fitted.certify(X, y)


def test_deal_error_is_as_far_as_other_deals_lead(monkeypatch):
    monkeypatch.setattr("ism_dask.rows.blocks.BLOCK_ROWS", 150)
    rows, y = _rows(450)
    X, options = rows[:, :4], {"kernel": Gaussian(1.5), "target": "linear"}
    model = SupervisedIKDR(2, **options).fit(X, y)
    model.certify(X, y)
    others = [SupervisedIKDR(2, random_state=seed, **options).fit(X, y) for seed in (1, 2, 3, 4)]
    W = model.components_.T
    apart = np.mean([subspace_distance(W, each.components_.T) for each in others])
    assert 0.3 < model.deal_error_ / apart < 3.0


def test_some_rows_give_the_intervals_of_all(monkeypatch):
    monkeypatch.setattr("ism_dask.rows.blocks.BLOCK_ROWS", 250)
    X, y = _line(1500)
    model = SupervisedIKDR(1).fit(X, y)
    sure = intervals(model, X, y)
    monkeypatch.setattr("ism_dask.estimators.prediction_fit._CURVED_ROWS", 750)
    some = intervals(model, X, y)
    assert_allclose(some.standard_errors, sure.standard_errors, rtol=0.4)
    ratio = np.divide(some.standardized_interval, sure.standardized_interval)
    assert ((ratio > 0.75) & (ratio < 1.33)).all()
    assert not np.array_equal(some.shares_low, sure.shares_low)
