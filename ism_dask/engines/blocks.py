"""The engines of blocks: J, Phi and Phi W as means over blocks of rows, each a small problem.

No block needs another one, so that time grows with the number of rows, and no matrix is larger than
a block. Blocks are in memory, or are dealt within ranges of rows that are not.

For prediction the value of a block is that of a regression on its rows; for dependence it is the
sum over the pairs within the block.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TypeVar

import numpy as np

from ism_dask._types import Array
from ism_dask.criteria.curvature import Tangents, curvature
from ism_dask.criteria.dependence import AllPairs
from ism_dask.criteria.prediction import Block, Explained, RidgeRegression
from ism_dask.engines.base import DeclinedError, Engine, Problem
from ism_dask.engines.constant import ConstantSlope
from ism_dask.engines.operator import Evaluation, PhiEvaluation, ProductEvaluation
from ism_dask.engines.pair_blocks import (
    BlockModel,
    PairBlock,
    gamma_sums,
    phi_of_block,
    product_of_block,
    shuffled,
    value_of_block,
)
from ism_dask.engines.tile_sums import stripe_bytes
from ism_dask.engines.tiles import TileModel, ignore_overflow
from ism_dask.gamma.base import GAMMA_FACTS
from ism_dask.kernels.graph_kernel import ValueAsSlope
from ism_dask.linalg.subspaces import tangent
from ism_dask.rows.blocks import (
    PAIR_ROWS,
    RANGE_ROWS,
    deal,
    fits_memory,
    is_balanced,
    number_of_blocks,
    rows_of_a_block,
)
from ism_dask.rows.execution import side_by_side
from ism_dask.rows.shards import Shards
from ism_dask.rows.tasks import LoadedShard, RowFact

_Result = TypeVar("_Result")
Arrays = TypeVar("Arrays", bound=tuple[Array, ...])
# The columns of Y (b, r), then the weights (b, 1) if there are some.
_TARGET = RowFact("prediction target")
# With fewer blocks, their differences say little of the noise between them.
_LEAST_FOR_NOISE = 4
# From this number of rows on, the pairs within blocks are taken in place of all pairs.
_FROM_ROWS = 10_000
# Sums over blocks: J, a matrix and a square, from which the noise between blocks follows, each
# times the size of the block; then these sizes, and the number of blocks.
Sums = tuple[Array, Array, Array, Array, Array]


class RegressionBlocks(ABC):
    """Blocks of rows that a regression is fitted to, one by one."""

    @property
    def place(self) -> str:
        """Where the blocks are computed, if not by NumPy alone."""
        return ""

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """The number of rows of all blocks."""

    @abstractmethod
    def first(self, n_rows: int) -> RegressionBlocks:
        """Return the first blocks, which have this number of rows or more if there are so many."""

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
        """Return the first blocks, which have this number of rows or more if there are so many."""
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
        return side_by_side(calls, self.n_rows if len(calls) > 1 else 0)


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
    def of(cls, shards: Shards, rows: Array, weights: Array | None, seed: int) -> BlocksOfShards:
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


class BlockEngine(Engine):
    """O(n B (q + r + d)) time: the pairs of rows within blocks of B rows stand for all pairs.

    Blocks are dealt once, so that J is a smooth function of W: the solver converges to a maximum of
    it, and a certificate is about it. `Evaluation.error` adds the standard error of J between
    blocks to the bound on rounding. The deal of rows in memory is over all of them, of larger rows
    within ranges. With one block of all rows, J is that of the exact engine.

    Attributes
    ----------
    rows : int
        The number of rows of a block, B.
    """

    name = "blocks"
    objective_name = "J over the pairs within blocks"

    def __init__(self, problem: Problem, q: int, rows: int = PAIR_ROWS) -> None:
        super().__init__(problem, q)
        self.rows = rows

    @classmethod
    def refusal(cls, problem: Problem, q: int) -> str | None:
        """Return a reason if rows are sparse or slopes are no slopes, otherwise None."""
        if any(isinstance(term, ValueAsSlope) for _, term in problem.kernel.terms):
            return "it has no values of the kernel between rows of different blocks"
        return None

    @classmethod
    def advised(cls, problem: Problem, q: int) -> bool:
        """Return whether there are enough rows."""
        return problem.shards.n_rows >= _FROM_ROWS

    @cached_property
    def double(self) -> BlockEngine:
        """The same engine with the same blocks in double precision."""
        problem = self._dealt.in_double()
        if problem is self._dealt:
            return self
        double = BlockEngine(problem, self.q, self.rows)
        double.note, double._dealt = self.note, problem
        return double

    @cached_property
    def _dealt(self) -> Problem:
        """The problem with shards that are random parts of the rows."""
        problem, shards = self.problem, self.problem.shards
        if self._fits_memory:
            return replace(problem, shards=shuffled(problem, self.rows))
        facts = shards.gather_fact(GAMMA_FACTS)
        if not all(is_balanced(column) for column in facts.T):
            raise DeclinedError(
                "the rows are sorted by their target and not in memory, so that chunks of them do "
                "not stand for all rows; store the rows in random order, or take engine='exact'"
            )
        return problem

    @property
    def _fits_memory(self) -> bool:
        return fits_memory((self.problem.shards.n_rows, self.problem.d))

    @cached_property
    def _model(self) -> BlockModel:
        problem = self._dealt
        gamma = problem.gamma
        total, trace = problem.shards.fold(gamma_sums, gamma)
        pairs = AllPairs(problem.shards.n_rows, total, gamma.signs, float(trace))
        range_rows = problem.shards.largest if self._fits_memory else RANGE_ROWS
        return BlockModel(problem.kernel, gamma, pairs, self.rows, range_rows, problem.seed)

    def phi0(self) -> Array:
        """Return Phi0, the matrix of the start, which has a closed form over all pairs."""
        return ConstantSlope(self.problem.linearised(), self.q).phi0()

    def phi(self, W: Array) -> PhiEvaluation:
        """Return J and Phi at W."""
        J, phi, error = self._mean(phi_of_block, W)
        return PhiEvaluation(J, phi, **self._accuracy(J, error))

    def product(self, W: Array) -> ProductEvaluation:
        """Return J and Phi W."""
        J, product, error = self._mean(product_of_block, W)
        return ProductEvaluation(J, product, **self._accuracy(J, error))

    def value(self, W: Array) -> Evaluation:
        """Return J at W."""
        J, _, error = self._mean(value_of_block, W)
        return Evaluation(J, **self._accuracy(J, error))

    def slope_noise(self, W: Array) -> float:
        """Return the standard error of Phi W between blocks, orthogonal to W, as a share of it."""
        sums = self._summed(product_of_block, W, partial(_square_of_tangent, W))
        mean = sums[1] / sums[3]
        noise = _standard_error(sums, float(np.sum(tangent(W, mean) ** 2)))
        return noise / float(np.linalg.norm(mean))

    def _mean(
        self, function: Callable[[PairBlock], tuple[float, Array]], W: Array
    ) -> tuple[float, Array, float]:
        """Return the means over blocks of J and of a matrix, and the standard error of J."""
        sums = self._summed(function, W, _square_of_objective)
        objective, matrix, _, n, _ = sums
        error = n * _standard_error(sums, float(objective / n) ** 2)
        return float(objective), matrix, float(error)

    def _summed(
        self,
        function: Callable[[PairBlock], tuple[float, Array]],
        W: Array,
        square: Callable[[float, Array], float],
    ) -> Sums:
        """Return the sums over blocks of J, a matrix, and a `square` of both."""
        shards, (d, k) = self._dealt.shards, W.shape
        m = min(shards.largest, 2 * self.rows)
        tiles = TileModel(self.problem.kernel, self.problem.gamma, m)
        needed = shards.raw_bytes + stripe_bytes(m, tiles, d, k, shards.dtype.itemsize)
        self._check_memory(d + k, needed, f"blocks of {m} rows x {d} columns")
        sums: Sums = shards.fold(_sums_over_pairs, self._model, W, function, square)
        return sums


def _square_of_objective(objective: float, _: Array) -> float:
    return objective**2


def _square_of_tangent(W: Array, _: float, product: Array) -> float:
    return float(np.sum(tangent(W, product) ** 2))


@ignore_overflow
def _sums_over_pairs(
    shard: LoadedShard,
    model: BlockModel,
    W: Array,
    function: Callable[[PairBlock], tuple[float, Array]],
    square: Callable[[float, Array], float],
) -> Sums:
    def sums_of(block: PairBlock) -> Sums:
        objective, matrix = function(block)
        size = len(block.missing)
        # J of the block is its share of J of all rows: the mean is that of a row.
        mean, matrix = objective / size, matrix / size
        return _times_size(mean, matrix, square(mean, matrix), float(size))

    return added([sums_of(block) for block in model.blocks(shard, W)])
