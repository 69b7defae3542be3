"""The rivals of the published method, and the weights of its aligned kernel."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import scale

from benchmarks.paper.aligned_sum import aligned_sum
from benchmarks.paper.dimension_growth import DimensionGrowth
from benchmarks.paper.grassmann import Grassmann
from benchmarks.paper.stiefel import Stiefel
from ism_dask import PredictiveIKDR, SupervisedIKDR
from ism_dask.kernels import Gaussian, Linear, Polynomial
from ism_dask.status import Status

IRIS, SPECIES = load_iris(return_X_y=True)
WINE, CULTIVAR = load_wine(return_X_y=True)
RIVALS = [Stiefel, Grassmann, DimensionGrowth]
KERNELS = [Gaussian(2.0), Polynomial(3), Linear(), 0.5 * Gaussian(2.0) + 0.1 * Polynomial(2)]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("rival", RIVALS)
def test_a_rival_climbs_to_orthonormal_columns_from_where_no_direction_leads_up(rival, kernel):
    model = SupervisedIKDR(2, kernel=kernel, solver=rival()).fit(IRIS, SPECIES)
    ism = SupervisedIKDR(2, kernel=kernel).fit(IRIS, SPECIES)
    W = model.components_.T
    assert_allclose(W.T @ W, np.eye(2), atol=1e-12)
    # Columns that are best one by one need not be stationary, or best, together.
    grown = rival is DimensionGrowth
    assert model.status_ in ({Status.CONVERGED} | ({Status.TOLERANCE} if grown else set()))
    assert model.objective_ >= ism.objective_ * (1 - (0.1 if grown else 1e-6))
    assert model.n_iter_ == len(model.history_)
    assert model.report_.solver == rival.__name__
    with pytest.raises(ValueError, match=f"'{rival.__name__}' does not serve PredictiveIKDR; take"):
        PredictiveIKDR(2, solver=rival()).fit(IRIS, SPECIES)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("rival", RIVALS)
def test_iterations_and_seconds_can_be_counted_out(rival):
    model = SupervisedIKDR(2, kernel=Polynomial(3), solver=rival(max_iter=2)).fit(IRIS, SPECIES)
    assert model.status_ is Status.MAX_ITER
    assert model.n_iter_ == (4 if rival is DimensionGrowth else 2)
    with pytest.warns(ConvergenceWarning, match="reached its time limit after 1 iteration:"):
        model = SupervisedIKDR(2, solver=rival(max_seconds=1e-9)).fit(IRIS, SPECIES)
    assert model.status_ is Status.OVER_CAP
    assert_allclose(model.components_ @ model.components_.T, np.eye(2), atol=1e-12)


def _alignment(K, L):
    H = np.eye(len(K)) - 1 / len(K)
    K, L = H @ K @ H, H @ L @ H
    return (K * L).sum() / np.linalg.norm(K) / np.linalg.norm(L), np.linalg.norm(K)


def test_weights_are_those_of_the_definition():
    Z, L = scale(WINE), (CULTIVAR[:, None] == CULTIVAR).astype(float)
    squared = ((Z[:, None] - Z) ** 2).sum(axis=2)
    sigma = Gaussian().resolve(Z).sigma
    of_gaussian, gaussian_size = _alignment(np.exp(-squared / (2 * sigma**2)), L)
    of_polynomial, polynomial_size = _alignment((Z @ Z.T + 1.0) ** 3, L)
    total = of_gaussian + of_polynomial
    # Neither the scale of a kernel nor the names of labels matter.
    names = np.array(["c", "a", "b"])[CULTIVAR]
    kernel = aligned_sum([Gaussian(), 10.0 * Polynomial()], WINE, names)
    (one, first), (two, second) = kernel.terms
    assert (first, second) == (Gaussian(), Polynomial())
    assert one == pytest.approx(of_gaussian / total, rel=1e-9)
    assert two == pytest.approx(of_polynomial / total * gaussian_size / polynomial_size, rel=1e-9)
