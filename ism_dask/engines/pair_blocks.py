"""The pairs of rows within blocks, whose sums stand for those over all pairs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ism_dask._types import Array
from ism_dask.criteria.dependence import AllPairs
from ism_dask.engines.base import Problem
from ism_dask.engines.constant import weighted_gram
from ism_dask.engines.row_facts import PROJECTED, project_rows
from ism_dask.engines.tile_sums import gradient_of_pairs, objective_of_pairs, phi_of_pairs
from ism_dask.engines.tiles import TileModel
from ism_dask.gamma.base import GAMMA_FACTS, Gamma, ThinGamma
from ism_dask.kernels import Kernel
from ism_dask.rows.blocks import deal, number_of_blocks
from ism_dask.rows.shards import Shards, cut
from ism_dask.rows.tasks import LoadedShard


def shuffled(problem: Problem, block_rows: int) -> Shards:
    """Return the rows of a problem with each block as a shard."""
    shards, n = problem.shards, problem.shards.n_rows
    rows = shards.in_double().load_rows(np.arange(n))
    blocks = _dealt_rows(n, block_rows, problem.seed)
    order = np.concatenate(blocks)
    dealt = cut(rows.X[order], max(map(len, blocks)))
    for fact, values in rows.facts.items():
        dealt = dealt.with_rows(fact, values[order])
    return dealt.cast(shards.dtype)


def _dealt_rows(n: int, block_rows: int, seed: int) -> list[Array]:
    """Return the numbers of the rows of each block, at random.

    If each block had its share of every class, pairs within a class would be too few.
    """
    count = number_of_blocks(n, block_rows)
    return [np.arange(n)] if count == 1 else deal(np.zeros(n), count, seed)


@dataclass(frozen=True, eq=False)
class PairBlock:
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

    def rest(self) -> tuple[float, Array]:
        """Return what the missing part of the diagonal adds to J and to the degrees (m,).

        It does not enter Phi where a row has no distance from itself.
        """
        Z = self.head.facts[PROJECTED].astype(np.float64)
        objective, degrees = 0.0, np.zeros(len(Z))
        for weight, term in self.model.kernel.terms:
            # 0 for distances, whatever the width of a row.
            beta = term.pairing.own(Z)
            objective += weight * float(self.missing @ term.value(beta.copy()))
            if not term.pairing.degree:
                slope = weight * term.pairing.coupling * term.slope(beta)
                degrees += self.missing * slope
        return objective, degrees


@dataclass(frozen=True, eq=False)
class BlockModel:
    """What tasks need to make blocks of a shard: small objects that travel with each of them."""

    kernel: Kernel
    gamma: Gamma
    pairs: AllPairs
    rows: int
    range_rows: int
    seed: int

    def blocks(self, shard: LoadedShard, W: Array) -> Iterator[PairBlock]:
        """Yield the blocks of a shard, which are dealt within ranges of its rows, for W (d, k)."""
        Z, U = project_rows(shard, W), self.gamma.factor(shard.facts[GAMMA_FACTS])
        for chosen in self._dealt(len(U), shard.start):
            gamma = self.pairs.in_block(U[chosen])
            own = {name: values[chosen] for name, values in shard.facts.items()}
            own |= {GAMMA_FACTS: gamma.U, PROJECTED: Z[chosen]}
            head = LoadedShard(0, shard.X[chosen], own)
            model = TileModel(self.kernel, ThinGamma(gamma.signs), len(gamma.U))
            yield PairBlock(head, model, gamma.missing)

    def _dealt(self, n: int, first: int) -> Iterator[Array]:
        """Yield the rows (m,) of each block of the n rows of a shard, whose `first` is given."""
        for start in range(0, n, self.range_rows):
            size = min(self.range_rows, n - start)
            for block in _dealt_rows(size, self.rows, self.seed + first + start):
                yield start + block


def gamma_sums(shard: LoadedShard, gamma: Gamma) -> tuple[Array, Array]:
    """Return the sums (r,) of the columns of U, and the trace of Gamma."""
    U = gamma.factor(shard.facts[GAMMA_FACTS])
    return U.sum(axis=0), np.asarray((U * U).sum(axis=0) @ gamma.signs)


def phi_of_block(block: PairBlock) -> tuple[float, Array]:
    """Return J and Phi (d, d) of a block."""
    cross, degrees, objective = phi_of_pairs(block.head, block.tail(), block.model)
    rest, more_degrees = block.rest()
    degrees += more_degrees
    matrix = cross + cross.T
    if degrees.any():
        matrix += weighted_gram(block.head.X, degrees)
    return objective + rest, matrix


def product_of_block(block: PairBlock) -> tuple[float, Array]:
    """Return J and Phi W (d, k) of a block."""
    moved, degrees, objective = gradient_of_pairs(block.head, block.tail(), block.model)
    rest, more_degrees = block.rest()
    X, Z = block.head.X, block.head.facts[PROJECTED]
    inner = moved + (degrees + more_degrees)[:, None] * Z
    return objective + rest, np.asarray(X.T @ inner.astype(X.dtype), dtype=np.float64)


def value_of_block(block: PairBlock) -> tuple[float, Array]:
    """Return J of a block, and no matrix."""
    objective = objective_of_pairs(block.head, block.tail(), block.model)
    return objective + block.rest()[0], np.empty(0)
