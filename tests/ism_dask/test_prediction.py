"""The prediction criterion and fits by it; the judge is the definition, by dense matrices."""

from copy import copy
from dataclasses import replace
from functools import partial

import dask.array as da
import numpy as np
import pytest
from definition import kernel_matrix
from hypothesis import example, given, settings
from hypothesis import strategies as st
from models import CULTIVAR, DEFINITE, WINE, apart, curved
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.preprocessing import scale

from benchmarks.studies.designs import DESIGNS, distance, seeded
from ism_dask import ComponentsWarning, PredictiveIKDR, dependence_test
from ism_dask.criteria.prediction import RidgeRegression, RowsInMemory
from ism_dask.kernels import Gaussian
from ism_dask.linalg import cholesky
from ism_dask.linalg.eigen import inverse_covariance
from ism_dask.linalg.subspaces import relative_residual
from ism_dask.rows.raw import deal
from ism_dask.rows.shards import Shards
from ism_dask.selection.choices import Choice, other_maximum
from ism_dask.selection.rules import RULES
from ism_dask.selection.sample import Sample
from ism_dask.selection.starts import starts_by_name
from ism_dask.solvers.ascent import ascend
from ism_dask.solvers.base import TimeLimit
from ism_dask.status import Status

few = settings(max_examples=25, deadline=None)
SEEDS = st.integers(0, 2**32 - 1)


def _problem(seed):
    """Return a regression, a block of rows with or without weights, and any W (d, q)."""
    rng = np.random.default_rng(seed)
    n, d, r = rng.integers(3, 21), rng.integers(2, 6), rng.integers(1, 4)
    q = rng.integers(1, d + 1)
    weights = rng.integers(1, 4, size=n).astype(float) if rng.random() < 0.5 else None
    signs = rng.choice([1.0, -0.5], size=r) if rng.random() < 0.5 else None
    kernel = DEFINITE[rng.integers(len(DEFINITE))]
    scales = rng.normal(size=(q, q)) if rng.random() < 0.5 else None
    regression = RidgeRegression(kernel, 10.0 ** int(rng.integers(-3, 1)), signs, scales)
    block = RowsInMemory(rng.normal(size=(n, d)), rng.normal(size=(n, r)), weights)
    return regression, block, rng.normal(size=(d, q))


def _system(regression, block, W):
    """Return `K + n lambda / w`, where n is the sum of the weights."""
    weights, _ = _weights_and_signs(regression, block)
    noise = weights.sum() * regression.ridge / weights
    return kernel_matrix(regression.kernel, block.X @ _scaled(regression, W)) + np.diag(noise)


def _scaled(regression, W):
    return W if regression.scales is None else W @ regression.scales


def _objective(regression, block, W):
    weights, signs = _weights_and_signs(regression, block)
    squares = weights @ block.Y**2 / weights.sum()
    alpha = np.linalg.solve(_system(regression, block, W), block.Y)
    return float(signs @ (squares - regression.ridge * np.diag(block.Y.T @ alpha)))


def _assert_slope(product, J, W, steps, rounding):
    """Assert that a product (d, q) is half the slope of J, by differences over one of the steps.

    The difference of two J, of which rounding changes each by so much, resolves no smaller slopes.
    Rounding hides some from a short step, and curvature some from a long one.
    """
    along = np.random.default_rng(0).normal(size=W.shape)
    size = np.linalg.norm(product) * np.linalg.norm(along)
    slopes = [((J(W + h * along) - J(W - h * along)) / (2 * h), h) for h in steps]
    close = [pytest.approx(s, rel=1e-4, abs=1e-6 * size + rounding / h) for s, h in slopes]
    assert 2 * np.sum(product * along) in close


# The criterion.


@few
@given(SEEDS)
@example(2_388_408_767)
@example(706_086)
def test_j_and_its_gradient_are_those_of_the_definition(seed):
    regression, block, W = _problem(seed)
    value = regression.explained(block, W)
    J = partial(_objective, regression, block)
    assert value.objective == pytest.approx(J(W), rel=1e-8, abs=1e-10)
    turned = regression.phi(block, W) @ _scaled(regression, W)
    product = turned if regression.scales is None else turned @ regression.scales.T
    assert_allclose(product, value.product, rtol=1e-7, atol=1e-8)
    _assert_slope(value.product, J, W, (1e-5, 1e-3), rounding=1e-14)


