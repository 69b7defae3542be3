"""Rows in blocks: the fit to all of them, or to a sample with the error that it states."""

import numpy as np
import pandas as pd
import pytest
from models import CULTIVAR, WINE, assert_same_fit, hsic_model, problem_of
from scipy.sparse import csr_array

from ism_dask import SupervisedIKDR
from ism_dask.engines.exact import ExactEngine
from ism_dask.engines.operator import relative_residual
from ism_dask.estimators import reservoir
from ism_dask.gamma.targets import target_dependence
from ism_dask.kernels import Gaussian
from ism_dask.linalg.subspaces import subspace_distance

MIXED = np.random.default_rng(0).permutation(len(WINE))
X, Y = WINE[MIXED, 6:], CULTIVAR[MIXED]
NUMBERS = X[:, 0] + np.random.default_rng(1).normal(size=len(X))
PLAIN = {"kernel": Gaussian(sigma=2.0)}
BLOCKS = [slice(start, start + 50) for start in range(0, len(X), 50)]


@pytest.mark.parametrize(("y", "forgetting"), [(Y, 0.0), (NUMBERS, 0.3)])
def test_blocks_give_the_fit_to_all_rows(y, forgetting):
    """Rows that are not forgotten, all of them, or with weights that fall from call to call."""
    blocks = _in_blocks(X, y, forgetting=forgetting)
    falling = (1 - forgetting) ** (len(BLOCKS) - 1 - np.arange(len(X)) // 50)
    assert_same_fit(blocks, SupervisedIKDR(1, **PLAIN).fit(X, y, falling), 1e-10, 1e-8)
    assert blocks.n_samples_seen_ == len(X)
    assert blocks.sampling_error() == 0
    assert_same_fit(_in_blocks(csr_array(X), y, forgetting=forgetting), blocks, 1e-10, 1e-8)
    weights = np.random.default_rng(0).integers(0, 3, len(X)).astype(float)
    blocks = _in_blocks(X, y, weights, forgetting=forgetting)
    assert_same_fit(blocks, SupervisedIKDR(1, **PLAIN).fit(X, y, falling * weights), 1e-10, 1e-8)


def test_a_fit_begins_anew():
    """The width and the start are selected as by `fit`; rows before a `fit` do not count."""
    model = SupervisedIKDR(1).partial_fit(X[:60], Y[:60])
    model.fit(X[:60], Y[:60]).partial_fit(X[60:], Y[60:])
    assert_same_fit(model, SupervisedIKDR(1).fit(X[60:], Y[60:]), 1e-10, 1e-8)


def _residual(model, rows, y, weights):
    """Return how far W is from being stationary for all rows."""
    standardised, W = (rows - model.mean_) / model.scale_, model.components_.T
    problem = problem_of(standardised, target_dependence(y, "linear", weights), model.kernel_)
    return relative_residual(W, ExactEngine(problem, 1).product(W).product)


def _distance(model, rows, y, weights):
    """Return how far W is from that of the fit to all rows.

    J is near its maximum over the scale of W, so that its residual would be near 1.
    """
    everything = SupervisedIKDR(1, **PLAIN, target="linear").fit(rows, y, weights)
    return subspace_distance(model.components_.T, everything.components_.T)


@pytest.mark.parametrize(
    ("make", "held_rows", "error", "forgetting"),
    [
        (hsic_model, 150, _residual, 0.0),
        (hsic_model, 150, _residual, 0.2),
        (SupervisedIKDR, 200, _distance, 0.2),
    ],
)
def test_the_error_that_a_sample_states_is_that_for_all_rows(
    monkeypatch, make, held_rows, error, forgetting
):
    monkeypatch.setattr(reservoir, "HELD_ROWS", held_rows)
    weights = (1 - forgetting) ** (2 - np.arange(600) // 200)
    stated, seen = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(600, 4))
        y = np.sin(rows[:, 0]) + 0.5 * rng.normal(size=600)
        model = make(1, **PLAIN, target="linear", random_state=seed)
        for start in range(0, 600, 200):
            block = slice(start, start + 200)
            model.partial_fit(rows[block], y[block], forgetting=forgetting)
        stated.append(model.sampling_error())
        seen.append(error(model, rows, y, weights))
    ratio = np.sqrt(np.mean(np.square(seen)) / np.mean(np.square(stated)))
    assert 0.5 < ratio < 2
    assert max(stated) < 0.2 or make is hsic_model
    assert model.n_samples_seen_ == 600


@pytest.mark.parametrize("weights", [np.ones(200), np.arange(200) % 4 / 2.0])
def test_sums_over_a_sample_are_those_over_all_rows(monkeypatch, weights):
    monkeypatch.setattr(reservoir, "HELD_ROWS", 50)
    sums, rng = [], np.random.default_rng(0)
    numbers = np.arange(200.0)

    def block(rows):
        return reservoir.Reservoir.of(numbers[rows, None], numbers[rows], weights[rows], rng)

    for _ in range(400):
        held = block(slice(80)).limited().forgotten(0.5).joined(block(slice(80, 200))).limited()
        assert len(held.X) == 50
        sums.append(np.maximum(held.weights, held.threshold) @ held.y)
    expected = 0.5 * weights[:80] @ numbers[:80] + weights[80:] @ numbers[80:]
    assert abs(np.mean(sums) - expected) < 4 * np.std(sums) / np.sqrt(len(sums))


def test_columns_of_later_blocks_are_those_of_the_first():
    frame = pd.DataFrame(X, columns=[f"f{number}" for number in range(7)])
    model = SupervisedIKDR(1, **PLAIN).partial_fit(frame[:90], Y[:90])
    model.partial_fit(frame[90:], Y[90:])
    assert model.feature_names_in_.tolist() == frame.columns.tolist()
    with pytest.raises(ValueError, match="feature names"):
        model.partial_fit(frame.rename(columns={"f0": "g0"}), Y)


def _in_blocks(X, y, *weights, **options):
    model = SupervisedIKDR(1, **PLAIN)
    for rows in BLOCKS:
        model.partial_fit(X[rows], y[rows], *(each[rows] for each in weights), **options)
    return model


@pytest.mark.parametrize(
    ("options", "given", "message"),
    [
        *(({}, {"forgetting": share}, "forgetting") for share in (-0.1, 1.0, float("nan"))),
        ({}, {"forgetting": "a"}, r"`forgetting` must be a number in \(0, 1\) or 0"),
        ({}, {"sample_weight": -np.ones(len(X))}, "`sample_weight` is -1 in row 0"),
        ({"whiten": True}, {}, "whiten"),
    ],
)
def test_what_no_block_can_have_is_refused(options, given, message):
    with pytest.raises(ValueError, match=message):
        SupervisedIKDR(2, **options).partial_fit(X, Y, **given)


def test_a_block_that_does_not_go_with_the_others_changes_nothing():
    model = SupervisedIKDR(1, **PLAIN).partial_fit(X[:60], Y[:60])
    before = model.components_, model.classes_
    for y in (np.array(["a", "b", "c"])[Y[60:]], np.eye(3)[Y[60:]]):
        with pytest.raises(ValueError, match="earlier calls"):
            model.partial_fit(X[60:], y)
    with pytest.raises(ValueError, match="forgetting"):
        model.partial_fit(X[60:], Y[60:], forgetting="a")
    assert model.components_ is before[0]
    assert model.classes_ is before[1]
    assert model.n_samples_seen_ == 60
