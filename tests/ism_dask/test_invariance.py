"""What must not matter to a fit: order, units and names, and the unit of weights."""

import numpy as np
import pandas as pd
import pytest
from models import SUPERVISED, apart, assert_same_fit, curved, hsic_model, projector, quick, quiet
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from ism_dask import AlternativeIKDR, ColoredMVU, PredictiveIKDR
from ism_dask.kernels import KERNELS, Gaussian, Linear, Multiquadric, Polynomial
from ism_dask.linalg.subspaces import subspace_sine
from ism_dask.solvers import ISM

X, NUMBERS = curved()
RNG = np.random.default_rng(0)
CLASSES, SEX = RNG.integers(0, 3, 120), RNG.choice(["f", "m"], 120)
SIDES = {"classes": SEX, "whole numbers": RNG.integers(18, 80, 120)}
SIDES |= {"numbers": RNG.normal(size=(120, 2))}
SIDES["both"] = pd.DataFrame({"sex": SEX, "age": SIDES["whole numbers"]})
# Rows that are alike in X and y, and differ in what is known beside them alone.
ALIKE = np.vstack([X[:60], X[:60]]), np.tile(NUMBERS[:60], 2)
# Gaps in X and in y.
GAPPY = np.where(np.abs(X) > 1.8, np.nan, X), np.where(NUMBERS > 0, NUMBERS, np.nan)
GROUPED = X + 3 * RNG.normal(size=(3, 5))[CLASSES]


def _picked(values, rows):
    return values.iloc[rows] if isinstance(values, pd.DataFrame) else values[rows]


@quiet
@pytest.mark.parametrize(
    ("model", "X", "y", "sides"),
    [
        *((PredictiveIKDR(2), X, y, {}) for y in (NUMBERS, CLASSES)),
        *((hsic_model(2, kernel=k), X, y, {}) for k in KERNELS for y in (NUMBERS, CLASSES)),
        *((quick(PredictiveIKDR), *ALIKE, {name: SIDES["both"]}) for name in ("avoid", "given")),
        *((quick(make, missing="mean"), *GAPPY, {}) for make in SUPERVISED),
        *((AlternativeIKDR(3, kernel=k), GROUPED, CLASSES, {}) for k in ("gaussian", "polynomial")),
        *((ColoredMVU(), X, y, {}) for y in (None, X[:, 0])),
    ],
)
def test_the_order_of_the_rows_changes_no_bit(model, X, y, sides):
    order = np.random.default_rng(0).permutation(len(X))
    moved = {name: _picked(side, order) for name, side in sides.items()}
    one = clone(model).fit(X, y, **sides)
    other = clone(model).fit(X[order], None if y is None else y[order], **moved)
    assert one.objective_ == other.objective_
    if isinstance(model, ColoredMVU):
        assert_array_equal(one.embedding_[order], other.embedding_)
    elif isinstance(model, AlternativeIKDR):
        assert adjusted_rand_score(one.labels_[order], other.labels_) == 1.0
    else:
        for name in ("components_", "mean_", "scale_", "gap_means_"):
            assert_array_equal(getattr(one, name), getattr(other, name))


ROWS = {
    "numbers": lambda rng: rng.normal(size=(100, 5)),
    # Rows of few values are equal, and differ in class.
    "counts": lambda rng: rng.poisson(0.7, (100, 3)).astype(float),
    "bits": lambda rng: rng.integers(0, 2, (100, 4)).astype(float),
}


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("make", SUPERVISED)
def test_neither_columns_nor_their_signs_nor_units_nor_names_matter(make, rows):
    rng = np.random.default_rng(3)
    X = ROWS[rows](rng)
    n, d = X.shape
    y = np.digitize(X[:, 0] + rng.normal(size=n), [0.3, 1.2])
    order, units = rng.permutation(d), 10.0 ** rng.integers(-20, 20, size=d)
    signs, names = rng.choice([-1.0, 1.0], d), np.array(["z", "a", "k"])[y]
    padded = np.insert((X * units * signs)[:, order], [0, d], [7.0, 1e9 / 3], axis=1)
    plain, other = make(1).fit(X, y), make(1).fit(padded, names)
    assert (other.components_[:, [0, -1]] == 0).all()
    W = (plain.components_ * signs)[:, order].T
    assert subspace_sine(W, other.components_[:, 1:-1].T) < 1e-6
    assert_allclose(np.abs(other.transform(padded)), np.abs(plain.transform(X)), atol=1e-6)
    assert other.objective_ == pytest.approx(plain.objective_, rel=1e-9)


