"""Eigenpairs, and the embedding against its definition by dense eigenvectors."""

import numpy as np
import pytest
from definition import kernel_matrix
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import subspace_angles
from sklearn.datasets import make_blobs

from ism_dask.clustering.spectral_embedding import FactorExtension, Graph
from ism_dask.engines import EngineOptions
from ism_dask.gamma.embedding_guides import EMBEDDING
from ism_dask.kernels import KERNELS, Affinity, Gaussian, Laplacian, Linear, Multiquadric
from ism_dask.kernels.pairing import median_distance
from ism_dask.linalg.eigen import largest_pairs, leading_eigenpairs
from ism_dask.linalg.subspaces import subspace_distance, subspace_sine
from ism_dask.rows.shards import cut

N, D, K = 150, 6, 3
RNG = np.random.default_rng(0)
BLOBS = 4 * RNG.normal(size=(3, D))[np.arange(N) % 3] + RNG.normal(size=(N, D))
X = BLOBS - BLOBS.mean(axis=0)
W = np.linalg.qr(RNG.normal(size=(D, 2)))[0]


def check(embedding, K_matrix, tol, published):
    """Check eigenpairs of `H D^-1/2 K D^-1/2 H`; the published graph is not raised, nor centred."""
    raised, H = (0.0, np.eye(N)) if published else (0.3 * N * K_matrix[0, 0], np.eye(N) - 1 / N)
    roots = (K_matrix.sum(axis=1) + raised) ** -0.5
    expected, U = np.linalg.eigh(H @ (roots[:, None] * K_matrix * roots) @ H)
    rows = embedding.shards.gather_fact(EMBEDDING)
    assert_allclose(embedding.values, expected[: -K - 1 : -1], atol=tol)
    assert subspace_sine(U[:, -K:], rows[:, :-1]) < 10 * tol
    assert_allclose(rows[:, -1], roots, rtol=10 * tol)


def graph(X, rows, kernel, engine, tol=1e-12, published=False):
    shards, options = cut(X, rows), EngineOptions(engine, tol)
    return Graph.from_shards(shards, Affinity(kernel), options, published=published, sample=X)


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
@pytest.mark.parametrize(("rows", "most"), [(150, 2560), (40, 2560), (40, 10)])
@pytest.mark.parametrize("published", [False, True])
def test_every_engine_embeds_as_dense_eigenvectors_do(
    kernel, rows, most, engine, published, monkeypatch
):
    """In one matrix, and in tiles."""
    monkeypatch.setattr("ism_dask.clustering.spectral_embedding._DENSE", most)
    built = graph(X, rows, kernel, engine, published=published)
    embedding, near = built.embedded(W, K), 1e-9 if engine == "exact" else 1e-6
    check(embedding, kernel_matrix(kernel, X @ W), near, published)
    assert isinstance(embedding.extension, FactorExtension) == (engine == "landmarks")
    if engine == "exact":
        start = built.start(K)
        check(start, kernel_matrix(kernel, X), near, published)
        assert (start.extension is None) == (most == 10)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_affinities_are_never_negative_and_semidefinite(name):
    affinity = Affinity.for_kernel(KERNELS[name](), X)
    for kernel in (affinity.whole, affinity.between(X)):
        K_matrix = kernel_matrix(kernel, X)
        assert K_matrix.min() >= 0
        assert np.linalg.eigvalsh(K_matrix).min() > -1e-10


def test_the_affinity_of_a_sum():
    rows = np.arange(12.0).reshape(6, 2) ** 1.5
    wide = Gaussian().resolve(rows)
    both = Affinity.for_kernel(2.0 * Gaussian(1.0) + Multiquadric(), rows)
    assert [weight for weight, _ in both.whole.terms] == [2.0, 1.0]
    assert both.between(rows) == both.whole
    assert Affinity.for_kernel(Gaussian(1.0) + Linear(), rows) == Affinity(wide)
    own = Affinity.for_kernel(Gaussian(1.0) + Gaussian(2.0), rows)
    assert own.between(rows).sigma == 0.375 * wide.sigma
    assert own.between(np.ones((6, 2))) == own.whole


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


def _symmetric(d, seed=0):
    A = np.random.default_rng(seed).normal(size=(d, d))
    return A + A.T


