"""How y is read, and Gamma of it and of each paradigm, against their definitions."""

from dataclasses import replace
from datetime import date
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from definition import MULTISCALE, centred, dense_gamma, equal_classes, gaussian_kernel
from models import CULTIVAR as Y
from models import WINE as X
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import DataConversionWarning
from sklearn.preprocessing import scale

from ism_dask import SemiSupervisedIKDR
from ism_dask.gamma.base import GAMMA_FACTS
from ism_dask.gamma.embedding_guides import EMBEDDING, normalise_rows
from ism_dask.gamma.target_input import labels_to_avoid, partial_scores
from ism_dask.gamma.targets import TARGETS, class_dependence, target_dependence
from ism_dask.rows.shards import cut

RNG = np.random.default_rng(1)
LABELS = RNG.choice(["ant", "bee", "cat"], size=31)
SEX = RNG.choice(["f", "m"], size=31)
NUMBERS = RNG.normal(size=31)
MANY = RNG.normal(size=(31, 3))
WHOLE = np.arange(60)


@pytest.mark.parametrize(
    ("target", "y", "K"),
    [
        ("classes", LABELS, equal_classes(LABELS)),
        ("linear", NUMBERS, np.outer(scale(NUMBERS), scale(NUMBERS))),
        ("linear", MANY, scale(MANY) @ scale(MANY).T),
        # Columns of classes add up, and an indicator is the classes.
        ("auto", np.column_stack([LABELS, SEX]), equal_classes(LABELS) + equal_classes(SEX)),
        ("auto", (LABELS[:, None] == np.unique(LABELS)).astype(int), equal_classes(LABELS)),
    ],
)
def test_gamma_is_the_centred_kernel_of_y(target, y, K):
    assert_allclose(dense_gamma(target_dependence(y, target)), centred(K), atol=1e-12)


def test_gamma_of_a_class_of_nearly_all_rows_keeps_its_digits():
    """One rounding of 1 for each of the n^2 pairs would add up to 1e-4 of J."""
    n = 10**6
    gamma, facts = class_dependence(np.arange(n) == 7).weighted
    tile = gamma.tile(
        *(f(facts[5:9], np.dtype(float)) for f in (gamma.as_rows, gamma.as_columns)),
        np.empty((4, 4)),
    )
    U = np.array([-1.0, -1.0, n - 1.0, -1.0]) / n
    assert_allclose(tile, 2 * np.outer(U, U), rtol=1e-9)


TAILS = np.random.default_rng(2).standard_cauchy(size=300)
TIES = np.random.default_rng(3).normal(size=300).round(1)
PAIRS = np.random.default_rng(4).normal(size=(300, 2))
FIVE = np.random.default_rng(5).normal(size=(300, 5))


@pytest.mark.parametrize(
    ("y", "target", "shares", "most"),
    [
        *((y, "gaussian", (1.0,), 1e-6) for y in (NUMBERS, MANY, TAILS, TIES, PAIRS)),
        *((y, "multiscale", MULTISCALE, 1e-6) for y in (NUMBERS, MANY, TIES)),
        (TAILS, "multiscale", MULTISCALE, 1e-3),
        (FIVE, "gaussian", (1.0,), 0.2),
    ],
)
def test_the_factor_of_gaussians_leaves_out_next_to_nothing(y, target, shares, most):
    known, n = target_dependence(y, target), len(y)
    missing = centred(gaussian_kernel(y, *shares)) - dense_gamma(known)
    # What is missing is definite, so that no entry of it is larger than its trace.
    assert np.linalg.eigvalsh(missing).min() > -1e-12 * n
    assert np.trace(missing) <= most * n + 1e-9
    assert known.facts.shape[1] < n / 2 or n < 100
    # Only where no more columns are allowed is there something to leave out.
    assert (known.facts.shape[1] == 100) == (np.trace(missing) > 1e-6 * n) or most == 1e-3


def test_auto_takes_numbers_under_gaussians_and_few_whole_ones_as_classes():
    known = target_dependence(NUMBERS)
    assert_array_equal(known.facts, target_dependence(NUMBERS, "multiscale").facts)
    for target in ("auto", "numbers"):
        several = target_dependence(MANY, target)
        assert_array_equal(several.facts, target_dependence(MANY, "gaussian").facts)
    assert len(target_dependence(WHOLE % 20).classes) == 20
    assert len(target_dependence(WHOLE % 21, "classes").classes) == 21
    assert target_dependence(WHOLE, "linear").classes is None


