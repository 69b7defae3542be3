"""The engine of blocks: J and Phi W as means over blocks of rows, each a small dense problem.

No block needs another one, so that time grows with the number of rows, and no matrix is larger than
a block. Blocks are in memory, or are dealt within the shards of rows that are not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from ism_dask._types import Array
from ism_dask.criteria.prediction import Block, Explained, RidgeRegression
from ism_dask.linalg.subspaces import tangent
from ism_dask.rows.blocks import deal, number_of_blocks
from ism_dask.rows.execution import side_by_side
from ism_dask.rows.shards import Shards
from ism_dask.rows.tasks import LoadedShard, RowFact

_Result = TypeVar("_Result")
# The columns of Y (b, r), then the weights (b, 1) if there are some.
_TARGET = RowFact("prediction target")
# With fewer blocks, their differences say little of the noise between them.
_LEAST_FOR_NOISE = 4
# Sums of blocks: J, Phi W and the squared length of its tangential part, each times the sum of the
# block's weights; then these sums, and the number of blocks.
_Sums = tuple[Array, Array, Array, Array, Array]


class Blocks(ABC):
    """Blocks of rows that a regression is fitted to, one by one."""

    @abstractmethod
    def _summed(self, regression: RidgeRegression, W: Array) -> _Sums:
        """Return the sums over all blocks."""

    def explained(self, regression: RidgeRegression, W: Array) -> Explained:
        """Return J and Phi W (d, q), the means over blocks, with the noise between blocks."""
        objective, product, squares, size, count = self._summed(regression, W)
        mean, k = product / size, int(count)
        if k < _LEAST_FOR_NOISE:
            return Explained(float(objective / size), mean)
        spread = float(squares / size) - float(np.sum(tangent(W, mean) ** 2))
        return Explained(float(objective / size), mean, float(np.sqrt(max(spread, 0.0) / (k - 1))))


@dataclass(frozen=True, eq=False)
class BlocksInMemory(Blocks):
    """Blocks in memory; threads of this process share them."""

    blocks: tuple[Block, ...]

    @classmethod
    def dealt(cls, rows: Block, keys: Array, seed: int) -> BlocksInMemory:
        """Return rows, dealt into blocks by their keys (n,)."""
        k = number_of_blocks(rows.n_rows)
        return cls((rows,) if k == 1 else tuple(rows.part(p) for p in deal(keys, k, seed)))

    @property
    def n_rows(self) -> int:
        """The number of rows of all blocks."""
        return sum(block.n_rows for block in self.blocks)

    def _summed(self, regression: RidgeRegression, W: Array) -> _Sums:
        return _added(self._each(lambda block: _sums_of(regression, block, W)))

    def evidence(self, regression: RidgeRegression, W: Array) -> float:
        """Return the sum over blocks of the log marginal likelihood of a column of Y."""
        return sum(self._each(lambda block: regression.evidence(block, W)))

    def leave_one_out(self, regression: RidgeRegression, W: Array) -> Array:
        """Return the squared error (n,) with which the rows of its block predict each row.

        The rows are in the order of the blocks.
        """
        return np.concatenate(self._each(lambda block: regression.leave_one_out(block, W)))

    def _each(self, function: Callable[[Block], _Result]) -> list[_Result]:
        """Return the results of a function of each block; threads share several blocks."""
        calls = [partial(function, block) for block in self.blocks]
        return side_by_side(calls, self.n_rows if len(calls) > 1 else 0)


@dataclass(frozen=True, eq=False)
class BlocksOfShards(Blocks):
    """Blocks within the shards of rows that are not in memory, or on a cluster."""

    shards: Shards
    weighted: bool
    seed: int

    @classmethod
    def of(cls, shards: Shards, rows: Array, weights: Array | None, seed: int) -> BlocksOfShards:
        """Return shards with the target rows Y (n, r) and weights (n,), dealt into blocks."""
        facts = rows if weights is None else np.column_stack([rows, weights])
        return cls(shards.with_rows(_TARGET, facts).persisted(), weights is not None, seed)

    def _summed(self, regression: RidgeRegression, W: Array) -> _Sums:
        sums: _Sums = self.shards.fold(_shard_sums, regression, W, self.weighted, self.seed)
        return sums


def _shard_sums(
    shard: LoadedShard, regression: RidgeRegression, W: Array, weighted: bool, seed: int
) -> _Sums:
    facts = shard.facts[_TARGET]
    rows = Block(shard.X, facts[:, :-1], facts[:, -1]) if weighted else Block(shard.X, facts)
    rows = rows.counted
    if not rows.n_rows:
        zero = np.array(0.0)
        return zero, np.zeros_like(W), zero, zero, zero
    count = number_of_blocks(rows.n_rows)
    blocks = deal(rows.Y[:, 0], count, seed + shard.start)
    return _added([_sums_of(regression, rows.part(numbers), W) for numbers in blocks])


def _sums_of(regression: RidgeRegression, block: Block, W: Array) -> _Sums:
    value = regression.explained(block, W)
    square = np.sum(tangent(W, value.product) ** 2)
    sizes = (value.objective, value.product, square, 1.0)
    return (*(np.asarray(block.size * each) for each in sizes), np.array(1.0))  # type: ignore[return-value]


def _added(sums: Sequence[_Sums]) -> _Sums:
    """Return the sum of the sums of blocks, added in their order."""
    first, *others = sums
    for other in others:
        first = tuple(a + b for a, b in zip(first, other, strict=True))  # type: ignore[assignment]
    return first
