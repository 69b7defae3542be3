from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from models import first_engine, hsic_model, problem_of, watching_iterations
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import ortho_group
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.preprocessing import scale

from ism_dask.engines.operator import PhiEvaluation, ProductEvaluation, relative_residual
from ism_dask.kernels import KERNELS, Gaussian, Linear, Polynomial, RelativeGaussian
from ism_dask.linalg.subspaces import subspace_sine
from ism_dask.records.iteration import Record, State
from ism_dask.records.stopping_rule import Stopping
from ism_dask.solvers import ISM, multistart
from ism_dask.solvers.ism import solution_at, solve
from ism_dask.solvers.multistart import MultistartSearch
from ism_dask.solvers.second_order import refine_by_newton
from ism_dask.status import Status

RNG = np.random.default_rng(5)
X = RNG.normal(size=(60, 6))
# Classes that X does tell apart: on pure noise the iteration may swing between two subspaces.
Y = np.digitize(X[:, 0] + 0.5 * X[:, 1] ** 2, [-0.2, 0.7])


def _engine(kernel=None):
    return first_engine("auto", problem_of(X, Y, kernel or Gaussian(2.0)), 2)


def test_a_fixed_point_is_stationary():
    solution = solve(_engine(), 2, Stopping(tol=1e-12, angle_tol=1e-8, max_iter=500))
    assert solution.status is Status.CONVERGED
    assert relative_residual(solution.W, solution.product) < 1e-6
    assert_allclose(solution.W.T @ solution.W, np.eye(2), atol=1e-12)
    assert solution.objective == pytest.approx(_engine().objective(solution.W), rel=1e-12)
    assert solution.history[-1].angle < 1e-8


def test_angles_can_hold_the_iteration_back():
    loose = solve(_engine(), 2, Stopping(tol=0.5))
    held = solve(_engine(), 2, Stopping(tol=0.5, angle_tol=1e-6))
    assert held.n_iter > loose.n_iter
    assert held.history[-1].angle < 1e-6


class _Swinging:
    """An operator whose second step goes down: J is the first diagonal entry it has picked."""

    worth = (1.0, 5.0, 3.0)

    def phi0(self):
        return np.diag([3.0, 2.0, 1.0])

    def _turned(self, W):
        return int(np.abs(W[:, 0]).argmax())

    def phi(self, W):
        at = self._turned(W)
        return PhiEvaluation(self.worth[at], np.diag(np.roll([3.0, 2.0, 1.0], at + 1)))

    def gradient(self, W):
        evaluation = self.phi(W)
        return ProductEvaluation(evaluation.objective, evaluation.phi @ W)


def test_the_best_w_is_returned_and_descents_are_noted():
    solution = solve(_Swinging(), 1, Stopping(tol=1e-9, angle_tol=1e-9, max_iter=4))
    assert solution.objective == 5.0
    assert subspace_sine(solution.W, np.eye(3)[:, [1]]) == 0.0
    assert [record.ascent for record in solution.history[:3]] == [True, False, False]


@pytest.mark.parametrize(("damping", "swinging"), [(1.0, True), (0.95, False)])
@pytest.mark.parametrize("tol", [0.01, None])
def test_slow_damping_is_no_swing(damping, swinging, tol):
    """Eigenvalues go to and fro; only where that goes on for good is there nothing to wait for."""
    turns = (-damping) ** np.arange(6)
    values = 1.0 + 0.01 * turns if tol else 1.0 + 1e-8 * turns
    changes = np.abs(np.diff(values)) / values[1:]
    angles = 0.5 * np.abs(turns[1:])
    history = [
        Record(number, 0.0, (value,), change, angle, 0.0, True)
        for number, (value, change, angle) in enumerate(
            zip(values[1:], changes, angles, strict=True), start=1
        )
    ]
    assert Stopping(tol=tol).is_stuck(history) == swinging


def test_what_comes_to_no_end_is_given_up_in_the_end():
    def history(count, *, falls, wanders):
        return [
            Record(k, 9.0 + wanders * (k % 3), (k + 1.0,), 0.5, 0.5, 0.0, True, residual=falls**k)
            for k in range(1, count + 1)
        ]

    stopping = Stopping(tol=None, max_iter=200)
    crawls = history(21, falls=0.98, wanders=0)
    assert stopping.is_stuck(crawls)
    assert not stopping.is_stuck(crawls[:-1])
    assert not Stopping(tol=0.01, max_iter=200).is_stuck(crawls)
    assert not stopping.is_stuck(history(21, falls=0.9, wanders=0))
    # What goes up and down may come by a higher maximum, and is given more time.
    assert not stopping.is_stuck(history(99, falls=0.98, wanders=1))
    assert stopping.is_stuck(history(100, falls=0.98, wanders=1))


