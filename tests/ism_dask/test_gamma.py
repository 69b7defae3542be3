"""Gamma of labels and numbers, and Gamma of each paradigm, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from definition import (
    MULTISCALE,
    centred,
    dense_gamma,
    equal_classes,
    gaussian_kernel,
    standardised,
)
from numpy.testing import assert_allclose, assert_array_equal

from ism_dask.estimators.partial_targets import partial_scores
from ism_dask.gamma.base import GAMMA_FACTS
from ism_dask.gamma.from_embedding import EMBEDDING, normalise_rows
from ism_dask.gamma.targets import TARGETS, target_dependence
from ism_dask.rows.column_statistics import ROW_WEIGHTS
from ism_dask.rows.shards import cut

RNG = np.random.default_rng(1)
LABELS = RNG.choice(["ant", "bee", "cat"], size=31)
NUMBERS = RNG.normal(size=31)
MANY = RNG.normal(size=(31, 3))


@pytest.mark.parametrize(
    ("target", "y", "K"),
    [
        ("classes", LABELS, equal_classes(LABELS)),
        ("linear", NUMBERS, standardised(NUMBERS) @ standardised(NUMBERS).T),
        ("linear", MANY, standardised(MANY) @ standardised(MANY).T),
    ],
)
def test_gamma_is_the_centred_kernel_of_y(target, y, K):
    assert_allclose(dense_gamma(target_dependence(y, target)), centred(K), atol=1e-12)


TAILS = np.random.default_rng(2).standard_cauchy(size=300)
TIES = np.random.default_rng(3).normal(size=300).round(1)
PAIRS = np.random.default_rng(4).normal(size=(300, 2))


@pytest.mark.parametrize(
    ("y", "target", "shares", "most"),
    [
        *((y, "gaussian", (1.0,), 1e-6) for y in (NUMBERS, MANY, TAILS, TIES, PAIRS)),
        *((y, "multiscale", MULTISCALE, 1e-6) for y in (NUMBERS, MANY, TIES)),
        (TAILS, "multiscale", MULTISCALE, 1e-3),
    ],
)
def test_the_factor_of_gaussians_leaves_out_next_to_nothing(y, target, shares, most):
    known = target_dependence(y, target)
    n = len(y)
    missing = centred(gaussian_kernel(y, *shares)) - dense_gamma(known)
    # What is missing is definite, so that no entry of it is larger than its trace.
    assert np.linalg.eigvalsh(missing).min() > -1e-12 * n
    assert np.trace(missing) <= known.remainder * n + 1e-9
    assert 0 <= known.remainder <= most
    assert known.facts.shape[1] < n / 2 or n < 100


def test_a_factor_with_all_its_columns_says_what_it_leaves_out():
    y = np.random.default_rng(5).normal(size=(300, 5))
    known = target_dependence(y, "gaussian")
    assert known.facts.shape == (300, 100)
    missing = centred(gaussian_kernel(y)) - dense_gamma(known)
    assert 1e-6 < np.trace(missing) / 300 <= known.remainder < 0.2


def test_auto_takes_numbers_under_gaussians_and_few_whole_ones_as_classes():
    known = target_dependence(NUMBERS)
    assert_array_equal(known.facts, target_dependence(NUMBERS, "multiscale").facts)
    for target in ("auto", "numbers"):
        several = target_dependence(MANY, target)
        assert_array_equal(several.facts, target_dependence(MANY, "gaussian").facts)
    assert len(target_dependence(np.arange(60) % 20).classes) == 20
    assert len(target_dependence(np.arange(60) % 21, "classes").classes) == 21
    assert target_dependence(np.arange(60), "linear").classes is None


NUMERIC = sorted(set(TARGETS) - {"classes", "labels"})
# Whose sums round in different ways.
CONSTANT = [np.full(n, value) for n in (100, 300, 777) for value in (0.1, 0.3, 1e9 / 3)]


@pytest.mark.parametrize(
    ("y", "target", "message"),
    [
        *(
            (np.arange(60).astype(kind), "auto", "60 different whole .*='numbers'")
            for kind in "lfB"
        ),
        (np.arange(600) % 21, "auto", "21 different whole numbers.*target='classes'"),
        (np.arange(60), "classes", '60 different labels for 60 rows.*target="numbers"'),
        (np.array(["ant"] * 5), "auto", "one class only .*ant"),
        (LABELS, "cubic", "auto, numbers, classes, .*; got 'cubic'"),
        (MANY, "classes", "one label for each row"),
        *((LABELS, target, "`y` must be numbers") for target in NUMERIC),
        *((np.ones(9), target, "constant") for target in NUMERIC),
        *((y, "linear", "`y` is constant") for y in CONSTANT),
        *((np.c_[: len(y), y], "linear", "column 1 of `y` is constant") for y in CONSTANT),
    ],
)
def test_targets_that_cannot_be(y, target, message):
    with pytest.raises(ValueError, match=message):
        target_dependence(y, target)


# From the embedding of a round.

N, K = 40, 3


@pytest.fixture(params=[40, 9])
def embedded(request):
    """Shards with an embedding U and `D^-1/2`, and these."""
    rng = np.random.default_rng(0)
    U = np.linalg.qr(rng.normal(size=(N, K)))[0]
    roots = rng.uniform(0.1, 1.0, N)
    shards = cut(rng.normal(size=(N, 5)), request.param).with_rows(ROW_WEIGHTS, np.ones(N))
    return shards.with_rows(EMBEDDING, np.column_stack([U, roots])), U, roots


def _full(gamma, shards):
    """Gamma as a matrix."""
    U = gamma.factor(shards.gather_fact(GAMMA_FACTS))
    return U @ np.diag(gamma.signs) @ U.T


H = np.eye(N) - 1 / N


def _with_trace_one(matrix):
    return matrix / np.trace(matrix)


def _extended(y, U):
    """Return scores y (n, t) with NaN replaced by a plain ridge regression on U of unit length."""
    has_score = np.isfinite(y[:, 0])
    sides = np.column_stack([np.ones(len(U)), normalise_rows(U)])
    gram = sides[has_score].T @ sides[has_score]
    gram += 1e-2 * np.trace(gram) / len(gram) * np.eye(len(gram))
    predicted = sides @ np.linalg.solve(gram, sides[has_score].T @ y[has_score])
    return np.where(has_score[:, None], y, predicted)


def test_gamma_of_experts_who_score_different_rows(embedded):
    shards, U, roots = embedded
    rng, row = np.random.default_rng(3), np.arange(N)
    numbers = np.where(row % 3 == 0, rng.normal(size=N), np.nan)
    labels = np.where(row % 2 == 0, rng.choice(["ant", "bee", "cat"], size=N), None)
    y = np.column_stack([labels, numbers.astype(object)])
    one_hot = np.array([[each == name for name in ("ant", "bee", "cat")] for each in labels], float)
    one_hot[labels == None] = np.nan  # noqa: E711
    parts = [_extended(each - np.nanmean(each, axis=0), U) for each in (one_hot, numbers[:, None])]
    D = np.diag(roots)
    expected = _with_trace_one(D @ U @ U.T @ D)
    for mu, part in zip([0.5, 2.0], parts, strict=True):
        expected += mu * _with_trace_one(H @ part @ part.T @ H)
    guide = partial_scores(y, N, "auto", [0.5, 2.0])
    assert_allclose(_full(*guide.gamma(shards)), expected, atol=1e-12)
    shuffled = rng.permutation(N)
    assert_array_equal(guide.reordered(shuffled).groups, guide.groups[shuffled])
    assert guide.classes.tolist() == ["ant", "bee", "cat"]


def test_rows_of_zeros_stay():
    assert_array_equal(normalise_rows(np.array([[3.0, 4.0], [0.0, 0.0]])), [[0.6, 0.8], [0, 0]])
