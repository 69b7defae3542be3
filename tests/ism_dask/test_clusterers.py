"""The three clusterers: scikit-learn's contract, repeatability, and inputs at the edge."""

import pickle
from functools import partial

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from definition import Definition, centred, equal_classes, kernel_matrix
from distributed import Client
from models import CULTIVAR as Y
from models import WINE as X
from models import quiet, stored
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import null_space
from scipy.sparse import coo_array, csr_array
from scipy.spatial.distance import cdist, pdist
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from ism_dask import AlternativeIKDR, SemiSupervisedIKDR, UnsupervisedIKDR
from ism_dask.clustering import alternation
from ism_dask.clustering.alternation import _has_not_halved
from ism_dask.engines import EngineOptions
from ism_dask.kernels import KERNELS, Gaussian
from ism_dask.linalg.subspaces import subspace_sine
from ism_dask.records.iteration import Round
from ism_dask.solvers import ISM

nmi = partial(normalized_mutual_info_score, average_method="geometric")


def crossed_groupings(n, d, *apart):
    """Return rows (n, d) in groupings of two clusters, each in columns of its own, and labels."""
    rng = np.random.default_rng(0)
    labels, rows = rng.integers(2, size=(len(apart), n)), rng.normal(size=(n, d))
    for number, (start, stop, distance) in enumerate(apart):
        rows[:, start:stop] += distance * labels[number, :, None]
    return rows, *labels


@pytest.fixture(scope="module")
def wine():
    return UnsupervisedIKDR(3).fit(X)


def test_clusters_of_wine(wine):
    assert nmi(Y, wine.labels_) > 0.85
    assert wine.labels_[0] == 0  # clusters are numbered as they come up
    assert wine.embedding_.shape == (178, 3)
    assert_allclose(wine.embedding_.T @ wine.embedding_, np.eye(3), atol=1e-6)
    assert_allclose(wine.components_ @ wine.components_.T, np.eye(3), atol=1e-10)
    assert wine.affinity_.sigma < wine.kernel_.sigma
    last = wine.rounds_[-1]
    assert max(last.change, last.turn) < 0.01
    assert last.affinity == pytest.approx(sum(last.eigenvalues))


def assert_describes_itself(model, rows, Gamma):
    """Check what a fit under Gamma (n, n) says of itself, and that W is that of its embedding."""
    X, W = (rows - model.mean_) / model.scale_, model.components_.T
    definition = Definition(X, Gamma, model.kernel_)
    phi, outside = definition.phi(W), null_space(W.T)
    eigenvalues = np.linalg.eigvalsh(W.T @ phi @ W)[::-1]
    eigengap = eigenvalues[-1] - np.linalg.eigvalsh(outside.T @ phi @ outside)[-1]
    residual = definition.residual(W)
    assert_allclose(model.objective_, definition.objective(W), rtol=1e-9)
    assert_allclose(model.eigenvalues_, eigenvalues, rtol=1e-6)
    assert_allclose(model.eigengap_, eigengap, rtol=1e-6)
    assert_allclose(model.residual_, residual, rtol=1e-4)
    assert model.converged_
    assert model.report_.tolerance == 0.01
    assert residual < 0.01


@quiet
@pytest.mark.parametrize("limits", [{}, {"max_outer": 1}, {"solver": ISM(max_seconds=1e-6)}])
def test_the_last_round_has_the_eigenvalues_of_the_embedding(limits):
    """They are the largest of `H D^-1/2 K D^-1/2 H`, however the rounds ended."""
    model = UnsupervisedIKDR(3, **limits).fit(X)
    K = kernel_matrix(model.affinity_, model.transform(X))
    roots = (K.sum(axis=1) + 0.3 * len(X)) ** -0.5
    normalised = centred(roots[:, None] * K * roots)
    expected = np.linalg.eigvalsh(normalised)[:-4:-1]
    assert_allclose(model.rounds_[-1].eigenvalues, expected, rtol=1e-9)
    assert_allclose(np.diag(model.embedding_.T @ normalised @ model.embedding_), expected)


def test_what_is_said_of_clusters_holds_for_the_embedding_returned(wine):
    assert_describes_itself(wine, X, wine.embedding_ @ wine.embedding_.T)
    model = AlternativeIKDR(2).fit(X, Y)
    degrees = kernel_matrix(model.affinity_, model.transform(X)).sum(axis=1) + 0.3 * len(X)
    omega, L = model.embedding_ / np.sqrt(degrees)[:, None], centred(equal_classes(Y))
    Gamma = omega @ omega.T / (omega**2).sum() - model.mu * L / np.trace(L)
    assert_describes_itself(model, X, Gamma)


@pytest.mark.parametrize("standardize", [True, False])
def test_j_of_widths_for_each_row_is_that_of_the_widths_of_standardised_rows(standardize):
    rows, kernel = X[::2] / X.std(axis=0), "relative_gaussian"
    model = UnsupervisedIKDR(3, kernel=kernel, standardize=standardize).fit(rows)
    Z, U = model.transform(rows), model.embedding_
    s = model.kernel_.widths((rows - model.mean_) / model.scale_)
    K = np.exp(-cdist(Z, Z, "sqeuclidean") / (2 * np.outer(s, s)))
    assert (U * (K @ U)).sum() == pytest.approx(model.objective_, rel=1e-12)
    with pytest.raises(TypeError, match="a width for each row"):
        model.kernel_.matrix(Z, Z)


