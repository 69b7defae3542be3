"""`max_features`, `rotation` and `contributions_`: which features, and what each new one is for."""

from itertools import combinations

import numpy as np
import pytest
from definition import Definition, dense_gamma
from models import CULTIVAR, WINE, hsic_model, projector
from numpy.testing import assert_allclose
from sklearn.preprocessing import scale

from ism_dask import PredictiveIKDR, UnsupervisedIKDR, hsic, intervals
from ism_dask.gamma.targets import class_dependence
from ism_dask.kernels import Gaussian, Polynomial, RelativeGaussian
from ism_dask.linalg.eigen import largest_eigenvalue_outside
from ism_dask.linalg.subspaces import varimax

X, Y = WINE, CULTIVAR
MEDIAN = Gaussian("median")


def criterion(loadings):
    return (loadings**2).var(axis=0).sum()


@pytest.mark.parametrize("q", [1, 2, 4])
def test_no_rotation_in_a_plane_raises_the_criterion_of_varimax(q):
    loadings = np.linalg.qr(np.random.default_rng(q).normal(size=(9, q)))[0]
    rotation = varimax(loadings)
    assert_allclose(rotation.T @ rotation, np.eye(q), atol=1e-12)
    best = loadings @ rotation
    assert criterion(best) >= criterion(loadings)
    for i, j in combinations(range(q), 2):
        for angle in np.linspace(0, np.pi, 181):
            cos, sin, turned = np.cos(angle), np.sin(angle), best.copy()
            turned[:, [i, j]] = best[:, [i, j]] @ [[cos, -sin], [sin, cos]]
            assert criterion(turned) <= criterion(best) * (1 + 1e-9)


@pytest.mark.parametrize("kernel", [MEDIAN, Polynomial(), RelativeGaussian()])
def test_a_rotation_changes_neither_j_nor_the_space(kernel):
    options = {"kernel": kernel, "warm_start": True}
    plain = hsic_model(3, **options).fit(X, Y)
    turned = hsic_model(3, rotation="varimax", **options).fit(X, Y)
    W, V = turned.components_.T, plain.components_.T
    assert_allclose(projector(turned), projector(plain), atol=1e-12)
    assert criterion(W) > 1.1 * criterion(V)
    assert turned.objective_ == plain.objective_
    definition = Definition(scale(X), dense_gamma(class_dependence(Y)), turned.kernel_)
    assert definition.objective(W) == pytest.approx(definition.objective(V), rel=1e-12)
    phi = definition.phi(W)
    # Each value belongs to the new feature of its number, and the gap ends at what is outside.
    assert_allclose(plain.eigenvalues_, np.diag(V.T @ phi @ V), rtol=1e-5)
    assert_allclose(turned.eigenvalues_, np.diag(W.T @ phi @ W), rtol=1e-4, atol=1e-3)
    assert (np.diff(turned.eigenvalues_) <= 0).all()
    outside = turned.eigenvalues_[-1] - turned.eigengap_
    assert outside == pytest.approx(largest_eigenvalue_outside(phi, W), rel=1e-3)
    assert (W[np.abs(W).argmax(axis=0), range(3)] > 0).all()
    # The next fit starts there, and ends there.
    assert turned.fit(X, Y).converged_
    assert_allclose(turned.components_.T, W, atol=0.02)


def test_a_rotation_of_clusterers_changes_no_cluster():
    plain, turned = (UnsupervisedIKDR(3, 2, rotation=each).fit(X) for each in (None, "varimax"))
    assert np.array_equal(plain.labels_, turned.labels_)
    assert np.array_equal(plain.predict(X), turned.predict(X))
    assert_allclose(projector(turned), projector(plain), atol=1e-12)
    assert criterion(turned.components_.T) > criterion(plain.components_.T)