@few
@given(SEEDS)
def test_errors_are_those_of_explicit_regressions_on_other_rows_or_groups(seed):
    regression, block, W = _problem(seed)
    if seed % 2:
        block = replace(block, groups=np.arange(block.n_rows) % 3)
    weights, signs = _weights_and_signs(regression, block)
    system = _system(regression, block, W)
    errors = regression.leave_one_out(block, W)
    groups = np.arange(block.n_rows) if block.groups is None else block.groups
    for group in np.unique(groups):
        # The others keep their noise.
        left, rest = np.flatnonzero(groups == group), np.flatnonzero(groups != group)
        alpha = np.linalg.solve(system[np.ix_(rest, rest)], block.Y[rest])
        missed = block.Y[left] - system[np.ix_(left, rest)] @ alpha
        explained = weights[left] * (missed**2 @ np.maximum(signs, 0.0))
        assert_allclose(errors[left], explained, rtol=1e-5, atol=1e-8)
    others = block.part(np.arange(2))
    V = _scaled(regression, W)
    across = kernel_matrix(regression.kernel, others.X @ V, block.X @ V)
    missed = others.Y - across @ np.linalg.solve(system, block.Y)
    predicted = regression.predicted(block, W, others.X)
    losses = np.subtract(*regression.sums((others.Y - predicted) ** 2))
    assert_allclose(losses, missed**2 @ signs, rtol=1e-6, atol=1e-8)


def test_the_longer_axis_of_a_map_counts_no_more_than_the_other():
    rows = WINE[::2]
    places = np.sin(scale(rows)[:, :2]) + 0.1 * scale(rows)[:, 2:4]
    plain, stretched = (PredictiveIKDR(2).fit(rows, places * [1.0, size]) for size in (1.0, 1024.0))
    assert_array_equal(stretched.components_, plain.components_)


@few
@given(SEEDS)
def test_evidence_is_the_likelihood_with_the_most_likely_noise(seed):
    regression, block, W = _problem(seed)
    regression, block = replace(regression, signs=None), replace(block, weights=None)
    system, n = _system(regression, block, W), block.n_rows
    fits = np.diag(block.Y.T @ np.linalg.solve(system, block.Y))

    def likelihood(variance):
        law = multivariate_normal(np.zeros(n), variance * system, allow_singular=True)
        return float(np.mean([law.logpdf(column) for column in block.Y.T]))

    best = fits.mean() / n
    offset = 0.5 * n * (np.log(2 * np.pi) + 1)
    evidence = regression.evidence(block, W)
    assert evidence == pytest.approx(likelihood(best) + offset, rel=1e-6, abs=1e-6)
    assert likelihood(best) >= max(likelihood(1.1 * best), likelihood(0.9 * best))


@few
@given(SEEDS)
def test_the_slope_of_the_evidence_is_that_of_its_differences(seed):
    regression, block, W = _problem(seed)
    regression = replace(regression, scales=None, signs=None)
    value, evidence = regression.evident(block, W), partial(regression.evidence, block)
    assert value.objective == pytest.approx(evidence(W), rel=1e-12)
    rounding = 1e-9 * abs(value.objective)
    _assert_slope(value.product, evidence, W, (1e-5, 1e-4), rounding)


# Blocks.


@few
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=60),
    st.integers(1, 8),
    st.integers(0, 9),
    st.booleans(),
)
def test_blocks_share_the_rows_of_all_keys_or_have_whole_groups(keys, n_blocks, seed, grouped):
    keys = np.array(keys)
    groups = keys if grouped else None
    blocks = deal(np.arange(len(keys)) % 3 if grouped else keys, n_blocks, seed, groups)
    assert len(blocks) == n_blocks
    assert_array_equal(np.sort(np.concatenate(blocks)), np.arange(len(keys)))
    if grouped:
        assert sum(len(np.unique(keys[rows])) for rows in blocks) == len(np.unique(keys))
        return
    assert all((np.diff(rows) > 0).all() for rows in blocks)
    for key in keys:
        below = [int((keys[rows] <= key).sum()) for rows in blocks]
        assert max(below) - min(below) <= 2
    assert all(map(np.array_equal, blocks, deal(10.0 * keys - 3, n_blocks, seed)))


def _weights_and_signs(regression, block):
    weights = np.ones(len(block.Y)) if block.weights is None else block.weights
    signs = np.ones(block.Y.shape[1]) if regression.signs is None else regression.signs
    return weights, signs


# The ascent, the starts and the choices.


def _sample(kind, seed=0, n=200):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    x, other, *_ = X.T
    means = {"line": x, "cosine": np.cos(2 * x), "square": x**2, "nothing": 0 * x}
    means["two lines"] = x + other
    y = means[kind] + 0.3 * rng.normal(size=n)
    y = (y - y.mean()) / y.std()
    regression = RidgeRegression(Gaussian(1.5), 1.0)
    return Sample(RowsInMemory(X, y[:, None]), y, regression, True, 1, seed), np.eye(5)[:, :1]


