"""The tasks of the engine `blocks`: sums over the drawn pairs with a row in one shard.

Each pair of rows is visited from both of its sides, so that no task needs the degrees of another.
A task returns its part of Phi, of Phi W or of J, and nothing that grows with n.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.random_pairs import PairDesign, ShardPair
from ism_dask.engines.row_facts import PROJECTED, project_rows, terms_with_widths
from ism_dask.engines.tile_sums import TileSums
from ism_dask.engines.tile_walk import TileArea, TileModel, TileSide, ignore_overflow
from ism_dask.gamma.base import GAMMA_FACTS
from ism_dask.kernels.pairing import INNER
from ism_dask.rows.tasks import LoadedShard

# Rows of the tiles of Gamma that are computed for the diagonal alone.
_ROWS = 64

Partial: TypeAlias = tuple[Array | None, Array]


@dataclass(frozen=True, eq=False)
class PairProblem:
    """The problem as a task sees it, with the design of the pairs.

    Attributes
    ----------
    model : TileModel
    design : PairDesign
    starts : tuple of int
        The first row of each shard.
    measured : bool
        Whether the variance of J by the choice of groups is estimated too.
    """

    model: TileModel
    design: PairDesign
    starts: tuple[int, ...]
    measured: bool = False

    def number(self, piece: LoadedShard) -> int:
        """Return the index of a shard."""
        return self.starts.index(piece.start)


class _PairWalk(TileSums):
    """A walk over the pairs of the rows of one shard.

    Attributes
    ----------
    sums : (r + 2,) array
        The contribution to J of the pairs of a row with itself, that of each of the r rounds,
        and the variance of J by the choice of groups.
    row_degrees : (b,) array
        The degrees of the head, including the contribution to Phi of a row with itself.
    row_moved : (b, k) array
        `(coupling Psi) Z` of the head.
    """

    both_sides = False

    def __init__(
        self,
        head: LoadedShard,
        pairs: PairProblem,
        *,
        moves: bool = False,
        crosses: bool = False,
    ) -> None:
        rows = len(head.X)
        model = replace(pairs.model, n_rows=rows)
        super().__init__(replace(head, start=0), model, moves=moves, crosses=crosses)
        self.pairs, self.design, self.number = pairs, pairs.design, pairs.number(head)
        self.edges = pairs.design.edges(rows)
        self.sums = np.zeros(pairs.design.rounds + 2)
        self.row_degrees, self.row_moved = np.zeros(rows), np.zeros_like(self.moved)

    def adjust_diagonal(self, gamma: Array, area: TileArea) -> None:
        """Set Gamma of a row with itself to 0: these pairs are not drawn, but summed separately."""
        np.fill_diagonal(gamma, 0.0)

    def side(self, piece: LoadedShard) -> TileSide:
        """Return the side of a shard with its rows in the order of their groups."""
        return super().side(self.design.dealt(piece))

    def walk_shard(self, piece: LoadedShard, side: TileSide) -> None:
        """Visit the tiles that are drawn from the head and one shard."""
        number = self.pairs.number(piece)
        if number == self.design.tails[self.number][0]:
            self._add_diagonal()
        edges = self.design.edges(len(piece.X))
        for pair in self.design.between(self.number, number):
            self._visit_shard_pair(pair, side, edges)

    def _visit_shard_pair(self, pair: ShardPair, side: TileSide, edges: list[int]) -> None:
        weight, share = self.design.weight(pair), self.design.shifts / self.design.groups
        self.weight, total = weight, 0.0
        for area in self._tile_areas(pair, edges):
            contrast = 0.0
            for part, sign in _quarters(area) if self.pairs.measured else [(area, 1.0)]:
                self.visit(side, part)
                contrast += sign * self.objective
                total += self.objective
                self.objective = 0.0
            if pair.leads and self.pairs.measured:
                self.sums[-1] += (1.0 - share) * (weight * contrast) ** 2
        # `TileSums` doubles J for the side of each pair that it does not visit; here both are.
        self.sums[1 + pair.round] += 0.5 * weight * total
        self.row_degrees += weight * self.degrees
        self.row_moved += weight * self.moved
        self.degrees[:] = 0.0
        self.moved[:] = 0.0

    def _tile_areas(self, pair: ShardPair, edges: list[int]) -> Iterator[TileArea]:
        """Yield the tile areas of two shards; within one shard, each pair of groups is an area."""
        shifts, groups = self.design.shifts, self.design.groups
        for group in range(groups):
            top, bottom = self.edges[group : group + 2]
            for step in range(shifts) if pair.own else [0]:
                begin = (group + pair.first + step) % groups
                end = begin + (1 if pair.own else shifts)
                for left, right in [(begin, min(end, groups)), (0, end - groups)]:
                    if left < right and top < bottom and edges[left] < edges[right]:
                        square = (bottom - top) * (pair.own and begin == group)
                        yield TileArea(top, bottom, edges[left], edges[right], square)

    def _add_diagonal(self) -> None:
        """Add the contribution of each row with itself."""
        head, gamma, dtype = self.head, self.model.gamma, np.dtype(np.float64)
        facts = head.facts[GAMMA_FACTS]
        rows, columns = gamma.as_rows(facts, dtype), gamma.as_columns(facts, dtype)
        own = np.empty((1, len(head.X)))
        for start in range(0, len(head.X), _ROWS):
            batch = slice(start, start + _ROWS)
            size = len(head.X[batch])
            tile = gamma.tile(rows[batch], columns[..., batch], np.empty((size, size)))
            own[0, batch] = tile.diagonal()
        Z = head.facts[PROJECTED].astype(np.float64)
        for weight, term, widths in terms_with_widths(self.model.kernel, head):
            scale = None if widths is None else widths[None] ** 2
            beta = term.pairing.own(Z)[None]
            self.sums[0] += weight * float(np.sum(own * term.value(beta.copy(), scale)))
            if term.pairing is INNER:
                self.row_degrees += weight * (own * term.slope(beta, scale))[0]


def _quarters(area: TileArea) -> Iterator[tuple[TileArea, float]]:
    """Yield the quarters of an area, with the signs of a contrast.

    Row and column effects, which do not depend on how rows are paired, cancel in the contrast.
    What remains is due to the random choice of pairs.
    """
    middle, centre = (area.top + area.bottom + 1) // 2, (area.left + area.right + 1) // 2
    rows, columns = [area.top, middle, area.bottom], [area.left, centre, area.right]
    for i, (top, bottom) in enumerate(pairwise(rows)):
        for j, (left, right) in enumerate(pairwise(columns)):
            if top < bottom and left < right:
                square = (bottom - top) * bool(area.square and i == j)
                yield TileArea(top, bottom, left, right, square), 1.0 if i == j else -1.0


@ignore_overflow
def phi_of_sampled_pairs(
    head: LoadedShard, tails: Iterator[LoadedShard], pairs: PairProblem, W: Array
) -> Partial:
    """Return the contribution of the rows of a shard to Phi (d, d), and the sums of the walk."""
    head = _with_projection(pairs.design.dealt(head), W)
    walk = _PairWalk(head, pairs, crosses=True)
    walk.walk(_with_projection(tail, W) for tail in tails)
    P = walk.crossed
    P *= walk.model.unit
    P += walk.row_degrees.astype(P.dtype)[:, None] * head.X
    return (head.X.T @ P).astype(np.float64), walk.sums


@ignore_overflow
def gradient_of_sampled_pairs(
    head: LoadedShard, tails: Iterator[LoadedShard], pairs: PairProblem
) -> Partial:
    """Return the contribution of the rows of a shard to Phi W (d, k), and the sums of the walk.

    The rows of the tails are the projected ones.
    """
    head = pairs.design.dealt(head)
    walk = _PairWalk(head, pairs, moves=True)
    walk.walk(tails)
    inner = walk.row_moved + walk.row_degrees[:, None] * head.facts[PROJECTED]
    return (head.X.T @ inner.astype(head.X.dtype)).astype(np.float64), walk.sums


def objective_of_sampled_pairs(
    head: LoadedShard, tails: Iterator[LoadedShard], pairs: PairProblem
) -> Partial:
    """Return the sums of the walk over a shard; the rows of heads and tails are projected ones."""
    walk = _PairWalk(pairs.design.dealt(head), pairs)
    walk.walk(tails)
    return None, walk.sums


def _with_projection(piece: LoadedShard, W: Array) -> LoadedShard:
    return replace(piece, facts={**piece.facts, PROJECTED: project_rows(piece, W)})
