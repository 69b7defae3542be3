"""What no estimator can fit, and what it says then; all to the rows of Wine."""

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pytest
from models import CULTIVAR, NAMES, SUPERVISED, WINE, StoredRows, apart, hsic_model, quick
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline

from ism_dask import (
    AlternativeIKDR,
    ColoredMVU,
    PredictiveIKDR,
    SemiSupervisedIKDR,
    SupervisedIKDR,
    UnsupervisedIKDR,
)
from ism_dask.engines import ExactEngine
from ism_dask.kernels import Gaussian, Polynomial
from ism_dask.solvers import ISM

X, Y = WINE, CULTIVAR
N = len(X)
LABELS = np.eye(3, dtype=int)[Y]
GAP, WIDE = np.where(X.max() == X, np.nan, X), csr_array((20_000, 3000))
GAPS = pd.array([1, None] * (N // 2), dtype="Int64")
TEXTS = {"length": X[:, 0], "maker": NAMES, "day": X[:, 2].astype("M8[D]")}
TWINS = pd.DataFrame(X, columns=["ash", "ash", *map(str, range(11))])
# The second column numbers the rows, from 2^53 on.
NUMBERED = np.column_stack([Y, 2**53 + np.arange(N)])
LISTS = [[1], [2, 3]] * (N // 2)
DATES = r"real numbers; got dtype datetime64\[D\]\. Turn dates and durations into numbers, such as"
SEEDS = "`random_state` must be None, a RandomState or a whole number from 0 to 4,294,967,295; got "
RNG = np.random.default_rng(0)
ESTIMATORS = (*SUPERVISED, UnsupervisedIKDR, SemiSupervisedIKDR, AlternativeIKDR)
DEFAULT = PredictiveIKDR()
BALANCED, AVOID = PredictiveIKDR(class_weight="balanced"), {"avoid": Y > 0}
AVOIDING, TENTH = AlternativeIKDR(3), np.where(np.arange(N) % 10, np.nan, Y)
FLAT = {"X": np.hstack([X[:, :4], np.ones((N, 4))])}


def _but_one(value):
    """Return ones, but for a value in row 7."""
    return np.where(np.arange(N) == 7, value, 1.0)


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
EQUAL = "in column number 1, of which some become equal"


@pytest.mark.parametrize("make", ESTIMATORS)
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (X.astype("M8[D]"), DATES),
        *((library.DataFrame(TEXTS), r"'maker', 'day'\. Encode texts") for library in (pd, pl)),
        *((kind(GAP), "NaN.*SimpleImputer") for kind in (np.array, csr_array)),
        (np.ma.masked_equal(X, X.max()), "NaN.*SimpleImputer"),
        (StoredRows(GAP, 100), "NaN.*SimpleImputer"),
        (TWINS, "several columns of the name 'ash'; expected"),
        (_column(list(TIMES)).tolist(), NO_NUMBERS),
        (_column(list((TIMES - TIMES[0]).to_numpy())), NO_NUMBERS),
        (_column([each if i % 2 else i for i, each in enumerate(TIMES)]), NO_NUMBERS),
        (_column(np.where(pd.isna(PARTLY), pd.NaT, PARTLY)), "NaN: 89 of 178 rows .* number 1"),
        (_column([np.datetime64("NaT")] * N), "NaN: 178 of 178 rows .* number 1"),
        (_column([10**400 + k for k in range(N)]), "beyond 1.8e308 in column number 1; expected"),
        (_column([10**30 + k for k in range(N)]), EQUAL),
        (_column([LONG] * N), "infinity or a value too large"),
        *((kind(NUMBERED), EQUAL) for kind in (np.array, csr_array, da.from_array)),
        (pd.DataFrame(NUMBERED, columns=["a", "b"]), "up to .* in column 'b', of which some"),
        (da.from_array(np.where(X.max() == X, np.inf, X)), "infinity or a value too large"),
        (da.from_array(X.astype(complex)), "real numbers; got dtype complex128"),
        (X.astype(complex), "Complex data not supported: .* dtype complex128. Give the real and"),
        ([[1.0, 2.0], [3.0]] * (N // 2), "rows of different lengths"),
        (X / np.abs(X).max() * 1.7e308, r"up to .*e\+306 in column number 0; expected .* 1e\+120"),
        (X * 5e-324, "expected a largest one from 1e-120 to .* Take another unit"),
        (_column([{}] * N), "X must have a number in each place: .* of type dict"),
    ],
)
def test_rows_that_are_no_numbers_of_float64_are_refused(make, rows, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make(2).fit(rows, Y)


@pytest.mark.parametrize("make", SUPERVISED)
@pytest.mark.parametrize(
    ("y", "message"),
    [
        (Y[:-1], "inconsistent numbers of samples"),
        ({"a": 1}, "got a dict"),
        ((label for label in [*Y]), "got a generator"),
        (np.ones((N, 2), dtype=int), "same labels in all rows"),
        (X[:, [12, 12]].astype(int), "whole numbers, which may be classes or numbers"),
        ([["a", f"{k}"] for k in range(N)], "column 1 of `y` has 178 different"),
        (csr_array(2 * LABELS), "must be an indicator of labels"),
        (TIMES, "`y` has 178 different dates"),
        (LISTS, "`y` has rows of different lengths"),
        (pd.Series(LISTS).to_numpy(), "`y` has values of type list; expected a string or a number"),
        ([], r"`y` is empty, of shape \(0,\)"),
        (Y.astype("S"), r"`y` has dtype \|S21; .* strings by `y.astype\(str\)`"),
        (X[:, 0] * 1j, "Complex data not supported: `y` .* complex128. Give the real and"),
        (np.zeros(N, dtype=[("a", float)]), "`y` has records, .* give one of its fields"),
        (X[:, 0] * LONG, "y contains infinity or a value too large"),
    ],
)
def test_targets_that_are_none_are_refused(make, y, message):
    with pytest.raises(ValueError, match=message):
        make(1).fit(X, y)


@pytest.mark.parametrize("make", SUPERVISED)
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (_but_one(-1.0), "-1 in row 7"),
        (_but_one(np.nan), "weight 0"),
        (np.zeros(N), "zero"),
        *((np.ones(shape), "shape") for shape in (3, (N, 2))),
        (np.ones(N) * 1j, "real .* one for each row; got dtype complex128"),
        ([10**400] * N, "real numbers, one for each row"),
        (np.ma.masked_equal(Y, 1), "masked .*give these rows the weight 0"),
        ((Y == 1) * 1.0, "one class only"),
        (_but_one(1e300), r"is 1e\+300 in row 7, so much that all other rows together count no"),
        (np.logspace(-150, 150, N), r"`sample_weight` is 1e\+150 in row .*, so much"),
        ([[1.0]] + [[2.0, 3.0]] * (N - 1), "`sample_weight` has rows of different lengths"),
        (_but_one(1.0) * LONG, "contains NaN or infinity"),
    ],
)
def test_weights_that_are_none_are_refused(make, weights, message):
    with pytest.raises(ValueError, match=message):
        make(1).fit(X, Y, sample_weight=weights)


GIVEN = [
    (DEFAULT, {"X": da.from_array(GAP)}, "1 of 178 rows .*, the first number 12"),
    (DEFAULT, {"X": pd.DataFrame(X).assign(gap=GAPS).rename(columns=str)}, "89 of 178 rows have"),
    (DEFAULT, {"X": np.ones((N, 4))}, "nothing to reduce"),
    (DEFAULT, {"X": da.from_array(X[0]), "y": Y[:13]}, "rows and columns; got shape"),
    (DEFAULT, {"X": da.from_array(X), "y": Y[:-1]}, "inconsistent numbers of samples"),
    (ColoredMVU(), {"X": X.astype("M8[D]")}, DATES),
    (UnsupervisedIKDR(3), {"X": WIDE}, "UnsupervisedIKDR needs dense rows.*TruncatedSVD"),
    (SemiSupervisedIKDR(3), {"y": Y[:100]}, "X has 178 rows, y has shape .* get NaN$"),
    (SemiSupervisedIKDR(3, target="gaussian"), {}, "`target` must be one of"),
    (PredictiveIKDR(class_weight={"dolcetto": 2}), {"y": NAMES}, "dolcetto"),
    (BALANCED, {"y": X[:, 0]}, "read as numb.* target='classes'"),
    (BALANCED, {"y": LABELS}, "several labels; give `sample_weight`$"),
    *(
        (PredictiveIKDR(avoid_weight=each), AVOID, "`avoid_weight` must be a positive finite num")
        for each in (-1, np.nan, "much", True)
    ),
    (PredictiveIKDR(avoid_weight=1e300), AVOID, r"`avoid_weight` is 1e\+300; .* at most 1,000,000"),
    *(
        (PredictiveIKDR(5, max_features=most), FLAT, "vary in 4 directions, fewer than the 5 new")
        for most in (None, "auto", 6)
    ),
    (AVOIDING, {"y": np.c_[Y, np.ones(N)]}, "column 1 of `y` has one class only"),
    (AVOIDING, {"y": np.c_[Y, TENTH]}, "column 1 of .* no value in 160 of 178 rows"),
    (AVOIDING, {"y": np.c_[X[:, 0], Y]}, "column 0 of .*126 different labels"),
    (AVOIDING, {"y": Y[:100]}, r"Each row needs a label to avoid$"),
    (AVOIDING, {"y": np.where(np.isnan(TENTH), pd.NA, NAMES)}, "160 of 178 rows .* of their own"),
    (DEFAULT, {"groups": np.arange(N) % 3}, "has 3 groups, the largest of 60 rows; .* least 4"),
    (DEFAULT, {"groups": Y[1:]}, "has 177 values for 178 rows"),
    (DEFAULT, {"groups": np.r_[np.nan, Y[1:]]}, "`groups`"),
    (DEFAULT, {"groups": LABELS}, "2d array|should be a 1d"),
    (hsic_model(), {"groups": Y}, "SupervisedIKDR has no such rows; leave it out"),
]
CLUSTERS = "`n_clusters` must be a whole number from 1 to 177"
NOT_DEFINITE = r"is not positive definite.*are for SupervisedIKDR"
LOCAL = "relative_gaussian"
INDEFINITE = ("distance", "multiquadric", "squared", LOCAL)
PARAMETERS = [
    (PredictiveIKDR(class_weight="even"), "balanced"),
    (PredictiveIKDR(class_weight=1), "must be a dict.*got 1"),
    *(
        (PredictiveIKDR(class_weight={0: w}), f"{w!r} for the class 0; expected numbers from 0")
        for w in ("a", -1)
    ),
    (PredictiveIKDR(class_weight={0: 0, 1: 0, 2: 0}), "zero"),
    (PredictiveIKDR(13), "from 1 to 12 for 13 features, .* got 13"),
    *((PredictiveIKDR(q), f'must be .*, "auto" or None; got {q!r}') for q in (0, 1.5, True, "x")),
    (PredictiveIKDR(warm_start="yes"), "`warm_start` must be True or False; got 'yes'"),
    (PredictiveIKDR(2, max_features=0), "`max_features` must be .* from 1 to 13 .*; got 0"),
    *(
        (PredictiveIKDR(2, max_features=k), f'"auto", "significant" or None; got {k!r}')
        for k in (14, 2.5, True, "all")
    ),
    (PredictiveIKDR(2, max_features=1), "is 1, but 2 new features need 2 .* n_components=1"),
    *((PredictiveIKDR(rotation=r), f"of varimax; got {r!r}") for r in ("quartimax", True)),
    *((SemiSupervisedIKDR(3, mu=mu), "`mu` must be a positive") for mu in (0, [1.0, 2.0])),
    (AlternativeIKDR(3, mu=-1.0), "`mu` must be a positive"),
    (AlternativeIKDR(3, outer_tol=0), "`outer_tol` must be"),
    (AlternativeIKDR(3, max_outer=0), "`max_outer` must be"),
    *((UnsupervisedIKDR(k), CLUSTERS) for k in (0, 178, 2.5, "3", True)),
    *((make(3, random_state=-1), SEEDS + "-1") for make in ESTIMATORS),
    *((PredictiveIKDR(random_state=k), SEEDS) for k in (2**32, 1.5, "a", True, RNG)),
    (PredictiveIKDR(kernel="rbf"), "must be a Kernel or one of .*gaussian, linear,.*got 'rbf'"),
    *((PredictiveIKDR(kernel=each), NOT_DEFINITE) for each in INDEFINITE),
    (PredictiveIKDR(solver="ism"), "'ism' does not serve PredictiveIKDR.*or SupervisedIKDR"),
    (hsic_model(solver="ascent"), "does not serve SupervisedIKDR"),
    (UnsupervisedIKDR(3, solver="ascent"), "does not serve UnsupervisedIKDR; take 'ism'"),
    *((hsic_model(solver=each), "one of ascent, ism; got ") for each in ("newton", ISM)),
    *((hsic_model(engine=each), "landmarks, exact; got ") for each in ("x", ExactEngine)),
    (hsic_model(engine="closed_form"), "='closed_form' cannot serve .*: .*slope"),
    (hsic_model(engine="landmarks", kernel=LOCAL), "='landmarks' .* positive semi-definite"),
    *(
        (hsic_model(2, kernel=kernel, engine=engine), "Phi is not finite: the kernel overflows")
        for kernel in (Polynomial(900), Gaussian(1.0) + Polynomial(900))
        for engine in ("auto", "landmarks")
    ),
]


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [*GIVEN, *((model, {}, message) for model, message in PARAMETERS)],
)
def test_what_cannot_be_fitted_is_refused(model, given, message):
    with pytest.raises(ValueError, match=message):
        model.fit(**{"X": X, "y": Y, **given})


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_what_a_fitted_model_cannot_take_is_refused():
    fitted = PredictiveIKDR(1).fit(pd.DataFrame(X).rename(columns=str), Y)
    for rows, message in (
        (TWINS, "several columns of the name 'ash'"),
        (pd.DataFrame(TEXTS), r"'maker', 'day'\. Encode texts"),
        *((kind(GAP), "NaN.*SimpleImputer") for kind in (np.array, da.from_array)),
    ):
        with pytest.raises(ValueError, match=message):
            np.asarray(fitted.transform(rows))
    with pytest.raises(ValueError, match="got dtype datetime64"):
        fitted.inverse_transform(np.zeros((3, 1), "M8[D]"))
    filled = make_pipeline(SimpleImputer(), PredictiveIKDR(1)).fit(GAP, Y)
    assert filled.transform(GAP).shape == (N, 1)


@pytest.mark.parametrize("make", SUPERVISED)
def test_whole_numbers_beyond_float64_stay_different(make):
    """Numbers, classes, and what is to be avoided differ, though they are equal in float64."""
    X, Y = WINE[::3, :6], CULTIVAR[::3]
    small = np.arange(60)
    classes = quick(make).fit(X, 2**53 + Y.astype(np.int64)).classes_
    assert_array_equal(classes, 2**53 + np.arange(3))
    large = small.astype(np.uint64) + np.uint64(2**62), small.astype(object) * 10**30
    assert apart(*(quick(make, target="linear").fit(X, y) for y in (small, *large))) < 1e-6
    plain, beyond = (quick(make, target="numbers").fit(X, y) for y in (small, 2**53 + small))
    assert_allclose(beyond.components_, plain.components_, atol=1e-9)
    with pytest.raises(ValueError, match=r"constant, 9\.0072e\+15 in all 60 rows"):
        quick(make, target="linear").fit(X, np.full(60, 2**53 + 1))
    age = (X[:, 5] * 100).astype(np.int64)
    large = [10**30 + int(each) for each in age]
    assert apart(*(quick(make).fit(X, Y, avoid=each) for each in (age, large))) < 1e-6
    with pytest.raises(ValueError, match="`avoid` has a larger number than float64; numbers below"):
        quick(make).fit(X, Y, avoid=[10**400 * int(each) for each in age])


@pytest.mark.parametrize("make", SUPERVISED)
def test_numbers_of_extended_precision_are_those_of_float64(make):
    rows, y, long = X[::2], X[::2, 0], X[::2].astype(np.longdouble)
    expected = quick(make).fit(rows, y)
    fitted = quick(make).fit(long, long[:, 0])
    assert_array_equal(fitted.components_, expected.components_)
    assert_array_equal(fitted.transform(long), expected.transform(rows))
    for given in (csr_array(long), da.from_array(long)):
        assert_allclose(quick(make).fit(given, y).components_, expected.components_, atol=1e-6)


@pytest.mark.parametrize("make", ESTIMATORS)
def test_numbers_in_texts_are_numbers_in_fit_and_transform(make):
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    texts = X.astype(str)
    expected = make(1).fit(X, y).transform(X)
    for given in (texts, texts.tolist(), texts.astype(object)):
        assert_allclose(make(1).fit(given, y).transform(given), expected)
    with pytest.raises(ValueError, match="no numbers"):
        make(1).fit(np.where(X > 0, "yes", texts), y)


@pytest.mark.parametrize("make", SUPERVISED)
def test_targets_of_extreme_numbers_and_of_mixed_columns_are_fitted(make):
    rows, y, alcohol = X[::3], Y[::3], X[::3, 0] - X[::3, 0].mean()
    assert apart(*(quick(make).fit(rows, unit * alcohol) for unit in (1.0, 1e300))) < 1e-6
    assert quick(make).fit(rows, np.sign(alcohol) * 1.7e308).components_.shape == (1, 13)
    mixed = pd.DataFrame({"a": y, "b": NAMES[::3]})
    assert apart(*(quick(make).fit(rows, each) for each in (mixed, np.c_[y, y].astype(str)))) < 1e-6


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