@pytest.mark.parametrize(("kind", "is_as_good"), [("two lines", True), ("line", False)])
def test_other_features_are_named_if_rows_cannot_decide_between_them(kind, is_as_good):
    sample, W = _sample(kind)
    ends = (W, np.eye(5)[:, [1]])
    best, other = (Choice(sample, each, *sample.best_setting(each), "") for each in ends)
    assert (other_maximum(best, other) == 1.0) == is_as_good
    assert other_maximum(best, best) == 0.0


@pytest.mark.parametrize("q", [1, 2])
def test_the_ascent_ends_where_j_is_stationary(q):
    sample, _ = _sample("cosine", n=100)
    regression, rows = RidgeRegression(Gaussian(1.0), 0.01), sample.rows
    W = np.linalg.qr(np.random.default_rng(1).normal(size=(5, q)))[0]
    precondition = inverse_covariance(rows.X)
    J, seen = partial(regression.explained, rows), []
    result = ascend(J, W, precondition, max_iter=200, on_iteration=seen.append)
    assert result.status is Status.CONVERGED
    assert_allclose(result.W.T @ result.W, np.eye(q), atol=1e-12)
    heights = [_objective(regression, rows, W), *(each.objective for each in result.history)]
    assert (np.diff(heights) > 0).all()
    assert len(seen) == len(result.history)
    assert heights[-1] == pytest.approx(_objective(regression, rows, result.W), rel=1e-9)
    assert relative_residual(result.W, J(result.W).product) <= 1.1 * result.report.tolerance
    short = ascend(J, W, precondition, max_iter=2)
    assert (short.status, len(short.history)) == (Status.MAX_ITER, 2)
    over = TimeLimit(1e-9)
    late = ascend(J, short.W, precondition, max_iter=9, time_limit=over, state=short.state)
    assert (late.status, len(late.history)) == (Status.OVER_CAP, 2)


KINDS = {"linear": "line", "partial least squares": "line", "gradient": "cosine"}
KINDS |= {"gradients": "cosine", "directional regression": "square", "waves": "cosine"}


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_each_start_detects_its_kind_of_dependence(kind, name):
    sample, truth = _sample(kind)
    assert distance(truth, sample.starts[name]) < 0.25
    Y = np.eye(3)[CULTIVAR]
    for q in (1, 2, 5):
        W = starts_by_name(scale(WINE), Y - Y.mean(axis=0), 1.0 * CULTIVAR, q, [name])[name]
        assert_allclose(W.T @ W, np.eye(q), atol=1e-10)


# Fits.

X, NUMBERS = curved()


@pytest.mark.parametrize(("kind", "weighted"), [("numbers", True), ("classes", False)])
def test_a_fit_is_stationary_by_the_definition(kind, weighted):
    weights = np.random.default_rng(2).integers(1, 4, size=120) if weighted else np.ones(120)
    labels = (NUMBERS > 0.5).astype(int)
    model = PredictiveIKDR(2, max_features=None)
    model.fit(X, labels if kind == "classes" else NUMBERS, weights)
    Y = np.eye(2)[labels] if kind == "classes" else NUMBERS[:, None]
    Y = Y - weights @ Y / weights.sum()
    Y /= np.sqrt(weights @ (Y**2).sum(axis=1) / weights.sum())
    rows = RowsInMemory((X - model.mean_) / model.scale_, Y, weights.astype(float))
    ridge, scales = model.setting_.ridge, model.scales_
    regression = RidgeRegression(model.kernel_, ridge, scales=scales)
    W = model.components_.T
    assert model.report_.target == "mean"
    J = partial(_objective, regression, rows)
    assert model.objective_ == pytest.approx(J(W), rel=1e-8)
    assert 0 < model.objective_ < 1
    assert_allclose(model.contributions_.alone, [J(W * column) for column in np.eye(2)], rtol=1e-6)
    lost = [J(W) - J(W * (1 - column)) for column in np.eye(2)]
    assert_allclose(model.contributions_.lost, lost, rtol=1e-5)
    residual = relative_residual(W, regression.explained(rows, W).product)
    assert model.residual_ == pytest.approx(residual, abs=1e-5)
    assert model.converged_ == (residual <= 1.01 * model.report_.tolerance)


