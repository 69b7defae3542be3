"""What a fit claims of its answer, held against the definition on problems of all kinds."""

import re
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse
from awkward import definition_of, hostile, rank_deficient, small
from models import CULTIVAR, WINE, curved, hsic_model, objective_of, problem_of, quick, quiet
from numpy.testing import assert_allclose
from scipy.spatial.distance import pdist
from sklearn.datasets import load_breast_cancer

from benchmarks.studies.local_maxima import objection
from ism_dask import ComponentsWarning, PredictiveIKDR, UnsupervisedIKDR, hsic
from ism_dask.engines import EngineOptions, ExactEngine
from ism_dask.kernels import KERNELS, Gaussian, Linear, Multiquadric, Polynomial, Squared
from ism_dask.linalg.subspaces import subspace_sine
from ism_dask.records.iteration import RESIDUAL, State
from ism_dask.solvers import ISM, Ascent, certificates
from ism_dask.solvers.certificates import certify_dependence
from ism_dask.solvers.search import Search
from ism_dask.status import Status, components_advice

# Fits to a test: some seconds.
BLOCK = 50
MANY = [pytest.mark.long, pytest.mark.minutes, pytest.mark.timeout(3600)]
# Of one width and one start.
MEDIAN = Gaussian("median")


def blocks(short, long):
    """Numbers of blocks of fits: the first for each run, the others for `make claims`."""
    rest = [pytest.param(number, marks=MANY) for number in range(short, long)]
    return pytest.mark.parametrize("block", [*range(short), *rest])


