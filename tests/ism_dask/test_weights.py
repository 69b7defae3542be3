"""Weights of rows: a row of weight 2 is two equal rows, for every engine and target."""

import numpy as np
import pytest
from models import assert_same_fit, hsic_model, projector
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_wine, make_blobs

from ism_dask import (
    AlternativeIKDR,
    PredictiveIKDR,
    SemiSupervisedIKDR,
    SupervisedIKDR,
    UnsupervisedIKDR,
)
from ism_dask.engines import Exact, Landmarks
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


BLOBS, GROUPS = make_blobs(60, 5, centers=3, cluster_std=2.0, random_state=3)
SOME = np.where(np.arange(60) % 3 == 0, GROUPS, np.nan)
COUNTS = np.random.default_rng(5).integers(0, 4, 60)
clusterers = pytest.mark.parametrize(
    ("make", "y"),
    [(UnsupervisedIKDR, None), (SemiSupervisedIKDR, SOME), (AlternativeIKDR, GROUPS)],
    ids=["unsupervised", "semi-supervised", "alternative"],
)


@clusterers
@pytest.mark.parametrize(
    ("graph", "kernel", "engine"),
    [
        ("regularised", "gaussian", Exact()),
        ("kernel", "polynomial", Exact()),
        ("regularised", "polynomial", Landmarks(tol=1e-9)),
    ],
)
def test_weights_of_clustered_rows_are_repetitions(make, y, graph, kernel, engine):
    """Landmarks have to leave out little, as others are chosen where rows have copies."""
    model = make(3, 2, graph=graph, kernel=kernel, engine=engine, max_outer=30)
    weighted = clone(model).fit(BLOBS, y, sample_weight=COUNTS)
    repeated = model.fit(BLOBS.repeat(COUNTS, axis=0), None if y is None else y.repeat(COUNTS))
    assert_allclose(weighted.components_, repeated.components_, atol=1e-6)
    assert_allclose(weighted.objective_, repeated.objective_, rtol=1e-6)
    assert_allclose(weighted.embedding_.repeat(COUNTS, axis=0), repeated.embedding_, atol=1e-6)
    assert_array_equal(weighted.labels_.repeat(COUNTS), repeated.labels_)
    assert weighted.converged_ == repeated.converged_


@clusterers
def test_clustered_rows_of_no_weight_have_no_part(make, y):
    """Not in the choice between classes and numbers, and not in the range of a column."""
    outliers, counted = BLOBS.copy(), COUNTS > 0
    outliers[~counted, 0] = 1e6
    if make is SemiSupervisedIKDR:
        y = np.where(counted, y, 0.5)
    weighted = make(3, 2).fit(outliers, y, sample_weight=COUNTS)
    known = None if y is None else y[counted]
    fewer = make(3, 2).fit(BLOBS[counted], known, sample_weight=COUNTS[counted])
    assert_allclose(weighted.components_, fewer.components_, atol=1e-9)
    assert_array_equal(weighted.labels_[counted], fewer.labels_)
    assert_array_equal(weighted.labels_[~counted], fewer.predict(outliers[~counted]))
    assert weighted.embedding_.shape == (60, 3)
