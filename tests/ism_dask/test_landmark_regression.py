"""The regression over all rows: by its definition, by the exact one, and wherever the rows are."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from models import curved
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from ism_dask import PredictiveIKDR
from ism_dask.criteria.landmark_regression import TARGET, LandmarkRegression, landmark_rows
from ism_dask.criteria.prediction import RowsInMemory
from ism_dask.kernels import Gaussian, Laplacian, Polynomial
from ism_dask.rows.shards import cut
from ism_dask.selection.rules import RULES
from ism_dask.selection.starts import network_directions
from ism_dask.threads import single_threaded_blas

few = settings(max_examples=25, deadline=None)
SEEDS = st.integers(0, 2**32 - 1)
KERNELS = (Gaussian(1.4), 0.5 * Gaussian(1.0) + Gaussian(3.0), Polynomial(2, 1.0), Laplacian(2.0))


def _problem(seed, n=60, d=4, q=2, rows_per_shard=None):
    """Return a regression over rows with weights and signs, the block of these, and a W."""
    rng = np.random.default_rng(seed)
    X, r = rng.normal(size=(n, d)), int(rng.integers(1, 4))
    weights = rng.integers(0, 3, size=n).astype(float) if seed % 2 else None
    block = RowsInMemory(X, rng.normal(size=(n, r)), weights)
    kernel = KERNELS[seed % 4] if seed % 8 < 7 else KERNELS[0]
    signs = np.where(rng.random(r) < 0.7, 1.0, -0.5)
    shards = cut(X, rows_per_shard).with_rows(TARGET, block.target_and_weights)
    # The polynomial kernel of two columns has rank 6.
    chosen = np.sort(rng.permutation(n)[: 5 if isinstance(kernel, Polynomial) else 12])
    W = np.linalg.qr(rng.normal(size=(d, q)))[0]
    return LandmarkRegression(shards, X[chosen], kernel, 0.01, signs), block, W


def _objective(regression, block, W):
    """Return J at any W (d, q) by its definition."""
    V, Z = regression.landmarks @ W, block.X @ W
    K, M = regression.kernel.matrix(Z, V), regression.kernel.matrix(V, V)
    D = np.diag(np.ones(len(Z)) if block.weights is None else block.weights)
    n = D.trace()
    beta = np.linalg.solve(K.T @ D @ K + n * regression.ridge * M, K.T @ D @ block.Y)
    return float(((block.Y * (D @ K @ beta)).sum(axis=0) * regression.signs).sum() / n)


@few
@given(SEEDS)
def test_j_and_its_slope_are_those_of_the_definition(seed):
    regression, block, W = _problem(seed)
    V = regression.landmarks @ W
    # Nearly equal landmarks, which a fit does not choose, leave J too few digits for differences.
    assume(np.linalg.cond(regression.kernel.matrix(V, V)) < 1e7)
    value = regression.explained(W)
    assert value.objective == pytest.approx(_objective(regression, block, W), rel=1e-6, abs=1e-9)

    moves = 1e-4 * np.eye(W.size).reshape(-1, *W.shape)
    steps, weights = (-2, -1, 1, 2), np.array([1, -8, 8, -1]) / 24e-4  # of half the slope
    at = [[_objective(regression, block, W + k * move) for k in steps] for move in moves]
    slope = (np.array(at) @ weights).reshape(W.shape)
    assert_allclose(value.product, slope, atol=2e-5 * (0.1 + np.abs(slope).max()))


def test_shards_add_up_wherever_they_are():
    regression, block, W = _problem(1, n=92)
    whole = regression.explained(W)
    lazy = cut(da.from_array(block.X, chunks=(30, 4)), 30)
    for shards in (cut(block.X, 7), lazy):  # the last of seven rows has one
        parts = replace(regression, shards=shards.with_rows(TARGET, block.target_and_weights))
        value = parts.explained(W)
        assert value.objective == pytest.approx(whole.objective, rel=1e-12)
        assert_allclose(value.product, whole.product, rtol=1e-10)
        assert value.noise == pytest.approx(whole.noise, rel=1e-10)


def test_equal_landmarks_and_more_of_them_than_rows_count_once():
    regression, block, W = _problem(4, n=20)
    doubled = replace(regression, landmarks=np.repeat(regression.landmarks, 3, axis=0))
    one, other = regression.explained(W), doubled.explained(W)
    assert other.objective == pytest.approx(one.objective, rel=1e-5)
    assert_allclose(other.product, one.product, rtol=1e-3, atol=1e-6)
    equal = np.repeat(block.X @ W, 4, axis=0)
    chosen, left = landmark_rows(Gaussian(1.0), equal, 400, 1e-8, np.random.default_rng(0))
    assert len(np.unique(equal[chosen], axis=0)) == len(chosen) <= 20
    assert left <= 1e-8


# Fits to many rows.


def test_a_width_for_which_there_are_too_few_landmarks_is_refused():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 8))
    y = np.sin(2 * X[:, :6]).sum(axis=1) + 0.3 * rng.normal(size=1500)
    model = PredictiveIKDR(6, target="linear", max_features=None).fit(X, y)
    Z = (X - model.mean_) / model.scale_ @ model.components_.T
    left_out = landmark_rows(model.kernel_, Z, RULES.landmarks, RULES.left_out, rng)[1]
    assert left_out < RULES.most_left_out


def test_a_network_starts_where_rows_are_many(monkeypatch):
    """It is on trial beside others, learns the same from a seed, and leaves filters as they are."""
    for name, value in (("network_rows", 1500), ("network_steps", 0), ("stages", (200,))):
        monkeypatch.setitem(vars(RULES), name, value)
    model = PredictiveIKDR(1, target="linear", max_features=None).fit(*curved(2000))
    assert "network" in {trial.start for trial in model.report_.trials}
    before, X = list(warnings.filters), curved(8000)[0]
    with single_threaded_blas(), ThreadPoolExecutor(2) as pool:  # the first ends before the other
        parts = (RowsInMemory(part, part[:, :1] ** 2) for part in (X[:4000], X))
        list(pool.map(lambda part: network_directions(part, 1, 0), parts))  # raises their errors
    assert warnings.filters == before
    again = clone(model).fit(*curved(2000))
    assert_array_equal(again.components_, model.components_)
    shares = [trial.explained for trial in model.report_.trials[1:]]  # after the one that was taken
    assert shares == sorted(shares, reverse=True)