@pytest.mark.parametrize("options", [{}, {"rotation": "varimax"}])
def test_contributions_are_j_of_each_new_feature_and_of_the_others(options):
    model = hsic_model(3, kernel=MEDIAN, **options).fit(X, Y)
    new, pairs = model.transform(X), (len(X) - 1) ** 2

    def j(columns):
        return pairs * hsic(new[:, columns], Y, kernel=model.kernel_)

    each, near = np.arange(3), {"atol": 1e-5 * model.objective_}
    assert_allclose(model.contributions_.alone, [j(each == k) for k in each], **near)
    lost = [model.objective_ - j(each != k) for k in each]
    assert_allclose(model.contributions_.lost, lost, **near)


def test_of_copies_one_remains():
    rng = np.random.default_rng(3)
    drawn = rng.normal(size=(150, 6))
    y = drawn[:, 0] * drawn[:, 1] + 0.2 * rng.normal(size=150)
    alike = drawn[:, [1]] + 0.01 * rng.normal(size=(150, 1))
    model = PredictiveIKDR(2, max_features="significant").fit(
        np.hstack([drawn, drawn[:, [0]], alike]), y
    )
    assert sorted(each % 6 for each in model.get_support(indices=True)) == [0, 1]


def test_a_choice_of_all_features_is_not_one_of_few():
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=(200, 3))
    y = drawn @ [1.0, 2.0, 3.0] + 0.3 * rng.normal(size=200)
    model = PredictiveIKDR(1, target="linear", max_features="significant").fit(drawn, y)
    assert (model.report_.full_objective, intervals(model, drawn, y).doubts) == (None, ())


@pytest.mark.parametrize("is_dense", [False, True])
def test_few_features_are_taken_where_unseen_rows_ask_for_them(is_dense):
    rng = np.random.default_rng(7)
    drawn = rng.normal(size=(150, 10))
    y = np.tanh(drawn[:, 0]) + np.cos(2 * drawn[:, 1]) + 0.3 * rng.normal(size=150)
    if is_dense:  # y depends on all columns
        drawn = drawn @ np.linalg.qr(rng.normal(size=(10, 10)))[0]
    model = PredictiveIKDR(2).fit(drawn, y)
    trial = next(each for each in model.report_.trials if each.start == "few features")
    others = max(each.explained for each in model.report_.trials if each is not trial)
    if is_dense:
        assert model.report_.full_objective is None
        assert model.get_support().all()
        assert trial.explained < others
    else:
        assert model.get_support(indices=True).tolist() == [0, 1]
        assert trial.explained > others
        again = PredictiveIKDR(2, warm_start=True)
        vars(again).update(vars(model) | {"warm_start": True})
        assert again.fit(drawn, y).get_support(indices=True).tolist() == [0, 1]
        every = PredictiveIKDR(2, max_features=None).fit(drawn, y)
        assert every.get_support().all()
        assert not any(each.start == "few features" for each in every.report_.trials)


@pytest.mark.parametrize("kernel", ["gaussian", Gaussian(1.0), Polynomial(degree=2)])
def test_w_is_a_maximum_on_its_support_and_zero_elsewhere(kernel):
    model = PredictiveIKDR(2, kernel=kernel, max_features=5, target="classes").fit(X, Y)
    support = model.get_support()
    assert support.sum() == 5
    assert (model.components_[:, ~support] == 0).all()
    W = model.components_[:, support].T
    assert_allclose(W.T @ W, np.eye(2), atol=1e-10)
    assert 0 < model.objective_ < model.report_.full_objective
    assert model.report_.trials
    assert model.converged_
    assert model.certify(X, Y).is_certified


@pytest.mark.parametrize("most", [2, "significant"])
def test_of_many_more_columns_than_rows_the_true_ones_are_found(most):
    """A fit to all 300 columns of 120 rows finds y in any of many directions."""
    rng = np.random.default_rng(6)
    wide = rng.normal(size=(120, 300))
    y = wide[:, 7] + wide[:, 200] ** 2 + 0.3 * rng.normal(size=120)
    fitted = PredictiveIKDR(2, max_features=most).fit(wide, y)
    assert {7, 200} <= set(np.flatnonzero(fitted.get_support()).tolist())
    assert np.sum(fitted.components_[:, [7, 200]] ** 2) > 1.9
