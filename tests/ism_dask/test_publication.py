"""What goes from a fit into a paper: a table of weights, weights in units, and a caveat."""

import pickle
import warnings
from itertools import product

import numpy as np
import pytest
from models import SUPERVISED
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_wine

from ism_dask import (
    PredictiveIKDR,
    SupervisedIKDR,
    UnsupervisedIKDR,
    WeightsWarning,
    intervals,
)

X, Y = load_wine(return_X_y=True, as_frame=True)


@pytest.fixture(scope="module")
def fitted():
    return SupervisedIKDR(2).fit(X, Y)


@pytest.mark.parametrize(
    "model",
    [
        PredictiveIKDR(2),
        SupervisedIKDR(2, standardize=False),
        UnsupervisedIKDR(3, 2),
    ],
)
def test_weights_in_units_are_transform(model):
    rows = X.to_numpy() + 1000.0
    model.fit(rows, Y)
    new = model.transform(rows)
    assert_allclose(rows @ model.weights_ + model.offset_, new, atol=1e-9)
    assert_allclose((rows - model.mean_) / model.scale_ @ model.components_.T, new, atol=1e-9)


def test_the_table_has_the_largest_share_first(fitted):
    table = fitted.weights_table()
    assert list(table) == [*fitted.get_feature_names_out(), "share"]
    assert table["share"].is_monotonic_decreasing
    assert_array_equal(table.loc[X.columns].iloc[:, :2].T, fitted.components_)
    assert_array_equal(table.loc[X.columns, "share"], fitted.feature_importances_)
    assert r"color\_intensity" in table.to_latex(float_format="%.2f", escape=True)
    without_names = SupervisedIKDR(1).fit(X.to_numpy(), Y)
    assert set(without_names.weights_table().index) == {f"feature {j}" for j in range(13)}


def test_the_table_has_the_intervals():
    fitted = PredictiveIKDR(2).fit(X, Y)
    result = intervals(fitted, X, Y)
    table = fitted.weights_table(result).loc[X.columns]
    new = fitted.get_feature_names_out()
    assert list(table) == [*product((*new, "share"), ("estimate", "low", "high"))]
    assert_array_equal(table["share", "high"], result.shares_high)
    assert_array_equal(table[new[1], "low"], result.components_low[1])
    with pytest.raises(ValueError, match="`result` is of another fit; give that of `intervals`"):
        PredictiveIKDR(1).fit(X, Y).weights_table(result)


@pytest.mark.parametrize("kind", SUPERVISED)
def test_a_column_that_could_have_the_weight_of_another_is_named(kind):
    rng = np.random.default_rng(0)
    rows = X.assign(minus=-X["proline"] + rng.normal(size=178), pale=-X["flavanoids"])
    model = kind(2)
    with pytest.warns(WeightsWarning, match=r"'flavanoids' and 'pale' \(-1.000\)"):
        model.fit(rows, Y)
    assert "'proline' and 'minus' (-1.000)" in model.report_.weights_advice
    assert pickle.loads(pickle.dumps(model)).report_.weights_advice == model.report_.weights_advice
    with warnings.catch_warnings():
        warnings.simplefilter("error", WeightsWarning)
        assert model.fit(X, Y).report_.weights_advice == ""


def test_copies_that_have_no_weight_are_no_reason_to_warn():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(150, 6))
    rows[:, 5] = rows[:, 4] + 0.01 * rng.normal(size=150)
    rows[:, 1] += 2 * rows[:, 0]  # a correlation of .89, which the weights depend on
    y = rows[:, 0] - rows[:, 1] + 0.1 * rng.normal(size=150)
    assert PredictiveIKDR(1).fit(rows, y).report_.weights_advice == ""
