"""How y is read: gaps, labels, columns and scores, in the ways that users have them."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_wine
from sklearn.exceptions import DataConversionWarning

from ism_dask import AlternativeIKDR, SemiSupervisedIKDR
from ism_dask.estimators.partial_targets import centred_labels, partial_scores

X, Y = load_wine(return_X_y=True)
LABELLED = np.arange(178) % 10 == 0
PART = np.where(LABELLED, Y, np.nan)
NAMES = np.array(["barbera", "grignolino", "barolo"])


def entries(values, gap):
    """Return a list of `values` at the rows LABELLED, and `gap` at others."""
    return [
        value if labelled else gap
        for value, labelled in zip(values.tolist(), LABELLED, strict=True)
    ]


def same(first, second):
    assert_array_equal(first.Y, second.Y)
    for one, other in ((first.groups, second.groups), (first.classes, second.classes)):
        assert (one is None) == (other is None)
        if one is not None:
            assert_array_equal(one, other)


@pytest.mark.parametrize("target", ["auto", "linear"])
@pytest.mark.parametrize("gap", [None, np.nan, pd.NA, Decimal("nan")])
def test_numbers_with_gaps_of_any_kind_are_numbers(gap, target):
    expected = partial_scores(np.where(LABELLED, X[:, 0], np.nan), 178, target)
    assert expected.groups is None
    same(partial_scores(entries(X[:, 0], gap), 178, target), expected)


def test_a_fit_is_the_same_with_none_as_with_nan():
    with_none = SemiSupervisedIKDR(3).fit(X, entries(X[:, 0], None))
    with_nan = SemiSupervisedIKDR(3).fit(X, np.where(LABELLED, X[:, 0], np.nan))
    assert not hasattr(with_none, "classes_")
    assert_array_equal(with_none.components_, with_nan.components_)


@pytest.mark.parametrize("target", ["auto", "classes"])
@pytest.mark.parametrize("gap", [None, np.nan, pd.NA, -1])
def test_whole_numbers_and_strings_with_gaps_of_any_kind_are_classes(gap, target):
    expected = partial_scores(PART, 178, target)
    assert_array_equal(expected.classes, [0, 1, 2])
    same(partial_scores(entries(Y, gap), 178, target), expected)
    same(partial_scores(np.array(entries(Y, gap), dtype=object), 178, target), expected)
    known = partial_scores(entries(np.sort(NAMES)[Y], gap), 178, target)
    assert_array_equal(known.classes, np.sort(NAMES))
    assert_array_equal(known.groups, expected.groups)
    assert_array_equal(known.Y, expected.Y)


def test_gaps_of_several_kinds_in_one_column():
    known = partial_scores([0, 1, None, -1, np.nan, pd.NA, 1], 7, "auto")
    assert_array_equal(known.groups, [0, 1, -1, -1, -1, -1, 1])
    known = partial_scores([0.5, 1, None, -1, 2], 5, "auto")
    assert known.groups is None
    assert_array_equal(np.isnan(known.Y[:, 0]), [False, False, True, False, False])


@pytest.mark.parametrize(
    ("dtype", "values", "classes"),
    [
        ("string", ["a", "b", pd.NA, "a"], ["a", "b"]),
        ("str", ["a", "b", None, "a"], ["a", "b"]),
        ("category", ["a", "b", None, "a"], ["a", "b"]),
        ("boolean", [True, False, pd.NA, True], [False, True]),
        ("Int64", [2, 1, pd.NA, 2], [1, 2]),
        ("datetime64[ns]", ["2020-01-01", "2020-01-02", None, "2020-01-01"], None),
    ],
)
@pytest.mark.parametrize("framed", [False, True])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
def test_columns_of_pandas(dtype, values, classes, framed):
    column = pd.Series(values, dtype=dtype)
    known = partial_scores(column.to_frame() if framed else column, 4, "auto")
    assert_array_equal(known.groups >= 0, [True, True, False, True])
    assert known.groups[0] == known.groups[3] != known.groups[1]
    assert classes is None or known.classes.tolist() == classes
    with pytest.raises(ValueError, match="no value in 1 of 4 rows"):
        centred_labels(column, 4)


def test_a_frame_of_nullable_numbers():
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1]}).convert_dtypes()
    frame.loc[~LABELLED] = pd.NA
    expected = partial_scores(np.where(LABELLED[:, None], X[:, :2], np.nan), 178, "auto")
    same(partial_scores(frame, 178, "auto"), expected)
    same(partial_scores(frame.astype(object), 178, "auto"), expected)


def test_other_labels_that_can_be_sorted():
    days = [date(2020, 1, 1), date(2020, 1, 2), None, date(2020, 1, 1)]
    assert_array_equal(partial_scores(days, 4, "auto").groups, [0, 1, -1, 0])
    known = partial_scores(np.array([b"a", b"b", b"a"]), 3, "auto")
    assert known.classes.tolist() == [b"a", b"b"]


@pytest.mark.parametrize("given", [["a", 1, "b", 2], ["a", 1, None, 2], ["a", 0.5, np.nan, "b"]])
def test_labels_that_are_strings_and_numbers_are_refused(given):
    message = r"cannot be compared .*of type (int|float), str\); expected all strings or all num"
    for target in ("auto", "classes"):
        with pytest.raises(ValueError, match=message):
            partial_scores(given, 4, target)
    with pytest.raises(ValueError, match=message):
        centred_labels(["a" if each in (None, np.nan) else each for each in given], 4)


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
        (np.ones((178, 0)), "auto", r"got \(178, 0\)"),
        (NAMES[np.column_stack([Y, Y])], "linear", r"column 0 of `y` must be .* got dtype <U10"),
        (np.column_stack([Y, 0 * Y]), "classes", "column 1 of `y` has one class only"),
        (np.column_stack([Y, np.full(178, np.nan)]), "auto", "column 1 of `y` has no scores"),
        (np.full((178, 2), "a", dtype=object), "linear", "got values of type str"),
        (NAMES[Y], "linear", "must be numbers where it is no labels"),
        (entries(NAMES[Y], None), "linear", 'go with target="classes"'),
        (Y * 1j, "auto", "real numbers; got dtype complex128"),
        (entries(Y + 0.5, 1j), "linear", "dtype complex128"),
        ([np.inf, None, *Y[2:]], "classes", "infinity"),
        ([10**400, *X[1:, 0]], "auto", "must be numbers"),
        ([Decimal("1e999"), *X[1:, 0]], "auto", "infinity"),
        (
            np.column_stack([Y, np.full(178, 0.1)]),
            "auto",
            "column 1 of `y` is constant, 0.1 in all",
        ),
        (np.where(LABELLED, 0.1, np.nan), "linear", "`y` is constant, 0.1 in all 18 rows"),
        ([None] * 178, "auto", "no scores: every row is NaN, None"),
        ([None, -1] * 89, "auto", "no labels: -1"),
        (Y[:100], "auto", "get NaN$"),
        (np.full(178, np.inf), "auto", "get NaN$"),
    ],
)
def test_scores_that_cannot_be(y, target, message):
    with pytest.raises(ValueError, match=message):
        partial_scores(y, 178, target)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.ones((178, 2, 1)), r"shape \(178,\).* \(178, 2, 1\)"),
        (np.ones((178, 0)), r"shape \(178,\).* \(178, 0\)"),
        (np.column_stack([Y, np.ones(178)]), "column 1 of the .* avoid: `y` has one class only"),
        (np.column_stack([Y, entries(Y, np.nan)]), "column 1 of .* no value in 160 of 178 rows"),
        (np.column_stack([X[:, 0], Y]), "column 0 of .*126 different labels"),
        (Y[:100], r"Each row needs a label to avoid$"),
        (np.full(178, np.inf), r"Each row needs a label to avoid$"),
        *(
            (entries(labels, gap), "no value in 160 of 178 rows .* class of their own")
            for labels in (Y, NAMES[Y])
            for gap in (np.nan, None, pd.NA)
        ),
    ],
)
def test_clusterings_to_avoid_that_cannot_be(y, message):
    with pytest.raises(ValueError, match=message):
        AlternativeIKDR(3).fit(X, y)


@pytest.mark.parametrize("factor", [2.0**660, 2.0**-660, -(2.0**3)])
@pytest.mark.parametrize("target", ["auto", "linear"])
def test_the_size_of_scores_does_not_count(factor, target):
    several = np.where(LABELLED[:, None], X[:, :2], np.nan)
    for given in (several, several[:, 0]):
        expected = partial_scores(given, 178, target).Y
        scaled = partial_scores(given * factor, 178, target).Y
        assert_array_equal(scaled, np.sign(factor) * expected)
        assert_allclose(expected[LABELLED].mean(axis=0), 0, atol=1e-12)
        assert_allclose(expected[LABELLED].std(axis=0), 1)


def test_rows_of_a_class_keep_it_where_another_centre_is_nearer():
    wrong = PART.copy()
    wrong[[0, 10, 20]] = 2
    model = SemiSupervisedIKDR(3).fit(X, wrong)
    assert_array_equal(model.labels_[LABELLED], wrong[LABELLED])
    assert (model.predict(X)[[0, 10, 20]] == model.labels_[50]).any()
