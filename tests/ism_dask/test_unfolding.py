"""Colored maximum variance unfolding: its definition, and the proof of its maximum."""

import pickle

import dask.array as da
import numpy as np
import pytest
from definition import centred, equal_classes
from models import CULTIVAR as Y
from models import WINE
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csc_array, csr_array
from scipy.spatial.distance import cdist
from scipy.stats import spearmanr
from sklearn.base import clone
from sklearn.datasets import make_swiss_roll
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import kneighbors_graph
from sklearn.preprocessing import scale

from ism_dask import ColoredMVU
from ism_dask.status import Status
from ism_dask.unfolding import refinement

X = scale(WINE)
ROLL, ANGLE = make_swiss_roll(60, random_state=0)
HALF = (np.median(ANGLE) < ANGLE).astype(int)
# Rows in their own units.
RAW = {"standardize": False}


@pytest.fixture(scope="module")
def colored():
    """Return a fit to wine and its classes; no test may change it."""
    return ColoredMVU().fit(X, Y)


def _centred_kernel(y, n):
    return centred(np.eye(n) if y is None else equal_classes(y))


def _adjacency(X, k):
    """Return 1 for each pair of rows (n, n) of which one is among the k nearest of the other."""
    nearest = kneighbors_graph(X, k).toarray()
    return np.maximum(nearest, nearest.T)


def _correlation(Z, L):
    K = Z @ Z.T
    return np.sqrt(np.vdot(K, L) / np.linalg.norm(K) / np.linalg.norm(L))


def test_attributes_are_those_of_the_definition(colored):
    edges = np.argwhere(np.triu(_adjacency(X, 10)))
    distances = np.linalg.norm(X[edges[:, 0]] - X[edges[:, 1]], axis=1)
    Z, L = colored.embedding_, _centred_kernel(Y, len(X))
    assert colored.n_edges_ == len(edges)
    assert colored.part_sizes_ == (len(X),)
    lengths = np.linalg.norm(Z[edges[:, 0]] - Z[edges[:, 1]], axis=1)
    aligned = np.trace(Z @ Z.T @ L) / colored.scales_.gain
    penalty = colored.scales_.penalty * ((lengths**2 - distances**2) ** 2).sum()
    assert colored.objective_ == pytest.approx(aligned - penalty, rel=1e-10)
    error = np.sqrt(((lengths - distances) ** 2).sum() / (distances**2).sum())
    assert colored.distance_error_ == pytest.approx(error, rel=1e-10)
    assert colored.hsic_ == pytest.approx(_correlation(Z, L), rel=1e-10)
    assert colored.converged_
    assert 0 <= colored.duality_gap_ <= 1e-8
    assert_allclose(Z.mean(axis=0), 0, atol=1e-10)
    variances = Z.T @ Z
    assert abs(variances[0, 1]) < 1e-8 * variances[1, 1] < variances[0, 0]
    # Edges pull as y pushes.
    w, errors = colored.edge_weights_.toarray(), lengths**2 - distances**2
    expected = np.zeros_like(w)
    expected[tuple(edges.T)] = 2 * colored.scales_.penalty * errors
    assert_allclose(w, expected + expected.T, atol=1e-9 * np.abs(w).max())
    pushed = L @ Z / colored.scales_.gain
    left = pushed - (np.diag(w.sum(axis=0)) - w) @ Z
    size = np.vdot(Z, pushed) + penalty
    assert 2 * np.linalg.norm(left) * np.linalg.norm(Z) <= 1.01e-4 * size


@pytest.mark.parametrize(("y", "m"), [(HALF, 20), (None, 20), (HALF, 12)])
def test_no_other_kernel_of_the_program_has_a_larger_objective(y, m):
    """The objective is concave in K: the slack of its slope at the solution proves the maximum."""
    # With as many axes as functions `Z Z^T` is all of K.
    fitted = ColoredMVU(m, n_neighbors=6, n_eigenvectors=m, refine=False, **RAW).fit(ROLL, y)
    adjacency = _adjacency(ROLL, 6)
    V = np.linalg.eigh(np.diag(adjacency.sum(axis=1)) - adjacency)[1][:, 1 : m + 1]
    A, w = V.T @ fitted.embedding_, fitted.edge_weights_.toarray()
    assert_allclose(V @ A, fitted.embedding_, atol=1e-9)
    assert fitted.objective_ == pytest.approx(fitted.program_objective_, rel=1e-9)
    pushed = _centred_kernel(y, 60) / fitted.scales_.gain
    slack = V.T @ (np.diag(w.sum(axis=0)) - w - pushed) @ V
    values = np.linalg.eigvalsh(slack)
    assert values[0] > -1e-8 * values[-1]
    assert abs(np.vdot(A, slack @ A)) < 1e-8 * fitted.objective_
    assert_allclose(fitted.eigenvalues_, (fitted.embedding_**2).sum(axis=0), rtol=1e-9)