def fit(case):
    model = hsic_model(case.q, kernel=case.kernel, target=case.target, **case.settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return model.fit(case.X, case.y)


def off_from_orthonormal(model):
    return np.abs(model.components_ @ model.components_.T - np.eye(len(model.components_))).max()


@pytest.mark.long
@blocks(1, 20)
def test_converged_is_true(block):
    """J is that of the definition, and so is the residual, which is small."""
    converged, fits = 0, 4 * BLOCK  # enough to see a share of 95%
    for seed in range(fits * block, fits * (block + 1)):
        case = small(seed)
        model = fit(case)
        judge, W = definition_of(case, model), model.components_.T
        J = judge.objective(W)
        assert off_from_orthonormal(model) <= 1e-10, seed
        assert abs(model.objective_ - J) <= max(model.report_.engine_error, 1e-11) * abs(J), seed
        assert model.converged_ == (model.status_ is Status.CONVERGED)
        if model.converged_:
            converged += 1
            # The definition by differences has rounding of its own.
            assert judge.residual(W) <= 2 * RESIDUAL, seed
    assert converged >= 0.95 * fits


@blocks(2, 40)
def test_j_is_within_its_bound(block):
    """Clusters far apart, heavy tails, scales and offsets of all sizes: in either precision."""
    refusals = []
    for seed in range(BLOCK * block, BLOCK * (block + 1)):
        case = hostile(seed)
        try:
            model = fit(case)
        except ValueError as error:
            refusals.append(str(error))
            continue
        judge, W = definition_of(case, model, np.longdouble), model.components_.T
        J, rounding = judge.objective(W), judge.rounding(W)
        assert abs(model.objective_ - J) <= model.report_.engine_error * abs(J) + rounding, seed
        assert off_from_orthonormal(model) <= 1e-10, seed
    # Landmarks that cannot serve say so, as do kernels that are constant or overflow.
    words = re.compile("cannot serve|all but constant|`tol` of the engine|overflows")
    assert all(words.search(reason) for reason in refusals), refusals
    assert len(refusals) < 0.7 * BLOCK


@quiet
@blocks(1, 165)
def test_components_are_orthonormal_whatever_the_rows(block):
    """Constant, repeated and null columns, equal rows, and up to d - 1 components."""
    kernels = [*KERNELS, Gaussian(0.3), Polynomial(2, 0.0), Multiquadric(0.1)]
    for seed in range(10 * block, 10 * (block + 1)):
        X, y, q = rank_deficient(seed)
        for model in (
            PredictiveIKDR(q, max_features=None, solver=Ascent(max_iter=30)),
            hsic_model(q, kernel=kernels[seed % len(kernels)], solver=ISM(max_iter=30)),
        ):
            varying = np.count_nonzero(np.ptp(X, axis=0))
            if len(np.unique(np.c_[X, y], axis=0)) < varying:  # equal rows of equal y are one
                varying = np.linalg.matrix_rank(X - X.mean(axis=0))
            if isinstance(model, PredictiveIKDR) and q > varying:
                with pytest.raises(ValueError, match=f"fewer than the {q} new features"):
                    model.fit(X, y)
                continue
            model.fit(X, y)
            assert model.components_.shape == (q, X.shape[1])
            assert off_from_orthonormal(model) <= 1e-10, (seed, model)
            assert np.isfinite(model.objective_)
            assert model.n_iter_ == len(model.history_) <= 30
            assert model.transform(X).shape == (len(X), q)


# The spectral steps swing on the tumours, so that steps along the slope follow.
@pytest.mark.parametrize("data", ["product", "tumours"])
def test_landmarks_that_jump_do_not_end_below_the_true_maximum(data):
    """J of landmarks jumps from one choice of them to the next, by more than an iteration gains."""
    X = np.random.default_rng(0).normal(size=(1500, 12))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    X, y = (X, y) if data == "product" else load_breast_cancer(return_X_y=True)
    near, exact = (
        hsic_model(2, kernel=MEDIAN, engine=engine).fit(X, y) for engine in ("landmarks", "exact")
    )
    assert near.converged_
    assert near.residual_ <= near.report_.tolerance == RESIDUAL
    assert near.report_.residual_rows == len(X)
    assert abs(near.objective_ - exact.objective_) <= 5e-4 * exact.objective_


@quiet
@pytest.mark.parametrize(("q", "gap"), [(3, 0.0), (6, None), (14, None)])
def test_columns_that_carry_nothing_take_what_would_lower_j(q, gap):
    """Beyond two features all others lower J here: four may be constant instead."""
    wider = np.hstack([WINE, np.ones((len(WINE), 4))])
    model = hsic_model(q, kernel=MEDIAN).fit(wider, CULTIVAR)
    fewer = hsic_model(max(2, q - 4), kernel=MEDIAN).fit(WINE, CULTIVAR)
    assert model.objective_ >= fewer.objective_ * (1 - 1e-9)
    assert np.count_nonzero(np.abs(model.eigenvalues_) < 1e-9) == min(4, q - 2)
    if gap is not None:
        assert model.eigengap_ == gap


def test_rows_of_more_columns_than_rows_keep_no_direction_of_rounding():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 80)), np.arange(30) % 3
    new = rng.normal(size=(200, 80))
    model = hsic_model(5).fit(X, y)
    noisy = hsic_model(5).fit(X * (1 + 1e-15 * rng.normal(size=X.shape)), y)
    assert_allclose(noisy.components_, model.components_, atol=1e-6)
    value = hsic(model.transform(X), y, kernel=model.kernel_) * 29**2
    assert value == pytest.approx(model.objective_, rel=1e-8)
    # What is constant in training is so by the columns' own rule: it is one feature, or some.
    for column, trained in zip(model.transform(new).T, model.transform(X).T, strict=True):
        assert np.ptp(trained) > 1e-8 or np.ptp(column) > 0


@pytest.mark.parametrize(
    ("eigenvalues", "eigengap", "advice"),
    [
        ((8.0, 5.0, 0.0), 0.0, "new feature 3 has an eigenvalue of 0, .* 2 new features would do"),
        ((7e6, 930.0, 2.0), 1.0, "new features 2 to 3 have .* 930 or less, .* 1 new feature would"),
        ((8.0, 3.0), -2.0, "eigengap is -2: .* eigenvalue of 5, larger .* 2. 1 new feature would"),
        ((8.0, 3.0), -1e-9, "^$"),
        ((-1.0, -2.0), -1.0, "new features 1 to 2 have .* -1 or less, .* another kernel or width"),
        ((8.0,), -4.0, "eigenvalue of 12, larger than that of new feature 1. Take another kernel"),
    ],
)
def test_what_eigenvalues_say_against_a_number_of_features(eigenvalues, eigengap, advice):
    assert re.search(advice, components_advice(eigenvalues, eigengap))


