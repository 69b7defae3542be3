"""The search for W: the spectral iteration, what looks further, and other solvers."""

import time

import numpy as np
import pytest
from models import WINE, first_engine, objective_of, problem_of, quiet
from numpy.testing import assert_allclose
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import scale

from ism_dask import PredictiveIKDR, SupervisedIKDR, UnsupervisedIKDR
from ism_dask.engines import EngineOptions, ExactEngine
from ism_dask.kernels import Gaussian
from ism_dask.linalg.subspaces import relative_residual
from ism_dask.observe import FitWatcher, watching_fits
from ism_dask.selection.sample import Sample
from ism_dask.solvers import ISM, Ascent
from ism_dask.solvers.base import TimeLimit
from ism_dask.solvers.ism import SpectralSteps
from ism_dask.solvers.search import Search
from ism_dask.status import Status


def _solve(operator, q, **options):
    return ISM(**options).solve(operator, q, TimeLimit())


def test_a_fixed_point_is_stationary():
    X, y = load_iris(return_X_y=True)
    engine = first_engine("auto", problem_of(scale(X), y, Gaussian(2.0)), 2)
    solution = _solve(engine, 2, tol=1e-12, angle_tol=1e-8, max_iter=500)
    assert solution.status is Status.CONVERGED
    assert relative_residual(solution.W, solution.product) < 1e-6
    assert_allclose(solution.W.T @ solution.W, np.eye(2), atol=1e-12)
    assert solution.objective == pytest.approx(objective_of(engine, solution.W), rel=1e-12)
    assert solution.history[-1].angle < 1e-8
    # The published rule, which angles hold back.
    loose, held = (_solve(engine, 2, tol=0.5, angle_tol=angle) for angle in (None, 1e-6))
    assert loose.status is Status.TOLERANCE
    assert len(loose.history) <= 2 < len(held.history)
    assert held.history[-1].angle < 1e-6


NARROW = [(load_wine, 3, 0.2), (load_wine, 2, 0.15), (load_breast_cancer, 2, 1.0)]


@pytest.mark.parametrize(("load", "q", "share"), NARROW)
@pytest.mark.parametrize("tol", [None, 1e-6])
def test_where_the_iteration_swings_steps_along_the_slope_find_a_maximum(load, q, share, tol):
    X, y = load(return_X_y=True)
    X, states = scale(X), []
    kernel = Gaussian().resolve(X).widened(share)
    engine = first_engine("exact", problem_of(X, y, kernel), q)
    search = Search(EngineOptions("exact"), ISM(tol=tol), states.append)
    solution, swung = search.run(engine.problem, q), _solve(engine, q, tol=tol)
    assert swung.status is Status.SWINGS
    # The best W is returned, and descents are noted.
    heights = [record.objective for record in swung.history]
    assert swung.objective == pytest.approx(max(heights), rel=1e-12)
    assert [each.ascent for each in swung.history[1:]] == [*(np.diff(heights) >= 0)]
    assert solution.status is Status.CONVERGED
    assert solution.objective > swung.objective * (1 + 1e-4)
    assert solution.residual < 1e-4
    steps = len(solution.history)
    assert [state.iteration for state in states] == list(range(1, steps + 1))
    assert steps > len(swung.history)
    assert_allclose(solution.W.T @ solution.W, np.eye(q), atol=1e-12)
    # Nothing nearby is better.
    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-2) * 10:
        nearby = np.linalg.qr(solution.W + size * rng.normal(size=solution.W.shape))[0]
        assert objective_of(engine, nearby) <= solution.objective * (1 + 1e-8)


def test_a_cap_in_a_later_round_is_a_warning_as_well(monkeypatch):
    clock, rounds, watcher = time.perf_counter, [], FitWatcher()
    watcher.on_round = rounds.append
    # Each round takes an hour.
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + 3600.0 * len(rounds))
    options = {"solver": ISM(max_seconds=1800.0), "outer_tol": 1e-12}
    with watching_fits(watcher), pytest.warns(ConvergenceWarning, match="reached its time limit"):
        model = UnsupervisedIKDR(3, **options).fit(WINE)
    assert len(rounds) == 2
    assert model.status_ is Status.OVER_CAP
    assert not model.converged_