def test_a_w_that_turns_to_and_fro_is_given_up_at_once():
    """So do columns for which J has no use: what they gain is less than the share 3e-4 of J."""

    def history(*residuals, angle=1.0, rise=1e-4):
        return [
            Record(k, 9.0 + rise * (k % 2), (k + 1.0,), 0.5, angle, 0.0, True, residual=residual)
            for k, residual in enumerate(residuals, start=1)
        ]

    stopping = Stopping(tol=None, max_iter=200)
    assert stopping.is_stuck(history(2e-3, 1e-3, 2e-3, 2e-3))
    assert not stopping.is_stuck(history(2e-3, 1e-3, 2e-3))
    assert not stopping.is_stuck(history(2e-3, 1e-3, 1e-3, 1e-3))
    assert not stopping.is_stuck(history(2e-3, 1e-3, 2e-3, 2e-3, angle=0.8))
    assert not stopping.is_stuck(history(2e-3, 1e-3, 2e-3, 2e-3, rise=0.1))
    assert not Stopping(tol=0.01, max_iter=200).is_stuck(history(2e-3, 1e-3, 2e-3, 2e-3))


NARROW = [(load_wine, 3, 0.2), (load_wine, 2, 0.15), (load_breast_cancer, 2, 1.0)]


def _narrow(load, q, share):
    X, y = load(return_X_y=True)
    X = scale(X)
    kernel = Gaussian().resolve(X).widened(share)
    return first_engine("exact", problem_of(X, y, kernel), q)


def _searched(load, q, share, **limits):
    engine = _narrow(load, q, share)
    states = []
    search = MultistartSearch("exact", Stopping(max_iter=300, **limits), on_iteration=states.append)
    return engine, search.run(engine.problem, q), states


@pytest.mark.parametrize(("load", "q", "share"), NARROW)
@pytest.mark.parametrize("tol", [None, 1e-6])
def test_where_the_iteration_swings_steps_along_the_slope_find_a_maximum(load, q, share, tol):
    engine, solution, states = _searched(load, q, share, tol=tol)
    swung = solve(engine, q, Stopping(tol=tol, max_iter=300))
    assert swung.status is Status.SWINGS
    # Where the spectral step leaves even the maximum and wanders, that is what it says.
    assert solution.status is (Status.LOCAL if share == 0.15 else Status.CONVERGED)
    assert solution.objective > swung.objective * (1 + 1e-4)
    assert solution.residual < 1e-4
    assert [state.iteration for state in states] == list(range(1, solution.n_iter + 1))
    assert solution.n_iter == len(solution.history) > swung.n_iter
    assert_allclose(solution.W.T @ solution.W, np.eye(q), atol=1e-12)
    # Nothing nearby is better.
    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-2):
        for _ in range(5):
            near = np.linalg.qr(solution.W + size * rng.normal(size=solution.W.shape))[0]
            assert engine.objective(near) <= solution.objective * (1 + 1e-8)


def test_the_tolerance_that_was_given_is_the_published_rule():
    solution = solve(_engine(), 2, Stopping(tol=0.5))
    assert solution.status is Status.TOLERANCE
    assert solution.n_iter <= 2
    tight = solve(_engine(), 2, Stopping(tol=1e-9, max_iter=200))
    assert tight.status is Status.CONVERGED


def test_a_kernel_that_sees_nothing_is_flat():
    apart = 100.0 * np.arange(180).reshape(60, 3)
    problem = problem_of(apart, Y, Gaussian(0.01))
    assert solve(first_engine("exact", problem, 1), 1, Stopping(None)).status is Status.FLAT


# Looking for better optima: more starts, wider kernels first, steps of the second order last.

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
    assert_allclose(from_there.eigenvalues, [5.0, 4.0], rtol=1e-10)
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
    assert_allclose(fine.W.T @ fine.W, np.eye(2), atol=1e-12)
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
    assert_array_equal(again.components_, five.components_)


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
    assert_array_equal(unrefined.W, solution.W)
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
