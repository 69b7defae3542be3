"""The search for W: the spectral iteration, what looks further, and other solvers."""

import sys
import time
from itertools import islice

import numpy as np
import pytest
from models import (
    HSIC_SOLVERS,
    assert_no_better_nearby,
    first_engine,
    hsic_model,
    problem_of,
    quiet,
)
from numpy.testing import assert_allclose
from scipy.stats import ortho_group
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import scale

from ism_dask import UnsupervisedIKDR
from ism_dask.engines.operator import PhiEvaluation, ProductEvaluation, relative_residual
from ism_dask.kernels import KERNELS, Gaussian, Polynomial
from ism_dask.linalg.eigen import largest_eigenvalue_outside, leading_eigenpairs
from ism_dask.linalg.subspaces import subspace_sine
from ism_dask.records.iteration import Record
from ism_dask.records.stopping_rule import Stopping
from ism_dask.solvers import DimensionGrowth, Stiefel
from ism_dask.solvers.ism import restart_from, solve
from ism_dask.solvers.lbfgs import lbfgs_ascent
from ism_dask.solvers.multistart import MultistartSearch
from ism_dask.status import Status

IRIS, SPECIES = load_iris(return_X_y=True)
IRIS = scale(IRIS)
WINE, CULTIVAR = load_wine(return_X_y=True)
WIDE = Gaussian(2.0)


def _problem(kernel, rows=None):
    return problem_of(IRIS, SPECIES, kernel.resolve(IRIS), rows)


def _engine(kernel=WIDE, name="auto", rows=None):
    return first_engine(name, _problem(kernel, rows), 2)


def test_a_fixed_point_is_stationary():
    engine = _engine()
    solution = solve(engine, 2, Stopping(tol=1e-12, angle_tol=1e-8, max_iter=500))
    assert solution.status is Status.CONVERGED
    assert relative_residual(solution.W, solution.product) < 1e-6
    assert_allclose(solution.W.T @ solution.W, np.eye(2), atol=1e-12)
    assert solution.objective == pytest.approx(engine.objective(solution.W), rel=1e-12)
    assert solution.history[-1].angle < 1e-8
    # The published rule, which angles hold back.
    loose, held = (solve(engine, 2, Stopping(tol=0.5, angle_tol=angle)) for angle in (None, 1e-6))
    assert loose.status is Status.TOLERANCE
    assert loose.n_iter <= 2 < held.n_iter
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
    steps = enumerate(zip(values[1:], changes, angles, strict=True), start=1)
    history = [Record(k, 0.0, (value,), *moved, 0.0, True) for k, (value, *moved) in steps]
    assert Stopping(tol=tol).is_stuck(history) == swinging


def _history(residuals, heights, angle):
    steps = enumerate(zip(residuals, heights, strict=False), start=1)
    return [Record(k, J, (k + 1.0,), 0.5, angle, 0.0, True, residual=r) for k, (r, J) in steps]


def _crawl(count, *, falls, wanders):
    numbers = range(1, count + 1)
    return _history([falls**k for k in numbers], [9.0 + wanders * (k % 3) for k in numbers], 0.5)


def _turns(*residuals, angle=1.0, rise=1e-4):
    return _history(residuals, [9.0 + rise, 9.0] * 2, angle)


@pytest.mark.parametrize(
    ("history", "stuck"),
    [
        # What comes to no end is given up in the end.
        (_crawl(21, falls=0.98, wanders=0), True),
        (_crawl(20, falls=0.98, wanders=0), False),
        (_crawl(21, falls=0.9, wanders=0), False),
        # What goes up and down may come by a higher maximum, and is given more time.
        (_crawl(99, falls=0.98, wanders=1), False),
        (_crawl(100, falls=0.98, wanders=1), True),
        # A W that turns to and fro is given up at once, and so are columns for which J has no use:
        # what they gain is less than the share 3e-4 of J.
        (_turns(2e-3, 1e-3, 2e-3, 2e-3), True),
        (_turns(2e-3, 1e-3, 2e-3), False),
        (_turns(2e-3, 1e-3, 1e-3, 1e-3), False),
        (_turns(2e-3, 1e-3, 2e-3, 2e-3, angle=0.8), False),
        (_turns(2e-3, 1e-3, 2e-3, 2e-3, rise=0.1), False),
    ],
)
def test_what_leads_nowhere_is_given_up(history, stuck):
    assert Stopping(tol=None, max_iter=200).is_stuck(history) == stuck
    assert not Stopping(tol=0.01, max_iter=200).is_stuck(history)