def test_no_trial_begins_after_the_time_limit(monkeypatch):
    """The fit tries fewer settings, judges none by unseen rows, and returns the W that it has.

    Its clock counts the trials, so that the load of the machine has no part in it.
    """
    X = np.random.default_rng(0).normal(size=(200, 10))
    y = np.sin(X[:, 0]) + X[:, 1]
    evidence, tried = Sample.evidence, []

    def noted(self, W, setting):
        tried.append(setting)
        return evidence(self, W, setting)

    monkeypatch.setattr(Sample, "evidence", noted)
    free = PredictiveIKDR(2, max_features=None).fit(X, y)
    assert len(tried) > 200
    tried.clear()
    monkeypatch.setattr(TimeLimit, "seconds", property(lambda _: float(len(tried))))
    with pytest.warns(ConvergenceWarning, match="reached its time limit"):
        model = PredictiveIKDR(2, solver=Ascent(max_seconds=60)).fit(X, y)
    assert 60 <= len(tried) < 80  # the trials of one start end, and each target has one
    assert len(free.report_.trials) > len(model.report_.trials) == 0
    W = model.components_.T
    assert_allclose(W.T @ W, np.eye(2), atol=1e-10)
    assert np.linalg.norm(W[:2]) > 0.9 * np.sqrt(2)  # 0.45 of it by chance
    # Nor does a stage of many rows.
    X, y = np.random.default_rng(1).normal(size=(1600, 10)), np.tile(y, 8)
    with pytest.warns(ConvergenceWarning, match="reached its time limit"):
        late = PredictiveIKDR(2, solver=Ascent(max_seconds=1e-6)).fit(X, y)
    assert np.isfinite(late.transform(X)).all()


@quiet
def test_gradient_steps_do_not_begin_after_the_limit(monkeypatch):
    """The spectral steps swing here, so that without a limit an ascent follows."""
    X, y = np.random.default_rng(0).normal(size=(60, 10)), np.random.default_rng(1).normal(size=60)
    model = SupervisedIKDR(1, kernel=Gaussian(0.3), solver=ISM(max_seconds=3600.0))
    steps, swings = model.fit(X, y).n_iter_, SpectralSteps.terminate

    def late(self, state):
        """Let the time run out when the steps swing."""
        if (status := swings(self, state)) is Status.SWINGS:
            self._time_limit.max_seconds = 0.0
        return status

    monkeypatch.setattr(SpectralSteps, "terminate", late)
    assert model.fit(X, y).status_ is Status.OVER_CAP
    assert model.n_iter_ < steps


# A limit of time holds for all parts of a fit, not for its steps alone.


@quiet
@pytest.mark.parametrize(
    ("kernel", "n", "allowed"), [("gaussian", 7000, []), ("distance", 300, ["phi", "product"])]
)
def test_after_the_limit_there_is_one_pass_over_all_pairs_of_rows_at_most(
    monkeypatch, kernel, n, allowed
):
    """By landmarks there is none: the residual under the true kernel is that of some rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)
    passes = []
    for name in ("phi", "product"):
        method = getattr(ExactEngine, name)

        def noted(self, W, name=name, method=method):
            passes.append(name)
            return method(self, W)

        monkeypatch.setattr(ExactEngine, name, noted)
    fitted = SupervisedIKDR(1, kernel=kernel, solver=ISM(max_seconds=1e-9)).fit(X, y)
    assert fitted.status_ is Status.OVER_CAP
    assert fitted.n_iter_ == 1
    assert passes == allowed
    true_residual = fitted.certify(X, y).residual
    assert true_residual > 1e-3
    assert fitted.residual_ == pytest.approx(true_residual, rel=1e-2)
