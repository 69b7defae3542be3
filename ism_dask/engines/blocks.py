"""Blocks of rows for prediction that are not in memory, dealt within ranges of rows.

No block needs another one, so that time grows with the number of rows, and no matrix is larger than
a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ism_dask._types import Array
from ism_dask.criteria.prediction import Arrays, RegressionRows, RowsInMemory, added
from ism_dask.rows.raw import (
    RANGE_ROWS,
    LoadedShard,
    RowFact,
    deal,
    number_of_blocks,
    rows_of_a_block,
)
from ism_dask.rows.shards import Shards

# The columns of Y (b, r), then the weights (b, 1) if there are some.
_TARGET = RowFact("prediction target")
# Standard errors by which the mean key of a range of unsorted rows differs at most.
_SORTED = 8.0


def dealt_ranges(keys: Array, weights: Array | None, seed: int, block_rows: int) -> Iterator[Array]:
    """Yield the row numbers of blocks within ranges of rows, without rows of weight 0."""
    n = len(keys)
    for start in range(0, n, RANGE_ROWS):
        rows = np.arange(start, min(start + RANGE_ROWS, n))
        rows = rows if weights is None else rows[weights[rows] != 0]
        if len(rows):
            count = number_of_blocks(len(rows), block_rows)
            yield from (rows[part] for part in deal(keys[rows], count, seed + start))


def is_balanced(keys: Array) -> bool:
    """Return whether the mean key of each range of rows is like that of all rows.

    Rows that are sorted by their keys (n,) are not balanced.
    """
    mean, spread = keys.mean(), keys.std()
    bounds = [*range(0, len(keys), RANGE_ROWS), len(keys)]
    return all(
        abs(keys[start:stop].mean() - mean) <= _SORTED * spread / np.sqrt(stop - start)
        for start, stop in pairwise(bounds)
    )


@dataclass(frozen=True)
class DealOfShards:
    """How ranges of rows are dealt into blocks, up to which row, and whether rows have weights."""

    block_rows: int
    seed: int
    weighted: bool
    stop: int

    def blocks(self, shard: LoadedShard) -> tuple[RowsInMemory, Iterator[Array]]:
        """Return the rows of a shard, and the numbers of the rows of each of its blocks."""
        facts = shard.facts[_TARGET]
        X, Y = shard.X, facts[:, :-1] if self.weighted else facts
        rows = RowsInMemory(X, Y, facts[:, -1] if self.weighted else None)
        n, seed = min(rows.n_rows, self.stop - shard.start), self.seed + shard.start
        return rows, dealt_ranges(Y[:n, 0], rows.weights, seed, self.block_rows)


@dataclass(frozen=True, eq=False)
class BlocksOfShards(RegressionRows):
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

    def summed(self, function: Callable[[RowsInMemory], Arrays]) -> Arrays:
        """Return the sums over all blocks of what a function returns for each."""
        sums: Arrays = self.shards.fold(shard_sums, function, self.dealt)
        return sums


def shard_sums(
    shard: LoadedShard, function: Callable[[RowsInMemory], Arrays], dealt: DealOfShards
) -> Arrays:
    """Return the sums over the blocks of a shard, which may have none, computed by NumPy."""
    rows, parts = dealt.blocks(shard)
    return added([function(rows.part(numbers)) for numbers in [np.arange(0), *parts]])
