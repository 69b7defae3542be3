"""Each Gamma of a paradigm against its definition, n x n."""

import numpy as np
import pytest

from ism_dask.gamma.base import GAMMA_FACTS
from ism_dask.gamma.from_embedding import (
    EMBEDDING,
    AvoidGuide,
    ClusterGuide,
    ScoreGuide,
    normalise_rows,
)
from ism_dask.rows.shards import cut

N, K = 40, 3


@pytest.fixture(params=[40, 9])
def embedded(request):
    """Shards with an embedding U and `D^-1/2`, and these."""
    rng = np.random.default_rng(0)
    U = np.linalg.qr(rng.normal(size=(N, K)))[0]
    roots = rng.uniform(0.1, 1.0, N)
    shards = cut(rng.normal(size=(N, 5)), request.param)
    return shards.with_rows(EMBEDDING, np.column_stack([U, roots])), U, roots


def one_hot(n_classes):
    return np.eye(n_classes)[np.random.default_rng(1).integers(n_classes, size=N)]


def full(gamma, shards):
    """Gamma as a matrix."""
    U = gamma.factor(shards.gather_fact(GAMMA_FACTS))
    return U @ np.diag(gamma.signs) @ U.T


H = np.eye(N) - 1 / N


def test_clusters(embedded):
    shards, U, _ = embedded
    np.testing.assert_allclose(full(*ClusterGuide().gamma(shards)), U @ U.T, atol=1e-12)
    assert ClusterGuide().initial_gamma(shards) is None


def test_avoided_labels(embedded):
    """Both parts have trace 1, so that `mu` means the same whatever the rows and classes."""
    shards, U, roots = embedded
    Y = one_hot(4)
    omega, avoided = np.diag(roots) @ U @ U.T @ np.diag(roots), H @ Y @ Y.T @ H
    guide = AvoidGuide(Y - Y.mean(axis=0), 0.7)
    away = 0.7 * avoided / np.trace(avoided)
    whole = omega / np.trace(omega) - away
    np.testing.assert_allclose(full(*guide.gamma(shards)), whole, atol=1e-12)
    np.testing.assert_allclose(full(*guide.initial_gamma(shards)), -away, atol=1e-12)


def test_scores_of_all_rows(embedded):
    shards, U, roots = embedded
    Y = H @ np.random.default_rng(2).normal(size=(N, 2))
    D = np.diag(roots)
    expected = D @ U @ U.T @ D + 0.3 * H @ Y @ Y.T @ H
    np.testing.assert_allclose(full(*ScoreGuide(Y, 0.3).gamma(shards)), expected, atol=1e-12)


def test_scores_of_some_rows_are_continued_by_regression(embedded):
    shards, U, roots = embedded
    Y = np.random.default_rng(2).normal(size=(N, 2))
    known = np.arange(N) % 4 == 0
    sides = np.column_stack([np.ones(N), normalise_rows(U)])
    gram = sides[known].T @ sides[known]
    gram += 1e-2 * np.trace(gram) / len(gram) * np.eye(len(gram))
    continued = np.where(
        known[:, None], Y, sides @ np.linalg.solve(gram, sides[known].T @ Y[known])
    )
    D = np.diag(roots)
    expected = D @ U @ U.T @ D + 2.0 * H @ continued @ continued.T @ H
    given = np.where(known[:, None], Y, np.nan)
    np.testing.assert_allclose(full(*ScoreGuide(given, 2.0).gamma(shards)), expected, atol=1e-12)


def test_rows_of_zeros_stay():
    np.testing.assert_array_equal(
        normalise_rows(np.array([[3.0, 4.0], [0.0, 0.0]])), [[0.6, 0.8], [0, 0]]
    )
