from __future__ import annotations

import numpy as np
import pytest
from models import first_engine, problem_of
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.preprocessing import scale

from ism_dask.engines.operator import PhiEvaluation, ProductEvaluation
from ism_dask.kernels import Gaussian
from ism_dask.linalg.subspaces import subspace_sine
from ism_dask.records.iteration import Record
from ism_dask.records.stopping_rule import Stopping
from ism_dask.solvers.ism import solve
from ism_dask.solvers.multistart import MultistartSearch
from ism_dask.stationarity import relative_residual
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
    np.testing.assert_allclose(solution.W.T @ solution.W, np.eye(2), atol=1e-12)
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
    np.testing.assert_allclose(solution.W.T @ solution.W, np.eye(q), atol=1e-12)
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
