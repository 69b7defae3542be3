"""The test of whether X and y are independent, also at given values of other variables s.

At given s it takes what s leaves of features of X and of y, and the products of both, row by row.
If y does not depend on X given s, they have mean 0 at each value of s, also where the variance of X
or y depends on s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.tree import DecisionTreeRegressor

from ism_dask._types import Array
from ism_dask._validation import check_choice, check_seed, is_whole, seed_of
from ism_dask.gamma.null_distributions import (
    permutation_moments,
    permutation_pvalue,
    sign_moments,
)
from ism_dask.gamma.row_values import on_this_host
from ism_dask.gamma.side_information import (
    SideInformation,
    SideRegression,
    check_left,
    remainder,
    residuals,
)
from ism_dask.gamma.target_input import rows_and_target
from ism_dask.gamma.targets import CLASS_TARGETS, standardise_target, target_name
from ism_dask.gamma.thin_factors import (
    TEST_KERNELS,
    WHOLE,
    factor_of_target,
    median_of,
    squared_sum,
    thin_factor,
)
from ism_dask.kernels.pairing import DISTANCE, mean_of_gaussians
from ism_dask.rows.execution import reuse_pages
from ism_dask.threads import by_pieces, single_threaded_blas

# Multiplications that permutations may take by default, some seconds, and how many there are then.
_AFFORDED, _PERMUTATIONS = 2e10, 999
# The moments of so few rows say too little.
_FEWEST_ROWS = 6
# Widths of the kernels of s, as multiples of the median distance.
_WIDTHS = (0.5, 1.0, 2.0)
# With this many rows, X and y may jump as functions of s: at the edges of up to six boxes of s, of
# at least a 40th of the rows, whose indicators weigh more than smooth functions, so that a ridge
# hardly shrinks them.
_STEP_ROWS, _BOXES, _MOST_BOXES, _STEP_WEIGHT = 50, 6, 40, 3.0
# Many jumps follow narrow kernels of single columns of s, if they are few.
_NARROW, _NARROW_COLUMNS = 0.1, 10
# The least share of the squares of X and y that `given` has to leave. Features, as of distances,
# are less smooth than X and y: a regression on s misses some hundredths of them even if X follows
# from s. X and y have these in common, which would pass for a dependence.
_LEAST_LEFT = 1e-2
# Random products that stand for all products of features, of more than 1,000 rows.
_PRODUCTS = 500


@dataclass(frozen=True)
class DependenceTest:
    """The result of `dependence_test`.

    Attributes
    ----------
    pvalue : float
        The probability of at least this dependence if X and y were independent. The smallest value
        is `1 / (n_permutations + 1)` for permutations and 1e-5 for "moments" and "signs", whose
        approximation was not compared with permutations beyond.
    statistic : float
        HSIC, or with distances half of the squared distance covariance in units of the medians.
        With `given`, this of what s leaves of X and y, weighed by functions of s.
    correlation : float
        The same as a share of the most that it could be, from 0 to 1; with `given` unweighed.
    expected, deviation : float
        Mean and standard deviation of the statistic over all permutations of y, or with `given`
        over all signs of the rows.
    method : str
        "permutations", "moments" or "signs": where the p-value is from.
    n_permutations : int
        0 for moments and signs.
    """

    pvalue: float
    statistic: float
    correlation: float
    expected: float
    deviation: float
    method: str
    n_permutations: int


def dependence_test(
    X: Any,
    y: Any,
    *,
    given: Any = None,
    kernel: str = "auto",
    target: str = "auto",
    n_permutations: int | None = None,
    standardize: bool = True,
    random_state: Any = None,
) -> DependenceTest:
    """Test whether X and y are independent, whatever the form of a dependence.

    With `given`, test whether they are independent at each value of other variables s.

    To test the new features of a fitted estimator give rows that it was not fitted to: on the rows
    of the fit, X W depends on any y, also on noise.

    Parameters
    ----------
    X : (n, d) array
    y : (n,) labels, or (n,) or (n, t) numbers
    given : (n,) or (n, t) array, or a frame, optional
        s. Strings, truth values, and whole numbers with up to 20 different values are classes;
        other numbers are numbers.
    kernel : {"auto", "gaussian", "distance"}, default "auto"
        "gaussian": HSIC with the mean of three gaussian kernels, of the median distance, a half
        and a quarter of it. "distance": distance covariance. "auto": "distance" with `given`, else
        "gaussian".
    target : str, default "auto"
        Kernel of y, as in `SupervisedIKDR`. With kernel="distance", numbers have distances, too.
    n_permutations : int, optional
        Number of random permutations of y. With 0 the p-value follows from a shifted gamma
        distribution with the mean and variance of all permutations, and their skewness for many
        rows, down to 1e-5. Default: 999 where they take some seconds at most, else 0. With
        `given` there are none, since they would also break the dependence of y on s.
    standardize : bool, default True
        Whether to scale the columns of X to standard deviation 1 first.
    random_state : int, RandomState or None, default None
        Seed of landmarks and random products (above 1,000 rows) and of permutations. None is a
        fixed seed, so that tests repeat.

    Returns
    -------
    DependenceTest

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from ism_dask import dependence_test
    >>> X, y = load_wine(return_X_y=True)
    >>> dependence_test(X, y, random_state=0).pvalue
    0.001
    """
    check_choice("`kernel`", kernel, ["auto", *TEST_KERNELS])
    if n_permutations is not None and (not is_whole(n_permutations) or n_permutations < 0):
        raise ValueError(
            f"`n_permutations` is {n_permutations!r}; expected a whole number from 0 up"
        )
    check_seed(random_state)
    reuse_pages()
    X, y = rows_and_target(X, y, _FEWEST_ROWS)
    given = on_this_host(given)
    seed = random_state if is_whole(random_state) else seed_of(random_state)
    n, rng = len(X), np.random.default_rng(seed)
    points = None if given is None else _given_points(given, n, kernel, n_permutations)
    if kernel == "auto":
        kernel = "gaussian" if points is None else "distance"
    X = np.asarray(X, dtype=np.float64)
    columns = X[:, np.ptp(X, axis=0) > 0]
    if not columns.size:
        raise ValueError("all columns of X are constant; nothing can depend on them")
    columns = standardise_target(columns) if standardize else columns - columns.mean(axis=0)
    with single_threaded_blas():
        F = thin_factor("X", columns, TEST_KERNELS[kernel], rng)
        U = factor_of_target(y, target, kernel, rng)
        if points is None:
            null, statistic = permutation_moments(F, U), squared_sum(F, U)
            count = n_permutations
            if count is None:
                work = _PERMUTATIONS * n * F.shape[1] * U.shape[1]
                count = _PERMUTATIONS if work <= _AFFORDED else 0
            method = "permutations" if count else "moments"
        else:
            is_numeric = target_name(y, target) not in CLASS_TARGETS
            numbers = standardise_target(y) if is_numeric else U
            regressions = _regressions(points, np.column_stack([columns, numbers]), rng)
            for name, values in (("X", columns), ("y", numbers)):
                left, parameters = residuals(regressions, values)
                # Many parameters leave little of noise as well.
                free = np.maximum(1.0 - parameters / n, np.finfo(np.float64).eps)
                share = float((left**2).sum() / ((free * values) ** 2).sum())
                check_left(share, _LEAST_LEFT, name)
            (F, of_x), (U, of_y) = remainder(regressions, F, "X"), remainder(regressions, U, "y")
            G = _products(F, U, points, rng)
            null, sums = sign_moments(G), G.sum(axis=0)
            # Residuals of a regression with k parameters on n rows vary as if there were n - k.
            statistic = (1.0 - min(of_x, of_y) / n) * float(sums @ sums)
            count, method = 0, "signs"
        pvalue = null.pvalue(statistic)
        if count:
            pvalue = permutation_pvalue(F, U, statistic, count, rng)
    # Sums over pairs of rows as means. HSIC is at most the geometric mean of that of each factor
    # with itself.
    scale, most = (n - 1.0) ** 2, math.sqrt(squared_sum(F, F) * squared_sum(U, U))
    return DependenceTest(
        pvalue=pvalue,
        statistic=statistic / scale,
        correlation=math.sqrt(min(squared_sum(F, U) / most, 1.0)),
        expected=null.mean / scale,
        deviation=null.deviation / scale,
        method=method,
        n_permutations=count,
    )


def _given_points(given: Any, n: int, kernel: str, n_permutations: int | None) -> Array:
    """Return s as points (n, t); raise a ValueError for options that are not for it."""
    for name, value, expected in (
        ("kernel", kernel, ("auto", "distance")),
        ("n_permutations", n_permutations, (None, 0)),
    ):
        if value not in expected:
            raise ValueError(
                f"`{name}` is {value!r}, and {name}={expected[-1]!r} is all that there is with "
                f"`given`; leave `{name}` out"
            )
    return SideInformation.from_columns("given", given, n).points()


def _regressions(points: Array, values: Array, rng: np.random.Generator) -> list[SideRegression]:
    """Return regressions on s, points (n, t), for X and y, whose columns are in values (n, k).

    They are smooth functions of s; these with steps; and sums of narrow functions of single
    columns of s.
    """

    def factor(of: Array, width: float) -> Array:
        def kernel(squared: Array, median: float) -> Array:
            # Centred, minus half of the squared distances is the linear kernel.
            return mean_of_gaussians(squared, median, (width,)) - squared / (2.0 * median**2)

        return thin_factor("`given`", of, kernel, rng)

    def regression(*factors: Array) -> SideRegression:
        return SideRegression(np.hstack(factors), np.ones(len(points)))

    smooth = [regression(factor(points, width)) for width in _WIDTHS]
    regressions = list(smooth)
    if len(points) >= _STEP_ROWS:
        left, _ = residuals(smooth, values)
        steps = _STEP_WEIGHT * _steps(points, left)
        regressions += [regression(each.factor, steps) for each in smooth]
    has_two_values = np.array([len(np.unique(column)) == 2 for column in points.T])
    numbers = points.T[~has_two_values]
    if 0 < len(numbers) <= _NARROW_COLUMNS:
        indicators = points[:, has_two_values] - points[:, has_two_values].mean(axis=0)
        narrow = [factor(column[:, None], _NARROW) for column in numbers]
        regressions.append(regression(*narrow, indicators))
    return regressions


def _steps(points: Array, left: Array) -> Array:
    """Return indicators (n, l), centred, of the boxes of s between which X and y may jump.

    A tree finds them: it explains what smooth functions of s leave of X and y, (n, k).
    """
    n, scale = len(points), np.linalg.norm(left, axis=0)
    fewest = max(_FEWEST_ROWS, n // _MOST_BOXES)
    tree = DecisionTreeRegressor(max_leaf_nodes=_BOXES, min_samples_leaf=fewest, random_state=0)
    columns = np.divide(left, scale / math.sqrt(n), out=np.zeros_like(left), where=scale > 0)
    boxes = tree.fit(points, columns).apply(points)
    indicators = boxes[:, None] == np.unique(boxes)
    return np.asarray(indicators - indicators.mean(axis=0))


def _products(F: Array, U: Array, points: Array, rng: np.random.Generator) -> Array:
    """Return G (n, p) with `G G^T` near the product of three kernels of the rows.

    Two have the factors F (n, m) and U (n, r). The third is that of functions of s, points (n, t):
    1 plus a gaussian kernel, by which covariances count that change sign with s. With up to 1,000
    rows, `G G^T` is the product itself, and with more its mean is.
    """
    median = median_of("`given`", points)
    if len(F) <= WHOLE:
        squared = DISTANCE.between(points, points, resolution=0.0)
        kernel = 1.0 + mean_of_gaussians(squared, median, (1.0,))
        values, vectors = np.linalg.eigh((F @ F.T) * (U @ U.T) * kernel)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
    frequencies = rng.normal(size=(points.shape[1], _PRODUCTS)) / median
    phases = rng.uniform(0.0, 2.0 * np.pi, _PRODUCTS)
    directions = [rng.normal(size=(factor.shape[1], _PRODUCTS)) for factor in (F, U)]

    def product(rows: slice) -> Array:
        waves = np.cos(points[rows] @ frequencies + phases)
        G = (1.0 + np.sqrt(2.0) * waves) / np.sqrt(_PRODUCTS)
        for factor, random in zip((F, U), directions, strict=True):
            G *= factor[rows] @ random
        return np.asarray(G)

    return np.concatenate(by_pieces(product, len(F)))
