"""The engines of blocks: J, Phi and Phi W as means over blocks of rows, each a small problem.

No block needs another one, so that time grows with the number of rows, and no matrix is larger than
a block. Blocks are in memory, or are dealt within the shards of rows that are not.

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
from ism_dask.criteria.dependence import AllPairs
from ism_dask.criteria.prediction import Block, Explained, RidgeRegression
from ism_dask.engines.base import DeclinedError, Engine, Problem
from ism_dask.engines.constant import ConstantSlope, weighted_gram
from ism_dask.engines.operator import Evaluation, PhiEvaluation, ProductEvaluation
from ism_dask.engines.row_facts import PROJECTED, project_rows, terms_with_widths
from ism_dask.engines.tile_sums import (
    gradient_of_pairs,
    objective_of_pairs,
    phi_of_pairs,
    stripe_bytes,
)
from ism_dask.engines.tile_walk import TileModel, ignore_overflow
from ism_dask.gamma.base import GAMMA_FACTS, Gamma, ThinGamma
from ism_dask.kernels import Kernel
from ism_dask.kernels.graph_kernel import ValueAsSlope
from ism_dask.linalg.subspaces import tangent
from ism_dask.rows.blocks import MEMORY_BYTES, PAIR_ROWS, deal, is_balanced, number_of_blocks
from ism_dask.rows.execution import side_by_side
from ism_dask.rows.shards import Shards, cut
from ism_dask.rows.tasks import LoadedShard, RowFact

_Result = TypeVar("_Result")
# The columns of Y (b, r), then the weights (b, 1) if there are some.
_TARGET = RowFact("prediction target")
# With fewer blocks, their differences say little of the noise between them.
_LEAST_FOR_NOISE = 4
# From this number of rows on, the pairs within blocks are taken in place of all pairs.
_FROM_ROWS = 10_000
# Sums over blocks: J, a matrix and a square, from which the noise between blocks follows, each
# times the size of the block; then these sizes, and the number of blocks.
_Sums = tuple[Array, Array, Array, Array, Array]


class RegressionBlocks(ABC):
    """Blocks of rows that a regression is fitted to, one by one."""

    @abstractmethod
    def _summed(self, regression: RidgeRegression, W: Array) -> _Sums:
        """Return the sums over all blocks, with the squared lengths of tangents."""

    def explained(self, regression: RidgeRegression, W: Array) -> Explained:
        """Return J and Phi W (d, q), the means over blocks, with the noise between blocks."""
        sums = self._summed(regression, W)
        objective, product, _, size, count = sums
        mean = product / size
        if count < _LEAST_FOR_NOISE:
            return Explained(float(objective / size), mean)
        noise = _standard_error(sums, float(np.sum(tangent(W, mean) ** 2)))
        return Explained(float(objective / size), mean, noise)


@dataclass(frozen=True, eq=False)
class BlocksInMemory(RegressionBlocks):
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
class BlocksOfShards(RegressionBlocks):
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
        return _times_size(0.0, np.zeros_like(W), 0.0, 0.0)
    count = number_of_blocks(rows.n_rows)
    blocks = deal(rows.Y[:, 0], count, seed + shard.start)
    return _added([_sums_of(regression, rows.part(numbers), W) for numbers in blocks])


def _sums_of(regression: RidgeRegression, block: Block, W: Array) -> _Sums:
    value = regression.explained(block, W)
    square = float(np.sum(tangent(W, value.product) ** 2))
    return _times_size(value.objective, value.product, square, block.size)


def _times_size(objective: float, matrix: Array, square: float, size: float) -> _Sums:
    """Return the sums of one block, of none if its size is 0."""
    return (
        np.array(size * objective),
        size * matrix,
        np.array(size * square),
        np.array(size),
        np.array(float(size > 0)),
    )


def _added(sums: Sequence[_Sums]) -> _Sums:
    """Return the sum of the sums of blocks, added in their order."""
    first, *others = sums
    for other in others:
        first = tuple(a + b for a, b in zip(first, other, strict=True))  # type: ignore[assignment]
    return first


def _standard_error(sums: _Sums, square: float) -> float:
    """Return the standard error of a mean over blocks with this squared length; 0 for one block."""
    _, _, squares, size, count = sums
    spread = float(squares / size) - square
    return float(np.sqrt(max(spread, 0.0) / (count - 1))) if count > 1 else 0.0


class BlockEngine(Engine):
    """O(n B (q + r + d)) time: the pairs of rows within blocks of B rows stand for all pairs.

    Blocks are dealt once, so that J is a smooth function of W: the solver converges to a maximum of
    it, and a certificate is about it. `Evaluation.error` adds the standard error of J between
    blocks to the bound on rounding. The deal of rows in memory is over all of them, of other rows
    within their shards. With one block of all rows, J is that of the exact engine.

    Attributes
    ----------
    rows : int
        The number of rows of a block, B.
    """

    name = "blocks"

    def __init__(self, problem: Problem, q: int, rows: int = PAIR_ROWS) -> None:
        super().__init__(problem, q)
        self.rows = rows

    @classmethod
    def refusal(cls, problem: Problem, q: int) -> str | None:
        """Return a reason if rows are sparse or slopes are no slopes, otherwise None."""
        if problem.shards.nonzeros is not None:
            return "it deals dense rows, and these are sparse"
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
        if shards.n_rows * shards.n_columns * shards.dtype.itemsize <= MEMORY_BYTES:
            return replace(problem, shards=_shuffled(problem, self.rows))
        facts = shards.gather_fact(GAMMA_FACTS)
        if not all(is_balanced(column, shards.bounds) for column in facts.T):
            raise DeclinedError(
                "the rows are sorted by their target and not in memory, so that chunks of them do "
                "not stand for all rows; store the rows in random order, or take engine='exact'"
            )
        return problem

    @cached_property
    def _model(self) -> _BlockModel:
        problem = self._dealt
        gamma = problem.gamma
        total, trace = problem.shards.fold(_gamma_sums, gamma)
        pairs = AllPairs(problem.shards.n_rows, total, gamma.signs, float(trace))
        return _BlockModel(problem.kernel, gamma, pairs, self.rows, problem.seed)

    def phi0(self) -> Array:
        """Return Phi0, the matrix of the start, which has a closed form over all pairs."""
        return ConstantSlope(self.problem.linearised(), self.q).phi0()

    def phi(self, W: Array) -> PhiEvaluation:
        """Return J and Phi at W."""
        J, phi, error = self._mean(_phi_of_block, W)
        return PhiEvaluation(J, phi, **self._accuracy(J, error))

    def product(self, W: Array) -> ProductEvaluation:
        """Return J and Phi W."""
        J, product, error = self._mean(_product_of_block, W)
        return ProductEvaluation(J, product, **self._accuracy(J, error))

    def value(self, W: Array) -> Evaluation:
        """Return J at W."""
        J, _, error = self._mean(_value_of_block, W)
        return Evaluation(J, **self._accuracy(J, error))

    def _mean(
        self, function: Callable[[_PairBlock], tuple[float, Array]], W: Array
    ) -> tuple[float, Array, float]:
        """Return the means over blocks of J and of a matrix, and the standard error of J."""
        shards, (d, k) = self._dealt.shards, W.shape
        m = min(shards.largest, 2 * self.rows)
        tiles = TileModel(self.problem.kernel, self.problem.gamma, m)
        needed = shards.raw_bytes + stripe_bytes(m, tiles, d, k, shards.dtype.itemsize)
        self._check_memory(d + k, needed, f"blocks of {m} rows x {d} columns")
        sums: _Sums = shards.fold(_sums_over_pairs, self._model, W, function)
        objective, matrix, _, n, _ = sums
        error = n * _standard_error(sums, float(objective / n) ** 2)
        return float(objective), matrix, float(error)


def _shuffled(problem: Problem, block_rows: int) -> Shards:
    """Return the rows of a problem with each block as a shard."""
    shards, n = problem.shards, problem.shards.n_rows
    rows = shards.load_rows(np.arange(n))
    blocks = _dealt_rows(problem.gamma, rows.facts[GAMMA_FACTS], block_rows, problem.seed)
    order = np.concatenate(blocks)
    dealt = cut(rows.X[order], max(map(len, blocks)))
    for fact, values in rows.facts.items():
        dealt = dealt.with_rows(fact, values[order])
    return dealt


def _dealt_rows(gamma: Gamma, facts: Array, block_rows: int, seed: int) -> list[Array]:
    """Return the numbers of the rows of each block; each has its share of every class."""
    count, groups = number_of_blocks(len(facts), block_rows), gamma.groups(facts)
    if count == 1:
        return [np.arange(len(facts))]
    return deal(np.zeros(len(facts)) if groups is None else groups, count, seed)


@dataclass(frozen=True, eq=False)
class _PairBlock:
    """The rows of a block with their Gamma, projected by W.

    Attributes
    ----------
    head : LoadedShard
    model : TileModel
    missing : (m,) array
        The diagonal of Gamma minus that of the model.
    """

    head: LoadedShard
    model: TileModel
    missing: Array

    def tail(self) -> Iterator[LoadedShard]:
        """Return the rows as the only ones that they are paired with."""
        return iter([self.head])

    def completed(self, objective: float, degrees: Array) -> tuple[float, Array]:
        """Return J and the degrees (m,) with the missing part of the diagonal.

        Where a row has no distance from itself, it does not enter Phi.
        """
        Z = self.head.facts[PROJECTED].astype(np.float64)
        for weight, term, widths in terms_with_widths(self.model.kernel, self.head):
            beta = term.pairing.own(Z)[:, None]
            scale = None if widths is None else widths[:, None] ** 2
            objective += weight * float(self.missing @ term.value(beta.copy(), scale)[:, 0])
            if not term.pairing.degree:
                slope = term.pairing.coupling * term.slope(beta, scale)[:, 0]
                degrees = degrees + weight * self.missing * slope
        return objective, degrees


@dataclass(frozen=True, eq=False)
class _BlockModel:
    """What tasks need to make blocks of a shard: small objects that travel with each of them."""

    kernel: Kernel
    gamma: Gamma
    pairs: AllPairs
    rows: int
    seed: int

    def blocks(self, shard: LoadedShard, W: Array) -> Iterator[_PairBlock]:
        """Yield the blocks of a shard, for W (d, k)."""
        Z, facts = project_rows(shard, W), shard.facts[GAMMA_FACTS]
        U = self.gamma.factor(facts)
        for chosen in _dealt_rows(self.gamma, facts, self.rows, self.seed + shard.start):
            gamma = self.pairs.in_block(U[chosen])
            own = {name: values[chosen] for name, values in shard.facts.items()}
            own |= {GAMMA_FACTS: gamma.U, PROJECTED: Z[chosen]}
            head = LoadedShard(0, shard.X[chosen], own)
            model = TileModel(self.kernel, ThinGamma(gamma.signs), len(gamma.U))
            yield _PairBlock(head, model, gamma.missing)


def _gamma_sums(shard: LoadedShard, gamma: Gamma) -> tuple[Array, Array]:
    U = gamma.factor(shard.facts[GAMMA_FACTS])
    return U.sum(axis=0), np.asarray((U * U).sum(axis=0) @ gamma.signs)


@ignore_overflow
def _sums_over_pairs(
    shard: LoadedShard,
    model: _BlockModel,
    W: Array,
    function: Callable[[_PairBlock], tuple[float, Array]],
) -> _Sums:
    def sums_of(block: _PairBlock) -> _Sums:
        objective, matrix = function(block)
        size = len(block.missing)
        # J of the block is its share of J of all rows: the mean is that of a row.
        mean = objective / size
        return _times_size(mean, matrix / size, mean**2, float(size))

    return _added([sums_of(block) for block in model.blocks(shard, W)])


def _phi_of_block(block: _PairBlock) -> tuple[float, Array]:
    cross, degrees, J = phi_of_pairs(block.head, block.tail(), block.model)
    objective, degrees = block.completed(J, degrees)
    matrix = cross + cross.T
    if degrees.any():
        matrix += weighted_gram(block.head.X, degrees)
    return objective, matrix


def _product_of_block(block: _PairBlock) -> tuple[float, Array]:
    moved, degrees, J = gradient_of_pairs(block.head, block.tail(), block.model)
    objective, degrees = block.completed(J, degrees)
    head = block.head
    inner = moved + degrees[:, None] * head.facts[PROJECTED]
    product = head.X.T @ inner.astype(head.X.dtype)
    return objective, product.astype(np.float64)


def _value_of_block(block: _PairBlock) -> tuple[float, Array]:
    _, degrees, J = objective_of_pairs(block.head, block.tail(), block.model)
    return block.completed(J, degrees)[0], np.empty(0)