@pytest.mark.parametrize("graph", ["regularised", "kernel"])
def test_what_is_said_of_clusters_with_scores_holds_for_the_embedding_returned(graph):
    """Gamma is `D^-1/2 U U^T D^-1/2 + mu H y y^T H`, each of trace one; D is that of the graph."""
    rows, scores = X[::3, 1:], X[::3, 0]
    model = SemiSupervisedIKDR(3, graph=graph, mu=0.5, target="linear").fit(rows, scores)
    Z = model.transform(rows)
    degrees = model.affinity_.matrix(Z, Z).sum(axis=1) + 0.3 * len(Z) * (graph == "regularised")
    omega = model.embedding_ / np.sqrt(degrees)[:, None]
    y = scores - scores.mean()
    Gamma = omega @ omega.T / (omega**2).sum() + 0.5 * np.outer(y, y) / (y @ y)
    assert_describes_itself(model, rows, Gamma)


def test_the_published_graph_is_the_plain_alternation():
    """U from `D^-1/2 K D^-1/2` and W from `D^-1/2 H U U^T H D^-1/2`, until both stay."""
    model = UnsupervisedIKDR(3, kernel=Gaussian(sigma="median"), graph="kernel").fit(X)
    rows, n = (X - X.mean(axis=0)) / X.std(axis=0), len(X)
    sigma, H, W = np.median(pdist(rows)), np.eye(n) - 1 / n, np.eye(rows.shape[1])
    affinity = partial(kernel_matrix, Gaussian(sigma))
    for _ in range(20):
        K = affinity(rows @ W)
        roots = K.sum(axis=1) ** -0.5
        U = np.linalg.eigh(roots[:, None] * K * roots)[1][:, -3:]
        Gamma = np.outer(roots, roots) * (H @ U @ U.T @ H)
        for _ in range(2):
            M = Gamma * affinity(rows @ W)
            W = np.linalg.eigh(rows.T @ (M - np.diag(M.sum(axis=1))) @ rows)[1][:, -3:]
    assert model.affinity_ == model.kernel_
    assert model.kernel_.sigma == pytest.approx(sigma)
    assert subspace_sine(model.components_.T, W) < 0.02
    assert subspace_sine(model.embedding_, U) < 0.02
    assert nmi(model.labels_, Y) == pytest.approx(0.884, abs=0.01)
    U = model.embedding_
    roots = kernel_matrix(model.kernel_, model.transform(X)).sum(axis=1) ** -0.5
    assert_describes_itself(model, X, np.outer(roots, roots) * (H @ U @ U.T @ H))


def test_rounds_in_which_w_still_turns_have_not_converged():
    message = r"in 5 rounds: .*turned W by an angle whose sine is 0\.08"
    with pytest.warns(ConvergenceWarning, match=message):
        model = UnsupervisedIKDR(3, max_outer=5).fit(X)
    assert model.rounds_[-1].change < 0.01 < model.rounds_[-1].turn
    assert not model.converged_
    settled = UnsupervisedIKDR(3, outer_tol=1e-4, max_outer=30).fit(X)
    assert settled.converged_
    assert settled.residual_ <= 1e-4


def test_rounds_of_a_rough_graph_end_when_the_movement_stays():
    movements = [1.0, 0.5, 0.2, 0.1, 0.06, *[0.055] * 4]
    rounds = [Round(1, 1.0, 1.0, (1.0,), 0.0, turn, 1, 0.1) for turn in movements]
    assert [_has_not_halved(tuple(rounds[:count])) for count in (5, 6, 9)] == [False, False, True]


def test_rounds_that_end_before_their_limit_advise_no_higher_limit(monkeypatch):
    monkeypatch.setattr(alternation, "_has_not_halved", lambda rounds: len(rounds) > 1)
    solver = type("Free", (ISM,), {"ends_stationary": False})()
    message = r"in 2 rounds: .* raise `outer_tol`, or take engine='exact'$"
    with pytest.warns(ConvergenceWarning, match=message):
        UnsupervisedIKDR(3, solver=solver).fit(X)


BLOBS = make_blobs(200, 5, centers=3, cluster_std=0.5, random_state=0)[0]


