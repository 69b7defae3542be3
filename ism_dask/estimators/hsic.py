"""HSIC of given rows as a plain function, and sums of kernels by their alignment with y."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from sklearn.utils import check_consistent_length, check_random_state, check_X_y, column_or_1d

from ism_dask._types import Array
from ism_dask.blas_threads import single_threaded_blas
from ism_dask.engines import EngineOptions, as_engine, first_that_serves
from ism_dask.estimators.fit_rows import FitRows
from ism_dask.estimators.preparation import prepare_rows
from ism_dask.gamma.targets import target_dependence
from ism_dask.gamma.thin_factors import alignment
from ism_dask.kernels import Kernel, as_kernel
from ism_dask.rows.devices import on_this_host

# Rows on which the alignment is measured; larger data are sampled. Their kernel matrix is one tile.
_ROWS = 2000


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
    engine : {"auto", "closed", "monomials", "landmarks", "blocks", "exact"} or EngineOptions, \
default "auto"
        As in `SupervisedIKDR`: "auto" may approximate from 4,000 rows up, "exact" never does.
    standardize : bool, default False
        Whether to scale the features to mean 0 and standard deviation 1 first.
    random_state : int, RandomState or None, default None
        As in `SupervisedIKDR`.
    return_error : bool, default False
        Whether to return a bound on the relative error of the result as well. It covers rounding,
        and what "landmarks" leave out, and is a standard error with "blocks". It is infinite if no
        bound is available.

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
    X, y = map(on_this_host, (X, y))
    X, y = check_X_y(
        X, y, dtype="numeric", multi_output=len(getattr(y, "shape", ())) == 2, ensure_min_samples=2
    )
    with single_threaded_blas():
        kernel_of_x = as_kernel(kernel)
        prepared = prepare_rows(X, kernel_of_x, standardize=standardize)
        q = X.shape[1]
        fit_rows = FitRows.of(prepared, kernel_of_x, random_state, q)
        problem = fit_rows.problem(target_dependence(y, target))
        identity = np.eye(problem.d)
        engines = as_engine(engine).engines(problem, problem.d)
        J = first_that_serves(engines, lambda chosen: chosen.double.value(identity))
    value = J.objective / (len(X) - 1) ** 2
    return (value, J.error) if return_error else value


def aligned_sum(
    kernels: Sequence[str | Kernel],
    X: Any,
    y: Any,
    *,
    target: str = "auto",
    standardize: bool = True,
    random_state: Any = None,
) -> Kernel:
    """Return a sum of kernels weighted by their centred alignment with y.

    The alignment of a kernel is the cosine between its matrix of the rows of X and the kernel
    matrix of y, both centred (Cortes, Mohri and Rostamizadeh). The kernels are first brought to the
    same size, which is the norm of the centred matrix of the first one. Then each is weighted by
    its alignment; a kernel with an alignment of 0 or less is left out.

    Parameters
    ----------
    kernels : sequence of str or Kernel
        Names in `ism_dask.kernels.KERNELS`, or kernels.
    X : (n, d) array or frame
        The rows that W will be fitted to. If there are more than 2,000, a random sample of them
        is used.
    y : (n,) labels, or (n,) or (n, t) numbers
    target, standardize, random_state
        As in `SupervisedIKDR`.

    Returns
    -------
    A conic sum, for the parameter `kernel` of any estimator.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from ism_dask import SupervisedIKDR, aligned_sum
    >>> X, y = load_wine(return_X_y=True)
    >>> kernel = aligned_sum(["gaussian", "polynomial"], X, y)
    >>> SupervisedIKDR(3, kernel=kernel).fit(X, y).transform(X).shape
    (178, 3)
    """
    candidates = [as_kernel(kernel) for kernel in kernels]
    if not candidates:
        raise ValueError("`kernels` is empty; expected one kernel or more")
    rows, labels = _sampled(np.asarray(X), np.asarray(y), random_state)
    dependence = target_dependence(labels, target)
    gamma = dependence.factor * dependence.gamma.signs @ dependence.factor.T
    pairs = [
        _alignment_and_norm(kernel, rows, gamma, standardize=standardize) for kernel in candidates
    ]
    alignments = np.array([each for each, _ in pairs])
    if alignments.max() <= 0:
        raise ValueError(
            "no kernel agrees with `y`: all alignments are 0 or less; expected rows whose "
            "distances have to do with `y`"
        )
    positive_alignments = np.maximum(alignments, 0.0)
    shares, reference_norm = positive_alignments / positive_alignments.sum(), pairs[0][1]
    weighted = [
        float(share * reference_norm / norm) * kernel
        for kernel, share, (_, norm) in zip(candidates, shares, pairs, strict=True)
        if share > 0
    ]
    return reduce(add, weighted)


def _sampled(X: Array, y: Array, random_state: Any) -> tuple[Array, Array]:
    check_consistent_length(X, y)
    y = y if y.ndim == 2 and y.shape[1] > 1 else column_or_1d(y)
    if len(X) <= _ROWS:
        return X, y
    random = check_random_state(random_state or 0)
    indices = np.sort(random.choice(len(X), _ROWS, replace=False))
    return X[indices], y[indices]


def _alignment_and_norm(
    kernel: Kernel, rows: Array, gamma: Array, *, standardize: bool
) -> tuple[float, float]:
    """Return the centred alignment of a kernel with Gamma, and the norm of its centred matrix."""
    if any(term.per_row_width for _, term in kernel.terms):
        raise ValueError(
            f"`kernels` has {type(kernel).__name__}, whose widths are each row's own; expected "
            "kernels with one width for all rows"
        )
    prepared = prepare_rows(rows, kernel, standardize=standardize)
    points = prepared.shards.in_double().rows(np.arange(len(rows)))
    resolved = kernel.with_rows_mapped(prepared.lower_rows).resolve(points)
    K = resolved.matrix(points, points)
    K -= K.mean(axis=0)
    K -= K.mean(axis=1, keepdims=True)
    norm = float(np.linalg.norm(K))
    if norm == 0:
        raise ValueError(f"{type(kernel).__name__} is the same for all pairs of rows of X")
    return alignment(K, gamma), norm