def test_krylov_gives_the_same_as_dense(monkeypatch):
    A = _symmetric(300, 1)
    dense = leading_eigenpairs(A, 4)
    values, vectors = np.linalg.eigh(A)
    assert_allclose(dense.values, values[::-1][:4])
    assert dense.following == pytest.approx(values[-5])
    assert subspace_sine(vectors[:, -4:], dense.vectors) < 1e-8
    monkeypatch.setattr("ism_dask.linalg.eigen._DENSE_LIMIT", 100)
    for guess in (None, dense.vectors):
        krylov = leading_eigenpairs(A, 4, guess)
        assert_allclose(krylov.values, dense.values, rtol=1e-10)
        assert subspace_sine(dense.vectors, krylov.vectors) < 1e-8
    assert leading_eigenpairs(np.zeros((300, 300)), 2).null.all()


def test_copies_of_an_eigenvalue_are_not_lost():
    """Nine eigenvalues are 1 but for rounding: LAPACK finds none of some of these."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        matrix, small = np.eye(13), rng.normal(size=(4, 4))
        matrix[9:, 9:] = 0.01 * small @ small.T
        matrix[:9, 9:] = 1e-16 * rng.normal(size=(9, 4))
        matrix[9:, :9] = matrix[:9, 9:].T
        values, vectors = largest_pairs(matrix, 1)
        assert values == pytest.approx([1.0])
        assert_allclose(matrix @ vectors, vectors, atol=1e-12)


def test_null_directions_are_settled_the_same_way_whatever_the_noise():
    u = np.linalg.qr(np.random.default_rng(2).normal(size=(9, 2)))[0]
    A = u @ np.diag([5.0, 2.0]) @ u.T
    plain = leading_eigenpairs(A, 4)
    assert plain.vectors[:, ~plain.null].shape == (9, 2)
    assert_allclose(plain.vectors.T @ plain.vectors, np.eye(4), atol=1e-12)
    noisy = leading_eigenpairs(A + 1e-16 * _symmetric(9, 3), 4)
    assert_allclose(noisy.vectors, plain.vectors, atol=1e-10)
    # Those of an indefinite matrix are in its null space.
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]
    A = Q @ np.diag([5.0, 0.0, 0.0, -3.0, -3.0, -1.0]) @ Q.T
    spectrum = leading_eigenpairs((A + A.T) / 2, 3)
    assert_allclose(A @ spectrum.vectors[:, 1:], 0.0, atol=1e-12)
    assert spectrum.null.tolist() == [False, True, True]


def test_krylov_finds_every_copy_of_an_eigenvalue(monkeypatch):
    monkeypatch.setattr("ism_dask.linalg.eigen._DENSE_LIMIT", 100)
    A = np.diag(np.concatenate([[3.0, 3.0, 2.0, 2.0], np.linspace(1, 0, 296)]))
    assert_allclose(leading_eigenpairs(A, 4).values, [3, 3, 2, 2], rtol=1e-10)
    # Zeros are eigenvalues, too, where all others but these two are below them.
    values = np.concatenate([[2.0, 1.0], np.zeros(8), -np.ones(290)])
    spectrum = leading_eigenpairs(np.diag(values), 5)
    assert_array_equal(spectrum.values, [2, 1, 0, 0, 0])
    assert spectrum.following == 0
    assert_array_equal(np.abs(spectrum.vectors[:10]).sum(axis=0), np.ones(5))


def test_sine_is_that_of_the_largest_principal_angle():
    rng = np.random.default_rng(4)
    V = np.linalg.qr(rng.normal(size=(8, 3)))[0]
    for size in (1e-9, 1e-3, 1.0):
        U = np.linalg.qr(V + size * rng.normal(size=(8, 3)))[0]
        expected = np.sin(subspace_angles(V, U)[0])
        assert subspace_sine(V, U) == pytest.approx(expected, rel=1e-6, abs=1e-15)
        sines = np.sin(subspace_angles(V, U))
        near = pytest.approx(np.sqrt(np.mean(sines**2)), rel=1e-4)
        assert subspace_distance(V, U) == near
    assert subspace_sine(V, V[:, :2]) == 1.0