def test_axes_that_the_program_leaves_empty_are_not_used():
    with pytest.warns(UserWarning, match="ColoredMVU uses 1 of 3 axes"):
        fitted = ColoredMVU(3, n_neighbors=5, nu=0.1, **RAW).fit(ROLL[:24], HALF[:24])
    assert fitted.embedding_.any(axis=0).tolist() == [True, False, False]
    assert fitted.converged_


# By LAPACK, and by Lanczos.
@pytest.mark.parametrize(("count", "near", "m"), [(12, 12, 15), (24, 20, 18)])
def test_no_cut_through_a_multiple_eigenvalue_decides_the_picture(count, near, m):
    """On a torus eigenvalues occur four times, and the fourth one eight times."""
    turns = 2 * np.pi * np.arange(count) / count
    circle = np.column_stack([np.cos(turns), np.sin(turns)])
    rows = np.hstack([np.tile(circle, (count, 1)), circle.repeat(count, axis=0)])
    y = rows @ [1.0, 0.4, 0.2, 0.7]
    options = {"n_neighbors": 8, "refine": False, "target": "gaussian", **RAW}
    whole, fitted = (ColoredMVU(n_eigenvectors=n, **options).fit(rows, y) for n in (near, m))
    assert len(fitted.eigenvalues_) == near
    assert_allclose(fitted.embedding_, whole.embedding_, atol=1e-6 * whole.embedding_.std())
    with pytest.warns(UserWarning, match="more than 20 functions .* are equally smooth"):
        ColoredMVU(3, n_neighbors=39, **RAW).fit(np.eye(40))


def test_new_rows_of_a_swiss_roll_unroll_along_its_angle():
    fitted = ColoredMVU(nu=3.0).fit(*make_swiss_roll(1000, random_state=0))
    fresh, angle = make_swiss_roll(300, random_state=1)
    assert abs(spearmanr(fitted.transform(fresh)[:, 0], angle)[0]) > 0.99


def test_chunks_and_precisions_give_the_same(colored):
    chunked = ColoredMVU().fit(da.from_array(X, chunks=(50, 6)), Y)
    assert_array_equal(chunked.embedding_, colored.embedding_)
    lazy = chunked.transform(da.from_array(X + 0.01, chunks=(50, 13)))
    assert_array_equal(lazy.compute(), chunked.transform(X + 0.01))
    single = X.astype(np.float32)
    short = ColoredMVU().fit(single, Y)
    assert short.embedding_.dtype == short.transform(single).dtype == np.float32
    assert short.objective_ == pytest.approx(colored.objective_, abs=0.01)


def test_rows_of_the_fit_have_their_own_place_and_others_that_of_their_neighbours(colored):
    copy, Z = pickle.loads(pickle.dumps(colored)), colored.embedding_
    assert_array_equal(copy.transform(X), Z)
    assert np.abs(copy.transform(X + 1e-9) - Z).max() < 1e-6 * Z.std()
    new = X[:5] + 0.3 * (X[5:10] - X[:5])
    near = np.argsort(cdist(new, X))[:, :10]
    expected = [_local_weights(X[k] - row) @ Z[k] for row, k in zip(new, near, strict=True)]
    assert_allclose(colored.transform(new), expected, atol=1e-9 * Z.std())
    with pytest.raises(ValueError, match="1 rows of X, the first number 3, are so far"):
        colored.transform(np.where(np.arange(178)[:, None] == 3, 1e200, X))


def _local_weights(apart):
    """Return the weights (k,) of neighbours whose differences from a row are `apart` (k, d)."""
    products = apart @ apart.T
    ridge = 0.01 * len(apart) * np.diag(np.diag(products))
    weights = np.linalg.solve(products + ridge, np.ones(len(apart)))
    return weights / weights.sum()


@pytest.mark.parametrize("options", [RAW, {}])
def test_sparse_rows_are_unfolded_as_dense_ones(options):
    rng = np.random.default_rng(0)
    words = rng.poisson(0.4, size=(120, 60)) * rng.random((120, 60))
    words[:5], labels = words[7], rng.integers(0, 3, 120)
    words[labels == 1, :9] *= 3
    model = ColoredMVU(refine=False, **options)
    dense, sparse = (clone(model).fit(each, labels) for each in (words, csc_array(words)))
    near = {"rtol": 0.0, "atol": 1e-4 * dense.embedding_.std()}
    assert sparse.n_edges_ == dense.n_edges_
    assert_allclose(sparse.embedding_, dense.embedding_, **near)
    assert_array_equal(sparse.transform(csr_array(words)), sparse.embedding_)
    new = words[:20] + (rng.random((20, 60)) < 0.05)
    assert_allclose(sparse.transform(csr_array(new)), sparse.transform(new), **near)