def test_features_that_add_nothing_are_a_warning():
    advice = r"new feature 3 has an eigenvalue of -6\.\d.* 2 new features would do$"
    with pytest.warns(ComponentsWarning, match=advice):
        hsic_model(3, kernel=MEDIAN).fit(WINE, CULTIVAR)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ComponentsWarning)
        hsic_model(2, kernel=MEDIAN).fit(WINE, CULTIVAR)


def test_threads_that_fit_leave_the_filters_of_warnings_as_they_were():
    before = list(warnings.filters)
    models = [UnsupervisedIKDR(3, random_state=seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for model in pool.map(lambda model: model.fit(WINE), models):
            assert len(np.unique(model.labels_)) == 3
    assert warnings.filters == before


def test_what_is_certified_is_a_local_maximum_by_brute_force():
    certified = 0
    for seed in range(100, 115):
        case = small(seed)
        case = replace(case, q=min(case.q, 3))
        model = fit(case)
        certificate = model.certify(case.X, case.y)
        assert certificate.residual == pytest.approx(model.residual_, rel=1e-3, abs=1e-9)
        certified += certificate.is_certified
        if not certificate.is_certified:
            assert certificate.reason.startswith("not certified: "), seed
        elif certificate.is_global:
            assert isinstance(case.kernel, Linear | Squared)
            assert certificate.reason.startswith("no W has a larger J")
        else:
            objective = definition_of(case, model).objective
            assert not objection(objective, model.components_.T, certificate.distance), seed
    assert certified >= 13


def test_a_saddle_is_stationary_and_not_certified():
    """Four groups at the corners of a square; J is stationary at its diagonal, by symmetry."""
    near = 0.1 * np.random.default_rng(0).normal(size=(30, 2))
    corners = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    X = np.concatenate([corner + near for corner in corners])
    y = np.repeat([0, 1, 2, 3], 30)
    X, y = np.concatenate([X, X[:, ::-1]]), np.concatenate([y, np.array([0, 2, 1, 3])[y]])
    problem = problem_of(X, y, Gaussian(0.5))
    saddle, engine = np.full((2, 1), np.sqrt(0.5)), ExactEngine(problem, 1)
    doubt = certify_dependence(problem, saddle)
    assert not doubt.is_certified
    assert doubt.residual < 1e-12
    assert doubt.largest_eigenvalue > 0
    assert "J rises" in doubt.reason
    assert objection(partial(objective_of, engine), saddle, 0.0)


def test_many_weights_are_certified_by_products(monkeypatch):
    X, score = curved(d=6, noise=0)
    for kernel in (Gaussian(1.0), Polynomial(3, 1.0)):
        problem = problem_of(X, np.digitize(score, [0.0, 1.0]), kernel)
        W = Search(EngineOptions("exact")).run(problem, 2).W
        dense = certify_dependence(problem, W)
        monkeypatch.setattr(certificates, "MOST_DENSE", 0)
        near = certify_dependence(problem, W)
        monkeypatch.undo()
        assert dense.is_certified
        assert near.is_certified
        assert near.largest_eigenvalue == pytest.approx(dense.largest_eigenvalue, rel=0.05)
        assert near.distance >= 0.9 * dense.distance


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"solver": ISM(tol=0.5), "kernel": MEDIAN}, "W is not stationary: its residual is"),
        ({"kernel": Polynomial(1, 1.0), "n_components": 4}, "J is flat along a direction"),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_uncertified_fits_say_why(parameters, reason):
    model = hsic_model(**{"n_components": 2, **parameters}).fit(WINE, CULTIVAR)
    certificate = model.certify(WINE, CULTIVAR)
    assert not certificate.is_certified
    assert reason in certificate.reason


