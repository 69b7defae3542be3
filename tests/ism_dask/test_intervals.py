"""How sure a fit is: intervals by curvature, and certificates."""

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from distributed import Client
from models import CULTIVAR, WINE, curved, hsic_model, quick
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from ism_dask import Intervals, PredictiveIKDR, UnsupervisedIKDR, WeightsWarning, intervals
from ism_dask.criteria.curvature import Tangents, block_curvature, curvature
from ism_dask.criteria.prediction import RidgeRegression, RowsInMemory
from ism_dask.kernels import Gaussian, Laplacian, Linear, Polynomial
from ism_dask.linalg.subspaces import nearest_orthonormal, subspace_distance, subspace_shares
from ism_dask.selection.rules import RULES
from ism_dask.status import Status

X, Y = curved(150)
X = X * [1.0, 3.0, 0.2, 1.0, 10.0] + 7  # columns in different units
# A setting that unseen rows have to choose no more than the width and the ridge of.
GIVEN = {"kernel": Gaussian(2.0), "target": "linear"}
EVERY = {**GIVEN, "max_features": None}
FRAME = pd.DataFrame(X, columns=list("abcde"))


def _line(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    return X, np.sin(X[:, 0]) + 0.5 * rng.normal(size=n)


@pytest.fixture(scope="module")
def fitted():
    return PredictiveIKDR(2, **EVERY).fit(X, Y)


@pytest.fixture(scope="module")
def named():
    return PredictiveIKDR(2, **EVERY).fit(FRAME, Y)


@pytest.fixture(scope="module")
def sure(fitted):
    return intervals(fitted, X, Y)


@pytest.mark.parametrize("mixed", [False, True])
def test_what_is_said_of_replicates(fitted, mixed):
    W = fitted.components_
    near = W + 0.1 * np.random.default_rng(2).normal(size=(39, *W.shape))
    # Its features in another order and with other signs are the same ones.
    given = [each[::-1] * [[-1], [2]] for each in near] if mixed else near
    replicates = [each / fitted.scale_ for each in given]
    result = Intervals.from_replicates(fitted, replicates, np.ones(5), ())
    distances = [subspace_distance(W.T, each.T) for each in near]
    assert_allclose(result.standardized_distances, distances)
    # Of 40 distances in all, a new one is below the second or above the last but one with
    # the probability 2 / 40 each.
    ends = sorted(distances)[1], sorted(distances)[-2]
    assert result.standardized_interval == pytest.approx(ends)
    units = subspace_distance(*((each / fitted.scale_).T for each in (W, near[3])))
    assert result.distances[3] == pytest.approx(units)
    assert_allclose(result.shares, fitted.feature_importances_)
    mirrored = np.sort([2 * result.shares - subspace_shares(each) for each in near], axis=0)
    low = np.minimum(mirrored[1], result.shares)
    high = np.maximum(np.minimum(mirrored[-2], 1 / 2), result.shares)
    assert_allclose(result.shares_low, np.maximum(low, 0), atol=1e-12)
    assert_allclose(result.shares_high, high)
    # Weights of replicates are turned to those of the fit, so that their basis does not matter.
    assert (result.components_low <= W).all()
    assert (result.components_high >= W).all()
    cosines = [np.abs((each * W).sum(axis=1)) / np.linalg.norm(each, axis=1) for each in near]
    assert_allclose(result.stability, np.mean(np.square(cosines), axis=0), rtol=0.02)
    assert (result.retention >= result.stability - 0.02).all()


def test_the_intervals_hold_the_truth(monkeypatch):
    monkeypatch.setattr("ism_dask.inference.intervals._DRAWS", 199)
    covered = 0
    for seed in range(10):
        X, y = _line(120, seed)
        fitted = PredictiveIKDR(1, **EVERY).fit(X, y)
        result = intervals(fitted, X, y)
        low, high = result.distance_interval
        covered += low <= subspace_distance(np.eye(5)[:, :1], fitted.weights_) <= high
        assert result.separated.tolist() == [0]
        # Wald's test of one weight is its size beside its spread among the draws of W.
        sizes = (result.components / result.standard_errors)[0, 1:]
        assert_allclose(result.pvalues[1:], 2 * stats.norm.sf(np.abs(sizes)), atol=0.05)
    # At 90%, fewer than 7 of 10 have a probability of 1%.
    assert covered >= 7


def test_bad_input_is_named(fitted, named, a_start):
    few, constant = (X[:19], X[:19, 0] + 0.1 * Y[:19]), WINE * (np.arange(13) < 2)
    fit_to_few = PredictiveIKDR(1, kernel="linear").fit(*few)
    spanning = PredictiveIKDR(2, **EVERY).fit(constant, CULTIVAR)
    for error, words, arguments in (
        (NotFittedError, "not fitted", (PredictiveIKDR(2), X, Y)),
        (TypeError, "`fitted` is a UnsupervisedIKDR; expected", (UnsupervisedIKDR(2), X, Y)),
        (TypeError, "`fitted` is a SupervisedIKDR; expected", (hsic_model(2), X, Y)),
        (ValueError, "X has 4 features, but PredictiveIKDR is expecting 5", (fitted, X[:, :4], Y)),
        (ValueError, "feature names should match", (named, FRAME[list("edcba")], Y)),
        (ValueError, "target y is None", (fitted, X, None)),
        (ValueError, "inconsistent numbers", (fitted, X, Y[:9])),
        (ValueError, "the fit had 19 rows; `intervals` needs 20", (fit_to_few, *few)),
        (ValueError, r"has not converged \(start kept\)", (a_start, WINE, CULTIVAR)),
        (ValueError, "W spans all", (spanning, constant, CULTIVAR)),
    ):
        with pytest.raises(error, match=words):
            intervals(*arguments)
    for words, given in (
        ("`sample_weight` has shape", {"sample_weight": [1.0]}),
        ("`intervals` has avoid", {"avoid": Y}),
    ):
        with pytest.raises(ValueError, match=words):
            intervals(fitted, X, Y, **given)


_N, _RIDGE = 40, 1e-2


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("signs", [None, np.array([1.0, -0.5])])
@pytest.mark.parametrize("scales", [None, np.array([[1.5, 0.2], [0.2, 0.6]])])
@pytest.mark.parametrize(
    "kernel",
    [
        *(Gaussian(1.3), Laplacian(2.0, 0.5), Polynomial(3, 1.0), Linear()),
        0.5 * Gaussian(1.0) + 0.3 * Polynomial(2, 1.0),
        0.2 * Laplacian(1.0) + Gaussian(2.0),
    ],
)
def test_curvature_and_influences_are_differences_of_the_loss(kernel, scales, signs, weighted):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(_N, 4))
    Y = np.stack([np.sin(X[:, 0]) + 0.1 * rng.normal(size=_N), X[:, 1] ** 2], axis=1)
    weights = rng.uniform(0.5, 2.0, size=_N) if weighted else None
    counts = np.ones(_N) if weights is None else weights
    each_sign = np.ones(2) if signs is None else signs
    tangents = Tangents.at_weights(np.linalg.qr(rng.normal(size=(4, 2)))[0])
    regression = RidgeRegression(kernel, _RIDGE, signs, scales)
    hessian, measured, size = block_curvature(regression, tangents, RowsInMemory(X, Y, weights))

    def loss(direction, rows):
        # The ridge stays that of all rows if some are left out.
        turn = tangents.basis @ direction.reshape(-1, 2)  # in the basis that the scales belong to
        Z = regression.projected(X[rows], nearest_orthonormal(tangents.W + turn))
        noise = counts.sum() * _RIDGE / counts[rows]
        alpha = np.linalg.solve(kernel.matrix(Z, Z) + np.diag(noise), Y[rows])
        return float(counts.sum() * _RIDGE * ((Y[rows] * alpha).sum(axis=0) @ each_sign))

    everything, h = np.arange(_N), 1e-4
    steps = h * np.eye(tangents.size)

    def slope(rows, at=0.0):
        rises = [loss(at + step, rows) - loss(at - step, rows) for step in steps]
        return np.divide(rises, 2 * h)

    second = [(slope(everything, at) - slope(everything, -at)) / (2 * h) for at in steps]
    influences = slope(everything) - [slope(np.delete(everything, i)) for i in everything]
    assert size == pytest.approx(counts.sum())
    assert_allclose(hessian, second, atol=1e-5 * np.abs(hessian).max())
    assert_allclose(measured, influences, atol=1e-5 * np.abs(measured).max())


