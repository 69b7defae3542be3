"""Multiply a kernel matrix with a few columns tile by tile, without storing the matrix.

The rows are projected ones, and the kernel is an affinity, which has no per-row widths.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.tile_walk import TileArea, TileWalk
from ism_dask.kernels import Kernel
from ism_dask.rows.shards import Shards
from ism_dask.rows.tasks import LoadedShard, RowFact

# Rows of a tile: with the rows of a shard as columns it takes a few megabytes.
_ROWS = 256
# The rows of V (b, k), the matrix on the right.
_V = RowFact("V")


def kernel_values(kernel: Kernel, rows: Array, columns: Array) -> Array:
    """Return the kernel matrix (a, b) between projected rows (a, q) and (b, q)."""
    total: Array | None = None
    for weight, term in kernel.terms:
        left, right = term.pairing.operands(rows)[0], term.pairing.operands(columns)[1]
        beta = term.beta(left, right)
        value = term.value(beta, out=beta)
        value *= weight
        total = value if total is None else np.add(total, value, out=total)
    if total is None:
        raise TypeError("a kernel has one term or more")
    return total


def kernel_matvec(points: Shards, kernel: Kernel, V: Array) -> Array:
    """Return `K V` (n, k) for V (n, k); the rows of `points` are the projected ones."""
    total = points.with_rows(_V, V).fold_pairs(_kernel_times_vectors, kernel, points.n_rows)
    return np.asarray(total)


class _ProductWalk(TileWalk[LoadedShard]):
    """A walk that adds up `K V` (n, k) of a stripe."""

    def __init__(self, head: LoadedShard, kernel: Kernel, n_rows: int) -> None:
        super().__init__(head)
        self.kernel = kernel
        self.total = np.zeros((n_rows, head.facts[_V].shape[1]))

    def side(self, piece: LoadedShard) -> LoadedShard:
        """Return the shard itself."""
        return piece

    def areas(self, piece: LoadedShard) -> Iterator[TileArea]:
        """Yield tiles of a few rows of the head with all rows of the shard."""
        yield from TileArea.of(self.head, piece).cut(_ROWS, len(piece.X))

    def visit(self, side: LoadedShard, area: TileArea) -> None:
        """Add the products of a tile and of its transpose; on the diagonal they are the same."""
        tile = kernel_values(self.kernel, self.head.X[area.rows], side.X)
        self._add(self.head.start + area.top, tile, side.facts[_V])
        if side.start != self.head.start:
            self._add(side.start, tile.T, self.head.facts[_V][area.rows])

    def _add(self, first: int, tile: Array, V: Array) -> None:
        self.total[first : first + len(tile)] += tile @ V.astype(tile.dtype)


def _kernel_times_vectors(
    head: LoadedShard, tail: Iterator[LoadedShard], kernel: Kernel, n_rows: int
) -> Array:
    walk = _ProductWalk(head, kernel, n_rows)
    walk.walk(tail)
    return walk.total
