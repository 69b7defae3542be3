"""What an unfolding is given: its rows in memory, its numbers within their ranges, and its seed."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg.lapack import dpstrf
from sklearn.utils import assert_all_finite, check_consistent_length, check_random_state

from ism_dask._types import Array
from ism_dask.estimators.checks import row_source
from ism_dask.estimators.placement import precision
from ism_dask.estimators.problem import column_target
from ism_dask.estimators.row_order import distinct_rows, row_order
from ism_dask.gamma.row_values import finite_numbers
from ism_dask.gamma.targets import TARGETS
from ism_dask.gamma.thin_factors import factor_of_target
from ism_dask.rows.devices import on_this_host
from ism_dask.rows.execution import check_memory_here, is_dask
from ism_dask.rows.source import is_row_source
from ism_dask.rows.sparse import as_dense, is_sparse
from ism_dask.unfolding.laplacian import MOST_EIGENVECTORS
from ism_dask.unfolding.side_information import FactorKernel, NoSideKernel, SideKernel

if TYPE_CHECKING:
    from ism_dask.estimators.unfolding import ColoredMVU

_NEIGHBOURS, _EIGENVECTORS = 10, 20
# Bytes that a fit takes at most, beside the rows that it is given: three scaled copies of them, and
# for each row and neighbour, eigenvector, coordinate and column of y so many.
_COPIES, _BYTES_OF_ANY = 3, 256 * 2**20
_PER_NEIGHBOUR, _PER_EIGENVECTOR, _PER_COORDINATE, _PER_COLUMN_OF_Y = 80, 60, 330, 32
# y as a thin factor of its kernel, and as the kernel itself.
_FACTOR, _KERNEL = "factor", "precomputed"
# The factor of a kernel stops at this share of the largest entry of the diagonal; what it misses is
# at most the other share if the kernel is positive semi-definite.
_PIVOT, _MISSING = 1e-8, 1e-6
# The largest entry of a factor, at least; fourth powers of the inverse have to be finite.
_SMALLEST = 1e-50
SIDE_TARGETS = ("auto", *TARGETS, _FACTOR, _KERNEL)


def sizes(parameters: ColoredMVU, n: int) -> tuple[int, int, int]:
    """Return the numbers of coordinates, neighbours and eigenvectors for n different rows.

    Raise a ValueError if one of them is out of range.
    """
    most = min(n - 1, MOST_EIGENVECTORS)
    q = _within("n_components", parameters.n_components, 1, most, n)
    k = parameters.n_neighbors or min(_NEIGHBOURS, n - 1)
    k = _within("n_neighbors", k, 1, n - 1, n)
    # More eigenvectors would have A with more entries than there are distances to fit it to.
    fitting = min(_EIGENVECTORS, int(np.sqrt(n * k)))
    m = parameters.n_eigenvectors or min(max(fitting, q), most)
    return q, k, _within("n_eigenvectors", m, q, most, n)


def nodes_of_rows(X: Any, y: Array | None) -> tuple[Array, Array, Array]:
    """Return a row for each node, an order of all rows by node, and their nodes in this order.

    Equal rows of X (n, d) are one node; among them, y orders, or else they stay as they are given.
    Raise a ValueError if all rows are equal.
    """
    first, node = distinct_rows(X)
    if len(first) < 2:
        raise ValueError(
            "all rows of X are equal; expected rows at different distances from each other"
        )
    order = np.arange(X.shape[0]) if (by_y := row_order(X, y)) is None else by_y
    order = order[np.argsort(node[order], kind="stable")]
    return first, order, node[order]


def check_memory(parameters: ColoredMVU, X: Any, y_columns: int = 1) -> None:
    """Raise a MemoryError unless a fit to rows X (n, d), read or not, fits into memory.

    `y_columns` is the number of columns of the factor of the kernel of y, at most.
    """
    n, d = X.shape
    size = 4 if X.dtype == np.float32 else 8
    q, k = parameters.n_components, parameters.n_neighbors or _NEIGHBOURS
    m = parameters.n_eigenvectors or _EIGENVECTORS
    of_row = _PER_NEIGHBOUR * k + _PER_EIGENVECTOR * m + _PER_COORDINATE * q
    # A step of the refinement holds the differences of all coordinates along all edges.
    of_row += _PER_COLUMN_OF_Y * y_columns + 8 * q * k
    reading = 0 if isinstance(X, np.ndarray) or is_sparse(X) else X.dtype.itemsize
    # Each number of a sparse row has the number of its column.
    numbers, size = (X.nnz, size + 4) if is_sparse(X) else (n * d, size)
    needed = _BYTES_OF_ANY + numbers * (_COPIES * size + reading) + n * of_row
    check_memory_here(
        needed,
        f"{n:,} rows of {d:,} columns in an unfolding",
        "take fewer rows, and place the others with `transform`",
    )


def unfolding_rows(parameters: ColoredMVU, X: Any, y_columns: int = 1) -> Any:
    """Return the rows of a Dask array or of an opened data set, or X itself, as it is in memory.

    Raises
    ------
    MemoryError
        If rows that are to be read, and their fit, do not fit into memory.
    """
    X = on_this_host(row_source(X))
    if is_row_source(X):
        check_memory(parameters, X, y_columns)
        return X.read(0, X.shape[0])
    if is_dask(X):
        if X.ndim == 2 and not np.isnan(X.shape[0]):
            check_memory(parameters, X, y_columns)
        return X.compute()
    return X


def unfolding_seed(random_state: Any) -> int:
    """Return a whole number as it is, a drawn one for a RandomState, and a fixed one for None."""
    if random_state is None:
        return 0
    drawn = int(check_random_state(random_state).randint(2**31))
    return int(random_state) if isinstance(random_state, Integral) else drawn


def in_units_of(X: Any, exponent: int, Y: Array) -> Array:
    """Return coordinates Y (k, q) in the units and the precision of X, or raise a ValueError."""
    with np.errstate(over="ignore"):
        placed = np.ldexp(Y, exponent).astype(precision(X), copy=False)
    if not np.isfinite(placed).all():
        raise ValueError(
            f"coordinates overflow {placed.dtype}: the largest is {np.abs(Y).max():.3g} times 2 to "
            f"the power of {exponent}; expected a `nu` nearer to 1, or X in smaller units or "
            "in double precision"
        )
    return placed


def checked_side(y: Any, n: int, target: str) -> Array | None:
    """Return y (n,) or (n, t) as an array; raise a ValueError if it does not fit n rows."""
    if y is None:
        if target != "auto":
            raise ValueError(
                f"`target` is {target!r}, but `y` is None; expected y, or target='auto' for an "
                "unfolding without y"
            )
        return None
    if target == _KERNEL:
        given = _as_factor(_factor_of_kernel(y, n))
    else:
        given = _as_factor(y) if target == _FACTOR else column_target(y)
    check_consistent_length(np.empty(n), given)
    assert_all_finite(given, input_name="y")
    return given


def side_kernel(n: int, y: Array | None, target: str) -> SideKernel:
    """Return the centred kernel of y (n,) or (n, t) of n rows; without y, the centred identity."""
    if y is None:
        return NoSideKernel(np.ones(n))
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
    advice = "give a thin factor of the kernel with target='factor'"
    check_memory_here(_COPIES * 8 * n**2, f"the kernel of {n:,} rows and its factor", advice)
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


def _as_factor(y: Any) -> Array:
    """Return a thin factor y (n,) or (n, r) as columns of float64."""
    factor = finite_numbers(as_dense(y))
    factor = factor.reshape(len(factor), -1)
    if not np.ptp(factor, axis=0).any():
        raise ValueError(
            "each column of `y` is constant, so that its centred kernel is 0; expected a factor "
            "that differs between rows, or y=None"
        )
    largest = float(np.abs(factor).max())
    if not _SMALLEST < largest < 1.0 / _SMALLEST:
        raise ValueError(
            f"the largest entry of `y` is {largest:.3g}; expected {_SMALLEST:g} to "
            f"{1.0 / _SMALLEST:g}. Divide `y` by it: coordinates stay the same"
        )
    return factor


def _within(name: str, number: int, least: int, most: int, n: int) -> int:
    """Return a number if it is in its range for n different rows, or raise a ValueError."""
    if least <= number <= most:
        return int(number)
    raise ValueError(
        f"`{name}` must be a whole number from {least} to {most} for {n} different rows; got "
        f"{number!r}"
    )
