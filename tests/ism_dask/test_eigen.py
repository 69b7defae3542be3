from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import subspace_angles

from ism_dask.linalg.eigen import largest_pairs, leading_eigenpairs
from ism_dask.linalg.subspaces import subspace_sine


def _symmetric(d, seed=0):
    A = np.random.default_rng(seed).normal(size=(d, d))
    return A + A.T


def test_leading_pairs_are_the_largest_algebraic_ones():
    A = _symmetric(12)
    spectrum = leading_eigenpairs(A, 3)
    values, vectors = np.linalg.eigh(A)
    assert_allclose(spectrum.values, values[::-1][:3])
    assert spectrum.following == pytest.approx(values[-4])
    assert_allclose(np.abs(np.sum(spectrum.vectors * vectors[:, :-4:-1], axis=0)), 1.0)
    assert spectrum.vectors[:, ~spectrum.null].shape == (12, 3)


def test_krylov_gives_the_same_as_dense(monkeypatch):
    A = _symmetric(300, 1)
    dense = leading_eigenpairs(A, 4)
    monkeypatch.setattr("ism_dask.linalg.eigen._DENSE_LIMIT", 100)
    for guess in (None, dense.vectors):
        krylov = leading_eigenpairs(A, 4, guess)
        assert_allclose(krylov.values, dense.values, rtol=1e-10)
        assert subspace_sine(dense.vectors, krylov.vectors) < 1e-8


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


def test_null_directions_of_an_indefinite_matrix_are_in_its_null_space():
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]
    A = Q @ np.diag([5.0, 0.0, 0.0, -3.0, -3.0, -1.0]) @ Q.T
    spectrum = leading_eigenpairs((A + A.T) / 2, 3)
    assert_allclose(A @ spectrum.vectors[:, 1:], 0.0, atol=1e-12)
    assert_allclose(spectrum.vectors.T @ spectrum.vectors, np.eye(3), atol=1e-12)
    assert spectrum.null.tolist() == [False, True, True]


def test_a_matrix_of_zeros_has_axes_for_eigenvectors(monkeypatch):
    assert_array_equal(leading_eigenpairs(np.zeros((5, 5)), 2).vectors, np.eye(5)[:, :2])
    monkeypatch.setattr("ism_dask.linalg.eigen._DENSE_LIMIT", 50)
    assert leading_eigenpairs(np.zeros((100, 100)), 2).null.all()


def test_krylov_finds_every_copy_of_an_eigenvalue(monkeypatch):
    monkeypatch.setattr("ism_dask.linalg.eigen._DENSE_LIMIT", 100)
    A = np.diag(np.concatenate([[3.0, 3.0, 2.0, 2.0], np.linspace(1, 0, 296)]))
    assert_allclose(leading_eigenpairs(A, 4).values, [3, 3, 2, 2], rtol=1e-10)
    # Zeros are eigenvalues, too, where all others but these two are below them.
    spectrum = leading_eigenpairs(
        np.diag(np.concatenate([[2.0, 1.0], np.zeros(8), -np.ones(290)])), 5
    )
    assert_array_equal(spectrum.values, [2, 1, 0, 0, 0])
    assert spectrum.following == 0
    assert_array_equal(np.abs(spectrum.vectors[:10]).sum(axis=0), np.ones(5))


def test_sine_is_that_of_the_largest_principal_angle():
    rng = np.random.default_rng(4)
    V = np.linalg.qr(rng.normal(size=(8, 3)))[0]
    for size in (1e-9, 1e-3, 1.0):
        U = np.linalg.qr(V + size * rng.normal(size=(8, 3)))[0]
        assert subspace_sine(V, U) == pytest.approx(
            np.sin(subspace_angles(V, U)[0]), rel=1e-6, abs=1e-15
        )
    assert subspace_sine(V, V[:, :2]) == 1.0