def test_own_scales_follow_a_basis_and_a_next_fit():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(150, 4))
    y = rows[:, 0] + np.sin(4 * rows[:, 1]) + 0.2 * rng.normal(size=150)
    plain, turned = (
        PredictiveIKDR(2, target="linear", max_features=None, rotation=each).fit(rows, y)
        for each in (None, "varimax")
    )
    assert plain.scales_ is not None
    slow, fast = np.linalg.eigvalsh(plain.scales_)
    assert fast > 1.5 * slow
    features = [each.transform(rows) @ each.scales_ for each in (plain, turned)]
    assert_allclose(*(cdist(each, each) for each in features), atol=1e-6)
    assert turned.objective_ == pytest.approx(plain.objective_, rel=1e-9)
    assert plain.certify(rows, y).is_certified
    again = copy(plain).set_params(warm_start=True).fit(rows, y)
    assert_allclose(again.scales_, plain.scales_, atol=1e-3)
    assert apart(again, plain) < 1e-3


@pytest.mark.parametrize("seed", [1, 8])
def test_own_scales_have_the_signs_of_the_components_where_columns_depend_on_others(seed):
    """All indicators of a category add up to one: W is fitted to coordinates in their space."""
    rng = np.random.default_rng(seed)
    levels, numbers = rng.integers(0, 5, size=200), rng.normal(size=(200, 2))
    rows = np.column_stack([np.eye(5)[levels], numbers])
    slow = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])[levels] + 0.5 * numbers[:, 0]
    fast = np.array([1.0, -1.5, 0.3, -0.5, 1.0])[levels] + 0.5 * numbers[:, 1]
    y = slow + np.sin(4 * fast) + 0.2 * rng.normal(size=200)
    model = PredictiveIKDR(2, target="linear", max_features=None).fit(rows, y)
    assert model.scales_ is not None
    assert model.converged_
    assert model.certify(rows, y).residual == pytest.approx(model.residual_, abs=1e-6)


@pytest.mark.parametrize(("name", "draw", "most"), [("xor", 0, 0.15), ("checkerboard", 20, 0.1)])
def test_known_subspaces_are_found(name, draw, most):
    """Steps from any start end with one side of the squares of a chessboard."""
    drawn = seeded([each.name for each in DESIGNS].index(name), draw, 300)
    model = PredictiveIKDR(drawn.B.shape[1]).fit(drawn.X, drawn.y)
    assert distance(drawn.B, model.components_.T) < most
    assert model.report_.target == "mean"


def test_the_number_of_new_features_is_the_true_one():
    model = PredictiveIKDR().fit(*curved(200))
    assert len(model.components_) == 2
    taken = [(trial.q, trial.is_worthwhile) for trial in model.report_.dimensions]
    assert taken == [(1, True), (2, True), (3, False)]
    assert not cholesky._UNUSED  # no matrix outlives the fit
    assert len(PredictiveIKDR(max_features=1).fit(*curved(200)).components_) == 1


def test_a_column_far_from_the_origin_is_no_error():
    far = X + np.array([0.0, 0.0, 0.0, 0.0, 1e8])
    with pytest.warns(UserWarning, match="hardly predicted"):
        model = PredictiveIKDR(1, kernel="linear", standardize=False).fit(far, NUMBERS > 0)
    assert model.status_ is Status.START


def test_a_start_that_no_step_has_changed_has_the_numbers_that_were_tried():
    rng = np.random.default_rng(1)
    X, coins = rng.normal(size=(60, 15)), rng.integers(0, 2, size=60)
    with pytest.warns(UserWarning, match="y may not depend on X"):
        model = PredictiveIKDR().fit(X, coins)
    assert model.status_ is Status.START
    worthwhile = [trial.is_worthwhile for trial in model.report_.dimensions]
    assert worthwhile == [True] * len(model.components_) + [False]


def test_rows_of_weight_zero_in_shards_are_none(monkeypatch):
    monkeypatch.setattr("ism_dask.rows.raw.MEMORY_NUMBERS", 0)
    X, y = curved(200)
    lazy = da.from_array(X, chunks=(100, 5))
    half = PredictiveIKDR(2).fit(lazy, y, np.tile([0.0, 1.0], 100))
    assert apart(half, PredictiveIKDR(2).fit(lazy[1::2], y[1::2])) < 1e-6


def test_rows_out_of_memory_have_the_same_answer(monkeypatch):
    """In stages of 250 and 1,000 rows, and then of all."""
    monkeypatch.setitem(vars(RULES), "stages", (250, 1000))
    X, y = curved(1500, seed=8, noise=0.5)
    here = PredictiveIKDR(2, target="linear").fit(X, y)
    monkeypatch.setattr("ism_dask.rows.raw.MEMORY_NUMBERS", 0)
    there = PredictiveIKDR(2, target="linear").fit(da.from_array(X, chunks=(250, 5)), y)
    assert there.converged_
    assert apart(here, there) < 0.01
    # The order of the rows is another one, and so may be the ridge.
    assert there.objective_ == pytest.approx(here.objective_, rel=0.03)


