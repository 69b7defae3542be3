"""HSIC, and tests of independence."""

from copy import deepcopy
from itertools import permutations, product

import numpy as np
import pandas as pd
import pytest
from definition import MULTISCALE, centred, equal_classes, gaussian_kernel, relative_distances
from models import CULTIVAR, WINE, hsic_model, quiet
from numpy.testing import assert_allclose
from scipy.spatial.distance import pdist, squareform
from scipy.stats import binomtest, skew
from sklearn.preprocessing import scale

from ism_dask import dependence_test, hsic
from ism_dask.gamma import thin_factors
from ism_dask.gamma.null_distributions import permutation_moments, permutation_pvalue, sign_moments
from ism_dask.gamma.thin_factors import cross_products, row_products, squared_sum
from ism_dask.kernels import DistanceKernel, Gaussian

Z = scale(WINE)


# HSIC.


def test_it_is_the_trace():
    K, L = gaussian_kernel(WINE), centred(equal_classes(CULTIVAR))
    expected = np.trace(K @ L) / (len(WINE) - 1) ** 2
    assert hsic(WINE, CULTIVAR, standardize=True) == pytest.approx(expected, rel=1e-10)
    sigma = np.median(pdist(Z))
    assert hsic(Z, CULTIVAR, kernel=Gaussian(sigma)) == pytest.approx(expected, rel=1e-10)


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


@pytest.mark.parametrize("kernel", ["gaussian", "relative_gaussian", "multiquadric", "squared"])
@pytest.mark.parametrize(("dtype", "offset", "near"), [("f8", 1e6, 1e-7), ("f4", 1e3, 2e-3)])
def test_far_from_the_origin_nothing_is_lost(kernel, dtype, offset, near):
    here, there = (hsic(each, CULTIVAR, kernel=kernel) for each in (Z, (Z + offset).astype(dtype)))
    assert there == pytest.approx(here, rel=near)


STATISTICS = ["gaussian", "distance"]
BY_DEFINITION = {
    "gaussian": lambda points: gaussian_kernel(points, *MULTISCALE),
    "distance": lambda points: -relative_distances(points),
}


@pytest.mark.parametrize("kernel", STATISTICS)
def test_the_statistic_is_that_of_the_definition(kernel):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3)) * [1, 10, 0.1] + 7
    y = X[:, 0] ** 2 + rng.normal(size=80)
    K, L = (centred(BY_DEFINITION[kernel](points)) for points in (X, y))
    found = dependence_test(X, y, kernel=kernel, n_permutations=0)
    assert found.statistic == pytest.approx((K * L).sum() / 79**2, rel=1e-5)
    # With distances this is distance correlation.
    expected = np.sqrt((K * L).sum() / np.sqrt((K**2).sum() * (L**2).sum()))
    assert found.correlation == pytest.approx(expected, rel=1e-5)
    classes = np.digitize(y, np.quantile(y, [0.3, 0.6]))
    same = centred(equal_classes(classes))
    found = dependence_test(X, classes, kernel=kernel, n_permutations=0)
    assert found.statistic == pytest.approx((K * same).sum() / 79**2, rel=1e-5)


@pytest.mark.parametrize("seed", [None, 3, np.random.RandomState(3)])
def test_a_test_with_the_same_seed_has_the_same_pvalue(seed):
    X, y = np.random.default_rng(0).normal(size=(60, 3)), np.random.default_rng(1).normal(size=60)
    options = {"n_permutations": 99, "random_state": seed}
    found, again = (dependence_test(X, y, **deepcopy(options)) for _ in range(2))
    assert found == again


@pytest.mark.parametrize("seed", range(2))
def test_mean_and_deviation_are_those_of_all_permutations(seed):
    rng = np.random.default_rng(seed)
    F, U = rng.standard_t(2, size=(7, 3)), rng.normal(size=(7, 2)) ** 3
    F, U = F - F.mean(axis=0), U - U.mean(axis=0)
    every = np.array([squared_sum(F, U[list(order)]) for order in permutations(range(7))])
    null = permutation_moments(F, U)
    assert null.mean == pytest.approx(every.mean())
    assert null.deviation == pytest.approx(every.std())
    assert every.max() <= np.sqrt(squared_sum(F, F) * squared_sum(U, U))
    # A random permutation is one of these.
    statistic = float(np.quantile(every, 0.9))
    exact = np.mean(every >= statistic)
    found = permutation_pvalue(F, U, statistic, 4000, rng)
    assert binomtest(round(found * 4001) - 1, 4000, exact).pvalue > 1e-4


