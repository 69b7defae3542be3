"""The test of whether X and y are independent, whatever the form of a dependence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from sklearn.utils import check_X_y

from ism_dask._types import Array
from ism_dask._validation import check_choice, is_whole
from ism_dask.blas_threads import single_threaded_blas
from ism_dask.gamma.targets import standardise_target
from ism_dask.gamma.thin_factors import (
    KERNELS,
    factor_of_target,
    kernel_correlation,
    squared_sum,
    thin_factor,
)

# Multiplications that permutations may take by default, some seconds, and how many there are then.
_AFFORDED, _PERMUTATIONS = 2e10, 999
# Permutations are multiplied in batches with so many columns.
_BATCH_COLUMNS = 256
# The moments of so few rows say too little.
_FEWEST_ROWS = 6
# Statistics of permutations that differ by less than this share are ties.
TIE = 1e-10


@dataclass(frozen=True)
class DependenceTest:
    """The result of `dependence_test`.

    Attributes
    ----------
    pvalue : float
        The probability of at least this dependence if X and y were independent.
    statistic : float
        HSIC, or with distances half of the squared distance covariance in units of the medians.
    correlation : float
        The same as a share of the most that it could be, from 0 to 1.
    expected, deviation : float
        Mean and standard deviation of the statistic over all permutations of y.
    method : str
        "permutations", "moments" or "refits": where the p-value is from.
    n_permutations : int
        0 for moments.
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
    kernel: str = "gaussian",
    target: str = "auto",
    n_permutations: int | None = None,
    standardize: bool = True,
    random_state: int | None = None,
) -> DependenceTest:
    """Test whether X and y are independent, whatever the form of a dependence.

    To test the new features of a fitted estimator give rows that it was not fitted to, or call
    `fitted_dependence_test`: on the rows of the fit, X W depends on any y, also on noise.

    Parameters
    ----------
    X : (n, d) array
    y : (n,) labels, or (n,) or (n, t) numbers
    kernel : {"gaussian", "distance"}, default "gaussian"
        "gaussian": HSIC with the mean of three gaussian kernels, of the median distance, a half
        and a quarter of it. "distance": distance covariance.
    target : {"auto", "classes", "labels", "linear", "gaussian", "multiscale"}, default "auto"
        Kernel of y, as in `SupervisedIKDR`. With kernel="distance", numbers have distances, too.
    n_permutations : int, optional
        Number of random permutations of y. With 0 the p-value follows from a shifted gamma
        distribution with the mean and variance of all permutations, and their skewness for many
        rows. Default: 999 where they take some seconds at most, else 0.
    standardize : bool, default True
        Whether to scale the columns of X to standard deviation 1 first.
    random_state : int, optional
        Of landmarks (above 1,000 rows) and permutations.

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
    check_choice("`kernel`", kernel, [*KERNELS])
    check_permutations(n_permutations)
    X, y = check_X_y(
        X,
        y,
        dtype="numeric",
        multi_output=len(getattr(y, "shape", ())) == 2,
        ensure_min_samples=_FEWEST_ROWS,
    )
    rng = np.random.default_rng(random_state)
    with single_threaded_blas():
        factor_x = thin_factor(_points(X, standardize=standardize), kernel, rng)
        factor_y = factor_of_target(y, target, kernel, rng)
        null = _Null.of(factor_x, factor_y)
        statistic = squared_sum(factor_x, factor_y)
        count = n_permutations
        if count is None:
            work = _PERMUTATIONS * len(X) * factor_x.shape[1] * factor_y.shape[1]
            count = _PERMUTATIONS if work <= _AFFORDED else 0
        pvalue = (
            _permutation_pvalue(factor_x, factor_y, statistic, count, rng)
            if count
            else null.pvalue(statistic)
        )
    scale = (len(X) - 1.0) ** 2
    return DependenceTest(
        pvalue=pvalue,
        statistic=statistic / scale,
        correlation=kernel_correlation(factor_x, factor_y),
        expected=null.mean / scale,
        deviation=null.deviation / scale,
        method="permutations" if count else "moments",
        n_permutations=count,
    )


class _Null(NamedTuple):
    """The distribution of `|F^T U|^2` over all permutations of the rows of U, by its moments.

    The mean and the deviation are exact, the skewness is that of many rows.
    """

    mean: float
    deviation: float
    skewness: float

    @classmethod
    def of(cls, F: Array, U: Array) -> _Null:
        """Return the moments (Kazi-Aoual et al. 1995) for factors (n, m) and (n, r)."""
        n, traces, spreads, diagonals = len(F), [], [], []
        for factor in (F, U):
            # Traces of A = F F^T, A^2 and A^3, and the sum of the squares of the diagonal of A.
            values = np.linalg.eigvalsh(factor.T @ factor)
            one, two, three = (float((values**power).sum()) for power in (1, 2, 3))
            lengths = np.einsum("ij,ij->i", factor, factor)
            squares = float(lengths @ lengths)
            traces.append((one, three / two**1.5))
            spreads.append((n - 1) * two - one**2)
            diagonals.append(n * (n + 1) * squares - (n - 1) * (one**2 + 2 * two))
        (first, skew), (second, other_skew) = traces
        spread = 2.0 * math.prod(spreads) / ((n - 1.0) ** 2 * (n + 1) * (n - 2))
        diagonal = math.prod(diagonals) / ((n + 1.0) * n * (n - 1) * (n - 2) * (n - 3))
        deviation = math.sqrt(max(spread + diagonal, 0.0))
        return cls(first * second / (n - 1), deviation, math.sqrt(8.0) * skew * other_skew)

    def pvalue(self, statistic: float) -> float:
        """Return the probability of at least this value under a shifted gamma distribution."""
        if self.deviation == 0.0:
            return 1.0
        return float(
            stats.pearson3.sf(statistic, self.skewness, loc=self.mean, scale=self.deviation)
        )


def _points(X: Array, *, standardize: bool) -> Array:
    """Return the columns of X that vary, centred, and scaled with `standardize`."""
    X = np.asarray(X, dtype=np.float64)
    varying = np.ptp(X, axis=0) > 0
    if not varying.any():
        raise ValueError("all columns of X are constant; nothing can depend on them")
    X = X[:, varying]
    return standardise_target(X) if standardize else X - X.mean(axis=0)


def _permutation_pvalue(
    F: Array, U: Array, statistic: float, count: int, rng: np.random.Generator
) -> float:
    """Return the share of random permutations with at least this statistic, itself among them."""
    r = U.shape[1]
    at_once = max(1, _BATCH_COLUMNS // r)
    at_least, done = 1, 0
    while done < count:
        batch = min(at_once, count - done)
        shuffled = np.concatenate([U[rng.permutation(len(U))] for _ in range(batch)], axis=1)
        sums = ((F.T @ shuffled) ** 2).sum(axis=0).reshape(batch, r).sum(axis=1)
        at_least += int(np.count_nonzero(sums >= statistic * (1 - TIE)))
        done += batch
    return at_least / (count + 1)


def check_permutations(number: int | None, name: str = "`n_permutations`") -> None:
    """Raise a ValueError that names the argument unless it is None or a whole number from 0 up."""
    if number is not None and (not is_whole(number) or number < 0):
        raise ValueError(f"{name} is {number!r}; expected a whole number from 0 up")
