"""Solvers beside ISM: they climb the same J, each to an end of its own."""

from __future__ import annotations

import sys
import time
import warnings
from itertools import islice

import numpy as np
import pytest
from models import HSIC_SOLVERS, first_engine, hsic_model, problem_of, watching_iterations
from numpy.testing import assert_allclose
from scipy.stats import ortho_group
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import scale

from ism_dask import UnsupervisedIKDR
from ism_dask.engines.operator import ProductEvaluation, relative_residual
from ism_dask.kernels import Gaussian, Linear, Multiquadric, Polynomial, RelativeGaussian, Squared
from ism_dask.linalg.eigen import leading_eigenpairs
from ism_dask.linalg.subspaces import subspace_sine
from ism_dask.records.checkpoint import Round
from ism_dask.records.iteration import State
from ism_dask.solvers import ISM, DimensionGrowth, Stiefel
from ism_dask.solvers.ism import restart_from
from ism_dask.solvers.lbfgs import lbfgs_ascent
from ism_dask.status import Status

RIVALS = [name for name in HSIC_SOLVERS if name != "ism"]
# Those that move all columns of W at once, and so end where all are stationary.
WHOLE = [name for name in RIVALS if name != "dimension-growth"]
KERNELS = [
    Linear(),
    Squared(),
    Polynomial(1),
    Gaussian(2.0),
    Polynomial(3),
    Multiquadric(),
    RelativeGaussian(7),
    0.5 * Gaussian(2.0) + 0.1 * Polynomial(2),
]
IRIS, SPECIES = load_iris(return_X_y=True)
IRIS = scale(IRIS)


def _engine(kernel, name="auto", rows=None):
    problem = problem_of(IRIS, SPECIES, kernel.resolve(IRIS), rows)
    return first_engine(name, problem, 2)


def _solved(name, engine, state=None, **options):
    solver = HSIC_SOLVERS[name](**options, **({"tol": 1e-10} if name == "ism" else {}))
    return solver.solve(engine, 2, solver.stopping, state=state)


