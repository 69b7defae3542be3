"""Rows as they are stored, dealt into blocks, and loaded: standardised, in one precision.

Programs that compute nothing import this module, too: it needs neither Dask nor scikit-learn.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NewType, Protocol, TypeGuard, runtime_checkable

import numpy as np

from ism_dask._types import Array
from ism_dask.threads import pieces

# Rows of up to this many numbers, of any type, are brought into memory wherever they are stored:
# MNIST has 47 million.
MEMORY_NUMBERS = 50_000_000
# Shards of larger ones have at most this many rows, a power of two so that they fit chunks.
RANGE_ROWS = 2048
# From this number of rows on, a cluster computes if there is one, and in single precision if that
# holds all numbers of X.
MANY_ROWS = 10_000
_SINGLE = np.finfo(np.float32)
# Types whose values float32 holds exactly.
_EXACT_IN_SINGLE = (np.float32, np.uint8, np.int8, np.uint16, np.int16)
# Means beyond this many deviations are subtracted in double precision: in single precision the
# digits of the rows would cancel.
_MAX_MEAN = 64.0
# Columns of larger numbers, or below its inverse, have squares beyond the range of float64.
LARGE = 1e120
# A variance differs from its largest value by rounding if the difference is at most this many
# roundings for each row.
_ROUNDINGS = 4

# The name of a fact, an array with one entry for each row. The module that attaches a fact declares
# its name, as a constant.
RowFact = NewType("RowFact", str)
# The weight (b,) of each row, if rows do not count alike.
ROW_WEIGHTS = RowFact("weights")


@runtime_checkable
class RowSource(Protocol):
    """Rows that any process can read by itself, such as an opened data set."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    chunk_rows: int

    def read(self, start: int, stop: int) -> Array:
        """Return rows `start` to `stop` as a (stop - start, d) array."""


def fits_memory(shape: Sequence[int]) -> bool:
    """Return whether rows (n, d) have few enough numbers to be brought into memory.

    It depends on neither the type of the numbers nor the machine, and so do all choices of a fit.
    """
    return math.prod(shape) <= MEMORY_NUMBERS


