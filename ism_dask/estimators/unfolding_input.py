"""The input of an unfolding: rows in memory, the kernel of y, and numbers in range."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.utils import check_consistent_length
from sklearn.utils.sparsefuncs import mean_variance_axis

from ism_dask._types import Array
from ism_dask.estimators.input_rows import is_lazy, row_source
from ism_dask.estimators.preparation import column_moments
from ism_dask.gamma.row_values import finite_numbers, on_this_host
from ism_dask.gamma.target_input import column_target
from ism_dask.gamma.targets import TARGETS
from ism_dask.gamma.thin_factors import factor_of_target
from ism_dask.rows.execution import check_memory_here, is_dask
from ism_dask.rows.raw import Standardisation, as_dense, is_sparse
from ism_dask.rows.shards import cut
from ism_dask.unfolding.neighbour_graph import MOST_EIGENVECTORS
from ism_dask.unfolding.program import FactorKernel, IdentityKernel, SideKernel

_NEIGHBOURS, _EIGENVECTORS = 10, 20
# The copies of rows in double precision that a fit holds: the rows, and scaled ones.
_COPIES = 4
# y as a thin factor of its kernel.
_FACTOR = "factor"
SIDE_TARGETS = ("auto", *TARGETS, _FACTOR)


def all_rows_in_memory(X: Any) -> Any:
    """Return the rows of a Dask array or of an opened data set, or X itself, as it is in memory.

    Raise a MemoryError before rows are read that do not fit into memory with their copies.
    """
    X = on_this_host(row_source(X))
    if not is_lazy(X):
        return X
    check_memory_here(
        _COPIES * 8.0 * math.prod(X.shape),
        f"rows of shape {X.shape} in an unfolding",
        "take fewer rows, and place the others with `transform`",
    )
    return X.compute() if is_dask(X) else X.read(0, X.shape[0])


def mean_and_deviation(X: Any) -> tuple[Array, Array]:
    """Return the mean and the deviation (d,) of the columns of X (n, d); 1 for constant columns."""
    if is_sparse(X):
        mean, variance = mean_variance_axis(X.astype(np.float64), axis=0)
        return mean, np.sqrt(np.where(variance > 0, variance, 1.0))
    affine = Standardisation.from_moments(column_moments(cut(X)))
    return affine.mean, np.where(affine.varying, affine.scale, 1.0)


def sizes(
    n: int, q: int, n_neighbors: int | None, n_eigenvectors: int | None
) -> tuple[int, int, int]:
    """Return the numbers of coordinates, neighbours and eigenvectors for n different rows.

    The last three arguments are what the user gave. Raise a ValueError if one of them is out of
    range, or all rows are equal.
    """
    if n < 2:
        raise ValueError("all rows of X are equal; expected rows at different distances")
    most = min(n - 1, MOST_EIGENVECTORS)
    k = n_neighbors or min(_NEIGHBOURS, n - 1)
    # More eigenvectors would have A with more entries than there are distances to fit it to.
    fitting = min(_EIGENVECTORS, int(np.sqrt(n * k)))
    m = n_eigenvectors or min(max(fitting, q), most)
    ranges = {"n_components": (q, 1, most), "n_neighbors": (k, 1, n - 1)}
    for name, (number, low, high) in {**ranges, "n_eigenvectors": (m, q, most)}.items():
        if not low <= number <= high:
            raise ValueError(
                f"`{name}` must be a whole number from {low} to {high} for {n} different rows; got "
                f"{number!r}"
            )
    return int(q), int(k), int(m)


def checked_side(y: Any, n: int, target: str) -> Array | None:
    """Return y (n,) or (n, t) as an array, a thin factor as columns of float64.

    Raise a ValueError if it does not fit n rows.
    """
    if y is None:
        if target != "auto":
            raise ValueError(
                f"`target` is {target!r}, but `y` is None; expected y, or target='auto' for an "
                "unfolding without y"
            )
        return None
    if target != _FACTOR:
        given = column_target(y)
    else:
        given = finite_numbers(as_dense(y))
        given = given.reshape(len(given), -1)
        if not np.ptp(given, axis=0).any():
            raise ValueError(
                "each column of `y` is constant, so that its centred kernel is 0; expected a "
                "factor that differs between rows, or y=None"
            )
    check_consistent_length(np.empty(n), given)
    return given


def side_kernel(n: int, y: Array | None, target: str) -> SideKernel:
    """Return the centred kernel of y (n,) or (n, t) of n rows; without y, the centred identity."""
    if y is None:
        return IdentityKernel(np.ones(n))
    if target == _FACTOR:
        return FactorKernel(y - y.mean(axis=0))
    rng = np.random.default_rng(0)  # a gaussian kernel draws nothing
    return FactorKernel(factor_of_target(y, target, "gaussian", rng))
