"""Test whether y depends on X through the new features that an estimator learns."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, StratifiedKFold

from ism_dask._types import Array
from ism_dask.gamma.independence import DependenceTest, dependence_test
from ism_dask.gamma.targets import target_name
from ism_dask.status import ComponentsWarning

# Two thirds of the rows find a subspace where one half often does not.
_PARTS = 3
# Six rows for each part, which `dependence_test` needs.
_FEWEST_ROWS = 18


def fitted_dependence_test(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    given: Any = None,
    random_state: int | None = None,
    **options: Any,
) -> DependenceTest:
    """Test whether y depends on X, through the new features of an estimator as well.

    A few directions that carry y drown among many columns, and `dependence_test` misses them. A fit
    may find them. But W maximises the dependence on the y that it was fitted to: a test on the same
    rows finds a dependence on noise as well. So W is fitted to two thirds of the rows and the other
    third is tested, for each third, and all rows are tested with all columns. The p-value is four
    times the smallest one, which is valid however the four depend on each other.

    Parameters
    ----------
    estimator : SupervisedIKDR or another transformer
        It is cloned and fitted again.
    X : (n, d) array
    y : (n,) labels, or (n,) or (n, t) numbers
    given : (n,) or (n, t) array, or a frame, optional
        Test dependence given these, as in `dependence_test`; the fits have the same `given`.
    random_state : int, optional
    **options : Any
        Of `dependence_test`.

    Returns
    -------
    DependenceTest
    """
    X, y = np.asarray(X), np.asarray(y)
    if len(X) < _FEWEST_ROWS:
        raise ValueError(f"X has {len(X)} rows; this test needs {_FEWEST_ROWS} or more")
    table: Any = given if hasattr(given, "shape") else np.asarray(given)
    table = getattr(table, "iloc", table)  # of a frame of pandas
    tests = [dependence_test(X, y, given=given, random_state=random_state, **options)]
    for ours, others in _parts(y, options.get("target", "auto"), random_state):
        if any((y[part] == y[part[0]]).all() for part in (ours, others)):
            continue  # y has one value there: no fit, or a p-value of 1
        side, side_of_others = (
            {} if given is None else {"given": table[rows]} for rows in (ours, others)
        )
        with warnings.catch_warnings():
            # Fits to noise warn: they have no clear maximum and explain nothing.
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", ComponentsWarning)
            Z = clone(estimator).fit(X[ours], y[ours], **side).transform(X[others])
        choices = {"standardize": False, "random_state": random_state, **options}
        tests.append(dependence_test(Z, y[others], **side_of_others, **choices))
    clearest = min(tests, key=lambda test: test.pvalue)
    return replace(clearest, pvalue=min(1.0, (1 + _PARTS) * clearest.pvalue))


def _parts(y: Array, target: str, random_state: int | None) -> Iterator[tuple[Array, Array]]:
    """Return rows to fit and rows to test, with nearly the same shares of classes if y has some."""
    is_classes = y.ndim == 1 and target_name(y, target) == "classes"
    # Whole numbers that are read as numbers, and rare classes, cannot be in each part.
    is_dealt = is_classes and np.unique(y, return_counts=True)[1].min() >= _PARTS
    kind = StratifiedKFold if is_dealt else KFold
    return kind(_PARTS, shuffle=True, random_state=random_state).split(y, y)