NUMERIC = sorted(set(TARGETS) - {"classes", "labels"})
# Whose sums round in different ways.
CONSTANT = [np.full(n, value) for n in (100, 300, 777) for value in (0.1, 0.3, 1e9 / 3)]


@pytest.mark.parametrize(
    ("y", "target", "message"),
    [
        *((WHOLE.astype(kind), "auto", "60 different whole .*='numbers'") for kind in "lfB"),
        (np.arange(600) % 21, "auto", "21 different whole numbers.*target='classes'"),
        (WHOLE, "classes", '60 different labels for 60 rows.*target="numbers"'),
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

N = 40


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


@pytest.mark.parametrize("size", [40, 9])
def test_gamma_of_experts_who_score_different_rows(size):
    rng = np.random.default_rng(0)
    U, D = np.linalg.qr(rng.normal(size=(N, 3)))[0], np.diag(rng.uniform(0.1, 1.0, N))
    shards = cut(rng.normal(size=(N, 5)), size)
    shards = shards.with_rows(EMBEDDING, np.column_stack([U, np.diag(D)]))
    rng, row = np.random.default_rng(3), np.arange(N)
    numbers = np.where(row % 3 == 0, rng.normal(size=N), np.nan)
    labels = np.where(row % 2 == 0, rng.choice(["ant", "bee", "cat"], size=N), None)
    y = np.column_stack([labels, numbers.astype(object)])
    one_hot = np.array([[each == name for name in ("ant", "bee", "cat")] for each in labels], float)
    one_hot[labels == None] = np.nan  # noqa: E711
    parts = [_extended(each - np.nanmean(each, axis=0), U) for each in (one_hot, numbers[:, None])]
    expected = _with_trace_one(D @ U @ U.T @ D)
    for part in parts:
        expected += 0.5 * _with_trace_one(centred(part @ part.T))
    guide = partial_scores(y, N, "auto", 0.5)
    gamma, shards = guide.gamma(shards)
    factor = gamma.factor(shards.gather_fact(GAMMA_FACTS))
    assert_allclose(factor * gamma.signs @ factor.T, expected, atol=1e-12)
    shuffled = rng.permutation(N)
    assert_array_equal(guide.reordered(shuffled).groups, guide.groups[shuffled])
    assert guide.classes.tolist() == ["ant", "bee", "cat"]


LABELLED = np.arange(178) % 10 == 0
PART = np.where(LABELLED, Y, np.nan)
NAMES = np.array(["barbera", "grignolino", "barolo"])


def entries(values, gap):
    """Return a list of `values` at the rows LABELLED, and `gap` at others."""
    return np.where(LABELLED, values.astype(object), gap).tolist()


def same(first, second):
    for name in ("Y", "groups", "classes"):
        one, other = getattr(first, name), getattr(second, name)
        assert (one is None) == (other is None)
        assert one is None or np.array_equal(one, other, equal_nan=name == "Y")


@pytest.mark.parametrize("gap", [None, np.nan, pd.NA, Decimal("nan"), -1])
def test_numbers_are_numbers_and_labels_are_classes_with_gaps_of_any_kind(gap):
    for target in () if isinstance(gap, int) else ("auto", "linear"):
        expected = partial_scores(np.where(LABELLED, X[:, 0], np.nan), 178, target)
        assert expected.groups is None
        same(partial_scores(entries(X[:, 0], gap), 178, target), expected)
        several = partial_scores(np.where(LABELLED[:, None], X[:, :2], np.nan), 178, target)
        frame = pd.DataFrame({name: entries(X[:, j], gap) for j, name in enumerate("ab")})
        for given in (frame, frame.convert_dtypes()):
            same(partial_scores(given, 178, target), several)
    for target in ("auto", "classes"):
        expected = partial_scores(PART, 178, target)
        assert_array_equal(expected.classes, [0, 1, 2])
        for given in (entries(Y, gap), np.array(entries(Y, gap), dtype=object)):
            same(partial_scores(given, 178, target), expected)
        known = partial_scores(entries(np.sort(NAMES)[Y], gap), 178, target)
        same(replace(known, classes=expected.classes), expected)
        assert_array_equal(known.classes, np.sort(NAMES))
    assert partial_scores([0.5, 1, None, -1, 2], 5, "auto").groups is None  # -1 is a number here


DAYS = ["2020-01-01", "2020-01-02", None, "2020-01-01"]


@pytest.mark.parametrize("framed", [False, True])
@pytest.mark.parametrize(
    "y",
    [
        *(pd.Series(["a", "b", None, "a"], dtype=each) for each in ("string", "str", "category")),
        pd.Series([True, False, pd.NA, True], dtype="boolean"),
        pd.Series([2, 1, pd.NA, 2], dtype="Int64"),
        pd.Series(DAYS, dtype="datetime64[ns]"),
        pd.Series([each and date.fromisoformat(each) for each in DAYS]),
        pd.Series([0, 1, pd.NA, 0], dtype=object),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
def test_columns_of_pandas_and_labels_that_can_be_sorted(y, framed):
    known = partial_scores(y.to_frame() if framed else y, 4, "auto")
    assert_array_equal(known.groups >= 0, [True, True, False, True])
    assert known.groups[0] == known.groups[3] != known.groups[1]
    assert known.classes.tolist() == sorted(known.classes.tolist())
    assert len(known.classes) == 2
    with pytest.raises(ValueError, match="no value in 1 of 4 rows"):
        labels_to_avoid(y, 4, 1.0)


@pytest.mark.parametrize("given", [["a", 1, "b", 2], ["a", 1, None, 2], ["a", 0.5, np.nan, "b"]])
def test_labels_that_are_strings_and_numbers_are_refused(given):
    message = r"cannot be compared .*of type (int|float), str\); expected all strings or all num"
    for target in ("auto", "classes"):
        with pytest.raises(ValueError, match=message):
            partial_scores(given, 4, target)
    with pytest.raises(ValueError, match=message):
        labels_to_avoid(["a" if each in (None, np.nan) else each for each in given], 4, 1.0)


@pytest.mark.parametrize("target", ["auto", "classes", "linear"])
@pytest.mark.parametrize(
    "column", [PART, np.round(2 * X[:, 0]) / 2, np.array(entries(Y, None), dtype=object)]
)
def test_a_column_is_flat_with_a_warning(column, target):
    for given in (column[:, None], pd.DataFrame({"y": column})):
        with pytest.warns(DataConversionWarning, match="column-vector"):
            known = partial_scores(given, 178, target)
        same(known, partial_scores(column, 178, target))


@pytest.mark.parametrize(
    ("y", "target", "message"),
    [
        (np.ones((178, 2, 1)), "auto", r"shape \(178,\), or \(178, t\).* got \(178, 2, 1\)"),
        (NAMES[np.column_stack([Y, Y])], "linear", r"column 0 of `y` must be .* got dtype <U10"),
        (np.column_stack([Y, 0 * Y]), "classes", "column 1 of `y` has one class only"),
        (np.column_stack([Y, np.full(178, np.nan)]), "auto", "column 1 of `y` has no scores"),
        (entries(NAMES[Y], None), "linear", 'go with target="classes"'),
        (Y * 1j, "auto", "real numbers; got dtype complex128"),
        ([np.inf, None, *Y[2:]], "linear", "infinity"),
        ([10**400, *X[1:, 0]], "auto", "must be numbers"),
        (np.c_[Y, np.full(178, 0.1)], "auto", "column 1 of `y` is constant, 0.1 in all"),
        (np.where(LABELLED, 0.1, np.nan), "linear", r"`y` is constant, 0.1 in all 18 .* varies$"),
        ([None] * 178, "auto", "no scores: every row is NaN, None"),
        ([None, -1] * 89, "auto", "no labels: -1"),
    ],
)
def test_scores_that_cannot_be(y, target, message):
    with pytest.raises(ValueError, match=message):
        partial_scores(y, 178, target)


@pytest.mark.parametrize("factor", [2.0**660, 2.0**-660, -(2.0**3)])
def test_the_size_of_scores_does_not_count(factor):
    several = np.where(LABELLED[:, None], X[:, :2], np.nan)
    for given in (several, several[:, 0]):
        expected, scaled = (partial_scores(each, 178, "auto").Y for each in (given, given * factor))
        assert_array_equal(scaled, np.sign(factor) * expected)
        assert_allclose(expected[LABELLED].mean(axis=0), 0, atol=1e-12)
        assert_allclose(expected[LABELLED].std(axis=0), 1)


def test_rows_of_a_class_keep_it_where_another_centre_is_nearer():
    wrong = PART.copy()
    wrong[[0, 10, 20]] = 2
    model = SemiSupervisedIKDR(3).fit(X, wrong)
    assert_array_equal(model.labels_[LABELLED], wrong[LABELLED])
    assert (model.predict(X)[[0, 10, 20]] == model.labels_[50]).any()