FEW_VALUES = {
    "bits": lambda rng: rng.integers(0, 2, (80, 7)),
    "counts": lambda rng: rng.poisson(0.7, (80, 5)),
    "levels": lambda rng: np.hstack([np.eye(k)[rng.integers(0, k, 80)] for k in (4, 3)]),
}


@pytest.mark.parametrize("make", SUPERVISED)
@pytest.mark.parametrize("kind", FEW_VALUES)
def test_rows_that_are_nearly_alike_come_in_one_order(kind, make):
    """Rounding, of sums over rows or by memory, decides nothing, nor do weights in place of copies.

    Rows of few values tie in what orders them, but for y and their weights.
    """
    for seed in range(3):
        rng = np.random.default_rng(seed)
        rows = FEW_VALUES[kind](rng).astype(float)
        y = rows[:, 0] + rows[:, 1] * rows[:, 2] + 0.3 * rng.normal(size=80)
        weights, order = rng.integers(1, 4, 80).astype(float), rng.permutation(80)
        weighted = quick(make).fit(rows, y, weights)
        for other in (
            quick(make).fit(rows[order], y[order], weights[order]),
            quick(make).fit(np.asfortranarray(rows), y, weights),
        ):
            assert_array_equal(other.components_, weighted.components_)
        copies = np.arange(80).repeat(weights.astype(int))
        assert apart(quick(make).fit(rows[copies], y[copies]), weighted) < 1e-6


# A row of weight 2 is two equal rows, for every engine, every target and what is known beside.

WIDE = Gaussian(sigma=2.0)
SERVED = [(WIDE, "exact"), (WIDE, "landmarks"), (Multiquadric(), "exact")]
SERVED += [(Polynomial(degree=3), "landmarks"), (Linear(), "closed_form")]
WEIGHTS = RNG.integers(0, 4, 120)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("kernel", "engine", "target", "sides"),
    [
        *((*each, target, {}) for each in SERVED for target in ("classes", "linear", "multiscale")),
        *((WIDE, "auto", "auto", {n: s}) for n in ("avoid", "given") for s in SIDES.values()),
    ],
)
def test_weights_are_repetitions(kernel, engine, target, sides):
    rows, y = np.arange(120).repeat(WEIGHTS), CLASSES if target == "classes" else NUMBERS
    model = hsic_model(1, kernel=kernel, engine=engine, target=target, solver=ISM(max_iter=3))
    weighted = clone(model).fit(X, y, sample_weight=WEIGHTS, **sides)
    copies = {name: _picked(side, rows) for name, side in sides.items()}
    repeated = model.fit(X[rows], y[rows], **copies)
    assert_same_fit(repeated, weighted, *((1e-9, 1e-7) if sides else (1e-12,)))


