"""Certificates: what is certified is a local maximum by brute force, and a saddle point is left."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from awkward import definition_of, small
from definition import Definition, centred, equal_classes
from models import hsic_model, problem_of
from sklearn.datasets import load_wine

from benchmarks.local_maxima import objection
from ism_dask.engines import ExactEngine, PaddedOperator
from ism_dask.kernels import Gaussian, Linear, Polynomial, Squared
from ism_dask.linalg.subspaces import subspace_sine
from ism_dask.records.stopping_rule import Stopping
from ism_dask.solvers import ISM
from ism_dask.solvers.certificates import certify, hessian_of
from ism_dask.solvers.ism import solution_at, state_at
from ism_dask.solvers.multistart import MultistartSearch
from ism_dask.status import Status

WINE, VINEYARD = load_wine(return_X_y=True)
MEDIAN = Gaussian("median")


def test_what_is_certified_is_a_local_maximum_by_brute_force():
    certified = 0
    for seed in range(100, 130):
        case = small(seed)
        case = replace(case, q=min(case.q, 3))
        model = hsic_model(case.q, kernel=case.kernel, target=case.target)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            certificate = model.fit(case.X, case.y).certificate_
        assert certificate.residual == model.residual_
        if certificate.is_certified:
            certified += 1
            objective = definition_of(case, model).objective
            if certificate.is_global:
                assert isinstance(case.kernel, Linear | Squared)
                assert certificate.reason.startswith("no W has a larger J")
            else:
                assert not objection(objective, model.components_.T, certificate.distance), seed
        else:
            assert certificate.reason.startswith("not certified: "), seed
    assert certified >= 27


def _corners():
    """Four groups at the corners of a square; J is stationary at its diagonal, by symmetry."""
    rng = np.random.default_rng(0)
    near = 0.1 * rng.normal(size=(30, 2))
    corners = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    X = np.concatenate([corner + near for corner in corners])
    y = np.repeat([0, 1, 2, 3], 30)
    X, y = np.concatenate([X, X[:, ::-1]]), np.concatenate([y, np.array([0, 2, 1, 3])[y]])
    return problem_of(X, y, Gaussian(0.5).resolve(X))


def test_a_fit_climbs_from_a_saddle_to_a_certified_maximum():
    problem = _corners()
    saddle = np.full((2, 1), np.sqrt(0.5))
    engine = ExactEngine(problem, 1)
    at_saddle = solution_at(PaddedOperator(engine, 0), saddle, Status.CONVERGED)
    assert hessian_of(engine, at_saddle).extremes().rises
    doubt = certify(problem, saddle, Status.CONVERGED)
    assert not doubt.is_certified
    assert doubt.residual < 1e-12
    assert "J rises" in doubt.reason
    solution = MultistartSearch("exact", Stopping(None)).run(problem, 1, state_at(saddle))
    assert solution.status is Status.CONVERGED
    assert solution.certificate.is_certified
    assert solution.objective > 1.1 * engine.objective(saddle)
    assert subspace_sine(solution.W, saddle) > 0.1
    assert objection(engine.objective, saddle, 0.0)
    assert not objection(engine.objective, solution.W, solution.certificate.distance)


def test_differences_and_curvature_give_the_same_eigenvalues():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 6))
    y = np.digitize(X[:, 0] + X[:, 1] ** 2, [0.0, 1.0])
    for kernel in (Gaussian(1.0), Polynomial(3, 1.0)):
        problem = problem_of(X, y, kernel)
        solution = MultistartSearch("exact", Stopping(None)).run(problem, 2)
        exact = hessian_of(ExactEngine(problem, 2), solution)
        assert exact.step is None
        true, near = exact.extremes(), replace(exact, step=1e-5).extremes()
        assert near.largest == pytest.approx(true.largest, rel=1e-3)
        assert near.least == pytest.approx(true.least, rel=1e-3)
        assert true.error < 1e-9
        assert true.n_products <= 8  # the directions: these eigenvalues are exact
        assert true.slack == 0.0


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"solver": ISM(tol=0.5), "kernel": MEDIAN}, "W is not stationary: its residual is"),
        ({"solver": "stiefel", "kernel": MEDIAN}, "another solver than 'ism' ended it"),
        ({"engine": "landmarks", "kernel": MEDIAN}, "the engine 'landmarks' approximates J"),
        ({"kernel": Polynomial(1, 1.0), "n_components": 4}, "J is flat along a direction"),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_uncertified_fits_say_why(parameters, reason):
    model = hsic_model(**{"n_components": 2, **parameters}).fit(WINE, VINEYARD)
    assert not model.certificate_.is_certified
    assert reason in model.certificate_.reason


def test_certify_measures_what_the_fit_did_not():
    rows, y = WINE[::3, :5], VINEYARD[::3]
    constant = np.hstack([rows, np.ones((len(rows), 2))])
    for X in (rows, constant):
        for parameters in ({"engine": "landmarks"}, {"solver": "stiefel"}, {"whiten": True}):
            model = hsic_model(2, kernel=MEDIAN, **parameters).fit(X, y)
            certificate = model.certify(X, y)
            assert certificate is model.certificate_
            assert certificate.is_certified
            assert certificate.residual == pytest.approx(model.residual_, rel=1e-3)
            if "whiten" not in parameters:
                Z = (X - model.mean_) / model.scale_
                judge = Definition(Z, centred(equal_classes(y)), model.kernel_)
                W = model.components_.T
                assert not objection(judge.objective, W, certificate.distance)
    with pytest.raises(ValueError, match="X has 5 features, but SupervisedIKDR is expecting 7"):
        model.certify(rows, y)
    other = model.certify(constant[::-1], y)
    assert "W is not stationary" in other.reason
    assert model.n_features_in_ == 7


def test_sparse_rows_in_a_subspace_are_not_certified(monkeypatch):
    rng = np.random.default_rng(0)
    X = scipy.sparse.random(60, 2100, density=0.02, format="csr", random_state=rng)
    y = np.arange(60) % 3
    model = hsic_model(2, kernel=MEDIAN).fit(X, y)
    assert "X is sparse" in model.certificate_.reason
    assert model.certificate_.residual == model.residual_
    assert model.certify(X, y).is_certified
    monkeypatch.setattr("ism_dask.rows.blocks.MEMORY_NUMBERS", 100_000)
    with pytest.raises(ValueError, match=r"60 x 2100 numbers.*expected at most 2000 columns"):
        model.certify(X, y)


def test_the_distance_from_rows_in_single_precision_is_that_to_the_maximum_in_double():
    """W is stationary to the last digit of single precision, which says nothing of those below."""
    rng = np.random.default_rng(24)
    X = rng.normal(size=(280, 4)).astype(np.float32)
    y = (X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.3 * rng.normal(size=280) > 0.3) + 1 * (X[:, 2] > 0.5)
    kernel = Gaussian("median").resolve(X.astype(np.float64))
    problem = problem_of(X, y, kernel)
    search, W = MultistartSearch("exact", Stopping(None)), None
    for _ in range(12):
        solution = search.run(problem, 2, None if W is None else state_at(W))
        W = solution.W
    engine, maximum = ExactEngine(problem.in_double(), 2), W
    for _ in range(500):
        maximum = np.linalg.eigh(engine.phi(maximum).phi)[1][:, -2:]
    assert subspace_sine(np.linalg.eigh(engine.phi(maximum).phi)[1][:, -2:], maximum) < 1e-12
    assert solution.certificate.is_certified
    assert subspace_sine(W, maximum) < 1.05 * solution.certificate.distance