@quiet
@pytest.mark.parametrize("share", [0.02, 0.1, 0.3, 0.5])
@pytest.mark.parametrize(
    "model",
    [*(hsic_model(engine=each) for each in ("exact", "landmarks")), quick(PredictiveIKDR)],
    ids=repr,
)
def test_a_flat_fit_says_so_and_proves_nothing(model, share):
    """A kernel narrower than all distances tells no two rows apart from any other two."""
    for seed in range(4):
        X = np.random.default_rng(seed).normal(size=(40, 5)) + 10.0 * np.arange(40)[:, None]
        kernel, y = Gaussian(share * pdist(X).min() / 40), np.arange(40) % 3
        model.set_params(n_components=1, kernel=kernel, standardize=False).fit(X, y)
        certificate = model.certify(X, y)
        assert not certificate.is_certified, certificate
        assert certificate.residual == 1.0 or "residual" in certificate.reason, certificate
        if isinstance(model, PredictiveIKDR):
            continue
        differences = X[:, None] - X
        slopes = np.exp(-((differences @ model.components_[0]) ** 2) / (2 * kernel.sigma**2))
        terms = slopes[..., None] * differences * (differences @ model.components_.T)
        # Phi W is below the limit of rounding for any Gamma, whose entries are at most 1.
        assert np.abs(terms).sum() / kernel.sigma**2 <= 1e-9 * model.objective_
        assert (model.status_, model.residual_) == (Status.FLAT, 1.0)
        assert not model.converged_


def test_certify_measures_what_the_fit_did_not():
    rows, y = WINE[::3, :5], CULTIVAR[::3]
    constant = np.hstack([rows, np.ones((len(rows), 2))])
    for X in (rows, constant):
        for parameters in ({"engine": "landmarks"}, {"engine": "exact"}):
            model = hsic_model(2, kernel=MEDIAN, **parameters).fit(X, y)
            certificate = model.certify(X, y)
            assert certificate is model.certificate_
            assert certificate.is_certified
            assert certificate.residual == pytest.approx(model.residual_, rel=1e-3)
    with pytest.raises(ValueError, match="X has 5 features, but SupervisedIKDR is expecting 7"):
        model.certify(rows, y)
    assert model.n_features_in_ == 7


def test_sparse_rows_are_certified_once_they_are_dense(monkeypatch):
    rng = np.random.default_rng(0)
    X = scipy.sparse.random(60, 2100, density=0.02, format="csr", random_state=rng)
    y = np.arange(60) % 3
    model = hsic_model(2, kernel=MEDIAN).fit(X, y)
    assert not hasattr(model, "certificate_")
    assert model.certify(X, y).is_certified
    monkeypatch.setattr("ism_dask.rows.raw.MEMORY_NUMBERS", 100_000)
    with pytest.raises(ValueError, match=r"60 x 2,100 numbers.*expected at most 2,000 columns"):
        model.certify(X, y)


def test_the_distance_from_rows_in_single_precision_is_that_to_the_maximum_in_double():
    """W is stationary to the last digit of single precision, which says nothing of those below."""
    rng = np.random.default_rng(24)
    X = rng.normal(size=(280, 4)).astype(np.float32)
    y = (X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.3 * rng.normal(size=280) > 0.3) + 1 * (X[:, 2] > 0.5)
    problem = problem_of(X, y, Gaussian("median").resolve(X.astype(np.float64)))
    search, W = Search(EngineOptions("exact")), None
    for _ in range(12):
        solution = search.run(problem, 2, None if W is None else State.from_weights(W))
        W = solution.W
    engine, maximum = ExactEngine(problem.in_double(), 2), W
    for _ in range(500):
        maximum = np.linalg.eigh(engine.phi(maximum).phi)[1][:, -2:]
    assert subspace_sine(np.linalg.eigh(engine.phi(maximum).phi)[1][:, -2:], maximum) < 1e-12
    certificate = certify_dependence(problem, W)
    assert certificate.is_certified
    assert subspace_sine(W, maximum) < 1.05 * certificate.distance
