"""Fits that avoid other variables s, or that are given them."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sklearn
from definition import Definition, centred, dense_gamma
from models import first_engine, problem_of
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from ism_dask import ComponentsWarning, PredictiveIKDR, SupervisedIKDR
from ism_dask.gamma.base import avoiding
from ism_dask.gamma.side_information import (
    _RIDGES,
    SideInformation,
    SideRegression,
    conditional,
    remainder,
)
from ism_dask.gamma.targets import target_dependence
from ism_dask.kernels import Gaussian, Linear, Polynomial

N = 60
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(N, 5))
CLASSES, NUMBERS = RNG.integers(0, 3, N), RNG.normal(size=N)
SEX = RNG.choice(["f", "m"], N)
AGE = RNG.integers(18, 80, N)
SIDES = {"classes": SEX, "whole numbers": AGE, "numbers": RNG.normal(size=(N, 2))}
SIDES["both"] = pd.DataFrame({"sex": SEX, "age": AGE})


def _confounded(n, seed):
    """Return rows, y and s; y and s have a column each, and the other columns tell both."""
    rng = np.random.default_rng(seed)
    y, s, X = rng.integers(0, 2, n), rng.integers(0, 2, n), rng.normal(size=(n, 6))
    X[:, 0] += 2.0 * y + 1.5 * s
    X[:, 1] += 1.5 * y
    X[:, 2] *= np.where(s, 2.0, 0.7)
    X[:, 3] += 1.5 * s
    return X, y, s


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("y", [CLASSES, NUMBERS], ids=["y classes", "y numbers"])
def test_gamma_is_the_difference_in_units_of_the_norms(side, y):
    explained = target_dependence(y)
    avoided = SideInformation.from_columns("avoid", SIDES[side], N).dependence()
    G, S = dense_gamma(explained), dense_gamma(avoided)
    difference = G - 3.0 * np.linalg.norm(G) / np.linalg.norm(S) * S
    whole, some = avoiding(explained, avoided, 3.0), np.arange(0, N, 3)
    assert_allclose(dense_gamma(whole), difference, atol=1e-12)
    part = centred(difference[np.ix_(some, some)])
    assert_allclose(dense_gamma(whole.part(some)), part, atol=1e-12)
    assert not whole.gamma.is_psd


def test_columns_of_classes_are_combined_and_count_like_numbers():
    columns = np.column_stack([SEX, CLASSES.astype(str)])
    # The columns of a frame may have one name.
    frame = pd.DataFrame(columns, columns=["s", "s"])
    same, other = (SideInformation.from_columns("avoid", s, N).labels for s in (frame, columns))
    assert_array_equal(same, other)
    sides = columns, np.char.add(SEX, CLASSES.astype(str))
    read = (SideInformation.from_columns("avoid", s, N) for s in (*sides, SIDES["both"], SEX, AGE))
    pair, combined, both, *parts = (dense_gamma(each.dependence()) for each in read)
    assert_allclose(pair, combined, atol=1e-12)
    assert_allclose(both, sum(part / np.linalg.norm(part) for part in parts), atol=1e-12)


WIDE = Gaussian(1.5)
SERVED = [("exact", WIDE), ("landmarks", WIDE), ("landmarks", Polynomial(2))]
SERVED += [("closed_form", Linear())]


@pytest.mark.parametrize(("engine", "kernel"), SERVED)
def test_every_engine_takes_negative_weights(engine, kernel):
    """The error bound of each engine holds for the difference, relative to its J."""
    avoided = SideInformation.from_columns("avoid", AGE, N).dependence()
    dependence = avoiding(target_dependence(CLASSES), avoided, 10.0)
    W = np.linalg.qr(RNG.normal(size=(5, 2)))[0]
    J = first_engine(engine, problem_of(ROWS, dependence, kernel, 20), 2).double.value(W)
    truth = Definition(ROWS, dense_gamma(dependence), kernel).objective(W)
    assert abs(J.objective - truth) <= max(J.error, 1e-9) * abs(truth)


def test_new_features_do_not_tell_what_they_avoid():
    (X, y, s), (X_other, y_other, s_other) = _confounded(250, 0), _confounded(2000, 1)
    plain, fair = PredictiveIKDR(1).fit(X, y), PredictiveIKDR(1).fit(X, y, avoid=s)

    def accuracy(model, labels, others):
        return SVC().fit(model.transform(X), labels).score(model.transform(X_other), others)

    assert accuracy(fair, s, s_other) < 0.55 < 0.56 < accuracy(plain, s, s_other)
    assert accuracy(fair, y, y_other) > accuracy(plain, y, y_other) - 0.03
    assert fair.converged_
    assert fair.report_.avoided.features > 0.1
    assert abs(fair.report_.avoided.new_features) < 0.01
    assert plain.report_.avoided is None


def test_given_finds_the_direct_effect():
    """y follows from s, of which x_0 is a noisy copy, and from x_1, which depends on s as well."""
    rng = np.random.default_rng(6)
    s, X = rng.normal(size=250), rng.normal(size=(250, 6))
    X[:, 0] = s + 0.3 * X[:, 0]
    X[:, 1] += 0.8 * s
    y = 2 * np.sin(2 * s) + X[:, 1] + 0.3 * rng.normal(size=250)
    assert PredictiveIKDR(1).fit(X, y).feature_importances_[1] < 0.7
    assert PredictiveIKDR(1).fit(X, y, given=s).feature_importances_[1] > 0.95


def test_a_column_that_is_given_is_like_no_other():
    """Its residual given itself is 0, and its weight does not change the new features."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 6))
    y = np.digitize(X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.2 * rng.normal(size=80), [0, 1])
    model = PredictiveIKDR(1).fit(X, y, avoid=X[:, 2], given=X[:, 3])
    assert not model.report_.weights_advice


