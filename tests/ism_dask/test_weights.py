"""Weights of rows: a row of weight 2 is two equal rows, for every engine and target."""

import numpy as np
import pytest
from models import assert_same_fit, hsic_model, projector
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.datasets import load_wine

from ism_dask import PredictiveIKDR, SupervisedIKDR
from ism_dask.kernels import Gaussian, Linear, Multiquadric, Polynomial
from ism_dask.solvers import ISM

X, CLASSES = load_wine(return_X_y=True)
NUMBERS = X[:, 0] + np.random.default_rng(1).normal(size=len(X))
WIDE = Gaussian(sigma=2.0)
SERVED = [(WIDE, "exact"), (WIDE, "landmarks"), (Multiquadric(), "exact")]
SERVED += [(Polynomial(degree=3), "landmarks"), (Linear(), "closed_form")]
WEIGHTS = np.random.default_rng(0).integers(0, 4, len(X))

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.parametrize(
    ("target", "y"), [("classes", CLASSES), ("linear", NUMBERS), ("multiscale", NUMBERS)]
)
@pytest.mark.parametrize(("kernel", "engine"), SERVED)
def test_weights_are_repetitions(kernel, engine, target, y):
    options = {"target": target, "solver": ISM(max_iter=3)}
    model = hsic_model(1, kernel=kernel, engine=engine, **options)
    weighted = clone(model).fit(X, y, sample_weight=WEIGHTS)
    repeated = clone(model).fit(X.repeat(WEIGHTS, axis=0), y.repeat(WEIGHTS))
    assert_same_fit(weighted, repeated, 1e-12)


@pytest.mark.parametrize("make", [PredictiveIKDR, SupervisedIKDR])
def test_the_unit_of_weights_does_not_matter(make):
    """Nor to contributions: no weight is rounded to a number of rows."""
    weights = np.random.default_rng(2).random(len(X))
    ones, thousands = (make(2).fit(X, CLASSES, unit * weights) for unit in (1.0, 1000.0))
    # HSIC is a sum over pairs, the explained share of y a mean.
    factor = 1e6 if make is hsic_model else 1.0
    assert_allclose(thousands.objective_, factor * ones.objective_, rtol=1e-9)
    assert_allclose(projector(thousands), projector(ones), atol=1e-6)
    for name in ("alone", "lost"):
        known = factor * getattr(ones.contributions_, name)
        assert_allclose(getattr(thousands.contributions_, name), known, rtol=1e-6)
