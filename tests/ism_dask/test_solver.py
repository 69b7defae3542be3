from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.preprocessing import scale

from ism_dask.certificate import relative_residual
from ism_dask.eigen import sine
from ism_dask.engines import Problem, choose
from ism_dask.gamma import dependence
from ism_dask.kernels import Gaussian, Linear
from ism_dask.shards import cut
from ism_dask.shift import Shift
from ism_dask.solver import Evaluation, begin, solve
from ism_dask.states import Record, Status, Stopping

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
    solution = solve(_Swinging(), 1, Stopping(tol=1e-9, angle_tol=1e-9, max_iter=4))
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
        for number, (value, change) in enumerate(zip(values[1:], changes, strict=True), start=1)
    ]
    assert Stopping(tol=0.01).calls_for_shift(history) == swinging
    assert Stopping(tol=0.01, shifts=False).ends_swinging(history) == swinging
    assert not Stopping(tol=0.01).ends_swinging(history)


def test_j_that_falls_again_and_again_is_calls_for_shift():
    def history(falls):
        return [
            Record(number, 0.0, (number + 1.0,), 0.5, 0.5, 0.0, number > falls)
            for number in range(1, 9)
        ]

    assert Stopping(tol=0.01).calls_for_shift(history(5))
    assert not Stopping(tol=0.01).calls_for_shift(history(4))
    settled = [replace(record, change=1e-3) for record in history(8)]
    assert not Stopping(tol=0.01).calls_for_shift(settled)


NARROW = [(load_wine, 3, 0.2), (load_wine, 2, 0.15), (load_breast_cancer, 2, 1.0)]


def _narrow(load, q, share):
    X, y = load(return_X_y=True)
    X = scale(X)
    kernel = Gaussian().resolve(X).widened(share)
    return choose("exact", Problem.of(cut(X), kernel, dependence(y)), q)


@pytest.mark.parametrize(("load", "q", "share"), NARROW)
def test_where_the_bare_iteration_swings_a_shift_finds_a_maximum(load, q, share):
    engine = _narrow(load, q, share)
    states = []
    solution = solve(engine, q, Stopping(tol=1e-6, max_iter=300), on_iteration=states.append)
    assert solution.status is Status.CONVERGED
    begun = next(k for k, state in enumerate(states) if state.shift is not None)
    assert begun < 100
    # From then on J rises or stays: a W of which it fell is taken back.
    kept = [state.current.objective for state in states[begun:]]
    assert all(two >= one * (1 - 1e-9) for one, two in pairwise(kept))
    bare = max(state.best.objective for state in states[: begun + 1])
    assert solution.objective > bare * (1 + 1e-4)
    assert relative_residual(solution.W, solution.product) < 1e-3
    np.testing.assert_allclose(solution.W.T @ solution.W, np.eye(q), atol=1e-12)
    # Nothing nearby is better.
    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-2):
        for _ in range(5):
            near = np.linalg.qr(solution.W + size * rng.normal(size=solution.W.shape))[0]
            assert engine.objective(near) <= solution.objective * (1 + 1e-8)


@pytest.mark.parametrize(("load", "q", "share"), NARROW[:2])
def test_a_shifted_iteration_goes_on_bit_for_bit(load, q, share):
    engine = _narrow(load, q, share)
    states, stopping = [], Stopping(tol=1e-6, max_iter=300)
    whole = solve(engine, q, stopping, on_iteration=states.append)
    begun = next(k for k, state in enumerate(states) if state.shift is not None)
    taken_back = next(
        k for k, state in enumerate(states) if state.shift and not state.history[-1].ascent
    )
    for k in (begun - 1, begun, begun + 1, taken_back, len(states) - 2, len(states) - 1):
        again = solve(engine, q, stopping, state=states[k])
        np.testing.assert_array_equal(again.W, whole.W)
        assert again.status is whole.status
        assert again.n_iter == whole.n_iter


class _Noisy(_Swinging):
    """What an approximation says of its error, and eigenvalues that vary within it."""

    def phi(self, W):
        at = self._turned(W)
        return Evaluation(1.0, np.diag(np.roll([3.001 + 1e-3 * at, 2.0, 1.0], at + 1)), 1e-2)


def test_an_approximation_ends_where_its_eigenvalues_vary_within_its_error():
    solution = solve(_Noisy(), 1, Stopping(tol=1e-9, max_iter=50))
    assert solution.status is Status.CONVERGED
    assert solution.n_iter < 4
    assert solution.history[-1].settled
    assert solution.history[-1].change > 1e-9
    # What bounds nothing tells nothing, and what is exact is held to the tolerance.
    assert not Stopping(tol=1e-9).met(0.02, 0.0, np.inf)
    assert Stopping(tol=1e-9).met(0.004, 0.0, 0.01)
    assert not Stopping(tol=1e-9).met(0.004, 0.0)
    assert not Stopping(tol=1e-9, angle_tol=0.1).met(0.004, 1.0, 0.01)


def test_without_a_shift_what_swings_ends_with_the_best():
    engine = _narrow(*NARROW[0])
    solution = solve(engine, 3, Stopping(tol=1e-6, max_iter=300, shifts=False))
    assert solution.status is Status.SWINGS
    assert solution.n_iter < 100
    assert solution.objective == max(record.objective for record in solution.history)


def test_a_shift_leaves_what_is_stationary_where_it_is():
    rng = np.random.default_rng(0)
    M = rng.normal(size=(6, 6))
    M = M + M.T
    values, vectors = np.linalg.eigh(M)
    for chosen in ([5, 4], [5, 2], [1, 0]):
        W = vectors[:, chosen]
        # Large enough, it keeps any invariant subspace; the values are those of the matrix.
        shift = Shift(size=2 * (values[-1] - values[0]), since=0)
        found = shift.leading(M, W)
        assert sine(found.vectors, W) < 1e-7
        np.testing.assert_allclose(found.values, np.sort(values[chosen])[::-1], atol=1e-10)
        others = np.delete(values, chosen)
        assert found.following == pytest.approx(others.max())