def test_what_is_left_of_y_is_the_residual_of_a_kernel_regression():
    """The ridge is the one of least generalised cross-validation score, by the definition."""
    side = SideInformation.from_columns("given", AGE, N).dependence()
    regression = SideRegression.on_side(side)
    K, Y = dense_gamma(side), np.eye(3)[CLASSES]
    Y = Y - Y.mean(axis=0)
    largest = np.linalg.eigvalsh(K)[-1]
    for column, residual in zip(Y.T, remainder([regression], Y, "y")[0].T, strict=True):
        fits = []
        for ridge in _RIDGES * largest:
            smoother = np.linalg.solve(K + ridge * np.eye(N), K).T
            left = column - smoother @ column
            fits.append((left @ left / (1 - (np.trace(smoother) + 1) / N) ** 2, ridge))
        ridge = min(fits)[1]
        predicted = KernelRidge(alpha=ridge, kernel="precomputed").fit(K, column).predict(K)
        assert_allclose(residual, column - predicted, atol=1e-6)
    left = conditional(target_dependence(CLASSES), regression)
    assert_allclose(left.factor, remainder([regression], Y, "y")[0], atol=1e-12)


@pytest.mark.parametrize("argument", ["avoid", "given"])
@pytest.mark.parametrize("weights", [None, np.arange(1, N + 1)])
def test_something_of_y_has_to_be_left(argument, weights):
    fit = partial(PredictiveIKDR(1).fit, ROWS, CLASSES, weights)
    parts = 2 * CLASSES + (SEX == "f")  # y follows from it
    for side in (CLASSES, parts):
        with pytest.raises(ValueError, match=f"`{argument}` explains y completely"):
            fit(**{argument: side})
    # One row that tells y from it is enough.
    parts[0] = parts[np.argmax(CLASSES[0] != CLASSES)]
    if argument == "given":
        fit(given=parts)
    else:  # what is left of y is less than what X W tells of the parts
        with pytest.raises(ValueError, match="no W was found that explains y and avoids `avoid`"):
            fit(avoid=parts)


def test_hsic_warns_if_no_w_tells_more_of_y_than_of_what_is_avoided():
    rng = np.random.default_rng(0)
    s = rng.normal(size=60)
    X = np.column_stack([s, *rng.normal(size=(2, 60))])
    with pytest.warns(ComponentsWarning, match=r"J is -.* \(10\).* Lower `avoid_weight`"):
        SupervisedIKDR(1).fit(X, np.sin(2 * s), avoid=s)