def test_many_rows_climb_by_some_of_their_shards_first(monkeypatch):
    """Also where the shards are in the order of y."""
    monkeypatch.setattr("ism_dask.estimators.growth.MANY_ROWS", 1000)
    monkeypatch.setattr("ism_dask.rows.shards.ROWS_PER_SHARD", 50)
    monkeypatch.setitem(vars(RULES), "stages", (250,))
    X, y = curved(3000, seed=8, noise=0.5)
    X, y = X[np.argsort(y)], np.sort(y)
    model = PredictiveIKDR(2, kernel=Gaussian(2.0), target="linear", max_features=None)
    whole = clone(model).fit(X, y)
    seen, every = [], Shards.every
    monkeypatch.setitem(vars(RULES), "rows_in_parts", 1000)
    monkeypatch.setattr(Shards, "every", lambda *each: seen.append(every(*each)) or seen[-1])
    parts = model.fit(X, y)
    assert [each.n_rows for each in seen] == [200, 750]  # of 3,000
    assert apart(whole, parts) < 0.02


@pytest.mark.parametrize("kind", ["outlying y", "skewed times", "spread"])
def test_the_law_of_ranks_is_taken_where_the_mean_misleads(kind):
    rng = np.random.default_rng(6)
    X, e = rng.normal(size=(300, 5)), rng.normal(size=300)
    y = {
        "outlying y": np.sin(X[:, 0]) + 0.3 * e + 12.0 * (rng.random(300) < 0.04),
        "skewed times": np.exp(2 * X[:, 0]) * rng.exponential(size=300),
        "spread": np.exp(X[:, 0]) * e,
    }[kind]
    fitted = PredictiveIKDR(1, max_features=None).fit(X, y)
    assert fitted.report_.target == "law"
    assert distance(np.eye(5)[:, [0]], fitted.components_.T) < 0.25


def test_a_y_that_no_x_explains_is_said_with_a_p_value():
    X = np.random.default_rng(1).normal(size=(100, 8))
    y = np.random.default_rng(2).normal(size=100)
    with pytest.warns(ComponentsWarning, match="may not depend on X at all") as warned:
        fitted = PredictiveIKDR(2, target="linear").fit(X, y)
    pvalue = dependence_test(X, y, target="linear", n_permutations=0).pvalue
    assert f"on 100 rows has the p-value {pvalue:.2g}" in str(warned[0].message)
    assert str(warned[0].message).endswith(fitted.report_.components_advice)
    with pytest.warns(ComponentsWarning, match="may not depend on X at all$"):
        PredictiveIKDR(2, max_features=None).fit(X, y, np.where(X[:, 0] > 0, 1.0, 0.5))


def test_a_kernel_matrix_that_is_not_positive_definite_is_an_error():
    block = RowsInMemory(np.zeros((5, 2)), np.ones((5, 1)))
    with pytest.raises(ValueError, match="is not positive definite"):
        RidgeRegression(Gaussian(1.0), -1.0).explained(block, np.eye(2))


@pytest.mark.parametrize(("n", "d", "kernel"), [(178, 2, "gaussian"), (400, 1, Gaussian(2.0))])
def test_the_sign_of_y_does_not_decide_the_answer(n, d, kernel, monkeypatch):
    monkeypatch.setitem(vars(RULES), "exact_rows", 200)
    monkeypatch.setitem(vars(RULES), "stages", (200,))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    y = np.column_stack([X[:, 0] * X[:, 1] + rng.normal(size=n), rng.normal(size=n)])[:, :d]
    model = PredictiveIKDR(1, kernel=kernel, target="linear", max_features=None)
    one, other = (clone(model).fit(X, each.squeeze()) for each in (y, -y))
    assert one.objective_ == other.objective_
    assert_array_equal(one.components_, other.components_)


def test_a_rare_class_may_be_missing_from_the_rows_of_the_test():
    """The test of independence has 600 of these rows."""
    rows, rare = np.random.default_rng(0).normal(size=(1500, 4)), np.zeros(1500, dtype=int)
    rare[700] = 1
    with pytest.warns(ComponentsWarning, match="y may not depend on X at all"):
        PredictiveIKDR(1, kernel="linear", max_features=None).fit(rows, rare)