def test_a_kernel_is_given_by_its_factor():
    L = np.exp(-np.abs(X[:, [0]] - X[:, 0]) / np.ptp(X[:, 0]))
    values, vectors = np.linalg.eigh(L)
    factor = vectors * np.sqrt(values.clip(0))
    for given in (factor, factor + 5.0, csr_array(factor)):  # the same once it is centred
        fitted = ColoredMVU(refine=False, target="factor").fit(X, given)
        assert fitted.hsic_ == pytest.approx(_correlation(fitted.embedding_, centred(L)), rel=1e-6)


def test_equal_rows_have_one_place():
    twice, labels = np.concatenate([X, X]), np.concatenate([Y, Y])
    for y, both in ((Y, labels), (None, None)):
        once = ColoredMVU(refine=False).fit(X, y)
        doubled = ColoredMVU(refine=False).fit(twice, both)
        assert doubled.n_edges_ == once.n_edges_
        assert_allclose(doubled.embedding_[: len(X)], once.embedding_, atol=1e-5)
        assert_array_equal(*np.split(doubled.embedding_, 2))


def test_parts_of_the_graph_are_joined_with_a_warning():
    rows = np.random.default_rng(0).normal(size=(120, 3))
    far = rows[:60] + 50.0 * (np.arange(60) >= 40)[:, None]
    with pytest.warns(UserWarning, match=r"falls into 2 parts \(40, 20 rows\): they are joined"):
        fitted = ColoredMVU(n_neighbors=5).fit(far, np.repeat([0, 1], [40, 20]))
    assert fitted.part_sizes_ == (40, 20)
    assert fitted.converged_
    side = fitted.embedding_[:, 0] > 0
    assert side[:40].all() != side[40:].all()
    with pytest.raises(ValueError, match=r"60 parts .* expected at most 50"):
        ColoredMVU(n_neighbors=1).fit(np.repeat(100.0 * np.arange(60), 2)[:, None] + rows[:, :1])


def test_an_unfinished_refinement_is_reported(monkeypatch):
    with pytest.warns(ConvergenceWarning, match="in 3 steps .* raise `max_iter`"):
        fitted = ColoredMVU(max_iter=3).fit(X, Y)
    assert (fitted.converged_, fitted.status_, fitted.n_iter_) == (False, Status.MAX_ITER, 3)
    monkeypatch.setattr(refinement, "_STATIONARY", 0.0)
    with pytest.warns(ConvergenceWarning, match="rounding lets no step improve.*nearer to 1"):
        ended = ColoredMVU().fit(X, Y)
    assert ended.status_ is Status.ROUNDING
    assert ended.n_iter_ < ended.max_iter


def test_rows_beyond_the_memory_are_refused():
    many = da.zeros((4_000_000_000, 800), chunks=(1_000_000, 800))
    with pytest.raises(MemoryError, match=r"shape \(4000000000, 800\) .* MiB may be taken"):
        ColoredMVU().fit(many)


CIRCLED = {"target": "factor", "n_neighbors": 2, **RAW}
CIRCLE = np.exp(2j * np.pi * np.arange(404) / 404).view(float).reshape(404, 2)


@pytest.mark.parametrize(
    ("options", "rows", "y", "message"),
    [
        ({"n_components": 31}, X, Y, "`n_components` must be .* from 1 to 30 for 178"),
        ({"n_neighbors": 178}, X, Y, "`n_neighbors` must be .* from 1 to 177 for 178 .* got 178"),
        ({"n_eigenvectors": 12}, X[:12], None, "`n_eigenvectors` .* from 2 to 11 for 12"),
        ({"nu": 1e-30}, X, Y, "`nu` must be a number in \\(1e-20, 1e\\+20\\)"),
        ({"max_iter": 0}, X, Y, "`max_iter` must be a whole number from 1 up"),
        ({"target": "colour"}, X, Y, "`target` must be one of auto, classes, .*, factor"),
        ({"target": "factor"}, X, np.ones((178, 2)), "each column of `y` is constant"),
        ({"target": "linear"}, X, None, "`target` is 'linear', but `y` is None"),
        ({}, np.repeat(X, 2, axis=0), np.tile([0, 1], 178), "`y` differs only between equal"),
        ({}, np.ones((9, 3)), None, "all rows of X are equal"),
        (CIRCLED, CIRCLE, np.tile([-1.0, 1.0], 202), "between equal rows and neighbours: none"),
        (RAW, 1e100 * X, Y, "distances up to .*, whose fourth powers lose digits"),
    ],
)
def test_bad_input_is_refused(options, rows, y, message):
    with pytest.raises((ValueError, TypeError), match=message):
        ColoredMVU(**options).fit(rows, y)
