"""Weights of rows: a row of weight 2 is two equal rows, for every engine and target."""

from __future__ import annotations

from collections.abc import Callable

import dask.array as da
import numpy as np
import pytest
from models import hsic_model
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.datasets import load_wine

from ism_dask import SupervisedIKDR
from ism_dask.kernels import Gaussian, Kernel, Linear, Multiquadric, Polynomial
from ism_dask.solvers import ISM

X, CLASSES = load_wine(return_X_y=True)
NUMBERS = X[:, 0] + np.random.default_rng(1).normal(size=len(X))
WEIGHTS = np.random.default_rng(0).integers(0, 4, len(X))

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def _projector(fitted: SupervisedIKDR) -> np.ndarray:
    return fitted.components_.T @ fitted.components_


def _assert_equal(weighted: SupervisedIKDR, repeated: SupervisedIKDR, rtol: float) -> None:
    assert_allclose(weighted.objective_, repeated.objective_, rtol=rtol)
    assert_allclose(_projector(weighted), _projector(repeated), atol=rtol)
    assert_allclose(weighted.mean_, repeated.mean_, rtol=1e-12)
    assert_allclose(weighted.scale_, repeated.scale_, rtol=1e-12)


@pytest.mark.parametrize("target", ["classes", "linear", "multiscale"])
@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize(
    ("kernel", "engine", "rtol"),
    [
        (Gaussian(sigma=2.0), "exact", 1e-12),
        (Gaussian(sigma=2.0), "landmarks", 1e-12),
        (Multiquadric(), "exact", 1e-12),
        (Polynomial(degree=3), "monomials", 1e-12),
        (Linear(), "closed", 1e-12),
    ],
)
def test_weights_are_repetitions(
    kernel: Kernel, engine: str, rtol: float, target: str, whiten: bool
) -> None:
    y = CLASSES if target == "classes" else NUMBERS
    model = hsic_model(
        1, kernel=kernel, engine=engine, target=target, whiten=whiten, solver=ISM(max_iter=3)
    )
    weighted = clone(model).fit(X, y, sample_weight=WEIGHTS)
    repeated = clone(model).fit(X.repeat(WEIGHTS, axis=0), y.repeat(WEIGHTS))
    _assert_equal(weighted, repeated, rtol)


@pytest.mark.parametrize(("seed", "numbers"), [(0, False), (1, True)])
def test_the_widths_count_weights_too(seed: int, numbers: bool) -> None:
    """All defaults: the width and the widths of y come from the weighted rows."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(150, 6))
    y = rows[:, 0] ** 2 + 0.1 * rng.normal(size=150) if numbers else rng.integers(0, 3, 150)
    weights = rng.integers(0, 4, 150)
    weighted = hsic_model(2).fit(rows, y, sample_weight=weights)
    repeated = hsic_model(2).fit(rows.repeat(weights, axis=0), y.repeat(weights))
    _assert_equal(weighted, repeated, 1e-9)


both = pytest.mark.parametrize("make", [SupervisedIKDR, hsic_model])


@both
def test_rows_that_are_streamed_have_weights(make: Callable[..., SupervisedIKDR]) -> None:
    model = make(2, kernel=Gaussian(sigma=2.0))
    chunked = clone(model).fit(da.from_array(X, chunks=(50, 13)), CLASSES, sample_weight=WEIGHTS)
    _assert_equal(chunked, model.fit(X, CLASSES, WEIGHTS), 1e-6)


@both
def test_the_unit_of_weights_does_not_matter(make: Callable[..., SupervisedIKDR]) -> None:
    weights = np.random.default_rng(2).random(len(X))
    ones = make(2).fit(X, CLASSES, sample_weight=weights)
    thousands = make(2).fit(X, CLASSES, sample_weight=1000.0 * weights)
    # HSIC is a sum over pairs, the explained share of y a mean.
    factor = 1e6 if make is hsic_model else 1.0
    assert_allclose(thousands.objective_, factor * ones.objective_, rtol=1e-9)
    assert_allclose(_projector(thousands), _projector(ones), atol=1e-6)


@both
def test_contributions_count_fractional_weights(make: Callable[..., SupervisedIKDR]) -> None:
    """Quarters of whole weights, with J in units of them: no rounding to repeated rows."""
    whole = make(2, kernel=Gaussian(sigma=2.0)).fit(X, CLASSES, WEIGHTS)
    quarters = make(2, kernel=Gaussian(sigma=2.0)).fit(X, CLASSES, WEIGHTS / 4)
    scale = whole.objective_ / quarters.objective_
    for name in ("alone", "lost"):
        of_quarters = getattr(quarters.contributions_, name)
        assert_allclose(scale * of_quarters, getattr(whole.contributions_, name), rtol=1e-6)


@both
def test_equal_weights_are_none(make: Callable[..., SupervisedIKDR]) -> None:
    plain = make(2).fit(X, CLASSES)
    _assert_equal(make(2).fit(X, CLASSES, np.ones(len(X))), plain, 1e-9)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3), "shape"),
        (np.ones((len(X), 2)), "shape"),
        (np.where(np.arange(len(X)) == 7, -1.0, 1.0), "-1 in row 7"),
        (np.where(np.arange(len(X)) == 7, np.nan, 1.0), "weight 0"),
        (np.zeros(len(X)), "zero"),
        ("a", "real numbers"),
        (np.ones(len(X)) * 1j, "real numbers, one for each row; got dtype complex128"),
        (np.ma.masked_equal(np.arange(len(X)), 7), "masked numbers; give these rows the weight 0"),
        ((CLASSES == 1).astype(float), "one class only"),
    ],
)
def test_bad_weights_are_refused(weights: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SupervisedIKDR(2).fit(X, CLASSES, sample_weight=weights)