@pytest.mark.parametrize("make", SUPERVISED)
def test_the_unit_of_weights_does_not_matter(make):
    """Nor to contributions: no weight is rounded to a number of rows."""
    model, weights = quick(make, 2), np.random.default_rng(2).random(120)
    ones, thousands = (clone(model).fit(GROUPED, CLASSES, k * weights) for k in (1.0, 1000.0))
    # The squares of these units are no numbers.
    for unit in (1e-300, 1e300):
        scaled = clone(model).fit(GROUPED, CLASSES, unit * weights)
        assert_allclose(projector(scaled), projector(ones), atol=1e-4)
    # HSIC is a sum over pairs, the explained share of y a mean.
    factor = 1e6 if make is hsic_model else 1.0
    assert_allclose(thousands.objective_, factor * ones.objective_, rtol=1e-9)
    assert_allclose(projector(thousands), projector(ones), atol=1e-6)
    for name in ("alone", "lost"):
        known = factor * getattr(ones.contributions_, name)
        assert_allclose(getattr(thousands.contributions_, name), known, rtol=1e-6)


@pytest.mark.parametrize("make", SUPERVISED)
def test_rare_numbers_of_little_weight_are_seen(make):
    """No sample of rows by their weights has them."""
    y = np.where(np.arange(120) < 2, [1.5, 2.5] * 60, 0.0)
    fitted = quick(make).fit(X, y, np.where(y > 0, 0.1, 1.0))
    assert fitted.objective_ > 0


@quiet
def test_rows_of_next_to_no_weight_set_no_unit_of_ridges():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(150, 5))
    y = rows[:, 0] + 0.5 * rows[:, 1] ** 2 + 0.3 * rng.normal(size=150)
    rows[:10] *= 30
    one, other = (
        PredictiveIKDR(2, kernel="polynomial", max_features=None).fit(
            rows, y, np.where(np.arange(150) < 10, least, 1.0)
        )
        for least in (0.0, 1e-12)
    )
    assert one.objective_ == pytest.approx(other.objective_, rel=1e-3)


@pytest.mark.parametrize("make", SUPERVISED)
def test_beside_what_is_given_the_order_of_indicators_does_not_matter(make):
    """W is fitted to coordinates in their space, whose axes depend on this order."""
    rng = np.random.default_rng(0)
    rows = np.hstack([np.eye(3)[np.arange(120) % 3], X[:, :3]])
    y, known = rows[:, 0] + NUMBERS + 0.2 * rng.normal(size=120), X[:, 2] + rng.normal(size=120)
    order = rng.permutation(6)
    one, other = (
        quick(make).fit(each, y, given=known + rows[:, 1]) for each in (rows, rows[:, order])
    )
    assert other.objective_ == pytest.approx(one.objective_, rel=1e-6)
    assert subspace_sine(one.components_.T[order], other.components_.T) < 1e-4


@pytest.mark.parametrize("make", SUPERVISED)
def test_a_level_of_next_to_no_weight_hides_no_other(make):
    """Its indicator has a small deviation, which says nothing of the others."""
    levels = np.random.default_rng(0).integers(0, 3, 120)
    rows = np.hstack([np.eye(3)[levels], X[:, :2]])
    y = 2.0 * (levels == 1) + X[:, 1] + 0.2 * NUMBERS
    weights = np.where(levels == 0, 1e-12, 1.0)
    assert (np.abs(quick(make).fit(rows, y, weights).components_[:, 1:3]) > 0.1).all()


@pytest.mark.parametrize("sides", [{}, {"avoid": SEX}, {"given": SEX}])
@pytest.mark.parametrize("make", SUPERVISED)
def test_rows_of_next_to_no_weight_count_nothing(make, sides):
    """They may follow another law, and have classes of their own."""
    rest, y = np.arange(120) >= 30, np.where(np.arange(120) >= 30, NUMBERS, 9 * X[:, 4])
    few = {name: side[rest] for name, side in sides.items()}
    alone = quick(make).fit(X[rest], y[rest], **few)
    for least, most in ((0.0, 1.0), (1e-20, 1.0), (1e-150, 1e150))[: 2 if "given" in sides else 3]:
        fitted = quick(make).fit(X, y, np.where(rest, most, least), **sides)
        assert apart(fitted, alone) < 1e-6
        if make is PredictiveIKDR:
            assert fitted.setting_ == alone.setting_
