"""HSIC, weights by centred alignment, and spectral clusters of rows as they are."""

from __future__ import annotations

import numpy as np
import pytest
from definition import centred, equal_classes, gaussian_kernel, kernel_matrix, standardised
from scipy.spatial.distance import pdist
from sklearn.datasets import load_iris, load_wine
from sklearn.metrics import normalized_mutual_info_score
from sklearn.preprocessing import StandardScaler

from ism_dask import UnsupervisedIKDR, aligned_sum, hsic, spectral_clusters
from ism_dask.kernels import Gaussian, Linear, Polynomial, RelativeGaussian

WINE, CULTIVAR = load_wine(return_X_y=True)


def _alignment(K, L):
    K, L = centred(K), centred(L)
    return (K * L).sum() / np.linalg.norm(K) / np.linalg.norm(L), np.linalg.norm(K)


def test_weights_are_those_of_the_definition():
    L, polynomial = equal_classes(CULTIVAR), kernel_matrix(Polynomial(3, 1.0), standardised(WINE))
    of_gaussian, gaussian_size = _alignment(gaussian_kernel(WINE), L)
    of_polynomial, polynomial_size = _alignment(polynomial, L)
    total = of_gaussian + of_polynomial
    (one, first), (two, second) = aligned_sum(["gaussian", "polynomial"], WINE, CULTIVAR).terms
    assert (first, second) == (Gaussian(), Polynomial())
    assert one == pytest.approx(of_gaussian / total, rel=1e-9)
    assert two == pytest.approx(of_polynomial / total * gaussian_size / polynomial_size, rel=1e-9)


def test_the_weights_do_not_depend_on_the_scale_of_a_kernel_nor_of_the_labels_names():
    (one, _), (two, _) = aligned_sum(["gaussian", "linear"], WINE, CULTIVAR).terms
    names = np.array(["c", "a", "b"])[CULTIVAR]
    (same, _), (scaled, _) = aligned_sum([Gaussian(), 10.0 * Linear()], WINE, names).terms
    assert same == pytest.approx(one, rel=1e-12)
    assert scaled == pytest.approx(two, rel=1e-12)


def test_many_rows_are_sampled_and_the_sample_repeats(monkeypatch):
    monkeypatch.setattr("ism_dask.estimators.hsic._ROWS", 400)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 4))
    y = (X[:, 0] > 0).astype(int)
    one, again, other = (
        aligned_sum(["gaussian", "linear"], X, y, random_state=seed).terms for seed in (0, 0, 1)
    )
    assert one == again
    assert one != other
    assert one[0][0] == pytest.approx(other[0][0], rel=0.1)


def test_kernels_that_cannot_be_weighed_are_refused():
    with pytest.raises(ValueError, match="`kernels` is empty"):
        aligned_sum([], WINE, CULTIVAR)
    with pytest.raises(ValueError, match="widths are each row's own"):
        aligned_sum([RelativeGaussian()], WINE, CULTIVAR)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        aligned_sum(["gaussian"], WINE, CULTIVAR[:-1])
    with pytest.raises(ValueError, match="one class only"):
        aligned_sum(["gaussian"], WINE, np.zeros(len(WINE)))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        hsic(WINE, CULTIVAR[1:])
    with pytest.raises(ValueError, match="constant"):
        hsic(WINE, np.full(len(WINE), 0.1), target="linear")


def test_clusters_of_rows_as_they_are_are_those_that_the_estimator_finds_in_them():
    fitted = UnsupervisedIKDR(3).fit(WINE.astype(np.float32))
    Z = fitted.transform(WINE.astype(np.float32))
    found = spectral_clusters(Z, 3)
    assert normalized_mutual_info_score(found, fitted.labels_) > 0.99


def test_clusters_need_no_projection_to_be_found():
    X, species = load_iris(return_X_y=True)
    found = spectral_clusters(StandardScaler().fit_transform(X), 3)
    assert normalized_mutual_info_score(species, found) > 0.6
    _, first = np.unique(found, return_index=True)
    assert (np.diff(first) > 0).all()
    with pytest.raises(ValueError, match="`n_clusters` must be a whole number from 1 to 149"):
        spectral_clusters(X, 150)


class _Against(Linear):
    def value(self, beta, out=None):
        return -super().value(beta, out)


def test_what_is_aligned_by_less_than_nothing_takes_nothing_from_the_others():
    alone = aligned_sum(["linear", "gaussian"], WINE, CULTIVAR).terms
    beside = aligned_sum(["linear", "gaussian", _Against()], WINE, CULTIVAR).terms
    assert len(beside) == 2
    assert [weight for weight, _ in beside] == pytest.approx([weight for weight, _ in alone])


# HSIC.

X, Y = WINE, CULTIVAR
Z = standardised(X)


def test_it_is_the_trace():
    expected = np.trace(gaussian_kernel(X) @ centred(equal_classes(Y))) / (len(X) - 1) ** 2
    assert hsic(X, Y, standardize=True) == pytest.approx(expected, rel=1e-10)
    sigma = np.median(pdist(Z))
    assert hsic(Z, Y, kernel=Gaussian(sigma)) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("kernel", ["gaussian", "relative_gaussian", "multiquadric", "squared"])
@pytest.mark.parametrize(("dtype", "offset", "near"), [("f8", 1e6, 1e-7), ("f4", 1e3, 2e-3)])
def test_far_from_the_origin_nothing_is_lost(kernel, dtype, offset, near):
    moved = (Z + offset).astype(dtype)
    assert hsic(moved, Y, kernel=kernel) == pytest.approx(hsic(Z, Y, kernel=kernel), rel=near)


def test_the_bound_holds_where_it_approximates(monkeypatch):
    """From so many rows up landmarks may stand for all pairs; the exact engine is the judge."""
    monkeypatch.setattr("ism_dask.engines.lowrank.landmark_engine._FROM_ROWS", 1000)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1200, 3)).astype(np.float32)
    labels = (rows[:, 0] > 0).astype(int)
    value, error = hsic(rows, labels, return_error=True)
    exact, rounding = hsic(rows.astype(float), labels, engine="exact", return_error=True)
    assert rounding < 1e-9 < abs(value / exact - 1) < error < 0.1
    assert hsic(rows, labels) == value