@pytest.mark.parametrize("argument", ["avoid", "given", "sample_weight"])
def test_searches_and_validations_pass_on_what_is_known_of_rows(argument):
    X, y, s = _confounded(120, 7)
    known = np.arange(1.0, 121.0) if argument == "sample_weight" else s
    with sklearn.config_context(enable_metadata_routing=True):
        scale, judge = (
            each.set_fit_request(sample_weight=False) for each in (StandardScaler(), SVC())
        )
        model = PredictiveIKDR(1, kernel=WIDE, max_features=None)
        step = clone(model).set_fit_request(**{argument: True})
        steps = make_pipeline(scale, step, judge.set_score_request(sample_weight=True))
        search = GridSearchCV(steps, {"predictiveikdr__n_components": [1]}, cv=2)
        best = search.fit(X, y, **{argument: known}).best_estimator_
        folds = KFold(2).split(X)
        half = cross_validate(
            steps, X, y, cv=KFold(2), params={argument: known}, return_estimator=True
        )["estimator"][0]
    for fitted, rows in ((best, np.arange(120)), (half, next(folds)[0])):
        Z = StandardScaler().fit_transform(X[rows])
        direct = clone(model).fit(Z, y[rows], **{argument: known[rows]})
        components = fitted.named_steps["predictiveikdr"].components_
        assert_array_equal(components, direct.components_)


@pytest.mark.parametrize("argument", ["avoid", "given"])
@pytest.mark.parametrize(
    ("side", "message"),
    [
        (SEX[:-1], f"has {N - 1} rows, X has {N} rows"),
        (np.ones(N), "same in all rows"),
        (np.where(np.arange(N) == 3, np.nan, NUMBERS), "no value in 1 of 60 rows"),
        (pd.DataFrame({"sex": SEX, "age": [None, *AGE[1:]]}), "column 'age', which has no value"),
        (np.where(np.arange(N) == 3, np.inf, NUMBERS), "infinite values"),
        (np.array([f"name {k}" for k in range(N)]), "60 different labels"),
        (np.zeros((N, 0)), "no columns"),
        (np.zeros((N, 2, 2)), "expected \\(60,\\) or"),
        (scipy.sparse.csr_array(np.eye(N)), "dense"),
        (np.array([1j] * N), "expected numbers, or labels"),
    ],
)
def test_bad_side_information_is_refused(argument, side, message):
    with pytest.raises(ValueError, match=f"`{argument}`.*{message}"):
        PredictiveIKDR(1).fit(ROWS, CLASSES, **{argument: side})


@pytest.mark.parametrize("argument", ["avoid", "given"])
def test_rows_of_weight_zero_do_not_make_classes_numbers(argument):
    weights = (np.arange(N) >= 3).astype(float)
    side = np.where(weights, np.arange(N) % 3, np.arange(N) + 0.5)
    fitted = PredictiveIKDR(1, avoid_weight=0.1).fit(ROWS, NUMBERS, weights, **{argument: side})
    rest = PredictiveIKDR(1, avoid_weight=0.1).fit(ROWS[3:], NUMBERS[3:], **{argument: side[3:]})
    assert_allclose(fitted.components_, rest.components_, atol=1e-7)


def test_a_sparse_indicator_is_the_dense_one():
    labels = np.column_stack([ROWS[:, 0] > 0, ROWS[:, 1] > 0.5, np.zeros(N)]).astype(int)
    given = (labels, scipy.sparse.csr_array(labels))
    dense, sparse = (PredictiveIKDR(2).fit(ROWS, each) for each in given)
    assert_array_equal(dense.components_, sparse.components_)
    assert dense.feature_importances_[:2].sum() > 0.9


def test_many_labels_are_their_principal_columns():
    Y = (RNG.normal(size=(150, 1)) + RNG.normal(size=(150, 120)) > 0.5).astype(int)
    known = target_dependence(Y)
    K = centred((Y @ Y.T).astype(float))
    left = np.trace(K - dense_gamma(known)) / np.trace(K)
    assert len(known.gamma.signs) == 100
    values = np.linalg.eigvalsh(K)[::-1]
    assert_allclose(left, values[100:].sum() / values.sum(), rtol=1e-6)