def test_intervals_depend_on_neither_order_nor_units_nor_storage_nor_rows_of_weight_zero(
    fitted, named, sure, thread_cluster
):
    other = intervals(named, FRAME, Y)
    assert_array_equal(sure.distances, other.distances)
    assert (sure.feature_names[0], other.feature_names) == ("feature 0", tuple("abcde"))
    with Client(thread_cluster):
        assert_array_equal(intervals(fitted, X, Y).distances, sure.distances)
    order = np.random.default_rng(1).permutation(150)
    lazy, rows, y = da.from_array(X, chunks=(75, 5)), X[order], Y[order]
    shuffled, scaled = clone(fitted).fit(rows, y), clone(fitted).fit(10 * X, Y)
    for given in ((shuffled, rows, y), (fitted, lazy, Y), (scaled, 10 * X, Y)):
        other = intervals(*given)
        assert_allclose(sure.shares_high, other.shares_high, atol=1e-6)
        assert_allclose(sure.standard_errors, other.standard_errors, atol=1e-6)
    more, labels = np.vstack([X, 9 * X[:30]]), np.append(Y, Y[30:60])
    weights = np.repeat([1.0, 0.0], [150, 30])
    model = clone(fitted).fit(more, labels, weights)
    weighted = intervals(model, more, labels, sample_weight=weights)
    assert_allclose(weighted.shares_low, sure.shares_low, atol=1e-6)