@pytest.mark.parametrize("name", RIVALS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_a_rival_climbs_to_orthonormal_columns_from_where_no_direction_leads_up(name, kernel):
    engine = _engine(kernel, "exact")
    found = _solved(name, engine)
    # Columns that are best one by one need not be stationary together.
    together = relative_residual(found.W, found.product) <= 1e-4
    assert found.status is (Status.CONVERGED if together else Status.COLUMN_BY_COLUMN)
    assert together or name not in WHOLE
    assert_allclose(found.W.T @ found.W, np.eye(2), atol=1e-12)
    start = leading_eigenpairs(engine.phi0(), 2).vectors
    # Columns that are best one by one may be worse together than those of the start.
    slack = 1e-12 if name in WHOLE else 0.1
    assert found.objective >= engine.objective(start) * (1 - slack)
    assert found.objective == pytest.approx(engine.objective(found.W), rel=1e-10)
    phi = engine.phi(found.W).phi
    assert_allclose(found.product, phi @ found.W, atol=1e-8 * np.abs(phi).max())
    assert found.n_iter == len(found.history)
    rng = np.random.default_rng(0)
    for _ in range(10 if name in WHOLE else 0):
        nearby = np.linalg.qr(found.W + 0.02 * rng.normal(size=found.W.shape))[0]
        assert engine.objective(nearby) <= found.objective * (1 + 1e-9)


@pytest.mark.parametrize("name", WHOLE)
def test_its_w_is_given_in_its_own_eigenvectors(name):
    engine = _engine(Gaussian(2.0))
    found = _solved(name, engine)
    assert_allclose(
        found.W.T @ found.product, np.diag(found.eigenvalues), atol=1e-9 * found.eigenvalues[0]
    )
    everything = np.linalg.eigvalsh(engine.phi(found.W).phi)[::-1]
    assert_allclose(found.eigenvalues, everything[:2], rtol=1e-5)
    assert found.eigengap == pytest.approx(everything[1] - everything[2], rel=1e-4)


@pytest.mark.parametrize("name", RIVALS)
def test_a_state_is_where_it_begins(name):
    engine = _engine(Gaussian(2.0))
    ended = _solved("ism", engine)
    again = _solved(name, engine, restart_from(ended))
    near = 1e-8 if name in WHOLE else 1e-4
    assert again.objective == pytest.approx(ended.objective, rel=near)
    if name in WHOLE:
        assert again.n_iter <= 10


@pytest.mark.parametrize("q", [3, 7])
def test_columns_that_add_nothing_are_orthonormal_all_the_same(q):
    """What is left of the slope is rounding, which must not lead back to earlier columns."""
    X, y = load_wine(return_X_y=True)
    for kernel in (Gaussian("median"), "multiquadric", Polynomial(2, 0.0)):
        model = hsic_model(q, kernel=kernel, solver=DimensionGrowth(max_seconds=5))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            W = model.fit(X, y).components_.T
        assert_allclose(W.T @ W, np.eye(q), atol=1e-10)


@pytest.mark.parametrize("name", RIVALS)
@pytest.mark.parametrize("engine", ["monomials", "landmarks"])
def test_on_engines_of_large_data_it_ends_where_it_does_on_exact(name, engine):
    kernel = Polynomial(3) if engine == "monomials" else Gaussian(2.0)
    fast, true = _solved(name, _engine(kernel, engine, 40)), _solved(name, _engine(kernel, "exact"))
    assert fast.objective == pytest.approx(true.objective, rel=1e-4)
    assert fast.error < 1e-2


def test_growing_columns_come_one_after_the_other():
    seen: list[State] = []
    solver = DimensionGrowth()
    engine = _engine(Gaussian(2.0))
    found = solver.solve(engine, 2, solver.stopping, on_iteration=seen.append)
    widths = [state.current.W.shape[1] for state in seen]
    assert sorted(widths) == widths
    assert set(widths) == {1, 2}
    first = seen[widths.index(2) - 1].current.W
    # The first column stays as it was.
    assert subspace_sine(found.W, np.linalg.qr(np.hstack([first, found.W]))[0][:, :2]) < 1e-6


@pytest.mark.parametrize("name", RIVALS)
def test_iterations_can_be_counted_out(name):
    seen: list[State] = []
    solver = HSIC_SOLVERS[name](max_iter=2)
    found = solver.solve(_engine(Polynomial(3)), 2, solver.stopping, on_iteration=seen.append)
    assert found.status is Status.MAX_ITER
    assert found.n_iter == len(seen) == (4 if name == "dimension-growth" else 2)
    assert [state.iteration for state in seen] == list(range(1, len(seen) + 1))


def test_climbs_end_at_the_leading_eigenvectors_and_sooner_with_a_guess_of_the_curvature():
    start = np.linalg.qr(np.random.default_rng(3).normal(size=(40, 3)))[0]
    turn = ortho_group.rvs(40, random_state=1)
    values = np.geomspace(1.0, 1e-4, 40)
    M = turn @ np.diag(values) @ turn.T

    def evaluate(W):
        return ProductEvaluation(float(np.trace(W.T @ M @ W)), M @ W)

    def steps(guess):
        climb = lbfgs_ascent(evaluate, start, evaluate(start), guess)
        for number, (W, evaluation) in enumerate(islice(climb, 300)):
            if relative_residual(W, evaluation.product) < 1e-7:
                assert subspace_sine(W, turn[:, :3]) < 1e-6
                return number
        raise AssertionError("no end")

    rough = turn @ np.diag(1.0 / (values[2] - np.minimum(values, values[3]) + 0.05)) @ turn.T
    plain, guessed = steps(None), steps(lambda Z: rough @ Z)
    assert guessed <= plain
    # A guess that is of no use is corrected by the memory.
    steps(lambda Z: turn @ np.diag(np.geomspace(1.0, 30.0, 40)) @ turn.T @ Z)


@pytest.mark.parametrize("name", RIVALS)
def test_estimators_take_a_solver(name):
    X, y = load_wine(return_X_y=True)
    seen: list[State] = []
    given = {"kernel": Gaussian("median")}
    with watching_iterations(seen.append):
        model = hsic_model(2, solver=name, **given).fit(X, y)
    assert model.converged_ == (name in WHOLE)
    assert model.residual_ < (1e-4 if name in WHOLE else 1.0)
    assert len(seen) == model.n_iter_
    own = hsic_model(2, solver=ISM(tol=1e-8), **given).fit(X, y)
    assert model.objective_ <= own.objective_ * (1 + 1e-6)


@pytest.mark.parametrize("solver", HSIC_SOLVERS)
def test_a_cap_before_the_first_step_leaves_the_start(solver):
    with pytest.warns(ConvergenceWarning, match="was over its cap of seconds after 1 iterations"):
        model = hsic_model(2, solver=HSIC_SOLVERS[solver](max_seconds=1e-9)).fit(IRIS, SPECIES)
    assert model.status_ is Status.OVER_CAP
    assert not model.converged_
    assert len(model.history_) == model.n_iter_ == 1
    W = model.components_
    assert_allclose(W @ W.T, np.eye(len(W)), atol=1e-12)


def test_what_a_rival_warns_of_is_what_ends_it():
    message = r"did not converge in 2 iterations: the residual is 0\.\d+\. .* raise `max_iter`$"
    with pytest.warns(ConvergenceWarning, match=message):
        hsic_model(2, kernel=Gaussian("median"), solver=Stiefel(max_iter=2)).fit(IRIS, SPECIES)


@pytest.mark.parametrize("solver", HSIC_SOLVERS)
def test_a_kernel_that_overflows_is_an_error(solver):
    X, y = load_wine(return_X_y=True)
    with pytest.raises(ValueError, match="Phi is not finite: the kernel overflows"):
        hsic_model(2, kernel=Polynomial(400), solver=solver).fit(X, y)


def test_a_cap_in_a_later_round_is_a_warning_as_well(monkeypatch):
    X, _ = load_wine(return_X_y=True)
    spent: list[Round] = []
    clock = time.perf_counter
    # Each round takes an hour.
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + 3600.0 * len(spent))
    options = {"solver": Stiefel(max_seconds=1800.0), "outer_tol": 1e-12}
    with pytest.warns(ConvergenceWarning, match="over its cap of seconds"):
        model = UnsupervisedIKDR(3, on_round=spent.append, **options).fit(X)
    assert len(spent) == 2
    assert model.status_ is Status.OVER_CAP
    assert not model.converged_


def test_without_pymanopt_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymanopt.optimizers", None)
    with pytest.raises(ImportError, match=r"pip install 'ism-dask\[rivals\]'"):
        hsic_model(2, solver="grassmann").fit(IRIS, SPECIES)


def test_each_column_of_dimension_growth_has_steps_of_its_own():
    """A column that ends because J stands still does not make the next ones look settled."""
    X, y = load_wine(return_X_y=True)
    sigma = Gaussian("median").resolve(scale(X)).sigma
    grown, whole = (
        hsic_model(3, kernel=Gaussian(sigma / 4), solver=solver).fit(X, y)
        for solver in ("dimension-growth", "ism")
    )
    assert grown.objective_ >= 0.95 * whole.objective_