@pytest.mark.parametrize(
    ("model", "rows"),
    [
        (UnsupervisedIKDR(3), X),
        (UnsupervisedIKDR(3, 2, standardize=False), BLOBS + 1000),
        (UnsupervisedIKDR(2), make_blobs(40, 60, centers=2, random_state=0)[0]),
        (UnsupervisedIKDR(8, 1, engine="exact"), BLOBS[:, :4].astype(np.float32)),
        # An engine that does not serve the graph.
        (UnsupervisedIKDR(3, 2, kernel="squared", engine="closed_form"), BLOBS),
    ],
    ids=["wine", "not standardised", "more columns than rows", "single precision", "closed form"],
)
def test_rows_are_predicted_as_labelled(model, rows):
    fitted = clone(model).fit(rows)
    assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(rows), fitted.labels_)
    # Another number of clusters is for the next fit.
    again = pickle.loads(pickle.dumps(fitted)).set_params(n_clusters=9)
    assert_array_equal(again.predict(rows), fitted.labels_)
    lazy = da.from_array(rows, chunks=(50, rows.shape[1]))
    with_none = da.concatenate([lazy[:50], lazy[:0], lazy[50:]])
    assert_array_equal(fitted.predict(with_none).compute(), fitted.labels_)
    assert fitted.predict(lazy[lazy[:, 0] > 1e9]).compute().shape == (0,)
    with pytest.raises(ValueError, match="contains NaN"):
        fitted.predict(da.where(lazy > rows.mean(), np.nan, lazy)).compute()


@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_rows_not_seen_go_to_the_cluster_of_their_blob(kernel):
    rows, blob = make_blobs(300, 5, centers=3, cluster_std=0.5, random_state=0)
    model = UnsupervisedIKDR(3, 2, kernel=kernel).fit(rows[:200])
    assert adjusted_rand_score(blob[:200], model.labels_) == 1.0
    assert adjusted_rand_score(blob[200:], model.predict(rows[200:])) == 1.0


@pytest.mark.parametrize(
    ("model", "rows", "y"),
    # Away from its three classes wine has no clusters to settle at.
    [
        pytest.param(UnsupervisedIKDR(3), X, None, marks=pytest.mark.long),
        (SemiSupervisedIKDR(3, outer_tol=0.1), X[::2], Y[::2]),
        (AlternativeIKDR(2, outer_tol=0.1), *crossed_groupings(80, 8, (0, 3, 6), (3, 5, 4))[:2]),
    ],
)
def test_a_fit_depends_neither_on_the_place_of_rows_nor_on_the_engine(
    model, rows, y, tmp_path, thread_cluster
):
    rows = np.round(100 * rows)  # sums of whole numbers have no rounding
    chunked = da.from_array(rows, chunks=(50, 4))
    places = (chunked, coo_array(rows), stored(rows, tmp_path, 60))
    expected = clone(model).fit(rows, y)
    fits = [clone(model).fit(place, y) for place in places]
    with Client(thread_cluster):
        fits.append(clone(model).fit(chunked, y))
    for fitted in fits:
        assert_array_equal(fitted.components_, expected.components_)
        assert_array_equal(fitted.labels_, expected.labels_)
    assert_array_equal(expected.predict(csr_array(rows)), expected.predict(rows))
    by_landmarks = clone(model).set_params(engine=EngineOptions("landmarks", tol=1e-8)).fit(rows, y)
    assert_array_equal(by_landmarks.labels_, expected.labels_)


def test_scores_of_a_tenth_of_the_rows_help():
    plain = nmi(Y, UnsupervisedIKDR(3).fit(X).labels_)
    found = []
    for seed in range(3):
        known = np.random.default_rng(seed).choice(178, 18, replace=False)
        scores = np.full(178, np.nan)
        scores[known] = Y[known]
        model = SemiSupervisedIKDR(3, target="classes").fit(X, scores)
        assert_array_equal(model.labels_[known], Y[known])
        found.append(nmi(Y, model.labels_))
    assert np.mean(found) > plain


def test_the_third_of_three_crossed_groupings():
    rows, first, second, third = crossed_groupings(200, 10, (0, 3, 4), (3, 6, 4), (6, 8, 4))
    both = AlternativeIKDR(2).fit(rows, np.column_stack([first, second]))
    assert nmi(third, both.labels_) > 0.9
    assert max(nmi(first, both.labels_), nmi(second, both.labels_)) < 0.05
    frame = pd.DataFrame({"words": np.array(["x", "y"])[second], "numbers": first})
    assert_array_equal(AlternativeIKDR(2).fit(rows, frame).labels_, both.labels_)


@pytest.mark.parametrize(("engine", "dtype"), [("exact", np.float64), ("landmarks", np.float32)])
def test_copies_of_a_row_stay_together(engine, dtype):
    """With more clusters than different rows, whatever is left over is rounding."""
    rows = np.random.default_rng(0).normal(size=(3, 4)).astype(dtype)
    each = np.repeat([0, 1, 2], 30)
    model = UnsupervisedIKDR(5, 1, engine=engine).fit(rows[each])
    assert adjusted_rand_score(each, model.labels_) == 1.0
    assert_array_equal(model.predict(rows[each]), model.labels_)


def test_rows_far_apart_have_no_neighbours():
    """A kernel that is 0 between almost all rows: every row is an island."""
    with pytest.warns(ConvergenceWarning, match="Phi is zero, so that J does not depend on W"):
        model = UnsupervisedIKDR(3, kernel=Gaussian(1e-3)).fit(X)
    assert not model.converged_
    assert model.residual_ == 1.0
    assert np.isfinite(model.embedding_).all()
    assert set(model.labels_) <= {0, 1, 2}