def deal(keys: Array, n_blocks: int, seed: int, groups: Array | None = None) -> list[Array]:
    """Return the ascending row numbers of each block; rows of similar keys go to all blocks alike.

    Rows are dealt in the order of their keys (n,), such as classes or numbers y; rows of equal keys
    in a random order. Rows of one of the `groups` (n,) are dealt together, by their mean key.
    """
    if groups is not None:
        codes = np.unique(groups, return_inverse=True)[1]
        dealt = deal(np.bincount(codes, keys) / np.bincount(codes), n_blocks, seed)
        block_of_group = np.empty(codes.max() + 1, dtype=int)
        for number, block in enumerate(dealt):
            block_of_group[block] = number
        return _by_block(np.arange(len(keys)), block_of_group[codes], n_blocks)
    rng = np.random.default_rng([seed, len(keys)])
    shuffled = rng.permutation(len(keys))
    order = shuffled[np.argsort(keys[shuffled], kind="stable")]
    # Each round deals to the blocks in another order: else the first block got the smallest keys.
    rounds = -(-len(order) // n_blocks)
    hands = rng.permuted(np.tile(np.arange(n_blocks), (rounds, 1)), axis=1).ravel()[: len(order)]
    return [np.sort(block) for block in _by_block(order, hands, n_blocks)]


def _by_block(rows: Array, blocks: Array, n_blocks: int) -> list[Array]:
    """Return the rows (n,) of each block, in their order, for the block (n,) of each row."""
    # Sorted by blocks once: to look for each block among all rows takes seconds of a million rows.
    by_block = np.argsort(blocks, kind="stable")
    ends = np.cumsum(np.bincount(blocks, minlength=n_blocks))
    return np.split(rows[by_block], ends[:-1])


def is_row_source(X: Any) -> TypeGuard[RowSource]:
    """Return whether X is a `RowSource`; an array is not, and none of its attributes is read."""
    return not isinstance(X, np.ndarray) and isinstance(X, RowSource)


def is_sparse(X: Any) -> bool:
    """Return whether X is a sparse array or matrix of scipy."""
    # A program that only reads rows need not wait for the import of scipy: without it, no X can be.
    scipy_sparse = sys.modules.get("scipy.sparse")
    return scipy_sparse is not None and bool(scipy_sparse.issparse(X))


def as_dense(X: Any) -> Array:
    """Return an array as it is, and a sparse one with its zeros."""
    return np.asarray(X.toarray() if is_sparse(X) else X)


def filled(X: Any, means: Array) -> Any:
    """Return rows X (n, d), dense or CSR, with the mean (d,) of its column in each gap, a NaN.

    It is the one rule for gaps, of rows of a fit as of tables that are ingested.
    """
    gaps = np.isnan(X.data if is_sparse(X) else X)
    if not gaps.any():
        return X
    whole = X.copy()
    if is_sparse(X):
        whole.data[gaps] = means[X.indices[gaps]]
    else:
        np.copyto(whole, means, where=gaps, casting="same_kind")
    return whole


class SparseRows:
    """A `RowSource` of rows in CSR format with few columns: it makes those dense that are read."""

    def __init__(self, X: Any, chunk_rows: int) -> None:
        self._X, self.chunk_rows = X, chunk_rows
        self.shape: tuple[int, int] = X.shape
        self.dtype: np.dtype[Any] = X.dtype

    def part(self, start: int, stop: int) -> Any:
        """Return rows `start` to `stop`, sparse, without a copy of their numbers."""
        from scipy.sparse import csr_array  # noqa: PLC0415 - as in `is_sparse`

        pointers = self._X.indptr[start : stop + 1]
        numbers = slice(pointers[0], pointers[-1])
        parts = self._X.data[numbers], self._X.indices[numbers], pointers - pointers[0]
        return csr_array(parts, shape=(stop - start, self.shape[1]), copy=False)

    def read(self, start: int, stop: int) -> Array:
        """Return rows `start` to `stop` as a (stop - start, d) array."""
        return as_dense(self.part(start, stop))


@dataclass(frozen=True)
class Standardisation:
    """The map from raw rows to the standardised rows of the solver: `(x - mean) / scale`.

    Columns that are not `varying` (d,) are left out. `indicators` (d,) are the columns of which all
    values are 0 or 1, None if that was not determined. With a `basis` (varying, r) of orthonormal
    directions, the rows become their coordinates in them.
    """

    mean: Array
    scale: Array
    varying: Array
    indicators: Array | None = None
    basis: Array | None = None

    @classmethod
    def from_moments(cls, columns: ColumnMoments) -> Standardisation:
        """Return the map by the mean and population deviation of columns that vary."""
        n, mean, variance = columns.n_rows, columns.mean, columns.squares / columns.weight
        # The variance of a constant column is rounding only: its mean times epsilon, squared.
        eps = np.finfo(np.float64).eps
        varies = (columns.high > columns.low) & (variance > (n * mean * eps) ** 2)
        # Columns that hold nothing but 0 and 1 have the variance `mean (1 - mean)`. Among the
        # columns from 0 to 1 it is the largest, which they alone have.
        has_largest = np.abs(variance - mean * (1 - mean)) <= _ROUNDINGS * n * eps
        indicators = np.asarray((columns.low == 0) & (columns.high == 1) & has_largest)
        return cls(mean, np.where(varies, np.sqrt(variance), 1.0), varies, indicators)

    @property
    def n_columns(self) -> int:
        """Number of columns of the standardised rows."""
        return int(self.varying.sum()) if self.basis is None else self.basis.shape[1]

    def apply(self, raw: Array, dtype: np.dtype[Any]) -> Array:
        """Return the (b, varying) or (b, r) rows in `dtype`."""
        if not self.varying.all():
            # Not raw[:, varying]: that is stored column by column, and its rows are slow to select.
            raw = np.take(raw, np.flatnonzero(self.varying), axis=1)
        mean, scale, limits = self.mean[self.varying], self.scale[self.varying], _SINGLE
        fits_single = ((scale > limits.tiny) & (scale < limits.max)).all()
        fits_single &= (np.abs(mean) <= _MAX_MEAN * scale).all()
        precision = dtype if fits_single else np.dtype(np.float64)
        rows: Array = raw.astype(precision, order="C")
        rows -= mean.astype(precision)
        rows /= scale.astype(precision)
        if self.basis is not None:
            rows = rows @ self.basis.astype(precision)
        return rows.astype(dtype, copy=False)


@dataclass(frozen=True, eq=False)
class ColumnMoments:
    """Moments (d,) of the columns of rows; the sum of two is that of all their rows.

    `weight` is that of all rows together. `squares` are sums of squared deviations from the mean.
    `low` and `high` are equal exactly for a constant column.
    """

    n_rows: int
    weight: float
    mean: Array
    squares: Array
    low: Array
    high: Array

    @property
    def deviation(self) -> Array:
        """The standard deviation of each column, (d,)."""
        return np.sqrt(self.squares / self.weight)

    @classmethod
    def from_rows(cls, X: Array, weights: Array | None = None) -> ColumnMoments:
        """Return the moments of rows X (b, d) in float64, with weights (b,) if they differ."""
        X = X.astype(np.float64, copy=False)
        low, high = X.min(axis=0), X.max(axis=0)
        weights = np.ones(len(X)) if weights is None else weights
        total = float(weights.sum())
        shares = weights / (total or 1.0)
        mean = shares @ X
        # The mean of the deviations is the rounding error of the mean.
        mean += shares @ (X - mean)
        return cls(len(X), total, mean, weights @ (X - mean) ** 2, low, high)

    def __add__(self, other: ColumnMoments) -> ColumnMoments:
        """Return the moments of both sets of rows together."""
        # Deviations from means (Chan, Golub and LeVeque), as sums of squares would lose digits.
        weight = self.weight + other.weight
        share = other.weight / weight if weight else 0.0
        difference = other.mean - self.mean
        mean = self.mean + difference * share
        between = difference**2 * (self.weight * other.weight / weight if weight else 0.0)
        return ColumnMoments(
            self.n_rows + other.n_rows,
            weight,
            mean,
            self.squares + other.squares + between,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )


@dataclass(frozen=True)
class LoadedShard:
    """A shard as functions get it: rows X (b, d), standardised and cast.

    `start` is the index of its first row. `facts` are the arrays (b, ...) that `with_rows` or
    `derive` attached to the shards.
    """

    start: int
    X: Array
    facts: Mapping[RowFact, Array]


class ShardRef:
    """A shard before it is loaded; its rows and its facts may still be Dask tasks.

    `raw` is the rows, or a `partial` that reads them from a `RowSource`. It is not a dataclass,
    since Dask would search every field of a dataclass for collections, each time.
    """

    def __init__(self, start: int, raw: Any, facts: Mapping[RowFact, Any]) -> None:
        self.start, self.raw, self.facts = start, raw, facts

    def load(
        self, dtype: np.dtype[Any], affine: Standardisation | None, indices: Array | None = None
    ) -> LoadedShard:
        """Return the shard in `dtype`, standardised by `affine`: all rows, or those of `indices`.

        The other rows are not standardised.
        """
        rows = self.raw() if isinstance(self.raw, partial) else self.raw
        facts = {name: _aligned(values) for name, values in self.facts.items()}
        if indices is not None:
            rows = rows[indices]
            facts = {name: values[indices] for name, values in facts.items()}
        if affine is not None:
            return LoadedShard(self.start, affine.apply(rows, dtype), facts)
        return LoadedShard(self.start, _aligned(rows.astype(dtype, copy=False)), facts)


def _aligned(array: Array) -> Array:
    """Return `array` with aligned memory, as BLAS needs it.

    An array from a message may begin at any byte. NumPy then multiplies in a loop of its own,
    whose last bits differ: the answer would depend on how the message was packed.
    """
    return array if array.flags.aligned else np.require(array, requirements="A")


def tile_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the precision of tiles: float32 for types that it holds exactly, else float64."""
    return np.dtype(np.float32 if np.dtype(dtype) in _EXACT_IN_SINGLE else np.float64)


def project(X: Any, mean: Array, scale: Array, components: Array) -> Array:
    """Return `(X - mean) / scale` times `components^T`: (n, q) for X (n, d) and components (q, d).

    It is computed in double precision; rows in single precision give results in single precision.
    """
    weights, dtype = (components / scale).T, np.float32 if X.dtype == np.float32 else np.float64
    if is_sparse(X):
        return np.asarray(X @ weights - mean @ weights).astype(dtype)
    Z = np.empty((X.shape[0], len(components)), dtype=dtype)
    for rows in pieces(len(X)):
        # The mean is subtracted first: subtracted from the product, it would cancel the digits.
        Z[rows] = (X[rows] - mean) @ weights
    return Z


def column_contributions(X: Any, mean: Array, scale: Array, components: Array) -> Array:
    """Return what each column adds to each new feature (n, d, q): its sum over d is `project`."""
    weights, dtype = (components / scale).T, np.float32 if X.dtype == np.float32 else np.float64
    added = np.empty((X.shape[0], *weights.shape), dtype=dtype)
    for rows in pieces(len(added)):
        deviations = as_dense(X[rows]) - mean
        np.multiply(deviations[:, :, None], weights, out=added[rows], casting="same_kind")
    return added