NARROW = [(load_wine, 3, 0.2), (load_wine, 2, 0.15), (load_breast_cancer, 2, 1.0)]


@pytest.mark.parametrize(("load", "q", "share"), NARROW)
@pytest.mark.parametrize("tol", [None, 1e-6])
def test_where_the_iteration_swings_steps_along_the_slope_find_a_maximum(load, q, share, tol):
    X, y = load(return_X_y=True)
    X, stopping, states = scale(X), Stopping(tol=tol, max_iter=300), []
    kernel = Gaussian().resolve(X).widened(share)
    engine = first_engine("exact", problem_of(X, y, kernel), q)
    search = MultistartSearch("exact", stopping, on_iteration=states.append)
    solution, swung = search.run(engine.problem, q), solve(engine, q, stopping)
    assert swung.status is Status.SWINGS
    assert solution.status is Status.CONVERGED
    assert solution.objective > swung.objective * (1 + 1e-4)
    assert solution.residual < 1e-4
    assert [state.iteration for state in states] == list(range(1, solution.n_iter + 1))
    assert solution.n_iter == len(solution.history) > swung.n_iter
    assert_allclose(solution.W.T @ solution.W, np.eye(q), atol=1e-12)
    # Nothing nearby is better.
    for size in (1e-3, 1e-2):
        assert_no_better_nearby(engine.objective, solution.W, solution.objective, size, 1e-8)


def test_a_kernel_that_sees_nothing_is_flat():
    rows = 100.0 * np.arange(180).reshape(60, 3)
    problem = problem_of(rows, np.arange(60) % 3, Gaussian(0.01))
    assert solve(first_engine("exact", problem, 1), 1, Stopping(None)).status is Status.FLAT


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


RIVALS = [name for name in HSIC_SOLVERS if name != "ism"]
# Those that move all columns of W at once, and so end where all are stationary.
WHOLE = [name for name in RIVALS if name != "dimension-growth"]
ALL_KERNELS = [*(kind() for kind in KERNELS.values()), Polynomial(1), WIDE]
ALL_KERNELS += [0.5 * WIDE + 0.1 * Polynomial(2)]


def _solved(name, engine, state=None, **options):
    solver = HSIC_SOLVERS[name](**options, **({"tol": 1e-10} if name == "ism" else {}))
    return solver.solve(engine, 2, solver.stopping, state=state)


@pytest.mark.parametrize("name", RIVALS)
@pytest.mark.parametrize("kernel", ALL_KERNELS, ids=str)
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
    if name in WHOLE:
        assert_no_better_nearby(engine.objective, found.W, found.objective, 0.02, 1e-9)
        # W is given in its own eigenvectors.
        near = {"rtol": 1e-5, "atol": 1e-9 * np.abs(found.eigenvalues).max()}
        assert_allclose(found.W.T @ found.product, np.diag(found.eigenvalues), **near)
        following = largest_eigenvalue_outside(phi, found.W)
        assert found.eigengap == pytest.approx(found.eigenvalues[-1] - following, rel=1e-4)


@pytest.mark.parametrize("name", RIVALS)
def test_a_state_is_where_it_begins(name):
    engine = _engine()
    ended = _solved("ism", engine)
    again = _solved(name, engine, restart_from(ended))
    near, most = (1e-8, 10) if name in WHOLE else (1e-4, np.inf)
    assert again.objective == pytest.approx(ended.objective, rel=near)
    assert again.n_iter <= most


@quiet
@pytest.mark.parametrize("q", [3, 7])
def test_columns_that_add_nothing_are_orthonormal_all_the_same(q):
    """What is left of the slope is rounding, which must not lead back to earlier columns."""
    for kernel in (Gaussian("median"), "multiquadric", Polynomial(2, 0.0)):
        model = hsic_model(q, kernel=kernel, solver=DimensionGrowth(max_seconds=5))
        W = model.fit(WINE, CULTIVAR).components_.T
        assert_allclose(W.T @ W, np.eye(q), atol=1e-10)


