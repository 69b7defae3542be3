"""Whitened rows, the distance kernel, awkward rows, and samples of rows."""

import numpy as np
import pytest
from definition import centred
from models import CULTIVAR, WINE, hsic_model, quiet
from numpy.testing import assert_allclose
from scipy.spatial.distance import pdist, squareform
from sklearn.preprocessing import scale

from ism_dask import PredictiveIKDR, SupervisedIKDR, UnsupervisedIKDR, hsic
from ism_dask.kernels import DistanceKernel, Gaussian, Polynomial

# The distance kernel.


@quiet
def test_j_of_the_distance_kernel_is_the_distance_covariance():
    """Of classes the distance between rows is 0 or 1: one less what `Y Y^T` has."""
    model = hsic_model(2, kernel="distance").fit(WINE, CULTIVAR)
    points = model.transform(WINE), np.eye(3)[CULTIVAR] / np.sqrt(2)
    one, other = (centred(squareform(pdist(each))) for each in points)
    expected = (one * other).sum()
    # The offset is a fiftieth of the distances.
    assert model.objective_ == pytest.approx(expected, rel=2e-3)
    exact = hsic(points[0], CULTIVAR, kernel=DistanceKernel(1e-4)) * (len(WINE) - 1) ** 2
    assert exact == pytest.approx(expected, rel=1e-6)
    width = Gaussian("root").resolve(scale(WINE), 2 / WINE.shape[1]).sigma
    assert model.kernel_.offset == pytest.approx(0.02 * width)


# Input that is not as one would wish.

FEW, FEW_CLASSES = WINE[::2, 8:], CULTIVAR[::2]


@quiet
@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.repeat(FEW[::3], 3, axis=0), np.repeat(FEW_CLASSES[::3], 3)),
        (WINE[::12], CULTIVAR[::12]),
        (FEW, np.repeat(np.arange(10), [9] * 9 + [8])),
        (FEW, np.arange(89) == 3),
        (FEW, np.repeat(np.arange(3.0), [1, 2, 86]) + 0.5),
        (np.hstack([FEW, np.ones((89, 3)), FEW[:, :2]]), FEW_CLASSES),
        (np.repeat(WINE[:5], 8, axis=0), np.tile([0, 1], 20)),
    ],
    ids=["repeated", "few", "small classes", "one row", "ties", "columns", "undecided"],
)
@pytest.mark.parametrize("make", [PredictiveIKDR, SupervisedIKDR])
def test_awkward_rows_are_fitted(X, y, make):
    model = make().fit(X, y)
    q = len(model.components_)
    assert_allclose(model.components_ @ model.components_.T, np.eye(q), atol=1e-10)
    assert np.isfinite(model.objective_)
    assert model.transform(X).shape == (len(X), q)


# Indicators of the levels of categories: rows do not vary in their sum, and W does not use it.

N_LEVELS = 240


def _table(seed):
    """Return three numbers and two categories of 2 and 3 levels, as indicators, and y."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(N_LEVELS, 3))
    levels = [np.eye(k)[rng.integers(0, k, N_LEVELS)] for k in (2, 3)]
    X = np.hstack([numbers, *levels])
    y = numbers[:, 0] + numbers[:, 1] ** 2 + levels[1][:, 0] > 1.0
    return X, y.astype(int)


def _sums(fitted):
    """Return the weights of the sums of indicators in W, per unit of the raw columns."""
    directions = np.zeros((2, 8))
    directions[0, 3:5] = directions[1, 5:] = 1.0
    directions = directions * fitted.scale_
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return fitted.components_ @ directions.T


@pytest.mark.parametrize("make", [PredictiveIKDR, SupervisedIKDR])
@pytest.mark.parametrize("q", [1, 2])
def test_no_feature_that_raises_j_has_weights_where_rows_are_constant(make, q):
    X, y = _table(q)
    fitted = make(q, **({"max_features": None} if make is PredictiveIKDR else {})).fit(X, y)
    assert fitted.status_.is_requested
    useful = fitted.eigenvalues_ > 1e-9 * fitted.eigenvalues_[0]
    assert_allclose(_sums(fitted)[useful], 0.0, atol=1e-9)
    assert_allclose(fitted.components_ @ fitted.components_.T, np.eye(q), atol=1e-10)
    if make is hsic_model:
        # A kernel with an origin keeps all columns: the sum of indicators is 1, and not constant.
        origin = {"kernel": Polynomial(degree=2, offset=0.0), "standardize": False}
        for each in (fitted, make(2, **origin).fit(X, y)):
            value = hsic(each.transform(X), y, kernel=each.kernel_)
            assert value * (N_LEVELS - 1) ** 2 == pytest.approx(each.objective_, rel=1e-9)

    clusters = UnsupervisedIKDR(2, n_components=q, random_state=0).fit(X)
    assert_allclose(_sums(clusters), 0.0, atol=1e-9)
