"""Blocks of rows for prediction: J and Phi W as means over blocks, each a small regression.

No block needs another one, so that time grows with the number of rows, and no matrix is larger than
a block. Blocks are in memory, or are dealt within ranges of rows that are not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from ism_dask._types import Array
from ism_dask.criteria.curvature import Tangents, curvature
from ism_dask.criteria.prediction import Block, Explained, RidgeRegression
from ism_dask.linalg.subspaces import tangent
from ism_dask.rows.blocks import (
    RANGE_ROWS,
    deal,
    number_of_blocks,
    rows_of_a_block,
)
from ism_dask.rows.shards import Shards
from ism_dask.rows.tasks import LoadedShard, RowFact
from ism_dask.threads import in_threads

_Result = TypeVar("_Result")
Arrays = TypeVar("Arrays", bound=tuple[Array, ...])
# The columns of Y (b, r), then the weights (b, 1) if there are some.
_TARGET = RowFact("prediction target")
# With fewer blocks, their differences say little of the noise between them.
_LEAST_FOR_NOISE = 4
# Sums over blocks: J, a matrix and a square, from which the noise between blocks follows, each
# times the size of the block; then these sizes, and the number of blocks.
Sums = tuple[Array, Array, Array, Array, Array]


class RegressionBlocks(ABC):
    """Blocks of rows that a regression is fitted to, one by one."""

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """The number of rows of all blocks."""

    @abstractmethod
    def first(self, n_rows: int) -> RegressionBlocks:
        """Return the first blocks, which have at least this number of rows, or all blocks."""

    @abstractmethod
    def _summed(self, function: Callable[[Block], Arrays]) -> Arrays:
        """Return the sums over all blocks of what a function returns for each."""

    def _sums(self, regression: RidgeRegression, W: Array) -> Sums:
        """Return the sums of J and Phi W over all blocks."""
        return self._summed(partial(sums_of, regression, W))

    def explained(self, regression: RidgeRegression, W: Array) -> Explained:
        """Return J and Phi W (d, q), the means over blocks, with the noise between blocks."""
        sums = self._sums(regression, W)
        objective, product, _, size, count = sums
        mean = product / size
        if count < _LEAST_FOR_NOISE:
            return Explained(float(objective / size), mean)
        noise = _standard_error(sums, float(np.sum(tangent(W, mean) ** 2)))
        return Explained(float(objective / size), mean, noise)

    def curvature(self, regression: RidgeRegression, tangents: Tangents) -> tuple[Array, Array]:
        """Return the second derivative (p, p) of 1 - J, and the covariance (p, p) of its slope."""
        hessian, squares, size = self._summed(partial(curvature, regression, tangents))
        return hessian / size, squares / size**2


@dataclass(frozen=True, eq=False)
class BlocksInMemory(RegressionBlocks):
    """Blocks in memory; threads of this process share them."""

    blocks: tuple[Block, ...]

    @classmethod
    def dealt(
        cls, rows: Block, keys: Array, seed: int, block_rows: int | None = None
    ) -> BlocksInMemory:
        """Return rows, dealt by their keys (n,) into blocks of the usual or another size."""
        parts = dealt_rows(keys, seed, block_rows)
        return cls((rows,) if len(parts) == 1 else tuple(map(rows.part, parts)))

    @property
    def n_rows(self) -> int:
        """The number of rows of all blocks."""
        return sum(block.n_rows for block in self.blocks)

    def first(self, n_rows: int) -> BlocksInMemory:
        """Return the first blocks, which have at least this number of rows, or all blocks."""
        return BlocksInMemory(self.blocks[: -(-n_rows * len(self.blocks) // self.n_rows)])

    def _summed(self, function: Callable[[Block], Arrays]) -> Arrays:
        return added(self._each(function))

    def evidence(self, regression: RidgeRegression, W: Array) -> float:
        """Return the sum over blocks of the log marginal likelihood of a column of Y."""
        return sum(self._each(lambda block: regression.evidence(block, W)))

    def leave_one_out(self, regression: RidgeRegression, W: Array) -> Array:
        """Return the squared error (n,) with which the rows of its block predict each row.

        It is multiplied by the weight of the row. The rows are in the order of the blocks.
        """
        return np.concatenate(self._each(lambda block: regression.leave_one_out(block, W)))

    def _each(self, function: Callable[[Block], _Result]) -> list[_Result]:
        """Return the results of a function of each block; threads share several blocks."""
        calls = [partial(function, block) for block in self.blocks]
        return in_threads(calls, self.n_rows if len(calls) > 1 else 0)


def dealt_rows(keys: Array, seed: int, block_rows: int | None = None) -> list[Array]:
    """Return the row numbers of blocks of the usual or another size; `keys` (n,) deal the rows."""
    n = len(keys)
    k = number_of_blocks(n, block_rows or rows_of_a_block(n))
    return [np.arange(n)] if k == 1 else deal(keys, k, seed)


def dealt_ranges(keys: Array, weights: Array | None, seed: int, block_rows: int) -> Iterator[Array]:
    """Yield the row numbers of blocks within ranges of rows, without rows of weight 0."""
    n = len(keys)
    for start in range(0, n, RANGE_ROWS):
        rows = np.arange(start, min(start + RANGE_ROWS, n))
        rows = rows if weights is None else rows[weights[rows] != 0]
        if len(rows):
            count = number_of_blocks(len(rows), block_rows)
            yield from (rows[part] for part in deal(keys[rows], count, seed + start))


@dataclass(frozen=True)
class DealOfShards:
    """How ranges of rows are dealt into blocks, up to which row, and whether rows have weights."""

    block_rows: int
    seed: int
    weighted: bool
    stop: int

    def blocks(self, shard: LoadedShard) -> tuple[Block, Iterator[Array]]:
        """Return the rows of a shard, and the numbers of the rows of each of its blocks."""
        facts = shard.facts[_TARGET]
        X, Y = shard.X, facts[:, :-1] if self.weighted else facts
        rows = Block(X, Y, facts[:, -1] if self.weighted else None)
        n, seed = min(rows.n_rows, self.stop - shard.start), self.seed + shard.start
        return rows, dealt_ranges(Y[:n, 0], rows.weights, seed, self.block_rows)


@dataclass(frozen=True, eq=False)
class BlocksOfShards(RegressionBlocks):
    """Blocks within the shards of rows that are not in memory, or on a cluster."""

    shards: Shards
    dealt: DealOfShards

    @classmethod
    def dealt_within(
        cls, shards: Shards, rows: Array, weights: Array | None, seed: int
    ) -> BlocksOfShards:
        """Return shards with the target rows Y (n, r) and weights (n,), dealt into blocks."""
        facts = rows if weights is None else np.column_stack([rows, weights])
        shards = shards.with_rows(_TARGET, facts).persisted()
        n = shards.n_rows
        return cls(shards, DealOfShards(rows_of_a_block(n), seed, weights is not None, n))

    @property
    def n_rows(self) -> int:
        """The number of rows of all blocks."""
        return self.dealt.stop

    def first(self, n_rows: int) -> BlocksOfShards:
        """Return the blocks of the first ranges of rows that have this number of rows or more."""
        stop = min(-(-n_rows // RANGE_ROWS) * RANGE_ROWS, self.shards.n_rows)
        return replace(self, shards=self.shards.first(stop), dealt=replace(self.dealt, stop=stop))

    def _summed(self, function: Callable[[Block], Arrays]) -> Arrays:
        sums: Arrays = self.shards.fold(shard_sums, function, self.dealt)
        return sums


def shard_sums(
    shard: LoadedShard, function: Callable[[Block], Arrays], dealt: DealOfShards
) -> Arrays:
    """Return the sums over the blocks of a shard, which may have none, computed by NumPy."""
    rows, parts = dealt.blocks(shard)
    return added([function(rows.part(numbers)) for numbers in [np.arange(0), *parts]])


def sums_of(regression: RidgeRegression, W: Array, block: Block) -> Sums:
    """Return the sums of J and Phi W over one block, zeros if it has no rows."""
    if not block.n_rows:
        return _times_size(0.0, np.zeros_like(W), 0.0, 0.0)
    value = regression.explained(block, W)
    square = float(np.sum(tangent(W, value.product) ** 2))
    return _times_size(value.objective, value.product, square, block.size)


def _times_size(objective: float, matrix: Array, square: float, size: float) -> Sums:
    """Return the sums of one block, of none if its size is 0."""
    return (
        np.array(size * objective),
        size * matrix,
        np.array(size * square),
        np.array(size),
        np.array(float(size > 0)),
    )


def added(sums: Sequence[Arrays]) -> Arrays:
    """Return the sum of the sums of blocks, added in their order."""
    return tuple(sum(each) for each in zip(*sums, strict=True))  # type: ignore[return-value]


def _standard_error(sums: Sums, square: float) -> float:
    """Return the standard error of a mean over blocks with this squared length; 0 for one block."""
    _, _, squares, size, count = sums
    spread = float(squares / size) - square
    return float(np.sqrt(max(spread, 0.0) / (count - 1))) if count > 1 else 0.0