def _clustered(rng, n):
    centres = 5 * rng.normal(size=(5, 3))
    return centres[rng.integers(0, 5, n)] + rng.normal(size=(n, 3)), rng.integers(0, 3, n)


def _heavy(rng, n):
    return rng.standard_t(1.5, size=(n, 3)), rng.standard_t(2, size=n)


@pytest.mark.parametrize(
    ("design", "n_permutations", "kernel"),
    [
        (_clustered, 0, "gaussian"),
        (_clustered, 99, "distance"),
        (_heavy, 0, "distance"),
        (_heavy, 99, "gaussian"),
    ],
)
def test_independent_rows_are_rejected_as_often_as_the_level_says(design, n_permutations, kernel):
    rng, options = np.random.default_rng(3), {"kernel": kernel, "n_permutations": n_permutations}
    _check_level(dependence_test(*design(rng, 40), random_state=k, **options) for k in range(100))


def _check_level(results):
    """Check that each level rejects as many as it says."""
    pvalues = np.array([each.pvalue for each in results])
    for level in (0.05, 0.5):
        rejected = int(np.sum(pvalues <= level))
        assert binomtest(rejected, len(pvalues), level).pvalue > 1e-3


@pytest.mark.parametrize("kernel", STATISTICS)
def test_dependence_of_any_form_is_found(kernel):
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 400)
    circle = np.column_stack([np.cos(angle), rng.normal(size=400)])
    y = np.sin(angle) + 0.05 * rng.normal(size=400)
    for count in (0, 199):
        found = dependence_test(circle, y, kernel=kernel, n_permutations=count, random_state=1)
        assert found.pvalue < 0.01
        assert found.method == ("permutations" if count else "moments")
    # Neither units nor the order of rows matter.
    order = rng.permutation(400)
    moved = dependence_test(1e3 * circle[order] - 5, y[order] / 7, kernel=kernel, n_permutations=0)
    still = dependence_test(circle, y, kernel=kernel, n_permutations=0)
    assert moved.pvalue == pytest.approx(still.pvalue, rel=1e-4)
    several = np.column_stack([y, np.abs(y)])
    assert dependence_test(circle, several, kernel=kernel, n_permutations=0).pvalue < 0.1


