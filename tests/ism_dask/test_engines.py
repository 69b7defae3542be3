from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from definition import Definition, dense_gamma
from hypothesis import given, settings
from hypothesis import strategies as st
from models import first_engine, loaded, most_memory, problem_of
from numpy.testing import assert_allclose, assert_array_equal

from ism_dask.engines import ENGINES, Landmarks, Problem
from ism_dask.engines.row_facts import with_projection
from ism_dask.engines.tile_sums import phi_of_pairs, stripe_bytes
from ism_dask.gamma.targets import target_dependence
from ism_dask.kernels import KERNELS, Gaussian, Linear, Polynomial, RelativeGaussian, Squared
from ism_dask.linalg.eigen import leading_eigenpairs
from ism_dask.rows.shards import cut

N, D, Q = 37, 5, 2
RNG = np.random.default_rng(7)
X = RNG.normal(size=(N, D))
W = np.linalg.qr(RNG.normal(size=(D, Q)))[0]
TARGETS = {
    "classes": RNG.integers(0, 4, N),
    "linear": RNG.normal(size=N),
    "gaussian": RNG.normal(size=N),
}
SUMS = {
    "gaussian + polynomial": 0.3 * Gaussian(2.0) + 0.7 * Polynomial(degree=3),
    "linear + squared": 2.0 * Linear() + 0.5 * Squared(),
    "two local": RelativeGaussian(3) + 0.5 * RelativeGaussian(9) + Linear(),
}
ALL = {name: kind() for name, kind in KERNELS.items()} | SUMS
ALL = {name: kernel.resolve(X) for name, kernel in ALL.items()}


def _problem(kernel, target, rows=None, dtype=np.float64):
    shards = cut(X.astype(dtype), rows)
    return Problem.from_dependence(shards, ALL[kernel], target_dependence(TARGETS[target], target))


@cache
def _dense(kernel, target):
    return Definition(X, dense_gamma(target_dependence(TARGETS[target], target)), ALL[kernel])


@cache
def _expected(kernel, target):
    dense = _dense(kernel, target)
    return dense.phi0(), dense.phi(W), dense.objective(W)


def _cases():
    for engine in ENGINES:
        for kernel in ALL:
            for target in TARGETS:
                if ENGINES[engine].kind.refusal(_problem(kernel, target), Q) is None:
                    yield engine, kernel, target


def _precise(engine):
    return Landmarks(tol=1e-12) if engine == "landmarks" else engine


@pytest.mark.parametrize(("engine", "kernel", "target"), tuple(_cases()))
def test_engine_gives_the_definition(engine, kernel, target):
    phi0, phi, J = _expected(kernel, target)
    # An approximate engine has to be right to the digits that are compared.
    served = first_engine(_precise(engine), _problem(kernel, target), Q)
    digits = 1e-8 if served.approximate else 1e-10
    near = {"rtol": digits, "atol": digits * np.abs(phi).max()}
    assert_allclose(served.phi0(), phi0, rtol=1e-10, atol=1e-10 * np.abs(phi0).max())
    evaluation = served.phi(W)
    assert_allclose(evaluation.phi, phi, **near)
    assert evaluation.objective == pytest.approx(J, rel=digits)
    slope = served.gradient(W)
    assert_allclose(slope.product, phi @ W, **near)
    assert slope.objective == pytest.approx(J, rel=digits)
    assert served.objective(W) == pytest.approx(J, rel=digits)
    assert abs(evaluation.objective - J) <= evaluation.error * abs(J)
    assert evaluation.error <= (1e-4 if served.approximate else 1e-8)


@pytest.mark.parametrize("kernel", ALL)
def test_twice_phi_w_is_the_gradient_of_the_objective(kernel):
    """Of the definition, which the engines have."""
    dense, h = _dense(kernel, "classes"), 1e-5
    steps = h * np.eye(D * Q).reshape(-1, D, Q)
    rises = [dense.objective(W + step) - dense.objective(W - step) for step in steps]
    analytic = 2 * (dense.phi(W) @ W).ravel()
    assert_allclose(analytic, np.divide(rises, 2 * h), atol=2e-6 * np.abs(analytic).max())


@settings(max_examples=25)
@given(
    rows=st.integers(1, N + 5),
    kernel=st.sampled_from(sorted(ALL)),
    target=st.sampled_from(sorted(TARGETS)),
)
def test_any_row_chunking_gives_the_one_shard_answer(rows, kernel, target):
    whole = first_engine("auto", _problem(kernel, target), Q).phi(W)
    pieces = first_engine("auto", _problem(kernel, target, rows), Q).phi(W)
    scale = np.abs(whole.phi).max()
    assert_allclose(pieces.phi, whole.phi, rtol=1e-10, atol=1e-11 * scale)
    assert pieces.objective == pytest.approx(whole.objective, rel=1e-10)


