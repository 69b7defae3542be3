"""Measure HSIC of given rows by a plain function."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_X_y

from ism_dask._validation import check_seed
from ism_dask.blas_threads import single_threaded_blas
from ism_dask.engines import EngineOptions, as_engine, first_that_serves
from ism_dask.estimators.dependence_problem import DependenceRows
from ism_dask.estimators.preparation import prepare_rows
from ism_dask.gamma.targets import target_dependence
from ism_dask.kernels import Kernel, as_kernel
from ism_dask.rows.devices import on_this_host


def hsic(
    X: Any,
    y: Any,
    *,
    kernel: str | Kernel = "gaussian",
    target: str = "auto",
    engine: str | EngineOptions = "auto",
    standardize: bool = False,
    random_state: Any = None,
    return_error: bool = False,
) -> float | tuple[float, float]:
    """Return how strongly X depends on y: `tr(K_X H K_Y H) / (n - 1)^2`.

    With `Z = estimator.transform(X)` and `kernel=estimator.kernel_` this equals
    `estimator.objective_ / (n - 1)^2`, except for kernels with a width for each row, whose widths
    belong to the space of all features. The function makes no n x n matrix.

    Parameters
    ----------
    X : (n, d) array
    y : (n,) labels, or (n,) or (n, t) numbers
    kernel : str or Kernel, default "gaussian"
        Kernel of X. A median width is the median of X as given here.
    target : {"auto", "classes", "labels", "linear", "gaussian", "multiscale"}, default "auto"
        Kernel of y, as in `SupervisedIKDR`.
    engine : {"auto", "closed_form", "landmarks", "exact"} or EngineOptions, \
default "auto"
        As in `SupervisedIKDR`: "auto" may approximate from 4,000 rows up, "exact" never does.
    standardize : bool, default False
        Whether to scale the features to mean 0 and standard deviation 1 first.
    random_state : int, RandomState or None, default None
        As in `SupervisedIKDR`.
    return_error : bool, default False
        Whether to return a bound on the relative error of the result as well. It covers rounding,
        and what "landmarks" leave out. It is infinite if no bound is available.

    Returns
    -------
    value : float
    error : float
        Only with `return_error`.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from ism_dask import hsic
    >>> X, y = load_wine(return_X_y=True)
    >>> round(hsic(X, y, standardize=True), 4)
    0.0432
    """
    check_seed(random_state)
    X, y = map(on_this_host, (X, y))
    X, y = check_X_y(
        X, y, dtype="numeric", multi_output=len(getattr(y, "shape", ())) == 2, ensure_min_samples=2
    )
    with single_threaded_blas():
        kernel_of_x = as_kernel(kernel)
        prepared = prepare_rows(X, kernel_of_x, standardize=standardize)
        q = X.shape[1]
        rows = DependenceRows.of(prepared, kernel_of_x, random_state, q)
        problem = rows.problem(target_dependence(y, target))
        identity = np.eye(problem.d)
        engines = as_engine(engine).engines(problem, problem.d)
        J = first_that_serves(engines, lambda chosen: chosen.double.value(identity))
    value = J.objective / (len(X) - 1) ** 2
    return (value, J.error) if return_error else value
