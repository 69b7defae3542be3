from __future__ import annotations

import numpy as np
import pytest
from definition import centred, equal_classes, gaussian_kernel, standardised
from scipy.spatial.distance import pdist
from sklearn.datasets import load_wine

from ism_dask import hsic
from ism_dask.kernels import Gaussian, Polynomial

X, Y = load_wine(return_X_y=True)
Z = standardised(X)


def test_it_is_the_trace():
    expected = np.trace(gaussian_kernel(X) @ centred(equal_classes(Y))) / (len(X) - 1) ** 2
    assert hsic(X, Y, standardize=True) == pytest.approx(expected, rel=1e-10)
    sigma = np.median(pdist(Z))
    assert hsic(Z, Y, kernel=Gaussian(sigma)) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("kernel", ["linear", "squared", "multiquadric", Polynomial(2)])
def test_dependence_is_positive_and_more_than_that_of_shuffled_labels(kernel):
    value = hsic(Z, Y, kernel=kernel)
    shuffled = hsic(Z, np.random.default_rng(0).permutation(Y), kernel=kernel)
    assert value > 5 * shuffled > 0


def test_one_column_is_enough():
    assert hsic(Z[:, :1], Y) > 0


@pytest.mark.parametrize("kernel", ["gaussian", "relative_gaussian", "multiquadric", "squared"])
@pytest.mark.parametrize(("dtype", "offset", "near"), [("f8", 1e6, 1e-7), ("f4", 1e3, 2e-3)])
def test_far_from_the_origin_nothing_is_lost(kernel, dtype, offset, near):
    moved = (Z + offset).astype(dtype)
    assert hsic(moved, Y, kernel=kernel) == pytest.approx(hsic(Z, Y, kernel=kernel), rel=near)


def test_constant_numbers_are_not_a_dependence():
    with pytest.raises(ValueError, match="constant"):
        hsic(Z, np.full(len(Z), 0.1), target="linear")


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        hsic(X, Y[1:])


def test_the_bound_holds_where_it_approximates():
    """From 4,000 rows up landmarks may stand for all pairs; the exact engine is the judge."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4200, 3)).astype(np.float32)
    labels = (rows[:, 0] > 0).astype(int)
    value, error = hsic(rows, labels, return_error=True)
    exact, rounding = hsic(rows.astype(float), labels, engine="exact", return_error=True)
    assert rounding < 1e-9 < abs(value / exact - 1) < error < 0.1
    assert hsic(rows, labels) == value