@pytest.mark.parametrize("name", RIVALS)
@pytest.mark.parametrize("kernel", [Polynomial(3), Gaussian(2.0)], ids=repr)
def test_on_engines_of_large_data_it_ends_where_it_does_on_exact(name, kernel):
    engines = _engine(kernel, "landmarks", 40), _engine(kernel, "exact")
    fast, true = (_solved(name, each) for each in engines)
    assert fast.objective == pytest.approx(true.objective, rel=1e-4)
    assert fast.error < 1e-2


def test_growing_columns_come_one_after_the_other():
    seen, solver = [], DimensionGrowth()
    found = solver.solve(_engine(), 2, solver.stopping, on_iteration=seen.append)
    widths = [state.current.W.shape[1] for state in seen]
    assert sorted(widths) == widths
    assert set(widths) == {1, 2}
    first = seen[widths.index(2) - 1].current.W
    # The first column stays as it was.
    assert subspace_sine(found.W, np.linalg.qr(np.hstack([first, found.W]))[0][:, :2]) < 1e-6


@pytest.mark.parametrize("name", RIVALS)
def test_iterations_can_be_counted_out(name):
    seen, solver = [], HSIC_SOLVERS[name](max_iter=2)
    found = solver.solve(_engine(Polynomial(3)), 2, solver.stopping, on_iteration=seen.append)
    assert found.status is Status.MAX_ITER
    assert found.n_iter == len(seen) == (4 if name == "dimension-growth" else 2)
    assert [state.iteration for state in seen] == list(range(1, len(seen) + 1))


def test_climbs_end_at_the_leading_eigenvectors_and_sooner_with_a_guess_of_the_curvature():
    start = np.linalg.qr(np.random.default_rng(3).normal(size=(40, 3)))[0]
    values = np.geomspace(1.0, 1e-4, 40)
    operator = Quadratic(values)
    turn = operator.turn

    def steps(guess):
        climb = lbfgs_ascent(operator.gradient, start, operator.gradient(start), guess)
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


@pytest.mark.parametrize("solver", HSIC_SOLVERS)
def test_a_cap_before_the_first_step_leaves_the_start(solver):
    with pytest.warns(ConvergenceWarning, match="was over its cap of seconds after 1 iterations"):
        model = hsic_model(2, solver=HSIC_SOLVERS[solver](max_seconds=1e-9)).fit(IRIS, SPECIES)
    assert model.status_ is Status.OVER_CAP
    assert not model.converged_
    assert len(model.history_) == model.n_iter_ == 1
    W = model.components_
    assert_allclose(W @ W.T, np.eye(len(W)), atol=1e-12)


@pytest.mark.parametrize("kernel", [Polynomial(900), Gaussian(1.0) + Polynomial(900)])
@pytest.mark.parametrize(
    ("solver", "engine"), [*((name, "auto") for name in HSIC_SOLVERS), ("ism", "landmarks")]
)
def test_a_kernel_that_overflows_is_an_error(solver, engine, kernel):
    with pytest.raises(ValueError, match="Phi is not finite: the kernel overflows"):
        hsic_model(2, kernel=kernel, solver=solver, engine=engine).fit(WINE, CULTIVAR)


def test_a_cap_in_a_later_round_is_a_warning_as_well(monkeypatch):
    spent, clock = [], time.perf_counter
    # Each round takes an hour.
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + 3600.0 * len(spent))
    options = {"solver": Stiefel(max_seconds=1800.0), "outer_tol": 1e-12}
    with pytest.warns(ConvergenceWarning, match="over its cap of seconds"):
        model = UnsupervisedIKDR(3, on_round=spent.append, **options).fit(WINE)
    assert len(spent) == 2
    assert model.status_ is Status.OVER_CAP
    assert not model.converged_


def test_without_pymanopt_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymanopt.optimizers", None)
    with pytest.raises(ImportError, match=r"pip install 'ism-dask\[rivals\]'"):
        hsic_model(2, solver="grassmann").fit(IRIS, SPECIES)


def test_each_column_of_dimension_growth_has_steps_of_its_own():
    """A column that ends because J stands still does not make the next ones look settled."""
    kernel = Gaussian("median").resolve(scale(WINE)).widened(0.25)
    models = (hsic_model(3, kernel=kernel, solver=s) for s in ("dimension-growth", "ism"))
    grown, whole = (model.fit(WINE, CULTIVAR).objective_ for model in models)
    assert grown >= 0.95 * whole
