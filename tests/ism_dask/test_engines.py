"""Every engine against the definition, and those of linear time against the exact one."""

from functools import cache
from itertools import count, product

import numpy as np
import pytest
from definition import Definition, dense_gamma
from models import curved, first_engine, hsic_model, loaded, most_memory, objective_of, problem_of
from numpy.testing import assert_allclose, assert_array_equal

from ism_dask import stationarity
from ism_dask.engines import ENGINES, DeclinedError, EngineOptions, as_engine, first_that_serves
from ism_dask.engines.lowrank.landmark_engine import LandmarkEngine, task_bytes
from ism_dask.engines.lowrank.landmarks import unit_slope_between
from ism_dask.engines.tile_sums import phi_of_pairs, stripe_bytes
from ism_dask.engines.tiles import with_projection
from ism_dask.gamma.targets import target_dependence
from ism_dask.kernels import KERNELS, Gaussian, Linear, Multiquadric, Polynomial, RelativeGaussian
from ism_dask.kernels.inner_products import Monomials
from ism_dask.observe import FitWatcher, watching_fits
from ism_dask.solvers import ISM
from ism_dask.solvers.base import TimeLimit
from ism_dask.stationarity import with_true_residual

N, D, Q = 37, 5, 2
RNG = np.random.default_rng(7)
X = RNG.normal(size=(N, D))
W = np.linalg.qr(RNG.normal(size=(D, Q)))[0]
TARGETS = {"classes": RNG.integers(0, 4, N)}
TARGETS |= {target: RNG.normal(size=N) for target in ("linear", "gaussian")}
CLOSED = 2.0 * Linear() + 0.5 * KERNELS["squared"]()
ALL = {name: kind() for name, kind in KERNELS.items()} | {
    "gaussian + polynomial": 0.3 * Gaussian(2.0) + 0.7 * Polynomial(degree=3),
    "degree 1": Polynomial(1, 2.5),
    "degree 4": Polynomial(4, 0.0),
    "degree 5": Polynomial(5, 0.3),
    "linear + squared": CLOSED,
    "two local": RelativeGaussian(3) + 0.5 * RelativeGaussian(9) + Linear(),
}
ALL = {name: kernel.resolve(X) for name, kernel in ALL.items()}


def _problem(kernel, target, rows=None, dtype=np.float64):
    known = target_dependence(TARGETS[target], target)
    return problem_of(X.astype(dtype), known, ALL[kernel], rows)


@cache
def _dense(kernel, target):
    return Definition(X, dense_gamma(target_dependence(TARGETS[target], target)), ALL[kernel])


@cache
def _expected(kernel, target):
    dense = _dense(kernel, target)
    return dense.phi0(), dense.phi(W), dense.objective(W)


def _is_served(engine, kernel, target):
    return ENGINES[engine].refusal(_problem(kernel, target)) is None


CASES = [each for each in product(ENGINES, ALL, TARGETS) if _is_served(*each)]


@pytest.mark.parametrize("rows", [None, 9])
@pytest.mark.parametrize(("engine", "kernel", "target"), CASES)
def test_engine_gives_the_definition(engine, kernel, target, rows):
    phi0, phi, J = _expected(kernel, target)
    # An approximate engine has to be right to the digits that are compared.
    precise = EngineOptions("landmarks", tol=1e-12) if engine == "landmarks" else engine
    served = first_engine(precise, _problem(kernel, target, rows), Q)
    curved_slopes = [term for _, term in ALL[kernel].terms if not term.constant_slope]
    by_landmarks = any(term.power is None for term in curved_slopes)
    assert served.approximate == (engine == "landmarks" and by_landmarks)
    digits = 1e-8 if served.approximate else 1e-10
    near = {"rtol": digits, "atol": digits * np.abs(phi).max()}
    assert_allclose(served.phi0(), phi0, rtol=1e-10, atol=1e-10 * np.abs(phi0).max())
    evaluation = served.phi(W)
    assert_allclose(evaluation.phi, phi, **near)
    assert evaluation.objective == pytest.approx(J, rel=digits)
    slope = served.gradient(W)
    assert_allclose(slope.product, phi @ W, **near)
    assert slope.objective == pytest.approx(J, rel=digits)
    assert objective_of(served, W) == pytest.approx(J, rel=digits)
    assert abs(evaluation.objective - J) <= (evaluation.error + 1e-13) * abs(J)
    assert evaluation.error <= (1e-4 if served.approximate else 0.0)