def test_blocks_and_groups_larger_than_one():
    """Several blocks in a group, several groups in a shard, a ragged last shard."""
    rng = np.random.default_rng(3)
    n = 2300
    big, y = rng.normal(size=(n, 4)), rng.integers(0, 3, n)
    known = target_dependence(y)
    kernel = 0.5 * Gaussian(1.5) + Polynomial(2)
    V = np.linalg.qr(rng.normal(size=(4, 2)))[0]
    phi = Definition(big, dense_gamma(known), kernel).phi(V)
    for rows in (None, 1100):
        engine = first_engine("exact", problem_of(big, known, kernel, rows), 2)
        assert_allclose(engine.phi(V).phi, phi, rtol=1e-9, atol=1e-9 * abs(phi).max())
        assert_allclose(engine.gradient(V).product, phi @ V, rtol=1e-9, atol=1e-9 * abs(phi).max())


@pytest.mark.parametrize("kernel", sorted(ALL))
def test_float32_tiles_are_right_to_single_precision(kernel):
    _, phi, J = _expected(kernel, "classes")
    evaluation = first_engine("exact", _problem(kernel, "classes", dtype=np.float32), Q).phi(W)
    assert np.linalg.norm(evaluation.phi - phi) <= 5e-6 * np.linalg.norm(phi)
    assert evaluation.objective == pytest.approx(J, rel=2e-5)


def test_a_tile_takes_no_more_memory_than_planned():
    rng = np.random.default_rng(0)
    n, d = 6000, 300
    problem = problem_of(rng.normal(size=(n, d)), rng.integers(0, 5, n), Gaussian(20.0))
    engine = first_engine("exact", problem, Q)
    V = np.linalg.qr(rng.normal(size=(d, 10)))[0]
    pieces = [loaded(each) for each in with_projection(problem.shards, V).persisted().parts]
    planned = stripe_bytes(problem.shards.largest, engine._model, d, 10, 8)
    used = most_memory(lambda: phi_of_pairs(pieces[0], iter(pieces), engine._model))
    assert used <= planned <= 6 * used


def test_the_anchors_of_a_local_kernel_do_not_travel():
    assert _problem("relative_gaussian", "classes").kernel.anchors.shape[0] == 0


@pytest.mark.parametrize("rows", [10, 37])
def test_single_precision_start_has_the_rank_of_the_classes(rows):
    flat = _problem("gaussian", "classes", rows, dtype=np.float32)
    assert np.count_nonzero(leading_eigenpairs(first_engine("exact", flat, Q).phi0(), 4).null) == 1


def test_sums_do_not_depend_on_the_memory_at_hand(monkeypatch):
    results = []
    for budget in (10**9, 10**12):
        monkeypatch.setattr("ism_dask.engines.base.task_budget", lambda budget=budget: budget)
        results.append(first_engine("exact", _problem("gaussian", "classes", 5), Q).phi(W).phi)
    assert_array_equal(*results)


@pytest.mark.parametrize("rows", [None, 9])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", ALL)
def test_curvature_is_the_derivative_of_phi_w(kernel, target, rows):
    served, dense = first_engine("exact", _problem(kernel, target, rows), Q), _dense(kernel, target)
    Z = np.random.default_rng(11).normal(size=W.shape)
    h = 1e-5
    ahead, behind = (dense.phi(W + step * Z) @ (W + step * Z) for step in (h, -h))
    found = served.curvature(W, Z)
    size = np.abs(found).max()
    assert_allclose(found, (ahead - behind) / (2 * h), rtol=1e-5, atol=1e-5 * size)


def _in_both_precisions(rows, y, kernel, q, call):
    for kind in (np.float64, np.float32):
        yield call(first_engine("exact", problem_of(rows.astype(kind), y, kernel, 300), q))


def test_single_precision_does_not_drown_a_narrow_kernel_in_its_diagonal():
    rng = np.random.default_rng(0)
    rows, y = rng.normal(size=(600, 50)), rng.integers(0, 3, 600)
    V = np.linalg.qr(rng.normal(size=(50, 10)))[0]
    wide, single = _in_both_precisions(rows, y, Gaussian(0.3), 10, lambda engine: engine.phi(V))
    assert np.linalg.norm(single.phi - wide.phi) < 1e-3 * np.linalg.norm(wide.phi)
    assert single.objective == pytest.approx(wide.objective, rel=1e-5)
    Z = np.random.default_rng(11).normal(size=W.shape)
    for sigma in (0.3, 0.1):
        true, found = _in_both_precisions(
            X, TARGETS["classes"], Gaussian(sigma), Q, lambda engine: engine.curvature(W, Z)
        )
        assert_allclose(found, true, atol=1e-4 * np.abs(true).max())
