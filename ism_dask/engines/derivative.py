"""Compute the derivative of Phi(W) W, for second-order steps and conditions, by tiles.

The derivative is that of the true kernel, whichever engine computed W: it contains f'', for which
no engine has a low-rank factor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.row_facts import project_rows
from ism_dask.engines.tile_walk import TileArea, TileModel, TileSide, TileWalk, tile_terms
from ism_dask.kernels.pairing import Moving, Pairing
from ism_dask.rows.shards import Shards
from ism_dask.rows.tasks import LoadedShard, RowFact

if TYPE_CHECKING:
    from ism_dask.engines.base import Problem

# Rows and columns of a tile, which takes a few megabytes, and the number of its copies.
_ROWS, _COLUMNS, _COPIES = 256, 2048, 10
# The rows times W and times the direction, side by side (b, 2k).
_MOVING = RowFact("moving")
# The rows (b, k) whose product with X^T is the derivative.
_CONTRIBUTIONS = RowFact("contributions")


def phi_derivative(problem: Problem, W: Array, Z: Array) -> Array:
    """Return `Phi Z + DPhi[Z] W` (d, k), the derivative of `Phi(W) W` at W (d, k) along Z (d, k).

    It is half the derivative of the gradient of J. It takes one pass over all pairs, O(n^2 k).
    """
    points = problem.shards.derive(_MOVING, project_rows, np.hstack([W, Z])).persisted()
    model = TileModel(problem.kernel, problem.gamma, problem.shards.n_rows)
    contributions = points.fact_as_rows(_MOVING, 2 * W.shape[1]).fold_pairs(
        _derivative_of_pairs, model
    )
    return np.asarray(
        points.with_rows(_CONTRIBUTIONS, contributions).fold(_derivative_from_pair_sums)
    )


class _DerivativeWalk(TileWalk[TileSide]):
    """A walk that adds up the contributions (n, k) of a stripe, before the product with X^T."""

    def __init__(self, head: LoadedShard, model: TileModel) -> None:
        super().__init__(head)
        self.model = model
        self.left = TileSide.left(head, _moving(head).P, model)
        self.total = np.zeros((model.n_rows, self.left.Z.shape[1]))

    def side(self, piece: LoadedShard) -> TileSide:
        """Return the side of a shard whose rows are the columns of tiles."""
        return TileSide.right(piece, _moving(piece).P, self.model)

    def areas(self, piece: LoadedShard) -> Iterator[TileArea]:
        """Yield tiles of all rows of both shards, on the diagonal too."""
        yield from TileArea.of(self.head, piece).cut(_ROWS, _COLUMNS)

    def visit(self, side: TileSide, area: TileArea) -> None:
        """Add the contributions of a tile to the rows on its two sides."""
        own = self.head.start == side.piece.start
        left = Moving(*(each[area.rows] for each in _moving(self.head)))
        right = Moving(*(each[area.columns] for each in _moving(side.piece)))
        gamma = self.model.gamma.tile(
            self.left.gamma[area.rows],
            side.gamma[..., area.columns],
            out=np.empty((area.height, area.width), left.P.dtype),
        )
        here, there = np.zeros_like(left.P), np.zeros_like(right.P)
        for weight, term, beta, scale in tile_terms(self.model.kernel, self.left, side, area):
            weighted = weight * gamma if scale is None else weight * gamma * scale
            # The terms of a row with itself cancel exactly: they are dropped, so that rounding
            # cannot keep a rest of them, as in `tile_sums`.
            if own and term.pairing.degree:
                weighted *= _off_diagonal(area)
            psi = weighted * term.slope(beta)
            change = term.pairing.change(left, right)
            if scale is not None:
                change *= scale
            psi_change = weighted * term.second_derivative(beta) * change
            parts = _term_contributions(term.pairing, psi, psi_change, left, right)
            here += parts[0]
            there += parts[1]
        self._add(self.head.start + area.top, here)
        if not own:
            self._add(side.piece.start + area.left, there)

    def _add(self, first: int, contributions: Array) -> None:
        self.total[first : first + len(contributions)] += contributions


def _derivative_of_pairs(head: LoadedShard, tail: Iterator[LoadedShard], model: TileModel) -> Array:
    walk = _DerivativeWalk(head, model)
    walk.walk(tail)
    return walk.total


def _moving(piece: LoadedShard) -> Moving:
    return Moving(*np.hsplit(piece.facts[_MOVING], 2))


def phi_derivative_bytes(shards: Shards, k: int) -> int:
    """Return the peak memory, in bytes, of a task of `phi_derivative` for k columns of W."""
    tile = min(_ROWS, shards.largest) * min(_COLUMNS, shards.largest)
    sums = 8 * shards.n_rows * k
    return _COPIES * tile * shards.dtype.itemsize + 2 * sums


def _off_diagonal(area: TileArea) -> Array:
    """Return ones (a, b), with zeros at the pairs of a row with itself."""
    return np.not_equal.outer(np.arange(area.top, area.bottom), np.arange(area.left, area.right))


def _term_contributions(
    pairing: Pairing, psi: Array, psi_change: Array, left: Moving, right: Moving
) -> tuple[Array, Array]:
    """Return the contributions (a, k) and (b, k) of a term to the rows on the sides of a tile."""
    here = pairing.coupling * (psi @ right.Q + psi_change @ right.P)
    there = pairing.coupling * (psi.T @ left.Q + psi_change.T @ left.P)
    if pairing.degree:
        here += pairing.degree * _degrees(psi, psi_change, left)
        there += pairing.degree * _degrees(psi.T, psi_change.T, right)
    return here, there


def _degrees(psi: Array, psi_change: Array, own: Moving) -> Array:
    return psi.sum(axis=1)[:, None] * own.Q + psi_change.sum(axis=1)[:, None] * own.P


def _derivative_from_pair_sums(piece: LoadedShard) -> Array:
    product = np.matmul(piece.X.T, piece.facts[_CONTRIBUTIONS].astype(piece.X.dtype))
    return product.astype(np.float64)