@pytest.mark.parametrize("kernel", ALL)
def test_twice_phi_w_is_the_gradient_of_the_objective(kernel):
    """Of the definition, which the engines have."""
    dense, h = _dense(kernel, "classes"), 1e-5
    steps = h * np.eye(D * Q).reshape(-1, D, Q)
    rises = [dense.objective(W + step) - dense.objective(W - step) for step in steps]
    analytic = 2 * (dense.phi(W) @ W).ravel()
    assert_allclose(analytic, np.divide(rises, 2 * h), atol=2e-6 * np.abs(analytic).max())


def test_blocks_and_groups_larger_than_one():
    """Several blocks in a group, several groups in a shard, a ragged last shard."""
    rng = np.random.default_rng(3)
    n = 1700
    big, y = rng.normal(size=(n, 4)), rng.integers(0, 3, n)
    known = target_dependence(y)
    kernel = 0.5 * Gaussian(1.5) + Polynomial(2)
    V = np.linalg.qr(rng.normal(size=(4, 2)))[0]
    phi = Definition(big, dense_gamma(known), kernel).phi(V)
    near = {"rtol": 1e-9, "atol": 1e-9 * abs(phi).max()}
    for rows in (None, 1500):
        engine = first_engine("exact", problem_of(big, known, kernel, rows), 2)
        assert_allclose(engine.phi(V).phi, phi, **near)
        assert_allclose(engine.gradient(V).product, phi @ V, **near)


@pytest.mark.parametrize("kernel", sorted(ALL))
def test_float32_tiles_are_right_to_single_precision(kernel):
    _, phi, J = _expected(kernel, "classes")
    evaluation = first_engine("exact", _problem(kernel, "classes", dtype=np.float32), Q).phi(W)
    assert np.linalg.norm(evaluation.phi - phi) <= 5e-6 * np.linalg.norm(phi)
    assert evaluation.objective == pytest.approx(J, rel=2e-5)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_task_takes_no_more_memory_than_planned(kind):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(4000, 300)).astype(kind), rng.integers(0, 5, 4000)
    problem, V = problem_of(X, y, Gaussian(25.0), 4000), _basis(300, 10)
    engine = first_engine("exact", problem, Q)
    pieces = [loaded(each) for each in with_projection(problem.shards, V).persisted().parts]
    planned = stripe_bytes(problem.shards.largest, engine._model, 300, 10, kind(0).itemsize)
    used = most_memory(lambda: phi_of_pairs(pieces[0], iter(pieces), engine._model))
    assert used <= planned <= 6 * used
    at = first_engine(EngineOptions("landmarks", tol=1e-3), problem, 5)._evaluated(V[:, :5])
    piece = loaded(at.points.parts[0])
    used = most_memory(lambda: at.expansion.phi_sums(piece, at.coefficients))
    assert used <= task_bytes(problem, at.expansion.size) <= 6 * used


def test_sums_do_not_depend_on_the_memory_at_hand(monkeypatch):
    def phi(budget):
        monkeypatch.setattr("ism_dask.engines.base.task_budget", lambda: budget)
        return first_engine("exact", _problem("gaussian", "classes", 5), Q).phi(W).phi

    assert_array_equal(phi(10**9), phi(10**12))


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


def test_single_precision_does_not_drown_a_narrow_kernel_in_its_diagonal():
    rng = np.random.default_rng(0)
    rows, y, V = rng.normal(size=(600, 50)), rng.integers(0, 3, 600), _basis(50, 10)
    wide, single = (
        first_engine("exact", problem_of(rows.astype(kind), y, Gaussian(0.3), 300), 10)
        for kind in (np.float64, np.float32)
    )
    true, found = wide.phi(V), single.phi(V)
    assert np.linalg.norm(found.phi - true.phi) < 1e-3 * np.linalg.norm(true.phi)
    assert found.objective == pytest.approx(true.objective, rel=1e-5)
    along = rng.normal(size=V.shape)
    true, found = (each.curvature(V, along) for each in (wide, single))
    assert_allclose(found, true, atol=1e-4 * np.abs(true).max())


def _data(n=700, d=6, seed=0):
    X, score = curved(n, d, seed, 0.2)
    return X, np.digitize(score, [-0.3, 0.8])


def _engine(name, X, y, kernel, q, rows=None, **given):
    """Return the engine of a name, or the one that `auto` tries first."""
    return first_engine(name, problem_of(X, y, kernel, rows, **given), q)


