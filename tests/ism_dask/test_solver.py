from __future__ import annotations

import numpy as np
import pytest

from ism_dask.certificate import relative_residual
from ism_dask.eigen import sine
from ism_dask.engines import Problem, choose
from ism_dask.gamma import dependence
from ism_dask.kernels import Gaussian, Linear
from ism_dask.shards import cut
from ism_dask.solver import Evaluation, Record, Status, Stopping, begin, solve

RNG = np.random.default_rng(5)
X = RNG.normal(size=(60, 6))
# Classes that X does tell apart: on pure noise the iteration may swing between two subspaces.
Y = np.digitize(X[:, 0] + 0.5 * X[:, 1] ** 2, [-0.2, 0.7])


def _engine(kernel=None):
    return choose("auto", Problem.of(cut(X), kernel or Gaussian(2.0), dependence(Y)), 2)


def test_a_fixed_point_is_stationary():
    solution = solve(_engine(), 2, Stopping(tol=1e-12, angle_tol=1e-8, max_iter=500))
    assert solution.status is Status.CONVERGED
    assert relative_residual(solution.W, solution.product) < 1e-6
    np.testing.assert_allclose(solution.W.T @ solution.W, np.eye(2), atol=1e-12)
    assert solution.objective == pytest.approx(_engine().objective(solution.W), rel=1e-12)
    assert solution.history[-1].angle < 1e-8


def test_no_nearby_subspace_is_better():
    engine = _engine()
    solution = solve(engine, 2, Stopping(tol=1e-12, angle_tol=1e-8, max_iter=500))
    for seed in range(20):
        step = 0.05 * np.random.default_rng(seed).normal(size=solution.W.shape)
        nearby = np.linalg.qr(solution.W + step)[0]
        assert engine.objective(nearby) < solution.objective


def test_the_start_takes_what_phi0_determines():
    assert begin(_engine(), 2).current.W.shape == (6, 2)
    # Three classes give Phi0 rank two: a third vector would be rounding noise.
    start = begin(_engine(), 3)
    assert start.current.W.shape == (6, 2)
    assert solve(_engine(), 3, Stopping()).W.shape == (6, 3)


def test_constant_phi_takes_one_iteration():
    solution = solve(_engine(Linear()), 2, Stopping())
    assert solution.n_iter == 1
    assert solution.history[0].change == pytest.approx(0.0, abs=1e-12)


def test_states_go_on_to_the_same_bits():
    states = []
    stopping = Stopping(tol=1e-10, max_iter=50)
    whole = solve(_engine(), 2, stopping, on_iteration=states.append)
    assert [state.iteration for state in states] == list(range(1, whole.n_iter + 1))
    for state in (states[0], states[len(states) // 2], states[-1]):
        resumed = solve(_engine(), 2, stopping, state=state)
        np.testing.assert_array_equal(resumed.W, whole.W)
        assert resumed.n_iter == whole.n_iter
        assert [r.objective for r in resumed.history] == [r.objective for r in whole.history]


def test_angles_can_hold_the_iteration_back():
    loose = solve(_engine(), 2, Stopping(tol=0.5))
    held = solve(_engine(), 2, Stopping(tol=0.5, angle_tol=1e-6))
    assert held.n_iter > loose.n_iter
    assert held.history[-1].angle < 1e-6


def test_running_out_of_iterations_is_a_status():
    solution = solve(_engine(), 2, Stopping(tol=1e-14, max_iter=2))
    assert solution.status is Status.MAX_ITER
    assert solution.n_iter == 2


class _Swinging:
    """An operator whose second step goes down: J is the first diagonal entry it has picked."""

    worth = (1.0, 5.0, 3.0)

    def phi0(self):
        return np.diag([3.0, 2.0, 1.0])

    def _turned(self, W):
        return int(np.abs(W[:, 0]).argmax())

    def phi(self, W):
        at = self._turned(W)
        return Evaluation(self.worth[at], np.diag(np.roll([3.0, 2.0, 1.0], at + 1)))

    def gradient(self, W):
        evaluation = self.phi(W)
        return Evaluation(evaluation.objective, evaluation.matrix @ W)


def test_the_best_w_is_returned_and_descents_are_noted():
    solution = solve(_Swinging(), 1, Stopping(tol=1e-9, angle_tol=1e-9, max_iter=5))
    assert solution.objective == 5.0
    assert sine(solution.W, np.eye(3)[:, [1]]) == 0.0
    assert [record.ascent for record in solution.history[:3]] == [True, False, False]


@pytest.mark.parametrize(("damping", "swinging"), [(1.0, True), (0.95, False)])
def test_slow_damping_is_no_swing(damping, swinging):
    """Eigenvalues go to and fro; only where that goes on for good is there nothing to wait for."""
    values = 1.0 + 0.01 * (-damping) ** np.arange(6)
    changes = np.abs(np.diff(values)) / values[1:]
    history = [
        Record(number, 0.0, (value,), change, 0.5, 0.0, True)
        for number, (value, change) in enumerate(
            zip(values[1:-1], changes[:-1], strict=True), start=1
        )
    ]
    found = Stopping(tol=0.01).swings(history, values[-1:], changes[-1])
    assert found == swinging
