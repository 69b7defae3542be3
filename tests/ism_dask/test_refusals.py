"""What no estimator can fit, and what it says then; all to the rows of Wine."""

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from models import CULTIVAR, WINE, hsic_model
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from ism_dask import (
    AlternativeIKDR,
    ColoredMVU,
    PredictiveIKDR,
    SemiSupervisedIKDR,
    SupervisedIKDR,
    UnsupervisedIKDR,
    dependence_test,
    hsic,
)
from ism_dask.engines import ExactEngine
from ism_dask.gamma.targets import standardise_target
from ism_dask.linalg.subspaces import subspace_sine
from ism_dask.solvers import ISM

X, Y = WINE, CULTIVAR
N = len(X)
NAMES = np.array(["barolo", "grignolino", "barbera"])[Y]
LABELS = np.eye(3, dtype=int)[Y]
GAP, WIDE = np.where(X.max() == X, np.nan, X), csr_array((20_000, 3000))
GAPS = pd.array([1, None] * (N // 2), dtype="Int64")
TWINS = pd.DataFrame(X, columns=["ash", "ash", *map(str, range(11))])
# The second column numbers the rows, from 2^53 on.
NUMBERED = np.column_stack([Y, 2**53 + np.arange(N)])
DATES = r"real numbers; got dtype datetime64\[D\]\. Turn dates and durations into numbers, such as"
SEEDS = "`random_state` must be None, a RandomState or a whole number from 0 to 4,294,967,295; got "
RNG = np.random.default_rng(0)
SUPERVISED = (PredictiveIKDR, SupervisedIKDR)
ESTIMATORS = (*SUPERVISED, UnsupervisedIKDR, SemiSupervisedIKDR, AlternativeIKDR)
DEFAULT = PredictiveIKDR()
CLASSES = PredictiveIKDR(target="classes")
BALANCED, AVOID = PredictiveIKDR(class_weight="balanced"), {"avoid": Y > 0}


def _but_one(value):
    """Return ones, but for a value in row 7."""
    return np.where(np.arange(N) == 7, value, 1.0)


ROWS = [
    (DEFAULT, {"X": da.from_array(GAP)}, "1 of 178 rows .*, the first number 12"),
    (DEFAULT, {"X": np.ones((N, 4))}, "nothing to reduce"),
    (DEFAULT, {"X": da.from_array(X[0]), "y": Y[:13]}, "rows and columns; got shape"),
    (CLASSES, {"X": da.from_array(X.astype(complex))}, "real numbers; got dtype complex128"),
    (CLASSES, {"X": da.from_array(X.astype(str))}, "real numbers; got dtype <U"),
    *((make(3), {"X": X.astype("M8[D]")}, DATES) for make in ESTIMATORS),
    (
        DEFAULT,
        {"X": X.astype("m8[s]")},
        r"got dtype timedelta64\[s\]. Turn dates and durations into",
    ),
    (ColoredMVU(), {"X": X.astype("M8[D]")}, DATES),
    (DEFAULT, {"X": X.astype(np.longdouble) * np.longdouble("1e400")}, "infinity or a value too l"),
    (DEFAULT, {"X": pd.DataFrame(X).assign(gap=GAPS).rename(columns=str)}, "89 of 178 rows have"),
    *(
        (make(3), {"X": TWINS}, "several columns of the name 'ash'; expected")
        for make in ESTIMATORS
    ),
    (
        DEFAULT,
        {"X": NUMBERED},
        "up to 9007199254741169 in column number 1, of which",
    ),
    (
        DEFAULT,
        {"X": pd.DataFrame(NUMBERED, columns=["a", "b"])},
        "up to .* in column 'b', of",
    ),
    (UnsupervisedIKDR(3), {"X": WIDE}, "UnsupervisedIKDR needs dense rows.*TruncatedSVD"),
]
TARGETS = [
    (DEFAULT, {"y": Y[:-1]}, "inconsistent numbers of samples"),
    (DEFAULT, {"X": da.from_array(X), "y": Y[:-1]}, "inconsistent numbers of samples"),
    (CLASSES, {"X": da.from_array(X), "y": np.where(Y, Y, np.nan)}, "no value in 59 of 178 rows"),
    *((make(), {"y": GAPS}, "no value in 89 of 178 rows") for make in SUPERVISED),
    (DEFAULT, {"y": {"a": 1}}, "got a dict"),
    (DEFAULT, {"y": (label for label in Y)}, "got a generator"),
    (DEFAULT, {"y": np.ma.masked_equal(Y, 2)}, "no value in 48 of 178 rows"),
    (DEFAULT, {"y": np.ones((N, 2), dtype=int)}, "same labels in all rows"),
    (DEFAULT, {"y": X[:, [12, 12]].astype(int)}, "whole numbers, which may be classes or numbers"),
    (DEFAULT, {"y": [["a", f"{k}"] for k in range(N)]}, "column 1 of `y` has 178 different"),
    (DEFAULT, {"y": csr_array(2 * LABELS)}, "must be an indicator of labels"),
    (DEFAULT, {"y": np.array([["a", None]] * N)}, "no value in 178 of 178 rows"),
    (DEFAULT, {"y": pd.date_range("2020", periods=N)}, "`y` has 178 different dates"),
    (SemiSupervisedIKDR(3), {"y": Y[:100]}, "X has 178 rows, y has shape .* get NaN$"),
    (SemiSupervisedIKDR(3, target="gaussian"), {}, "`target` must be one of"),
]
WEIGHTS = [
    *((make(3), {"sample_weight": _but_one(-1.0)}, "-1 in row 7") for make in SUPERVISED),
    *((DEFAULT, {"sample_weight": np.ones(shape)}, "shape") for shape in (3, (N, 2))),
    (DEFAULT, {"sample_weight": _but_one(np.nan)}, "weight 0"),
    (DEFAULT, {"sample_weight": np.zeros(N)}, "zero"),
    (DEFAULT, {"sample_weight": "a"}, "real numbers"),
    (DEFAULT, {"sample_weight": np.ones(N) * 1j}, "real .* one for each row; got dtype complex128"),
    (DEFAULT, {"sample_weight": np.ma.masked_equal(Y, 1)}, "masked .*give these rows the weight 0"),
    (DEFAULT, {"sample_weight": (Y == 1) * 1.0}, "one class only"),
    (PredictiveIKDR(class_weight="even"), {}, "balanced"),
    (PredictiveIKDR(class_weight={"dolcetto": 2}), {"y": NAMES}, "dolcetto"),
    (PredictiveIKDR(class_weight=1), {}, "must be a dict.*got 1"),
    (PredictiveIKDR(class_weight={0: "a"}), {}, "'a' for the class 0; expected numbers from 0 up"),
    (PredictiveIKDR(class_weight={0: -1}), {}, "-1 for the class 0; expected numbers from 0 up"),
    (PredictiveIKDR(class_weight={0: 0, 1: 0, 2: 0}), {}, "zero"),
    (BALANCED, {"y": X[:, 0]}, "read as numb.* target='classes'"),
    (BALANCED, {"y": LABELS}, "several labels; give `sample_weight`$"),
    *(
        (PredictiveIKDR(avoid_weight=each), AVOID, "`avoid_weight` must be a positive finite num")
        for each in (-1, np.nan, "much", True)
    ),
    (PredictiveIKDR(avoid_weight=1e300), AVOID, r"`avoid_weight` is 1e\+300; .* at most 1,000,000"),
]
CLUSTERS = "`n_clusters` must be a whole number from 1 to 177"
NUMBERS = [
    (PredictiveIKDR(13), {}, "from 1 to 12 for 13 features, .* got 13"),
    (PredictiveIKDR(0), {}, '`n_components` must be .*, "auto" or None; got 0'),
    *((PredictiveIKDR(q), {}, f"`n_components` must be .* got {q!r}") for q in (1.5, True, "all")),
    (PredictiveIKDR(warm_start="yes"), {}, "`warm_start` must be True or False; got 'yes'"),
    (PredictiveIKDR(2, max_features=0), {}, "`max_features` must be .* from 1 to 13 .*; got 0"),
    (PredictiveIKDR(2, max_features=True), {}, '"auto", "significant" or None; got True'),
    *((PredictiveIKDR(2, max_features=k), {}, f"got {k!r}") for k in (14, 2.5, "all")),
    (PredictiveIKDR(2, max_features=1), {}, "is 1, but 2 new features need 2 .* n_components=1"),
    (
        PredictiveIKDR(5, max_features=6),
        {"X": np.hstack([X[:, :4], np.ones((N, 4))])},
        "vary in 4 directions, fewer than the 5 new features",
    ),
    (PredictiveIKDR(rotation="quartimax"), {}, "`rotation` must be .* varimax; got 'quartimax'"),
    (PredictiveIKDR(rotation=True), {}, "`rotation` must be one of varimax; got True"),
    (SemiSupervisedIKDR(3, mu=0), {}, "`mu` must be a positive"),
    (SemiSupervisedIKDR(3, mu=[1.0, 2.0]), {}, "`mu` must be a positive"),
    (AlternativeIKDR(3, mu=-1.0), {}, "`mu` must be a positive"),
    (AlternativeIKDR(3, outer_tol=0), {}, "`outer_tol` must be"),
    (AlternativeIKDR(3, max_outer=0), {}, "`max_outer` must be"),
    *((UnsupervisedIKDR(k), {}, CLUSTERS) for k in (0, 178, 2.5, "3", True)),
    *((make(3, random_state=-1), {}, SEEDS + "-1") for make in ESTIMATORS),
    *((PredictiveIKDR(random_state=k), {}, SEEDS) for k in (2**32, 1.5, "a", True, RNG)),
]
NOT_DEFINITE = r"is not positive definite.*are for SupervisedIKDR"
LOCAL = "relative_gaussian"
INDEFINITE = ("distance", "multiquadric", "squared", LOCAL)
CHOICES = [
    (PredictiveIKDR(kernel="rbf"), {}, "must be a Kernel or one of .*gaussian, linear,.*got 'rbf'"),
    (PredictiveIKDR(kernel=3), {}, "`kernel` must be .* got 3"),
    *((PredictiveIKDR(kernel=each), {}, NOT_DEFINITE) for each in INDEFINITE),
    (PredictiveIKDR(solver="ism"), {}, "'ism' does not serve PredictiveIKDR.*or SupervisedIKDR"),
    (hsic_model(solver="ascent"), {}, "does not serve SupervisedIKDR"),
    (
        UnsupervisedIKDR(3, solver="ascent"),
        {},
        "does not serve UnsupervisedIKDR; take 'ism'",
    ),
    (hsic_model(solver="newton"), {}, "`solver` must be one of ascent, ism; got 'newton'"),
    (hsic_model(solver=ISM), {}, "`solver` must be one of ascent, ism; got <class"),
    (hsic_model(engine="x"), {}, "of auto, closed_form, landmarks, exact; got 'x'"),
    (
        hsic_model(engine=ExactEngine),
        {},
        "`engine` must be one of auto, closed_form, .*; got <class",
    ),
    (hsic_model(engine="closed_form"), {}, "='closed_form' cannot serve .*: .*slope"),
    (hsic_model(engine="landmarks", kernel=LOCAL), {}, "='landmarks' .* positive semi-definite"),
    (UnsupervisedIKDR(3, kernel="cubic"), {}, "`kernel` must be"),
    (UnsupervisedIKDR(3, engine="fast"), {}, "`engine` must be one of"),
]


@pytest.mark.parametrize(
    ("model", "given", "message"), [*ROWS, *TARGETS, *WEIGHTS, *NUMBERS, *CHOICES]
)
def test_what_cannot_be_fitted_is_refused(model, given, message):
    with pytest.raises(ValueError, match=message):
        model.fit(**{"X": X, "y": Y, **given})


@pytest.mark.parametrize("measure", [hsic, dependence_test])
def test_measures_of_dependence_refuse_seeds_and_rows_that_are_none(measure):
    days = X.astype("M8[D]")
    frame = pd.DataFrame(days), "no numbers: 0, 1.*turn dates"
    for rows, seed, message in ((X, -1, SEEDS), (days, 0, DATES), (frame[0], 0, frame[1])):
        with pytest.raises(ValueError, match=message):
            measure(rows, Y, random_state=seed)


def test_what_a_fitted_model_cannot_take_is_refused():
    fitted = PredictiveIKDR(1).fit(pd.DataFrame(X).rename(columns=str), Y)
    with pytest.raises(ValueError, match="several columns of the name 'ash'"):
        fitted.transform(TWINS)
    with pytest.raises(ValueError, match="got dtype datetime64"):
        fitted.inverse_transform(np.zeros((3, 1), "M8[D]"))


@pytest.mark.parametrize("make", SUPERVISED)
def test_whole_numbers_beyond_float64_are_different_classes(make):
    classes = make(1).fit(X, 2**53 + Y.astype(np.int64)).classes_
    assert_array_equal(classes, 2**53 + np.arange(3))


def test_whole_numbers_beyond_float64_are_different_numbers():
    small, large = np.arange(N), 2**53 + np.arange(N)
    expected = standardise_target(small)
    for numbers in (
        large,
        large.astype(np.uint64) + np.uint64(2**62),
        large.astype(object) * 10**9,
    ):
        assert_allclose(standardise_target(numbers), expected, rtol=1e-12)
    with pytest.raises(ValueError, match=r"constant, 9\.0072e\+15 in all 178 rows"):
        standardise_target(np.full(N, 2**53 + 1))
    fits = [SupervisedIKDR(1, target="linear").fit(X, y).components_.T for y in (small, large)]
    assert subspace_sine(*fits) < 1e-6


@pytest.mark.parametrize("make", SUPERVISED)
def test_numbers_of_extended_precision_are_those_of_float64(make):
    expected = make(1).fit(X, X[:, 0])
    fitted = make(1).fit(X.astype(np.longdouble), X[:, 0].astype(np.longdouble))
    assert_array_equal(fitted.components_, expected.components_)
    assert_array_equal(fitted.transform(X.astype(np.longdouble)), expected.transform(X))
    for rows in (csr_array(X.astype(np.longdouble)), da.from_array(X.astype(np.longdouble))):
        assert_allclose(make(1).fit(rows, X[:, 0]).components_, expected.components_, atol=1e-6)


# Arrays and lists of objects, which NumPy turns into numbers without a word, or not at all.

LONG = np.longdouble("1e400")


def _column(values):
    """Return the rows as objects, with other values in column 1."""
    rows = X.astype(object)
    rows[:, 1] = values
    return rows


TIMES = pd.date_range("2021-03-01", periods=N)
PARTLY = np.where(np.arange(N) % 2, 1.0, np.nan).astype(object)
NO_NUMBERS = "columns that are no numbers: number 1. Encode texts .* turn dates into numbers"


@pytest.mark.parametrize("make", ESTIMATORS)
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (_column(list(TIMES)), NO_NUMBERS),
        (_column([each.date() for each in TIMES]), NO_NUMBERS),
        (_column(list(TIMES.to_numpy())), NO_NUMBERS),
        (_column(list(TIMES - TIMES[0])), NO_NUMBERS),
        (_column(list((TIMES - TIMES[0]).to_numpy())), NO_NUMBERS),
        (_column([each if i % 2 else i for i, each in enumerate(TIMES)]), NO_NUMBERS),
        (_column([2j] * N), NO_NUMBERS),
        (_column(list(TIMES)).tolist(), NO_NUMBERS),
        (_column(np.where(pd.isna(PARTLY), pd.NaT, PARTLY)), "NaN: 89 of 178 rows .* number 1"),
        (_column(np.where(pd.isna(PARTLY), pd.NA, PARTLY)), "NaN: 89 of 178 rows .* number 1"),
        (_column([np.datetime64("NaT")] * N), "NaN: 178 of 178 rows .* number 1"),
        (_column([10**400 + k for k in range(N)]), "beyond 1.8e308 in column number 1; expected"),
        (_column([10**30 + k for k in range(N)]), "in column number 1, of which some become equal"),
        (_column([LONG] * N), "infinity or a value too large"),
        (csr_array(NUMBERED), "in column number 1, of which some become equal"),
        (da.from_array(NUMBERED), "in column number 1, of which some become equal"),
        (da.from_array(np.where(X.max() == X, np.inf, X)), "infinity or a value too large"),
        (X.astype(complex), "Complex data not supported: .* dtype complex128. Give the real and"),
        ([[1.0, 2.0], [3.0]] * (N // 2), "rows of different lengths"),
        (X / np.abs(X).max() * 1.7e308, r"up to .*e\+306 in column number 0; expected .* 1e\+120"),
        (X * 5e-324, "expected a largest one from 1e-120 to .* Take another unit"),
        (_column([{}] * N), "X must have a number in each place: .* of type dict"),
    ],
)
def test_rows_that_float64_cannot_hold_are_refused(make, rows, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make(2).fit(rows, Y)


@pytest.mark.parametrize("make", ESTIMATORS)
def test_numbers_in_texts_are_numbers_in_fit_and_transform(make):
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    texts = X.astype(str)
    expected = make(1).fit(X, y).transform(X)
    for given in (texts, texts.tolist(), texts.astype(object)):
        assert_allclose(make(1).fit(given, y).transform(given), expected)
    with pytest.raises(ValueError, match="no numbers"):
        make(1).fit(np.where(X > 0, "yes", texts), y)


def _objects(values):
    objects = np.empty(N, dtype=object)
    objects[:] = [values[k % len(values)] for k in range(N)]
    return objects


@pytest.mark.parametrize("make", SUPERVISED)
@pytest.mark.parametrize(
    ("y", "weights", "message"),
    [
        (_objects([[1], [2, 3]]), None, "`y` has values of type list; expected a string or a nu"),
        (_objects([(1, 2), (3,)]), None, "`y` has values of type tuple; expected a string or a n"),
        ([[1], [2, 3]] * (N // 2), None, "`y` has rows of different lengths"),
        ([], None, r"`y` is empty, of shape \(0,\)"),
        (Y.astype("S"), None, r"`y` has dtype \|S21; .* strings by `y.astype\(str\)`"),
        (X[:, 0] * 1j, None, "Complex data not supported: `y` .* complex128. Give the real and"),
        (np.zeros(N, dtype=[("a", float)]), None, "`y` has records, .* give one of its fields"),
        (X[:, 0] * LONG, None, "y contains infinity or a value too large"),
        (pd.DataFrame({"a": X[:, 0], "b": TIMES}), None, "column 0 of `y` has .* different labels"),
        (Y, _but_one(1e300), r"is 1e\+300 in row 7, so much that all other rows together count no"),
        (Y, [10**400] * N, "real numbers, one for each row"),
        (Y, TIMES.to_numpy(), "real numbers, one for each row; got dtype datetime64"),
        (Y, [[1.0]] + [[2.0, 3.0]] * (N - 1), "`sample_weight` has rows of different lengths"),
        (Y, _but_one(1.0) * LONG, "contains NaN or infinity"),
    ],
)
def test_targets_and_weights_that_are_none_are_refused(make, y, weights, message):
    with pytest.raises(ValueError, match=message):
        make(1).fit(X, y, sample_weight=weights)


@pytest.mark.parametrize("make", SUPERVISED)
def test_targets_of_extreme_numbers_and_of_mixed_columns_are_fitted(make):
    rows, y, alcohol = X[::2], Y[::2], X[::2, 0] - X[::2, 0].mean()
    expected = make(1).fit(rows, alcohol).components_.T
    assert subspace_sine(make(1).fit(rows, alcohol * 1e300).components_.T, expected) < 1e-6
    assert make(1).fit(rows, np.sign(alcohol) * 1.7e308).components_.shape == (1, 13)
    mixed = pd.DataFrame({"a": y, "b": NAMES[::2]})
    both = make(1).fit(rows, mixed).components_.T
    assert subspace_sine(both, make(1).fit(rows, np.c_[y, y].astype(str)).components_.T) < 1e-6


@pytest.mark.parametrize("make", SUPERVISED)
def test_rows_of_next_to_no_weight_count_nothing(make):
    counted = np.arange(N) % 3 > 0
    expected = make(1).fit(X[counted], Y[counted]).components_.T
    fitted = make(1).fit(X, Y, sample_weight=np.where(counted, 1e150, 1e-150))
    assert subspace_sine(fitted.components_.T, expected) < 1e-6


@pytest.mark.parametrize("make", SUPERVISED)
def test_whole_numbers_beyond_float64_stay_different_beside_y(make):
    """What is to be avoided differs, though its numbers are equal in float64."""
    age = (X[:, 5] * 100).astype(np.int64)
    expected = make(1).fit(X, Y, avoid=age).components_.T
    large = make(1).fit(X, Y, avoid=[10**30 + int(each) for each in age]).components_.T
    assert subspace_sine(large, expected) < 1e-6
    with pytest.raises(ValueError, match="`avoid` has a larger number than float64; numbers below"):
        make(1).fit(X, Y, avoid=[10**400 * int(each) for each in age])


def test_one_changed_row_of_many_and_other_whole_numbers_are_not_those_of_the_fit():
    many = np.random.default_rng(0).normal(size=(110_000, 10))
    fitted = hsic_model(1, kernel="linear", target="linear").fit(many, many[:, 0])
    other = many.copy()
    other[7, 3] += 1.0
    large = 2**60 + Y
    of_classes = SupervisedIKDR(2).fit(X, large)
    assert of_classes.certify(X, large).is_certified
    for model, rows in ((fitted, (other, many[:, 0])), (of_classes, (X, large[::-1]))):
        with pytest.raises(ValueError, match="these rows are not those of the fit"):
            model.certify(*rows)