@pytest.mark.parametrize("kernel", STATISTICS)
def test_landmarks_give_nearly_the_statistic_of_all_rows(kernel, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    y = np.sin(2 * X[:, 0]) + 0.5 * rng.normal(size=500)
    monkeypatch.setattr(thin_factors, "WHOLE", 400)
    some = dependence_test(X, y, kernel=kernel, n_permutations=0, random_state=0)
    monkeypatch.setattr(thin_factors, "WHOLE", 500)
    whole = dependence_test(X, y, kernel=kernel, n_permutations=0)
    assert some.statistic == pytest.approx(whole.statistic, rel=0.05)
    assert max(some.pvalue, whole.pvalue) == 1e-5


@pytest.mark.parametrize("rare", [[1], [0, 1]])
def test_sampled_rows_that_are_all_equal_are_named_with_advice(rare):
    """Neither the rows for the median nor the landmarks need to have a rare event."""
    x, noise = np.zeros(2500), np.random.default_rng(0).normal(size=2500)
    x[rare] = 1.0
    message = r"{} is the same in all \d+ rows of a sample, .* of the 2500 .*at most 1000 rows"
    with pytest.raises(ValueError, match=message.format("X")):
        dependence_test(x[:, None], noise, random_state=0)
    with pytest.raises(ValueError, match=message.format("`y`")):
        dependence_test(noise[:, None], x, kernel="distance", target="linear", random_state=0)
    with pytest.raises(ValueError, match=message.format("`given`")):
        dependence_test(noise[:, None], noise**2, given=0.5 * x + 0 * noise, random_state=0)
    assert 0 < dependence_test(x[:1000, None], noise[:1000], random_state=0).pvalue <= 1


def test_moments_are_those_of_all_signs():
    G = np.random.default_rng(0).standard_t(3, size=(9, 4))
    signs = np.array([*product([-1.0, 1.0], repeat=9)])
    every = ((signs @ (G - G.mean(axis=0))) ** 2).sum(axis=1)
    null = sign_moments(G)
    assert null.mean == pytest.approx(every.mean())
    assert null.deviation == pytest.approx(every.std())
    assert null.skewness == pytest.approx(skew(every))


def test_products_of_many_rows_are_those_of_all_at_once():
    rng = np.random.default_rng(0)
    F, U = rng.normal(size=(20_000, 3)), rng.normal(size=(20_000, 2))
    assert_allclose(cross_products(F, U), F.T @ U, rtol=1e-10)
    assert_allclose(row_products(F, U[:3]), F @ U[:3], rtol=1e-10)


def _driven_by(s, rng):
    """Return X and y that a number s drives, both with noise whose variance depends on s."""
    X = np.sin(2 * s)[:, None] + rng.normal(size=(len(s), 2)) * (0.3 + 0.2 * np.abs(s[:, None]))
    return X, np.sin(2 * s) + (0.3 + 0.2 * np.abs(s)) * rng.normal(size=len(s))


def _jumping_with(s, rng):
    """Return X and y that are higher by 4 where a number s is between two values."""
    step = 4.0 * (np.abs(s) < 0.3)
    return step[:, None] + rng.normal(size=(len(s), 2)), step + rng.normal(size=len(s))


@pytest.mark.parametrize(("drive", "n"), [(_driven_by, 80), (_jumping_with, 200)])
def test_level_given_what_drives_x_and_y(drive, n):
    rng = np.random.default_rng(1)
    drawn = [(*drive(s, rng), s) for s in (rng.normal(size=n) for _ in range(3200 // n))]
    _check_level(dependence_test(X, y, given=s) for X, y, s in drawn)
    assert dependence_test(*drawn[-1][:2], random_state=0).pvalue == 0.001


@pytest.mark.parametrize("whole", [1000, 400])
def test_a_dependence_given_numbers_and_classes_is_found(whole, monkeypatch):
    for module in ("thin_factors", "independence"):
        monkeypatch.setattr(f"ism_dask.gamma.{module}.WHOLE", whole)
    rng, n = np.random.default_rng(0), 500
    age, sex = rng.normal(size=n), rng.choice(["f", "m"], n)
    X, y = _driven_by(np.where(sex == "f", age, -age), rng)
    s = pd.DataFrame({"age": age, "sex": sex})
    none = dependence_test(X, y, given=s, random_state=0)
    assert none.pvalue > 0.05
    assert (none.method, none.n_permutations) == ("signs", 0)
    # The effect changes its sign with s: at no value of s alone is it seen in the mean.
    other = X[:, 1] - np.sin(2 * np.where(sex == "f", age, -age))
    y = y + 3 * age * other
    several = dependence_test(X, y, given=s, random_state=0)
    assert several.pvalue < 1e-3
    assert several.statistic > several.expected + 4 * several.deviation
    assert dependence_test(X, (y > 0).astype(int), given=s, random_state=0).pvalue < 0.01
    # Units, the order of the columns of s and the names of its classes do not matter.
    renamed = pd.DataFrame({"sex": np.where(sex == "f", "b", "a"), "years": 40 + 10 * age})
    same = dependence_test(X, y, given=renamed, random_state=0)
    assert same.statistic == pytest.approx(several.statistic, rel=1e-6 if whole > n else 0.2)


@pytest.mark.parametrize("kind", [bool, str])
def test_classes_may_be_given_of_more_rows_than_are_landmarks(kind, monkeypatch):
    for module in ("thin_factors", "independence"):
        monkeypatch.setattr(f"ism_dask.gamma.{module}.WHOLE", 350)
    rng = np.random.default_rng(3)
    s = rng.random(700) < 0.5
    X = rng.normal(size=(700, 2)) + s[:, None]
    noise = rng.normal(size=700)
    assert dependence_test(X, s + noise, given=s.astype(kind), random_state=0).pvalue > 0.01
    assert dependence_test(X, X[:, 0] + noise, given=s.astype(kind), random_state=0).pvalue < 0.01


@pytest.mark.parametrize(("noise", "sizes"), [(0.0, [100]), (1e-6, [100, 400]), (0.03, [100])])
def test_nothing_is_tested_where_what_is_given_explains_nearly_all(noise, sizes, monkeypatch):
    for module in ("thin_factors", "independence"):
        monkeypatch.setattr(f"ism_dask.gamma.{module}.WHOLE", 350)
    rng = np.random.default_rng(0)
    for n in sizes:
        s, other = rng.normal(size=(2, n))
        near = s + noise * rng.normal(size=n)
        # s itself, and a function of it.
        for x in (near, np.sin(2 * s) + noise * rng.normal(size=n)):
            with pytest.raises(ValueError, match="`given` explains X completely, but for"):
                dependence_test(x[:, None], x, given=s)
            with pytest.raises(ValueError, match="`given` explains y completely"):
                dependence_test(other[:, None], x, given=s)
        assert dependence_test(np.column_stack([other, near]), other + s, given=s).pvalue < 0.01
    # Regressions with as many parameters as rows leave nothing of noise, and do not explain it.
    X, y, s = (rng.normal(size=(20, t)) for t in (2, 1, 20))
    assert dependence_test(X, y[:, 0], given=s).pvalue > 0.01


X, Y = np.arange(40.0).reshape(20, 2) ** 2, np.arange(20) % 2
REST = X[:, :1] % 3
BOTH, DAYS = (dependence_test, hsic), pd.DataFrame(X.astype("M8[D]"))
# Labels and numbers of which some are missing.
GAPS = pd.Series(["a", "b", None, "a"] * 5, dtype="string"), np.where(Y > 0, Y, np.nan)


@pytest.mark.parametrize(
    ("call", "given", "options", "message"),
    [
        (dependence_test, (X[:5], Y[:5]), {}, "minimum of 6"),
        *((f, (X, Y), {"random_state": -1}, "`random_state` must be") for f in BOTH),
        *((f, (X.astype("M8[D]"), Y), {}, r"got dtype datetime64\[D\]. Turn") for f in BOTH),
        *((f, (DAYS, Y), {}, "no numbers: 0, 1.*turn dates") for f in BOTH),
        (dependence_test, (np.where(X > 9, np.nan, X), Y), {}, "NaN"),
        (dependence_test, (np.ones((20, 2)), Y), {}, "constant"),
        (dependence_test, (X, np.ones(20)), {"target": "linear"}, "constant"),
        *((f, (X, Y[:9]), {}, "inconsistent numbers of samples") for f in BOTH),
        *((f, (X, y), {}, "no value in .* of 20 rows.* drop these") for y in GAPS for f in BOTH),
        (dependence_test, (X, Y), {"kernel": "gausian"}, "gaussian"),
        *((dependence_test, (X, Y), {"n_permutations": n}, "whole .*from 0 up") for n in (-1, 2.5)),
        (dependence_test, (X, Y), {"given": np.arange(9)}, "`given` has 9 rows, X has 20"),
        (dependence_test, (X, Y), {"given": np.ones(20)}, "same in all rows"),
        (dependence_test, (X, Y), {"given": Y}, "`given` explains y completely"),
        (dependence_test, (REST, Y), {"given": REST}, "`given` explains X completely"),
        (dependence_test, (X, Y), {"given": Y, "kernel": "gaussian"}, "kernel='distance' is all"),
        (dependence_test, (X, Y), {"given": Y, "n_permutations": 9}, "leave `n_permutations` out"),
        (hsic, (X, np.full(20, 0.1)), {"target": "linear"}, "constant"),
    ],
)
def test_bad_input_is_refused(call, given, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(*given, **options)
