"""The input of an unfolding: rows or distances in memory, the kernel of y, and numbers in range."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg.lapack import dpstrf
from scipy.sparse import csr_array
from sklearn.neighbors import sort_graph_by_row_values
from sklearn.utils import assert_all_finite, check_consistent_length
from sklearn.utils.sparsefuncs import mean_variance_axis

from ism_dask._types import Array
from ism_dask.estimators.input_rows import is_lazy, row_source
from ism_dask.estimators.preparation import standardisation_of
from ism_dask.estimators.problem import column_target
from ism_dask.gamma.row_values import finite_numbers, on_this_host
from ism_dask.gamma.targets import TARGETS
from ism_dask.gamma.thin_factors import factor_of_target
from ism_dask.rows.execution import check_memory_here, is_dask
from ism_dask.rows.raw import as_dense, is_sparse
from ism_dask.rows.shards import cut
from ism_dask.unfolding.neighbour_graph import MOST_EIGENVECTORS
from ism_dask.unfolding.program import FactorKernel, IdentityKernel, SideKernel

if TYPE_CHECKING:
    from ism_dask.estimators.colored_mvu import ColoredMVU

_NEIGHBOURS, _EIGENVECTORS = 10, 20
# The copies of rows in double precision that a fit holds: the rows, and scaled ones.
_COPIES = 4
# y as a thin factor of its kernel, and as the kernel itself.
_FACTOR, _KERNEL = "factor", "precomputed"
SIDE_TARGETS = ("auto", *TARGETS, _FACTOR, _KERNEL)
# The factor of a kernel stops at this share of the largest entry of the diagonal; what it misses is
# at most the other share if the kernel is positive semi-definite.
_PIVOT, _MISSING = 1e-8, 1e-6


def rows_in_memory(X: Any) -> Any:
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


def checked_distances(D: Any) -> Any:
    """Return distances D (n, n) between n rows, without the diagonal if they are a sparse graph.

    Raise a ValueError if they cannot be distances.
    """
    n, columns = D.shape
    own = float(abs(D.diagonal()).max())
    if n != columns or D.min() < 0 or D.max() == 0 or own > 0:
        raise ValueError(
            f"X of shape {D.shape}, with numbers from {D.min():.3g} to {D.max():.3g} and up to "
            f"{own:.3g} on the diagonal, has no distances; expected (n, n) numbers from 0 up, not "
            "all of them 0, and zeros on the diagonal with metric='precomputed', or rows of "
            "columns with metric='euclidean'. Similarities have to be turned into distances first"
        )
    if not is_sparse(D):
        return D
    ends = np.stack(D.tocoo().coords)
    apart = ends[0] != ends[1]
    graph = csr_array((D.data[apart], tuple(ends[:, apart])), shape=D.shape)
    return sort_graph_by_row_values(graph, warn_when_not_sorted=False)


def mean_and_deviation(X: Any) -> tuple[Array, Array]:
    """Return the mean and the deviation (d,) of the columns of X (n, d); 1 for constant columns."""
    if is_sparse(X):
        mean, variance = mean_variance_axis(X.astype(np.float64), axis=0)
        return mean, np.sqrt(np.where(variance > 0, variance, 1.0))
    affine = standardisation_of(cut(X))
    return affine.mean, np.where(affine.varying, affine.scale, 1.0)


def sizes(parameters: ColoredMVU, n: int) -> tuple[int, int, int]:
    """Return the numbers of coordinates, neighbours and eigenvectors for n different rows.

    Raise a ValueError if one of them is out of range, or all rows are equal.
    """
    if n < 2:
        raise ValueError("all rows of X are equal; expected rows at different distances")
    most, q = min(n - 1, MOST_EIGENVECTORS), parameters.n_components
    k = parameters.n_neighbors or min(_NEIGHBOURS, n - 1)
    # More eigenvectors would have A with more entries than there are distances to fit it to.
    fitting = min(_EIGENVECTORS, int(np.sqrt(n * k)))
    m = parameters.n_eigenvectors or min(max(fitting, q), most)
    ranges = {"n_components": (q, 1, most), "n_neighbors": (k, 1, n - 1)}
    for name, (number, low, high) in {**ranges, "n_eigenvectors": (m, q, most)}.items():
        if not low <= number <= high:
            raise ValueError(
                f"`{name}` must be a whole number from {low} to {high} for {n} different rows; got "
                f"{number!r}"
            )
    return int(q), int(k), int(m)


def checked_side(y: Any, n: int, target: str) -> Array | None:
    """Return y (n,) or (n, t) as an array, a kernel (n, n) as its factor.

    Raise a ValueError if it does not fit n rows.
    """
    if y is None:
        if target != "auto":
            raise ValueError(
                f"`target` is {target!r}, but `y` is None; expected y, or target='auto' for an "
                "unfolding without y"
            )
        return None
    if target in (_FACTOR, _KERNEL):
        given = _checked_factor(y if target == _FACTOR else _factor_of_kernel(y, n))
    else:
        given = column_target(y)
    check_consistent_length(np.empty(n), given)
    assert_all_finite(given, input_name="y")
    return given


def side_kernel(n: int, y: Array | None, target: str) -> SideKernel:
    """Return the centred kernel of y (n,) or (n, t) of n rows; without y, the centred identity."""
    if y is None:
        return IdentityKernel(np.ones(n))
    if target in (_FACTOR, _KERNEL):
        return FactorKernel(y - y.mean(axis=0))
    rng = np.random.default_rng(0)  # a gaussian kernel draws nothing
    return FactorKernel(factor_of_target(y, target, "gaussian", rng))


def _factor_of_kernel(y: Any, n: int) -> Array:
    """Return a factor (n, r) of a kernel y (n, n) once it is centred, by pivoted Cholesky."""
    if np.shape(y) != (n, n):
        raise ValueError(
            f"`y` of shape {np.shape(y)} is no kernel of {n} rows; expected ({n}, {n}) with "
            "target='precomputed', or a factor of the kernel with target='factor'"
        )
    centred = finite_numbers(as_dense(y))
    centred -= centred.mean(axis=0)
    centred -= centred.mean(axis=1, keepdims=True)
    largest = float(np.abs(centred).max())
    lower, pivots, rank, _ = dpstrf(centred, tol=_PIVOT * largest, lower=1)
    factor = np.empty((n, rank))
    factor[pivots - 1] = np.tril(lower)[:, :rank]
    centred -= factor @ factor.T
    if (missing := float(np.abs(centred).max())) > _MISSING * largest:
        raise ValueError(
            f"`y` is no kernel: its Cholesky factor misses it by {missing / largest:.2g} of its "
            "largest entry, both centred; expected a symmetric `y` without negative eigenvalues"
        )
    return factor


def _checked_factor(y: Any) -> Array:
    """Return a thin factor y (n,) or (n, r) as columns of float64."""
    factor = finite_numbers(as_dense(y))
    factor = factor.reshape(len(factor), -1)
    if not np.ptp(factor, axis=0).any():
        raise ValueError(
            "each column of `y` is constant, so that its centred kernel is 0; expected a factor "
            "that differs between rows, or y=None"
        )
    return factor
