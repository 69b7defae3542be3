"""The bootstrap: refits by their definition, intervals, and the same bits wherever it computes."""

from __future__ import annotations

import copy

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from distributed import Client
from models import hsic_model
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import subspace_angles
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from ism_dask import SupervisedIKDR, UnsupervisedIKDR, bootstrap
from ism_dask.inference.bootstrap import summarise_refits
from ism_dask.inference.refits import Refit, plan_refits
from ism_dask.linalg.subspaces import subspace_distance, subspace_shares
from ism_dask.observe.fit_events import FitWatcher, watching_fits

SCALES = np.array([1.0, 3.0, 0.2, 1.0, 10.0])


def _rows(n, seed=0):
    """Draw rows (n, 5) of columns in different units; y depends on the first two."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, 5))
    return Z * SCALES + 7, Z[:, 0] + Z[:, 1] ** 2 + 0.3 * rng.normal(size=n)


@pytest.fixture(scope="module")
def fitted():
    X, y = _rows(150)
    return SupervisedIKDR(2).fit(X, y)


def test_the_distance_is_that_of_the_projectors():
    V, W = np.random.default_rng(0).normal(size=(2, 7, 3))
    P, Q = (each @ np.linalg.pinv(each) for each in (V, W))
    expected = np.linalg.norm(P - Q) / np.sqrt(6)
    assert subspace_distance(V, W) == pytest.approx(expected)
    assert subspace_distance(V, V + 1e-10 * W) == pytest.approx(
        np.sqrt(np.mean(np.sin(subspace_angles(V, V + 1e-10 * W)) ** 2)), rel=1e-4
    )


def _assert_is_the_fit(fitted, refit, rows, y, **sides):
    """Assert that a refit is the warm fit to its rows."""
    expected = copy.copy(fitted).set_params(warm_start=True)
    if fitted.criterion == "dependence":
        expected.set_params(kernel=fitted.kernel_)
    expected.fit(rows, y, **sides)
    moved = subspace_distance(fitted.weights_, refit.weights.T)
    apart = subspace_distance(expected.weights_, refit.weights.T)
    assert refit.converged
    assert apart < 0.05 * moved


@pytest.mark.parametrize(
    "model",
    [
        SupervisedIKDR(2),
        SupervisedIKDR(2, whiten=True, target="linear"),
        SupervisedIKDR(2, standardize=False),
        hsic_model(2),
        hsic_model(2, whiten=True),
        hsic_model(2, kernel="distance"),
        hsic_model(2, standardize=False, target="linear"),
    ],
)
def test_a_refit_is_a_fit_to_repeated_rows(model):
    X, y = _rows(150)
    X = X / SCALES
    fitted = clone(model).fit(X, y)
    drawn = np.random.default_rng([5, 1]).integers(150, size=150)
    refit = plan_refits(fitted, X, y, random_state=5).refit(1)
    _assert_is_the_fit(fitted, refit, X[drawn], y[drawn])


@pytest.mark.parametrize("sides", [("given",), ("avoid", "given")])
def test_a_refit_has_what_the_fit_was_to_avoid_and_was_given(sides):
    X, y = _rows(150)
    X, rng = X / SCALES, np.random.default_rng(4)
    columns = {"avoid": np.where(X[:, 4] + rng.normal(size=150) > 0.7, "high", "low")}
    columns["given"] = X[:, 1] + rng.normal(size=150)
    given = {side: columns[side] for side in sides}
    fitted = SupervisedIKDR(2).fit(X, y, **given)
    drawn = np.random.default_rng([5, 1]).integers(150, size=150)
    refit = plan_refits(fitted, X, y, random_state=5, **given).refit(1)
    repeated = {side: each[drawn] for side, each in given.items()}
    _assert_is_the_fit(fitted, refit, X[drawn], y[drawn], **repeated)
    with pytest.raises(ValueError, match=f"the fit had {' and '.join(sides)}, `bootstrap` has"):
        bootstrap(fitted, X, y, 19)
    if sides == ("given",):
        result = bootstrap(fitted, X, y, 19, random_state=5, **given)
        assert result.distances[1] == pytest.approx(
            subspace_distance(fitted.weights_, refit.weights.T)
        )


def test_rows_that_had_weights_are_drawn_with_them(fitted):
    X, y = _rows(150)
    weights = np.random.default_rng(1).integers(0, 3, size=150)
    repeated = np.repeat(np.arange(150), weights)
    plan = plan_refits(fitted, X, y, sample_weight=weights, random_state=3)
    counts = np.bincount(np.random.default_rng([3, 0]).integers(150, size=150), minlength=150)
    ones = plan_refits(fitted, X[repeated], y[repeated], sample_weight=counts[repeated])
    # Give both refits the same rows: once by weights, once repeated, each drawn once.
    object.__setattr__(ones, "_resample", lambda _: np.ones(len(repeated)))
    apart = subspace_distance(plan.refit(0).weights.T, ones.refit(0).weights.T)
    assert apart < 1e-3


def test_what_is_said_of_refits(fitted):
    rng = np.random.default_rng(2)
    W = fitted.components_
    near = [W + 0.1 * rng.normal(size=W.shape) for _ in range(39)]
    # Its features in another order and with other signs are the same ones.
    swapped = [each[::-1] * [[-1], [2]] for each in near]
    results = [
        summarise_refits(fitted, [Refit(each / fitted.scale_, number > 0) for each in kind])
        for number, kind in enumerate((near, swapped))
    ]
    for result, converged in zip(results, (0, 39), strict=True):
        assert (result.n_refits, result.n_converged) == (39, converged)
        distances = [subspace_distance(W.T, each.T) for each in near]
        assert_allclose(result.standardized_distances, distances)
        # Of 40 distances in all, a new one is below the second or above the last but one with
        # the probability 2 / 40 each.
        ends = sorted(distances)[1], sorted(distances)[-2]
        assert result.standardized_interval == pytest.approx(ends)
        units = np.linalg.norm(_projector(W / fitted.scale_) - _projector(near[3] / fitted.scale_))
        assert result.distances[3] == pytest.approx(units / 2)
        assert_allclose(result.shares, fitted.feature_importances_)
        mirrored = np.sort([2 * result.shares - subspace_shares(each) for each in near], axis=0)
        low = np.minimum(mirrored[1], result.shares)
        high = np.maximum(np.minimum(mirrored[-2], 1 / 2), result.shares)
        assert_allclose(result.shares_low, np.maximum(low, 0), atol=1e-12)
        assert_allclose(result.shares_high, high)
        cosines = [
            [abs(v @ w) / np.linalg.norm(v) for v, w in zip(each, W, strict=True)] for each in near
        ]
        assert_allclose(result.stability, np.mean(np.square(cosines), axis=0), rtol=0.02)
        assert (result.retention >= result.stability - 0.02).all()


def test_the_intervals_of_weights_do_not_depend_on_the_basis_of_a_refit(fitted):
    rng = np.random.default_rng(3)
    W = fitted.components_
    near = [W + 0.05 * rng.normal(size=W.shape) for _ in range(39)]
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    plain, turned = (
        summarise_refits(fitted, [Refit(each / fitted.scale_, True) for each in kind])
        for kind in (near, [turn @ each for each in near])
    )
    assert_allclose(turned.components_low, plain.components_low)
    assert (plain.components_low <= W).all()
    assert (plain.components_high >= W).all()
    # Of 90% of a normal deviation of .05, less what a rotation takes.
    widths = plain.components_high - plain.components_low
    assert 0.1 < widths.mean() < 0.2


def _projector(rows):
    return np.linalg.pinv(rows) @ rows


def test_refits_keep_the_chosen_features():
    X, y = _rows(150)
    fitted = SupervisedIKDR(1, max_features=2).fit(X, y)
    refit = plan_refits(fitted, X, y).refit(0)
    assert refit.converged
    assert_array_equal(refit.weights[0] != 0, fitted.get_support())


def test_features_that_mix_are_retained_and_not_stable(fitted):
    angle = np.linspace(0, np.pi, 40)
    turned = [np.array([[np.cos(a), np.sin(a)], [-np.sin(a), np.cos(a)]]) for a in angle]
    refits = [Refit(each @ fitted.components_ / fitted.scale_, True) for each in turned]
    result = summarise_refits(fitted, refits)
    assert result.retention == pytest.approx(1)
    assert (result.stability < 0.9).all()
    assert result.standardized_interval == pytest.approx((0, 0), abs=1e-12)
    assert set(result.separated) <= set(range(5))


def test_the_intervals_hold_the_truth():
    covered, separated = 0, 0
    B = np.eye(5)[:, :1]
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(100, 5))
        y = np.sin(X[:, 0]) + 0.5 * rng.normal(size=100)
        fitted = hsic_model(1).fit(X, y)
        result = bootstrap(fitted, X, y, 19)
        low, high = result.distance_interval
        covered += low <= subspace_distance(B, fitted.weights_) <= high
        separated += result.separated.tolist() == [0]
    # At 90%, fewer than 7 of 10 have a probability of 1%.
    assert covered >= 7
    assert separated == 10


def test_frames_arrays_and_clusters_give_the_same(fitted, thread_cluster):
    X, y = _rows(150)
    names = ["one", "two", "three", "four", "five"]
    frame = pd.DataFrame(X, columns=names)
    named = SupervisedIKDR(2).fit(frame, y)
    here = bootstrap(fitted, X, y, 19, random_state=4)
    other = bootstrap(named, frame, y, 19, random_state=4)
    assert_array_equal(here.distances, other.distances)
    assert other.feature_names == tuple(names)
    assert here.feature_names[0] == "feature 0"
    lazy = bootstrap(fitted, da.from_array(X, chunks=(40, 5)), y, 19, random_state=4)
    assert_allclose(lazy.distances, here.distances, rtol=0.02)
    with Client(thread_cluster):
        spread = bootstrap(fitted, X, y, 19, random_state=4)
    assert_array_equal(spread.distances, here.distances)
    assert_array_equal(spread.shares_high, here.shares_high)


def test_a_resample_has_all_classes(fitted):
    X, _ = _rows(60)
    y = np.repeat([0, 1, 2], [29, 29, 2])
    model = SupervisedIKDR(2).fit(X, y)
    plan = plan_refits(model, X, y)
    for number in range(30):
        counts = plan._resample(np.random.default_rng(number))
        assert counts.sum() == 60
        assert set(y[counts > 0]) == {0, 1, 2}


def test_progress_is_reported(fitted):
    steps = []

    class Seen(FitWatcher):
        def begun(self, plan):
            raise AssertionError("a refit is not a fit of its own")

        def on_refit(self, done, total):
            steps.append((done, total))

    X, y = _rows(150)
    with watching_fits(Seen()):
        bootstrap(fitted, X, y, 19)
    assert steps == [(k, 19) for k in range(20)]


def test_bad_input_is_named(fitted):
    X, y = _rows(150)
    frame = pd.DataFrame(X, columns=list("abcde"))
    named = SupervisedIKDR(2).fit(frame, y)
    for error, words, arguments in (
        (NotFittedError, "not fitted", (SupervisedIKDR(2), X, y)),
        (TypeError, "`fitted` is a UnsupervisedIKDR; expected", (UnsupervisedIKDR(2), X, y)),
        (ValueError, "X has 4 features, but SupervisedIKDR is expecting 5", (fitted, X[:, :4], y)),
        (ValueError, "feature names should match", (named, frame[list("edcba")], y)),
        (ValueError, "target y is None", (fitted, X, None)),
        (ValueError, "inconsistent numbers", (fitted, X, y[:9])),
        (ValueError, "X has 19 rows; `bootstrap` needs 20", (fitted, X[:19], y[:19])),
        (ValueError, "y has the classes 0, 1, but .* to numbers", (fitted, X, (y > 1).astype(int))),
        (ValueError, "`n` is 18; expected a whole number from 19", (fitted, X, y, 18)),
        (ValueError, "`n` is 19.0; expected", (fitted, X, y, 19.0)),
    ):
        with pytest.raises(error, match=words):
            bootstrap(*arguments)
    with pytest.raises(ValueError, match="`sample_weight` has shape"):
        bootstrap(fitted, X, y, sample_weight=[1.0])
