"""Copies of a row and groups of rows: none judges what another of them was fitted to."""

import numpy as np
import pytest
from models import quick
from numpy.testing import assert_allclose

from ism_dask import PredictiveIKDR, intervals
from ism_dask.selection.rules import RULES

PATIENTS = np.repeat(np.arange(30), 6)


def visits():
    """Return six rows of each of 30 patients, who have a level of their own, and y."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 8))[PATIENTS] + 0.3 * rng.normal(size=(180, 8))
    return X, X[:, 0] + rng.normal(size=30)[PATIENTS] + 0.3 * rng.normal(size=180)


def noisy():
    """Return rows and a y of which half is noise."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(120, 8))
    return X, np.sin(X[:, 0]) + X[:, 1] ** 2 / 2 + 0.8 * rng.normal(size=120)


def unseen(model):
    """Return the share of y that the best trial explains in rows that it has not seen."""
    return model.report_.trials[0].explained


def test_copies_weights_and_groups_of_copies_are_the_same():
    X, y = noisy()
    weights = np.random.default_rng(3).integers(1, 4, size=120)
    rows = np.random.default_rng(4).permutation(np.repeat(np.arange(120), weights))
    weighted = quick(PredictiveIKDR, 2).fit(X, y, weights)
    for groups in (None, rows):
        copied = quick(PredictiveIKDR, 2).fit(X[rows], y[rows], groups=groups)
        assert_allclose(copied.components_, weighted.components_, atol=1e-10)
        assert unseen(copied) == pytest.approx(unseen(weighted), abs=1e-10)
    once = intervals(weighted, X, y, sample_weight=weights)
    whole = intervals(copied, X[rows], y[rows], groups=rows)
    assert_allclose(whole.standard_errors, once.standard_errors, rtol=1e-6, atol=1e-9)


def test_the_share_of_unseen_rows_is_that_of_new_patients():
    X, y = visits()
    of_rows, of_patients = (
        quick(PredictiveIKDR, 1).fit(X, y, groups=each) for each in (None, PATIENTS)
    )
    assert unseen(of_patients) < unseen(of_rows) - 0.05


@pytest.mark.parametrize("n_groups", [4, 120])
def test_groups_of_many_rows(n_groups, monkeypatch):
    """In several blocks, of which one or more may have no group."""
    monkeypatch.setitem(vars(RULES), "exact_rows", 60)
    rng = np.random.default_rng(5)
    groups = rng.integers(n_groups, size=300)
    X = rng.normal(size=(n_groups, 6))[groups] + rng.normal(size=(300, 6))
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=n_groups)[groups] + 0.2 * rng.normal(size=300)
    model = quick(PredictiveIKDR, 1)
    fitted = model.fit(X, y, groups=[f"site {each}" for each in groups])
    assert abs(fitted.weights_[0, 0]) > 0.95 * np.linalg.norm(fitted.weights_)


@pytest.mark.parametrize("in_one", ["class", "numbers"])
def test_y_may_be_constant_in_the_rows_of_a_fold(in_one):
    """Nothing can be learned of a class, or of numbers, that one group alone has."""
    rng, groups = np.random.default_rng(0), np.repeat(np.arange(4), 50)
    X = rng.normal(size=(200, 5))
    y = np.where(groups == 1, 1 if in_one == "class" else rng.normal(size=200), 0)
    target = "classes" if in_one == "class" else "numbers"
    model = PredictiveIKDR(1, target=target).fit(X, y, groups=groups)
    assert np.isfinite([[trial.explained, trial.error] for trial in model.report_.trials]).all()
    assert unseen(model) < 0.05


def test_groups_belong_to_the_fit():
    X, y = visits()
    fitted = quick(PredictiveIKDR, 2).fit(X, y, groups=PATIENTS)
    other = (PATIENTS + (np.arange(180) == 7)) % 30
    with pytest.raises(ValueError, match="the fit had groups, and `certify` has none"):
        fitted.certify(X, y)
    with pytest.raises(ValueError, match="not those of the fit"):
        fitted.certify(X, y, groups=other)
    assert fitted.certify(X, y, groups=PATIENTS).residual_rows == 180


def test_intervals_of_groups_are_those_of_observations():
    X, _ = noisy()
    y = np.sin(X[:, 0]) + 0.3 * np.random.default_rng(0).normal(size=120)
    alone, whole = (
        intervals(quick(PredictiveIKDR, 1).fit(X, y, **each), X, y, **each)
        for each in ({}, {"groups": np.arange(120)})
    )
    assert_allclose(alone.shares_low, whole.shares_low, atol=1e-9)
    pairs = {"groups": np.arange(120) % 4}
    few = intervals(quick(PredictiveIKDR, 1).fit(X, y, **pairs), X, y, **pairs)
    assert "there are 4 groups of rows for 7 free weights" in few.doubts[0]
