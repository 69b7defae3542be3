"""Sums over the tiles of a stripe: J, the degrees, and the parts of Phi or of Phi W.

A stripe pairs the rows of one shard, the head, with its own rows and with those of the next half
of the other shards, so that all stripes together visit each pair once. No more than one tile is
stored.

Tiles on the diagonal have half the weight, so that all results are made symmetric in the same way:
`cross + cross^T`, sums over both sides, and twice the objective.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from sklearn.utils import gen_batches

from ism_dask._types import Array
from ism_dask.engines.tiles import (
    TileArea,
    TileModel,
    TileSide,
    coupling_of,
    ignore_overflow,
    tile_terms,
)
from ism_dask.kernels import Kernel, PointwiseKernel
from ism_dask.rows.raw import LoadedShard, RowFact
from ism_dask.rows.shards import Shards

# Elementwise operations work on blocks that fit into a core's second-level cache.
_BLOCK = 512
# The product with X works on groups of rows that are long enough for BLAS to run at full speed. On
# the diagonal half of a group's square is wasted, so groups are shorter there if X is read.
_GROUP = 1024
_DIAGONAL_GROUP = 256
# The most multiplications of a product that BLAS does without packing, and the fewest rows of a
# strip.
_SMALL_PRODUCT, _LEAST_STRIP = 1_000_000, 64
# Rows of a tile of a kernel matrix: with the rows of a shard as columns it takes a few megabytes.
_MATRIX_ROWS = 256
# The rows of V (b, k), the matrix on the right of a kernel matrix.
_V = RowFact("V")


class _Buffers:
    """Buffers of a stripe: to allocate them for each block would cost more than the arithmetic."""

    def __init__(self, dtype: np.dtype[np.floating]) -> None:
        self._dtype, self._memory = dtype, [np.empty(0, dtype)] * 5

    def matrix(self, which: int, shape: tuple[int, int]) -> Array:
        size = math.prod(shape)
        if self._memory[which].size < size:
            self._memory[which] = np.empty(size, self._dtype)
        return self._memory[which][:size].reshape(shape)


class TileSums:
    """Adds up J and the degrees of tiles in float64, and the sums for Phi W or for Phi.

    `degrees` (n,) are `degree * Psi 1`. If it `moves`, `moved` (n, k) is `(coupling Psi) Z`, for
    Phi W. If it `crosses`, `crossed` (b, d) has the rows of the head of `(coupling Psi / unit) X`,
    for Phi. Otherwise these have no columns, or no rows.
    """

    @ignore_overflow
    def __init__(
        self,
        head: LoadedShard,
        tail: Iterator[LoadedShard],
        model: TileModel,
        *,
        moves: bool = False,
        crosses: bool = False,
    ) -> None:
        self.head = head
        self.model, self.moves, self.crosses = model, moves, crosses
        self.left = TileSide.from_shard(head, model, are_columns=False)
        self.buffers = _Buffers(head.X.dtype)
        self.degrees = np.zeros(model.n_rows)
        self.moved = np.zeros((model.n_rows, self.left.Z.shape[1] if moves else 0))
        self.crossed = np.zeros_like(head.X if crosses else head.X[:0])
        self.objective = 0.0
        for piece in tail:
            side = TileSide.from_shard(piece, model, are_columns=True)
            for area in self._areas(piece):
                M = self.buffers.matrix(3, area.shape) if crosses else None
                for block in area.cut(_BLOCK):
                    self._block(side, block, None if M is None else block.within(M, area))
                if M is not None:
                    # M is `coupling * Psi / unit` of the area.
                    crossed = self.buffers.matrix(4, (len(M), piece.X.shape[1]))
                    np.matmul(M, piece.X[area.columns], out=crossed)
                    self.crossed[area.rows] += crossed

    def _areas(self, piece: LoadedShard) -> Iterator[TileArea]:
        """Yield groups of rows with all columns; on the diagonal, with those of the upper triangle.

        Without products with X, a group on the diagonal is a block.
        """
        diagonal = self.head.start == piece.start
        own_size = _DIAGONAL_GROUP if self.crosses else _BLOCK
        size = own_size if diagonal else _GROUP
        height, width = len(self.head.X), len(piece.X)
        for top in range(0, height, size):
            bottom = min(top + size, height)
            yield TileArea(top, bottom, top * diagonal, width, (bottom - top) * diagonal)

    def _block(self, right: TileSide, area: TileArea, into: Array | None) -> None:
        """Add a block of every term to the sums, and write it to `into` unless that is None."""
        of_gamma, of_beta, of_value = (self.buffers.matrix(each, area.shape) for each in range(3))
        rows, columns = self.left.gamma[area.rows], right.gamma[..., area.columns]
        gamma = self.model.gamma.tile(rows, columns, out=of_gamma)
        gamma[:, : area.square] *= 0.5  # on the diagonal each pair of rows is visited twice
        terms = tile_terms(self.model.kernel, self.left, right, area, out=of_beta)
        for index, (weight, term, beta, scale) in enumerate(terms):
            if term.value_per_unit_slope is None:
                value = term.value(beta, out=of_value)
                value *= gamma
                sums = (value @ right.ones[area.columns]).astype(np.float64)
                self.objective += 2 * weight * float(sums.sum())
                if into is None and not self.moves:
                    continue
            unit_slope = term.unit_slope(beta, out=beta)
            tile = np.multiply(unit_slope, gamma, out=unit_slope)
            if scale is not None:
                tile *= scale
            # Sum before copying, while the block is still in the cache.
            self._add_sums(tile, weight, term, area, right)
            if into is not None and index == 0:
                into[...] = tile
            elif into is not None:
                into += (weight * coupling_of(term) / self.model.unit) * tile

    def _add_sums(
        self, tile: Array, weight: float, term: PointwiseKernel, area: TileArea, right: TileSide
    ) -> None:
        """Add the sums of `tile` (Gamma times the unit slope) to J, the degrees and Phi W.

        A row paired with itself is set to 0 after it was added to J: in Phi it cancels exactly
        because `x_i - x_i` is 0. In single precision, with a narrow kernel, the rounding error of
        that cancellation would exceed all other contributions.
        """
        ratio, degree = term.value_per_unit_slope, weight * term.amplitude * term.pairing.degree
        if ratio is None and not degree and not self.moves:
            return
        if area.square and degree:
            own = np.diag_indices(area.square)
            if ratio is not None:
                self.objective += 2 * weight * ratio * float(tile[own].sum())
            tile[own] = 0.0
        columns = right.moving if self.moves else right.ones
        sums = _by_strips(tile, columns[area.columns])
        if ratio is not None:
            self.objective += 2 * weight * ratio * float(sums[:, -1].sum())
        factor, start = weight * coupling_of(term), self.head.start + area.top
        self._add_rows(start, sums, factor, degree)
        if degree or self.moves:
            rows = self.left.moving if self.moves else self.left.ones
            sums = _by_strips(tile.T, rows[area.rows])
            self._add_rows(right.piece.start + area.left, sums, factor, degree)

    def _add_rows(self, start: int, sums: Array, factor: float, degree: float) -> None:
        """Add products (h, k + 1) with Z and ones to `moved` and `degrees`, from row `start` on."""
        rows = slice(start, start + len(sums))
        self.moved[rows] += factor * sums[:, :-1]
        self.degrees[rows] += degree * sums[:, -1]


def _by_strips(tile: Array, columns: Array) -> Array:
    """Return `tile @ columns` (h, k) in float64, computed by strips of the tile's rows.

    Small products are twice as fast: above a million multiplications BLAS packs its operands.
    """
    (height, width), k = tile.shape, columns.shape[1]
    strip = max(_LEAST_STRIP, _SMALL_PRODUCT // (width * k) // _LEAST_STRIP * _LEAST_STRIP)
    product = np.empty((height, k))
    for top in range(0, height, strip):
        product[top : top + strip] = tile[top : top + strip] @ columns
    return product


@ignore_overflow
def phi_of_pairs(
    head: LoadedShard, tail: Iterator[LoadedShard], model: TileModel
) -> tuple[Array, Array, float]:
    """Return C (d, d), the degrees (n,) and J of a stripe.

    Summed over all stripes, `C + C^T` is `X^T (coupling Psi) X`.
    """
    stripe = TileSums(head, tail, model, crosses=True)
    cross = (head.X.T @ stripe.crossed).astype(np.float64)
    cross *= model.unit
    return cross, stripe.degrees, stripe.objective


def gradient_of_pairs(
    head: LoadedShard, tail: Iterator[LoadedShard], model: TileModel
) -> tuple[Array, Array, float]:
    """Return `(coupling Psi) Z` (n, k) of a stripe, its degrees (n,) and J."""
    stripe = TileSums(head, tail, model, moves=True)
    return stripe.moved, stripe.degrees, stripe.objective


def objective_of_pairs(head: LoadedShard, tail: Iterator[LoadedShard], model: TileModel) -> float:
    """Return J of a stripe."""
    return TileSums(head, tail, model).objective


def stripe_bytes(rows: int, model: TileModel, d: int, k: int, itemsize: int) -> int:
    """Return the peak memory of a stripe, in bytes, beside the raw shards passed to it.

    `rows` is the number of rows of the largest shard, k the number of columns of W.
    """
    blocks = 3 * _BLOCK**2 + _GROUP * rows
    shards = 4 * rows * d  # head, tail, the tail before it, and P
    sides = 2 * rows * (3 * (k + 2) + len(model.gamma.signs))  # Z, its operands, Gamma
    partial = 8 * (3 * d * d + 2 * model.n_rows * (1 + k))  # cast, scaled, and added
    partial += 3 * 8 * _BLOCK**2  # a block of a Gamma that is computed on the fly
    return itemsize * (blocks + shards + sides + _GROUP * d + d * d) + partial


def kernel_matvec(points: Shards, kernel: Kernel, V: Array) -> Array:
    """Return `K V` (n, k) for V (n, k), without K: the rows of `points` are the projected ones.

    The kernel is an affinity, which has no per-row widths.
    """
    total = points.with_rows(_V, V).fold_pairs(_kernel_times_vectors, kernel, points.n_rows)
    return np.asarray(total)


def _kernel_times_vectors(
    head: LoadedShard, tail: Iterator[LoadedShard], kernel: Kernel, n_rows: int
) -> Array:
    V = head.facts[_V]
    total = np.zeros((n_rows, V.shape[1]))
    for piece in tail:
        for batch in gen_batches(len(head.X), _MATRIX_ROWS):
            tile = kernel.matrix(head.X[batch], piece.X)
            top = head.start + batch.start
            total[top : top + len(tile)] += tile @ piece.facts[_V].astype(tile.dtype)
            if piece.start != head.start:  # on the diagonal the transposed tile is another one
                rows = slice(piece.start, piece.start + len(piece.X))
                total[rows] += tile.T @ V[batch].astype(tile.dtype)
    return total
