"""The test of whether the new features of an estimator depend on y."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

from ism_dask.gamma.independence import TIE, DependenceTest, check_permutations, dependence_test
from ism_dask.status import ComponentsWarning


def fitted_dependence_test(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    n_refits: int = 0,
    random_state: int | None = None,
    **options: Any,
) -> DependenceTest:
    """Test whether the new features of an estimator depend on y, not only on the rows of the fit.

    W maximises the dependence on the y that it was fitted to. A test on the same rows therefore
    finds a dependence on noise as well.

    Parameters
    ----------
    estimator : SupervisedIKDR or another transformer
        It is cloned and fitted again.
    X : (n, d) array
    y : (n,) labels, or (n,) or (n, t) numbers
    n_refits : int, default 0
        0 fits W to one half of the rows and tests the other half. A number above fits W to all rows
        and that many times to permuted y, and compares `objective_`: it has more power, and takes
        as many fits.
    random_state : int, optional
    **options : Any
        Of `dependence_test`, without refits.

    Returns
    -------
    DependenceTest
    """
    check_permutations(n_refits, "`n_refits`")
    if n_refits:
        if options:
            raise TypeError(f"`{next(iter(options))}` belongs to the test without refits")
        return _test_by_refits(estimator, X, y, n_refits, random_state)
    X, y = np.asarray(X), np.asarray(y)
    classes = y if y.ndim == 1 and y.dtype.kind in "biuUSO" else None
    ours, others = train_test_split(
        np.arange(len(X)), test_size=0.5, random_state=random_state, stratify=classes
    )
    fitted = clone(estimator).fit(X[ours], y[ours])
    options = {"standardize": False, **options}
    Z = fitted.transform(X[others])
    return dependence_test(Z, y[others], random_state=random_state, **options)


def _test_by_refits(
    estimator: Any, X: Any, y: Any, n_refits: int, random_state: int | None
) -> DependenceTest:
    rng = np.random.default_rng(random_state)
    y, n = np.asarray(y), len(y)
    found = float(clone(estimator).fit(X, y).objective_)
    with warnings.catch_warnings():
        # Fits to noise often have no clear maximum; the fit to y above has said so of itself.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", ComponentsWarning)
        null = np.array(
            [clone(estimator).fit(X, y[rng.permutation(n)]).objective_ for _ in range(n_refits)]
        )
    scale = (n - 1.0) ** 2
    return DependenceTest(
        pvalue=float(1 + np.count_nonzero(null >= found * (1 - TIE))) / (1 + n_refits),
        statistic=found / scale,
        correlation=float("nan"),
        expected=float(null.mean()) / scale,
        deviation=float(null.std()) / scale,
        method="refits",
        n_permutations=n_refits,
    )