@pytest.fixture(scope="module")
def a_start():
    """A fit that no W which was fitted improves."""
    model = PredictiveIKDR(2, kernel=Gaussian(sigma=2.0)).fit(WINE, CULTIVAR)
    assert model.status_ is Status.START
    return model


def test_a_w_that_spans_its_few_features_does_not_vary():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 6))
    y = np.sin(2 * X[:, 3]) + 0.3 * rng.normal(size=200)
    model = PredictiveIKDR(1).fit(X, y)
    sure = intervals(model, X, y)
    assert sure.distance_interval == (0.0, 0.0)
    assert "W spans all features that it may use" in model.certify(X, y).reason
    assert sure.shares_low[3] == sure.shares_high[3] == 1.0
    assert sure.pvalues[3] < 1e-6 < 0.01 < np.delete(sure.pvalues, 3).min()
    assert "these rows have chosen few features" in sure.doubts[0]


def test_real_columns_are_found_by_any_order_of_columns(monkeypatch):
    """All columns are correlated, and y depends on the first two."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 12)) @ np.linalg.cholesky(0.5 + 0.5 * np.eye(12)).T
    y = X[:, 0] * X[:, 1] + X[:, 0] + 0.5 * rng.normal(size=200)
    model = PredictiveIKDR(2, **GIVEN)
    sure = intervals(model.fit(X, y), X, y)
    assert_array_equal(sure.get_support(fdr=0.1), np.arange(12) < 2)
    order = np.roll(np.arange(12), 7)
    # Columns that were left out are tested in batches of any size.
    monkeypatch.setitem(vars(RULES), "most_weights", 8)
    other = intervals(model.fit(X[:, order], y), X[:, order], y)
    assert_allclose(other.pvalues, sure.pvalues[order], rtol=1e-3, atol=1e-12)
    for fdr in (0, 1.0, np.nan, "0.1"):
        with pytest.raises(ValueError, match=rf"`fdr` must be a number in \(0, 1\).*got {fdr!r}"):
            sure.get_support(fdr)


def test_columns_that_sum_to_a_constant_have_pvalues():
    """All classes of a column are among the few features: the rows vary in fewer directions."""
    rng = np.random.default_rng(0)
    classes, numbers = rng.integers(0, 3, 300), rng.normal(size=(300, 5))
    X = np.hstack([np.eye(3)[classes], numbers])
    y = 2 * np.sin(2.0 * classes) + numbers[:, 0] * (classes - 1) + numbers[:, 1]
    y += 0.3 * rng.normal(size=300)
    model = PredictiveIKDR(2, **GIVEN, max_features=5).fit(X, y)
    assert_array_equal(model.get_support(), np.arange(8) < 5)
    assert_array_equal(intervals(model, X, y).get_support(fdr=0.1), np.arange(8) < 5)


def test_pvalues_of_columns_without_a_share_in_y_are_uniform():
    pvalues = []
    for seed in range(3):
        X, y = _line(120, seed)
        X = np.hstack([X, np.random.default_rng(seed).normal(size=(120, 12))])
        pvalues += list(intervals(PredictiveIKDR(1, **GIVEN).fit(X, y), X, y).pvalues[1:])
    assert stats.kstest(pvalues, "uniform").pvalue > 1e-3


def test_a_column_like_a_chosen_one_is_not_real():
    """What they have in common would only change the width of the kernel."""
    for seed in (1, 2, 4):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(120, 4))
        y = np.sin(X[:, 0]) + 0.5 * rng.normal(size=120)
        X[:, 1] = X[:, 0] + 0.1 * X[:, 1]
        model = PredictiveIKDR(1, **GIVEN, max_features=1).fit(X, y)
        assert_array_equal(model.get_support(indices=True), [0])
        assert intervals(model, X, y).pvalues[1] > 0.05


def test_nearly_equal_columns_raise_doubts():
    X, y = _line(200)
    X[:, 4] = X[:, 0] + 0.02 * X[:, 4]
    every = PredictiveIKDR(1, **EVERY)
    with pytest.warns(WeightsWarning):
        every.fit(X, y)
    assert any("columns are so alike" in each for each in intervals(every, X, y).doubts)
    few = PredictiveIKDR(1, **GIVEN, max_features=1)
    with pytest.warns(WeightsWarning, match=r"'feature 0' and 'feature 4' \(1.000\)"):
        few.fit(X, y)
    assert few.get_support().sum() == 1
    assert any("arbitrary between the two" in each for each in intervals(few, X, y).doubts)


@pytest.mark.parametrize("error", [0.0, 0.003])
def test_features_that_follow_from_others_raise_doubts(error):
    X, y = _line(200)
    X[:, 4] = X[:, :4].sum(axis=1) + error * X[:, 4]
    every = PredictiveIKDR(1, **EVERY).fit(X, y)
    doubt = "the 5 features vary in 4 directions only"
    assert any(doubt in each for each in intervals(every, X, y).doubts)


def _series(of_x, of_errors, seed):
    """Draw a time series: X and the errors have these autocorrelations."""
    noise = np.random.default_rng(seed).normal(size=(200, 6))
    memory = np.r_[np.full(5, of_x), of_errors]
    for row in range(1, 200):
        noise[row] = memory * noise[row - 1] + np.sqrt(1 - memory**2) * noise[row]
    return noise[:, :5], noise[:, 0] + np.sin(noise[:, 0]) + 0.5 * noise[:, 5]


@pytest.mark.parametrize(("of_x", "of_errors"), [(0.8, 0.8), (0.9, 0.0), (0.0, 0.9), (0.0, 0.0)])
def test_a_series_is_doubted_if_x_and_errors_are_autocorrelated(of_x, of_errors):
    """Correlation in one of them alone does not make W less certain."""
    for seed, most in ((0, None), (1, 1), (3, None)):
        X, y = _series(of_x, of_errors, seed)
        model = PredictiveIKDR(1, **GIVEN, max_features=most)
        sure = intervals(model.fit(X, y), X, y)
        assert any("rows turn W alike" in each for each in sure.doubts) == (of_x * of_errors > 0)
    if of_x * of_errors > 0:
        weeks, every = np.arange(200) // 10, clone(model).set_params(max_features=None)
        alone = intervals(every.fit(X, y), X, y)
        whole = intervals(every.fit(X, y, groups=weeks), X, y, groups=weeks)
        assert whole.standard_errors.mean() > 1.3 * alone.standard_errors.mean()
        assert not any("rows turn W alike" in each for each in whole.doubts)


def test_independent_rows_in_order_of_their_classes_are_not_doubted():
    """Rows of one class influence W alike where W cannot separate all classes."""
    rng = np.random.default_rng(2)
    y = np.sort(rng.integers(0, 6, 300))
    X = (1.5 * rng.normal(size=(6, 8)))[y] + rng.normal(size=(300, 8))
    fitted = PredictiveIKDR(2, kernel=Gaussian(2.0), max_features=None).fit(X, y)
    assert intervals(fitted, X, y).doubts == ()


def test_certify_proves_a_maximum_of_the_prediction(fitted, a_start, monkeypatch):
    proved = fitted.certify(X, Y)
    assert proved.is_certified, proved.reason
    assert proved.largest_eigenvalue < 0 < proved.distance < 1e-2
    assert not a_start.certify(WINE, CULTIVAR).is_certified
    monkeypatch.setitem(vars(RULES), "most_weights", 5)
    with pytest.raises(ValueError, match=r"W has 6 free weights.*for up to 5\."):
        fitted.certify(X, Y)


@pytest.mark.parametrize("make", [PredictiveIKDR, hsic_model])
def test_what_follows_a_fit_has_its_parameters_whatever_was_set_since(make):
    y = np.digitize(Y, [-1, 1])
    plain = quick(make, 2, kernel=Gaussian(1.5), class_weight="balanced").fit(FRAME, y)
    changed = clone(plain).fit(FRAME, y)
    changed.set_params(standardize=False, target="linear", class_weight=None)
    assert changed.certify(FRAME, y) == plain.certify(FRAME, y)
    assert changed.score(FRAME, y) == plain.score(FRAME, y)
    changed.set_params(kernel="linear")
    assert changed.certify(FRAME, y).largest_eigenvalue == plain.certificate_.largest_eigenvalue
    if make is PredictiveIKDR:
        both = intervals(changed, FRAME, y), intervals(plain, FRAME, y)
        assert_array_equal(*(each.standard_errors for each in both))


def test_features_outside_of_the_support_have_no_uncertainty_and_blocks_count_by_their_size():
    few = PredictiveIKDR(2, max_features=3).fit(X, Y)
    sure, outside = intervals(few, X, Y), ~few.get_support()
    assert (sure.standard_errors[:, outside] == 0).all()
    assert (sure.standard_errors[:, ~outside] > 0).all()
    regression, tangents = RidgeRegression(Gaussian(1.5), 0.01), Tangents.at_weights(np.eye(5, 2))
    blocks = [RowsInMemory(X[rows], Y[rows, None]) for rows in (slice(50), slice(50, None))]
    one, two, both = (curvature(regression, tangents, b) for b in (blocks[:1], blocks[1:], blocks))
    assert_allclose(both[0], (one[0] + 2 * two[0]) / 3, rtol=1e-12)
    assert_allclose(both[1], np.vstack([one[1], 2 * two[1]]) / 3, rtol=1e-12)


@pytest.mark.parametrize("make", [PredictiveIKDR, hsic_model])
def test_rows_that_are_not_those_of_the_fit_are_refused(make):
    weights, s = 1.0 + np.arange(150) % 2, np.arange(150.0) % 7
    model = make(2, kernel=Gaussian(1.5)).fit(X, Y, weights, avoid=s)
    judges = [model.certify]
    if make is PredictiveIKDR:
        judges.append(lambda X, y, w, avoid: intervals(model, X, y, sample_weight=w, avoid=avoid))
    others = (
        (X[::-1], Y[::-1], weights[::-1], s[::-1]),
        (X + 1e-9, Y, weights, s),
        (X, -Y, weights, s),
        (X, Y, None, s),
        (X, Y, weights, s[::-1]),
    )
    for judge in judges:
        for rows, y, w, avoid in others:
            with pytest.raises(ValueError, match="these rows are not those of the fit, and `"):
                judge(rows, y, w, avoid=avoid)
        judge(da.from_array(X, chunks=(40, 5)), Y.tolist(), weights, avoid=s)


def test_some_rows_give_the_intervals_of_all(monkeypatch):
    """With the seed that a generator drew: another one deals other blocks, of another J."""
    monkeypatch.setitem(vars(RULES), "exact_rows", 100)
    monkeypatch.setitem(vars(RULES), "curvature_block", 100)
    X, y = _line(400)
    model = PredictiveIKDR(1, **EVERY, random_state=np.random.RandomState(0)).fit(X, y)
    assert model.certify(X, y).residual == pytest.approx(model.residual_, rel=1e-3)
    sure, again = (intervals(model, X, y) for _ in range(2))
    assert_array_equal(sure.standard_errors, again.standard_errors)
    monkeypatch.setitem(vars(RULES), "curvature_rows", 200)
    some = intervals(model, X, y)
    assert_allclose(some.standard_errors, sure.standard_errors, rtol=0.5)
    ratio = np.divide(some.standardized_interval, sure.standardized_interval)
    assert ((ratio > 0.75) & (ratio < 1.33)).all()
    assert not np.array_equal(some.shares_low, sure.shares_low)


def test_fewer_than_two_thousand_rows_are_one_block(monkeypatch):
    """A regression of a block explains less than that of all rows: its error would be too large."""
    X, y = _line(1100)
    model = PredictiveIKDR(1, kernel=Gaussian(0.5), target="linear", max_features=None).fit(X, y)
    whole = intervals(model, X, y).standardized_distances
    monkeypatch.setitem(vars(RULES), "curvature_block", 1100)
    assert_array_equal(whole, intervals(model, X, y).standardized_distances)
    monkeypatch.setitem(vars(RULES), "curvature_block", 100)
    assert np.median(intervals(model, X, y).standardized_distances) > 1.1 * np.median(whole)