def _basis(d, q, seed=1):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(d, q)))[0]


def _apart(A, B):
    return np.linalg.norm(A - B) / np.linalg.norm(B)


@pytest.mark.parametrize("name", KERNELS)
def test_what_a_kernel_says_of_itself_holds(name):
    Z = np.random.default_rng(0).normal(size=(60, 3))
    kernel = KERNELS[name]().resolve(Z)
    assert not (kernel.per_row_width and kernel.slope_is_psd)
    if not kernel.slope_is_psd:  # it is served by tiles
        return
    shape = unit_slope_between(kernel, Z, Z)
    assert np.linalg.eigvalsh(shape)[0] > -1e-10 * np.abs(shape).max()
    constant, rate = kernel.value_by_slope
    beta = kernel.pairing.beta(*kernel.pairing.operands(Z))
    expected = (constant + rate * beta) * kernel.slope(beta.copy())
    assert_allclose(expected, kernel.value(beta.copy()), atol=1e-12)
    if kernel.power is not None:
        features = Monomials(3, *kernel.power)
        F = features(Z)
        assert F.shape == (60, features.size)
        assert_allclose(F @ F.T, shape, rtol=1e-10, atol=1e-10)


LOW_RANK = [Gaussian(3.0), Multiquadric(3.0), Polynomial(12, 4.0)]
LOW_RANK += [Gaussian(2.0) + 0.5 * Polynomial(3) + 0.1 * Multiquadric(5.0)]


@pytest.mark.parametrize(
    ("kernel", "target"),
    [*product(LOW_RANK, ("classes", "linear")), (Gaussian(6.0) + Linear(), "many classes")],
)
def test_the_error_is_within_its_bound_and_falls_with_the_tolerance(kernel, target):
    X, y = _data()
    if target == "linear":
        y = X[:, 0] + np.sin(X[:, 2])
    elif target == "many classes":
        y = np.arange(700) % 60
        X += np.random.default_rng(2).normal(size=(60, 6))[y]
        y = target_dependence(y, "classes")
    W = _basis(6, 3)
    true = _engine("exact", X, y, kernel, 3).phi(W)
    errors = []
    for tol in (1e-2, 1e-4, 1e-6, 1e-8):
        found = _engine(EngineOptions("landmarks", tol=tol), X, y, kernel, 3, 200).phi(W)
        assert abs(found.objective / true.objective - 1) <= found.error
        errors.append(_apart(found.phi, true.phi))
        assert errors[-1] < 10 * tol
    assert errors[-1] < 1e-3 * errors[0]
    assert found.error < 1


def test_an_engine_that_declines_on_the_way_leaves_nothing_behind(monkeypatch):
    monkeypatch.setattr("ism_dask.engines.lowrank.landmark_engine._FROM_ROWS", 1000)
    X, y = _data(1000)
    calls, phi = count(1), LandmarkEngine.phi

    def declines(self, W):
        if next(calls) == 3:
            raise DeclinedError("at the third")
        return phi(self, W)

    monkeypatch.setattr(LandmarkEngine, "phi", declines)
    given = {"kernel": Gaussian("median"), "solver": ISM(tol=1e-6)}
    fitted = hsic_model(2, **given).fit(X, y)
    exact = hsic_model(2, engine="exact", **given).fit(X, y)
    assert fitted.report_.engine == "exact"
    assert fitted.report_.engine_note == "landmarks declined: at the third"
    assert_array_equal(fitted.components_, exact.components_)
    assert fitted.objective_ == exact.objective_


def test_outliers_that_no_sample_saw_are_found():
    X, y = _data(3000, 4)
    far = np.arange(7, 3000, 97)
    X[far] += 40 * np.random.default_rng(3).normal(size=(len(far), 4))
    sample = np.delete(X, far, axis=0)[:800]
    W = _basis(4, 2)
    engine = _engine(
        EngineOptions("landmarks", tol=1e-6), X, y, Gaussian(2.0), 2, 500, sample=sample
    )
    found = engine.phi(W)
    true = _engine("exact", X, y, Gaussian(2.0), 2).phi(W)
    assert _apart(found.phi, true.phi) < 1e-5
    assert abs(found.objective / true.objective - 1) <= found.error < 1e-2
    landmarks = engine._last.expansion.maps[0].points
    # Each stands alone: what is left of it would be all of it, had it not been found.
    assert np.linalg.norm((X[far] @ W)[:, None] - landmarks, axis=2).min(axis=1).max() < 2.0


