"""The embedding against its definition by dense eigenvectors, for every way to the kernel."""

import numpy as np
import pytest
import scipy.linalg
from definition import kernel_matrix
from numpy.testing import assert_allclose
from sklearn.datasets import make_blobs

from ism_dask.clustering.spectral_embedding import PUBLISHED, REGULARISED, Graph
from ism_dask.engines import Landmarks, as_engine
from ism_dask.engines.base import TOLERANCE
from ism_dask.gamma.from_embedding import EMBEDDING
from ism_dask.kernels import KERNELS, Affinity, Gaussian, Laplacian, Linear, Multiquadric
from ism_dask.kernels.widths import median_distance
from ism_dask.linalg.eigen import leading_eigenpairs_by_products
from ism_dask.linalg.subspaces import subspace_sine
from ism_dask.rows.shards import cut

N, D, K = 150, 6, 3


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    centres = 4 * rng.normal(size=(3, D))
    X = rng.normal(size=(N, D)) + centres[np.arange(N) % 3]
    W = np.linalg.qr(rng.normal(size=(D, 2)))[0]
    return X - X.mean(axis=0), W


def dense(K_matrix, k, share=0.3):
    """Eigenvalues and vectors of `H D^-1/2 K D^-1/2 H`, degrees having their share added.

    Without a share, there is no H either.
    """
    degrees = K_matrix.sum(axis=1)
    roots = (degrees + share * len(degrees) * K_matrix[0, 0]) ** -0.5
    H = np.eye(len(K_matrix)) - bool(share) / len(K_matrix)
    matrix = H @ (roots[:, None] * K_matrix * roots) @ H
    found, vectors = scipy.linalg.eigh(matrix)
    return found[::-1][:k], vectors[:, ::-1][:, :k], roots


def check(embedding, K_matrix, k, tol, share=0.3):
    expected, U, roots = dense(K_matrix, k, share)
    rows = embedding.shards.gather_fact(EMBEDDING)
    assert_allclose(embedding.values, expected, atol=tol)
    assert subspace_sine(U, rows[:, :-1]) < 10 * tol
    assert_allclose(rows[:, -1], roots, rtol=10 * tol)


def graph(X, rows, kernel, engine, tol=TOLERANCE, normalisation=REGULARISED):
    options = Landmarks(tol=tol) if engine == "landmarks" else as_engine(engine)
    return Graph.of(cut(X, rows), Affinity(kernel), options, normalisation, sample=X)


@pytest.mark.parametrize(
    ("engine", "kernel"),
    [
        ("exact", Gaussian(2.0)),
        ("exact", Laplacian(2.0)),
        ("exact", Gaussian(1.0) + Gaussian(3.0)),
        ("landmarks", Gaussian(2.0)),
        ("landmarks", 0.5 * Gaussian(2.0) + Gaussian(3.0)),
    ],
)
@pytest.mark.parametrize("rows", [150, 40])
def test_every_engine_embeds_as_dense_eigenvectors_do(blobs, kernel, rows, engine):
    X, W = blobs
    embedding = graph(X, rows, kernel, engine, tol=1e-12).embedded(W, K)
    check(embedding, kernel_matrix(kernel, X @ W), K, 1e-6)
    assert embedding.engine == engine


def test_tiles_embed_as_one_matrix_does(blobs, monkeypatch):
    X, W = blobs
    monkeypatch.setattr("ism_dask.clustering.spectral_embedding._DENSE", 10)
    embedding = graph(X, 40, Gaussian(2.0), "exact").embedded(W, K)
    check(embedding, kernel_matrix(Gaussian(2.0), X @ W), K, 1e-9)
    start = graph(X, 40, Gaussian(2.0), "exact").start(K)
    check(start, kernel_matrix(Gaussian(2.0), X), K, 1e-9)
    assert start.extension is None


@pytest.mark.parametrize(("engine", "most"), [("exact", 2560), ("exact", 10), ("landmarks", 10)])
def test_the_published_graph_is_neither_raised_nor_centred(blobs, engine, most, monkeypatch):
    X, W = blobs
    monkeypatch.setattr("ism_dask.clustering.spectral_embedding._DENSE", most)
    published = graph(X, 40, Gaussian(2.0), engine, 1e-12, PUBLISHED)
    check(published.embedded(W, K), kernel_matrix(Gaussian(2.0), X @ W), K, 1e-6, share=0.0)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_affinities_are_never_negative_and_semidefinite(name, blobs):
    X, _ = blobs
    affinity = Affinity.of(KERNELS[name](), X)
    for kernel in (affinity.whole, affinity.between(X)):
        K_matrix = kernel_matrix(kernel, X)
        assert K_matrix.min() >= 0
        assert np.linalg.eigvalsh(K_matrix).min() > -1e-10


def test_the_affinity_of_a_sum():
    rows = np.arange(12.0).reshape(6, 2) ** 1.5
    wide = Gaussian().resolve(rows)
    both = Affinity.of(2.0 * Gaussian(1.0) + Multiquadric(), rows)
    assert [weight for weight, _ in both.whole.terms] == [2.0, 1.0]
    assert both.between(rows) == both.whole
    assert Affinity.of(Gaussian(1.0) + Linear(), rows) == Affinity(wide)
    own = Affinity.of(Gaussian(1.0) + Gaussian(2.0), rows)
    assert own.between(rows).sigma == 0.375 * wide.sigma
    assert own.between(np.ones((6, 2))) == own.whole


@pytest.mark.parametrize("n", [4, 30, 100])
def test_eigenpairs_by_products(n):
    rng = np.random.default_rng(n)
    A = rng.normal(size=(n, n))
    A = A @ A.T
    found = leading_eigenpairs_by_products(lambda V: A @ V, n, 3, 1e-11)
    expected, U = np.linalg.eigh(A)
    assert_allclose(found.values, expected[::-1][:3], rtol=1e-9)
    assert subspace_sine(U[:, ::-1][:, :3], found.vectors) < 1e-6
    assert found.residual <= 1e-11


def test_eigenpairs_that_do_not_settle_say_so():
    spread = np.linspace(0.0, 1.0, 1000)
    found = leading_eigenpairs_by_products(lambda V: spread[:, None] * V, 1000, 3, 1e-12)
    assert 1e-12 < found.residual < 1e-2


def test_a_graph_too_narrow_for_landmarks_is_embedded_roughly():
    """What landmarks leave of a narrow kernel hardly touches its leading eigenvectors."""
    X, _ = make_blobs(2000, 6, centers=3, random_state=0)
    narrow = Gaussian(0.25 * median_distance(X[:500]))
    found = graph(X, 1000, narrow, "landmarks", tol=1e-10).embedded(np.eye(6), 2)
    assert "which may leave 0.3 of its trace" in found.note
    exact = graph(X, 1000, narrow, "exact").embedded(np.eye(6), 2)
    assert exact.note == ""
    assert_allclose(found.values, exact.values, rtol=0.05)
    U, other = (each.shards.gather_fact(EMBEDDING)[:, :-1] for each in (exact, found))
    assert subspace_sine(U, other) < 0.05
