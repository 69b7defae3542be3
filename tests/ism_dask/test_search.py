"""Looking for better optima: more starts, wider kernels first, steps of the second order last."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from models import first_engine, hsic_model, problem_of
from scipy.stats import ortho_group
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.preprocessing import scale
from watchers import watching_iterations

from ism_dask.engines.operator import PhiEvaluation, ProductEvaluation, relative_residual
from ism_dask.kernels import KERNELS, Gaussian, Linear, Polynomial, RelativeGaussian
from ism_dask.linalg.subspaces import subspace_sine
from ism_dask.records.iteration import State
from ism_dask.records.stopping_rule import Stopping
from ism_dask.solvers import ISM, multistart
from ism_dask.solvers.ism import solution_at, solve
from ism_dask.solvers.multistart import MultistartSearch
from ism_dask.solvers.second_order import refine_by_newton
from ism_dask.status import Status

IRIS, SPECIES = load_iris(return_X_y=True)
IRIS = scale(IRIS)
WINE, CULTIVAR = load_wine(return_X_y=True)


def _problem(kernel, X=IRIS, y=SPECIES, rows=None):
    return problem_of(X, y, kernel.resolve(X), rows)


class Quadratic:
    """J = tr(W^T M W): every invariant subspace is stationary, one is the maximum."""

    def __init__(self, values):
        self.turn = ortho_group.rvs(len(values), random_state=0)
        self.M = self.turn @ np.diag(values) @ self.turn.T

    def phi0(self):
        return self.M

    def phi(self, W):
        return PhiEvaluation(float(np.trace(W.T @ self.M @ W)), self.M)

    def gradient(self, W):
        return ProductEvaluation(float(np.trace(W.T @ self.M @ W)), self.M @ W)

    def curvature(self, _W, Z):
        return self.M @ Z


def test_refining_leaves_a_saddle():
    operator = Quadratic(np.array([5.0, 4.0, 1.0, 0.5, -2.0]))
    end = solve(operator, 2, Stopping())
    noise = 1e-3 * np.random.default_rng(0).normal(size=(5, 2))
    saddle = np.linalg.qr(operator.turn[:, [0, 3]] + noise)[0]
    from_there = refine_by_newton(operator, _at(operator, saddle, end))
    assert subspace_sine(from_there.W, operator.turn[:, :2]) < 1e-6
    np.testing.assert_allclose(from_there.eigenvalues, [5.0, 4.0], rtol=1e-10)
    assert from_there.eigengap == pytest.approx(3.0)


def _at(operator, W, like):
    there = solution_at(operator, W, like.status)
    return replace(like, W=there.W, objective=there.objective, product=there.product)


@pytest.mark.parametrize("name", KERNELS)
def test_refining_brings_the_residual_to_rounding(name):
    engine = first_engine("auto", _problem(KERNELS[name]()), 2)
    rough = solve(engine, 2, Stopping(tol=0.1))
    fine = refine_by_newton(engine, rough)
    assert fine.objective >= rough.objective
    assert relative_residual(fine.W, fine.product) < 1e-6
    np.testing.assert_allclose(fine.W.T @ fine.W, np.eye(2), atol=1e-12)
    assert fine.history == rough.history
    # There is no subspace nearby where J is larger.
    rng = np.random.default_rng(1)
    for _ in range(10):
        nearby = np.linalg.qr(fine.W + 1e-3 * rng.normal(size=fine.W.shape))[0]
        assert engine.objective(nearby) <= fine.objective * (1 + 1e-12)


@pytest.mark.parametrize("engine", ["monomials", "landmarks"])
def test_refining_serves_engines_of_large_data(engine):
    kernel = Polynomial(3) if engine == "monomials" else Gaussian()
    model = hsic_model(2, kernel=kernel, engine=engine, solver=ISM(refine=True)).fit(IRIS, SPECIES)
    assert model.engine_ == engine
    assert model.residual_ < (1e-6 if engine == "monomials" else 1e-2)


def test_more_starts_find_more():
    X, y = (each[:300] for each in load_digits(return_X_y=True))
    kernel = Polynomial(3)
    one, five, again = (
        hsic_model(2, kernel=kernel, solver=ISM(restarts=k)).fit(X, y) for k in (0, 4, 4)
    )
    assert five.objective_ > 1.2 * one.objective_
    np.testing.assert_array_equal(again.components_, five.components_)


LOOKING_FURTHER = [ISM(restarts=3), ISM(continuation=True), ISM(restarts=2, continuation=True)]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(1, 7))
def test_what_looks_further_never_finds_less(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(int(rng.integers(20, 60)), 6))
    y = np.digitize(X[:, 0] + X[:, 1] ** 2 + 0.5 * rng.normal(size=len(X)), [0.0, 1.5])
    kernel = [Gaussian(0.3), Gaussian("median"), Polynomial(2, 0.0)][seed % 3]
    plain, *more = (
        hsic_model(1 + seed % 4, kernel=kernel, solver=solver).fit(X, y).objective_
        for solver in (ISM(), *LOOKING_FURTHER)
    )
    assert min(more) >= plain * (1 - 1e-12)


def test_continuation_begins_with_what_wider_kernels_find():
    seen: list[State] = []
    plain = hsic_model(4, kernel=Gaussian(0.5), solver=ISM(tol=1e-3))
    model = clone(plain).set_params(solver=ISM(tol=1e-3, continuation=True))
    with watching_iterations(seen.append):
        model.fit(WINE, CULTIVAR)
    # The steps that lead there are not reported.
    assert [state.iteration for state in seen] == list(range(1, model.n_iter_ + 1))
    assert model.kernel_ == Gaussian(0.5)
    assert model.objective_ > plain.fit(WINE, CULTIVAR).objective_


@pytest.mark.parametrize("kernel", [Linear(), RelativeGaussian(), Polynomial(2)])
def test_what_has_no_width_begins_as_it_is(kernel):
    wider, own = (hsic_model(2, kernel=kernel, solver=ISM(continuation=c)) for c in (True, False))
    wider.fit(IRIS, SPECIES)
    own.fit(IRIS, SPECIES)
    assert [each.objective for each in wider.history_] == [each.objective for each in own.history_]


def test_the_cap_is_for_all_starts_together(monkeypatch):
    begun = []
    solve_once = multistart._SearchRun._solve_once

    def counted(*given):
        begun.append(given)
        return solve_once(*given)

    monkeypatch.setattr(multistart._SearchRun, "_solve_once", counted)
    search = MultistartSearch("auto", Stopping(tol=1e-12, max_seconds=1e-9), ISM(restarts=999))
    found = search.run(_problem(Polynomial(3)), 2)
    assert found.status is Status.OVER_CAP
    assert found.n_iter == 1
    assert len(begun) == 1


def test_the_cap_is_for_the_last_steps_too():
    rough = Stopping(tol=1e-12, max_iter=2)
    engine = first_engine("exact", _problem(Gaussian(0.5)), 2)
    solution = solve(engine, 2, rough)
    unrefined = refine_by_newton(engine, solution, Stopping(max_seconds=1e-9))
    assert unrefined.status is Status.OVER_CAP
    np.testing.assert_array_equal(unrefined.W, solution.W)
    search = MultistartSearch("exact", Stopping(tol=1e-12, max_seconds=1e-9), ISM(refine=True))
    assert search.run(_problem(Gaussian(0.5)), 2).status is Status.OVER_CAP


def test_a_step_to_no_number_is_not_taken():
    class Cliff(Quadratic):
        def gradient(self, W):
            found = super().gradient(W)
            return found if np.allclose(W, start) else replace(found, objective=np.nan)

    operator = Cliff(np.array([5.0, 4.0, 1.0, 0.5, -2.0]))
    start = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 2)))[0]
    like = solve(Quadratic(np.array([5.0, 4.0, 1.0, 0.5, -2.0])), 2, Stopping())
    # But for a step so short that it is none.
    assert subspace_sine(refine_by_newton(operator, replace(like, W=start)).W, start) < 1e-4