def test_what_is_not_low_rank_is_given_up():
    rng, W = np.random.default_rng(0), _basis(20, 10)
    X, y = rng.normal(size=(4000, 20)), rng.integers(0, 3, 4000)
    for kernel in (Gaussian(0.3), Multiquadric(0.2)):
        engines = as_engine("auto").engines(problem_of(X, y, kernel), 10)
        with pytest.raises(DeclinedError, match=r"landmarks leave 0\.\d+ of the trace") as refusal:
            engines[0].phi(W)
        assert 500 <= int(str(refusal.value).split()[0]) < 550
        assert [engine.name for engine in engines] == ["landmarks", "exact"]
        served = first_that_serves(engines, lambda engine: (objective_of(engine, W), engine)[1])
        assert served.name == "exact"
        assert "landmarks declined" in served.note


def test_a_tolerance_below_rounding_is_refused():
    problem = problem_of(*_data(2000, d=3), Multiquadric(1.0))
    with pytest.raises(DeclinedError, match="`tol` of the engine allows 1e-17"):
        first_engine(EngineOptions("landmarks", tol=1e-17), problem, 3).phi(np.eye(3))


@pytest.mark.parametrize(
    ("n", "kernel", "q", "names"),
    [
        (500, Linear(), 2, ["closed_form", "exact"]),
        (500, CLOSED, 2, ["closed_form", "exact"]),
        (500, Gaussian(2.0), 2, ["exact"]),
        (4000, Gaussian(2.0), 2, ["landmarks", "exact"]),
        (4000, Polynomial(3), 2, ["landmarks", "exact"]),
        (4000, Polynomial(15), 5, ["landmarks", "exact"]),
        (10_000, RelativeGaussian(), 2, ["exact"]),
        (10_000, Gaussian(0.1), 2, ["landmarks", "exact"]),
        (10_000, Linear(), 2, ["closed_form", "landmarks", "exact"]),
    ],
    ids=repr,
)
def test_auto_goes_by_the_rule(n, kernel, q, names):
    X, y = _data(n)
    problem = problem_of(X, y, kernel.resolve(X[:50]))
    assert [each.name for each in as_engine("auto").engines(problem, q)] == names


def test_what_does_not_fit_is_refused_before_the_first_tile(monkeypatch):
    (X, y), W, watcher, tasks = _data(), _basis(6, 3), FitWatcher(), []
    watcher.on_task = lambda *done: tasks.append(done)
    monkeypatch.setattr("ism_dask.engines.base.task_budget", lambda: 10**5)
    too_much = pytest.raises(MemoryError, match=r"700 .*rows x 6 columns.* needs .* MiB, but may")
    kernels = [("landmarks", Polynomial(3)), ("landmarks", Gaussian(2.0)), ("exact", Gaussian(2.0))]
    for name, kernel in kernels:
        engine = _engine(name, X, y, kernel, 3)
        with watching_fits(watcher), too_much:
            engine.phi(W)
    assert not tasks
    # Another residual, of a sample of rows, does not take the place of that of all rows.
    engine = _engine("landmarks", *_data(2400), Gaussian(2.0), 2, 600)
    monkeypatch.undo()
    solution = ISM(tol=0.01).solve(engine, 2, TimeLimit())
    monkeypatch.setattr("ism_dask.engines.base.task_budget", lambda: 10**5)
    with pytest.raises(MemoryError, match=r"the residual under the true kernel: .* but may"):
        with_true_residual(engine, solution)


def test_a_sample_tells_the_residual_well(monkeypatch):
    engine = _engine(EngineOptions("landmarks", tol=1e-2), *_data(2400), Gaussian(2.5), 2, 600)
    begun, ended = (
        ISM(tol=1e-10, angle_tol=1e-8, max_iter=n).solve(engine, 2, TimeLimit()) for n in (1, 100)
    )
    full = [with_true_residual(engine, solution).residual for solution in (begun, ended)]
    monkeypatch.setattr(stationarity, "BUDGET", 1e7)
    sampled = [with_true_residual(engine, solution) for solution in (begun, ended)]
    assert [each.report.residual_rows for each in sampled] == [500, 500]
    assert sampled[0].residual == pytest.approx(full[0], rel=0.02)
    # At its own fixed point the approximation takes itself to be right; the sample knows better.
    assert stationarity.relative_residual(ended.W, ended.product) < 1e-7
    assert 1e-5 < sampled[1].residual < 1e-3
