"""One stripe of kernel tiles: made, used and dropped, nothing larger than a tile kept.

A stripe is the rows of one shard, the head, against those of itself and of the next half of the
others, so that all stripes together see each pair once. Tiles on the diagonal count half, so that
everything here is symmetric: `cross + cross^T`, sums over both sides, and twice the objective.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeAlias

import numpy as np

from ism_dask._types import Array
from ism_dask.gamma.base import Gamma
from ism_dask.kernels import Kernel, PointwiseKernel
from ism_dask.rows import LoadedShard

# Elementwise work happens on blocks that stay in a core's second-level cache ...
_BLOCK = 512
# ... and the product with X on groups of rows, long enough for BLAS to run at full speed. On the
# diagonal half of a group's square is wasted, so groups are short there, where X is read.
_GROUP = 1024
_DIAGONAL_GROUP = 256
# Multiplications of a product that BLAS does without packing, and rows of a strip at least.
_SMALL_PRODUCT, _LEAST_STRIP = 1_000_000, 64

# A kernel that overflows is told once, by the solver, and not by every task.
QUIET = np.errstate(over="ignore", invalid="ignore")

StripeSums: TypeAlias = tuple[Array | None, Array, float]


@dataclass(frozen=True)
class TileModel:
    """The small things that a stripe needs: they travel with the task."""

    kernel: Kernel
    gamma: Gamma
    n_rows: int

    @property
    def unit(self) -> float:
        """What `coupling * Psi` is counted in: the constants of the first term."""
        weight, term = self.kernel.terms[0]
        return weight * _factor(term)


@dataclass(frozen=True)
class TileSide:
    """A piece with what its rows bring to every tile.

    `gamma` is what Gamma makes of its facts; for each term of the kernel, `operands` holds the
    factors of beta and `inverse_widths` the (b,) inverse widths, None for terms without.
    """

    piece: LoadedShard
    gamma: Array
    operands: tuple[Array, ...]
    inverse_widths: tuple[Array | None, ...]

    @cached_property
    def ones(self) -> Array:
        """A column of ones (b, 1): times a tile it gives sums."""
        return np.ones((len(self.piece.X), 1), self.piece.X.dtype)

    @cached_property
    def moving(self) -> Array:
        """Z with a column of ones beside it (b, k + 1)."""
        return np.hstack([self.piece.facts[-1], self.ones])

    @classmethod
    def left(cls, piece: LoadedShard, model: TileModel) -> TileSide:
        """Return the piece as rows of tiles."""
        return cls._of(piece, model, model.gamma.as_rows(piece.facts[0], piece.X.dtype), 0)

    @classmethod
    def right(cls, piece: LoadedShard, model: TileModel) -> TileSide:
        """Return the piece as columns of tiles."""
        return cls._of(piece, model, model.gamma.as_columns(piece.facts[0], piece.X.dtype), 1)

    @classmethod
    def _of(cls, piece: LoadedShard, model: TileModel, gamma: Array, side: int) -> TileSide:
        terms = [term for _, term in model.kernel.terms]
        pairs = {term.pairing: term.pairing.operands(piece.facts[-1]) for term in terms}
        local = iter(_inverse_widths(piece) if any(term.per_row_width for term in terms) else ())
        widths = tuple(next(local) if term.per_row_width else None for term in terms)
        return cls(piece, gamma, tuple(pairs[term.pairing][side] for term in terms), widths)


@dataclass(frozen=True)
class TileArea:
    """Rows `top:bottom` of the head against columns `left:right` of the tail.

    The first `square` columns are on the diagonal: they are the rows themselves.
    """

    top: int
    bottom: int
    left: int
    right: int
    square: int

    @property
    def height(self) -> int:
        """How many rows it has."""
        return self.bottom - self.top

    @property
    def width(self) -> int:
        """How many columns it has."""
        return self.right - self.left

    @property
    def rows(self) -> slice:
        """Its rows in the head."""
        return slice(self.top, self.bottom)

    @property
    def columns(self) -> slice:
        """Its columns in the tail."""
        return slice(self.left, self.right)

    def blocks(self) -> Iterator[TileArea]:
        """Cut into blocks that fit the cache."""
        edge = self.left + self.square
        for top in range(self.top, self.bottom, _BLOCK):
            for left in range(self.left, self.right, _BLOCK):
                yield TileArea(
                    top,
                    min(top + _BLOCK, self.bottom),
                    left,
                    min(left + _BLOCK, self.right),
                    min(max(edge - left, 0), _BLOCK),
                )

    def within(self, M: Array, group: TileArea) -> Array:
        """Return the part of M, which belongs to `group`, that is this block."""
        return M[
            self.top - group.top : self.bottom - group.top,
            self.left - group.left : self.right - group.left,
        ]


class _Buffers:
    """Buffers of a stripe: allocating them for each block would cost more than the arithmetic."""

    def __init__(self, dtype: np.dtype[np.floating]) -> None:
        self._buffers = [np.empty(_BLOCK * _BLOCK, dtype) for _ in range(3)]
        self._wide = np.empty(0, dtype)

    def block(self, which: int, area: TileArea) -> Array:
        return self._buffers[which][: area.height * area.width].reshape(area.height, area.width)

    def wide(self, height: int, width: int) -> Array:
        if self._wide.size < height * width:
            self._wide = np.empty(height * width, self._wide.dtype)
        return self._wide[: height * width].reshape(height, width)


_Collect: TypeAlias = Callable[[Array, TileArea, LoadedShard], None]


class Stripe:
    """A walk over the tiles of a stripe, which sums up in float64.

    Parameters
    ----------
    head : Piece
    model : Model
    moves : bool
        Whether Phi W is wanted, and not J or Phi.

    Attributes
    ----------
    degrees : (n,) array
    moved : (n, k) array
        `(coupling Psi) Z`, or no columns where that is not wanted.
    objective : float
        J.
    """

    both_sides: ClassVar[bool] = True  # whether the columns of a tile get their sums, too

    def __init__(self, head: LoadedShard, model: TileModel, *, moves: bool = False) -> None:
        self.model = model
        self.head = head
        self.left = TileSide.left(head, model)
        self.buffers = _Buffers(head.X.dtype)
        self.moves = moves
        self.degrees = np.zeros(model.n_rows)
        self.moved = np.zeros((model.n_rows, head.facts[-1].shape[1] if moves else 0))
        self.objective = 0.0

    @QUIET
    def walk(self, tail: Iterator[LoadedShard], collect: _Collect | None) -> None:
        """Visit every tile; `collect` gets `coupling * Psi / unit` of each group of rows."""
        for piece in tail:
            right = TileSide.right(piece, self.model)
            for area in _groups(self.head, piece, _BLOCK if collect is None else _DIAGONAL_GROUP):
                M = self.visit(right, area, wanted=collect is not None)
                if collect and M is not None:
                    collect(M, area, piece)

    def visit(self, right: TileSide, area: TileArea, *, wanted: bool) -> Array | None:
        """Sum an area up, and return `coupling * Psi / unit` of it where that is wanted."""
        M = self.buffers.wide(area.height, area.width) if wanted else None
        for block in area.blocks():
            self._block(right, block, None if M is None else block.within(M, area))
        return M

    def mind_square(self, gamma: Array, area: TileArea) -> None:
        """Halve Gamma on the diagonal, where a pair of rows is seen twice."""
        gamma[:, : area.square] *= 0.5

    def _block(self, right: TileSide, area: TileArea, into: Array | None) -> None:
        """Add one block of every term to the sums, and to `into` where there is one."""
        gamma = self.model.gamma.tile(
            self.left.gamma[area.rows],
            right.gamma[..., area.columns],
            out=self.buffers.block(0, area),
        )
        if area.square:
            self.mind_square(gamma, area)
        for index, (weight, term) in enumerate(self.model.kernel.terms):
            scale = _scale(self.left.inverse_widths[index], right.inverse_widths[index], area)
            beta = term.beta(
                self.left.operands[index][area.rows],
                right.operands[index][area.columns],
                scale,
                out=self.buffers.block(1, area),
            )
            if term.value_per_unit_slope is None:
                value = term.value(beta, scale, out=self.buffers.block(2, area))
                value *= gamma
                sums = (value @ right.ones[area.columns]).astype(np.float64)
                self.objective += 2 * weight * float(sums.sum())
                if into is None and not self.moves:
                    continue
            shape = term.unit_slope(beta, scale, out=beta)
            tile = np.multiply(shape, gamma, out=shape)
            if area.square and term.pairing.degree:
                self._drop_diagonal(tile, weight, term, area)
            # The sums come before the copy: the block is still in the cache.
            self._gather(tile, weight, term, area, right)
            if into is not None and index == 0:
                into[...] = tile
            elif into is not None:
                into += (weight * _factor(term) / self.model.unit) * tile

    def _gather(
        self, tile: Array, weight: float, term: PointwiseKernel, area: TileArea, right: TileSide
    ) -> None:
        """Add what `tile` (Gamma times the shape) says of J, of the degrees and of Phi W."""
        ratio, degree = term.value_per_unit_slope, weight * term.amplitude * term.pairing.degree
        if ratio is None and not degree and not self.moves:
            return
        columns = right.moving if self.moves else right.ones
        sums = _by_strips(tile, columns[area.columns])
        if ratio is not None:
            self.objective += 2 * weight * ratio * float(sums[:, -1].sum())
        factor, start = weight * _factor(term), self.head.start + area.top
        self._add(start, sums, factor, degree)
        if self.both_sides and (degree or self.moves):
            rows = self.left.moving if self.moves else self.left.ones
            sums = _by_strips(tile.T, rows[area.rows])
            self._add(right.piece.start + area.left, sums, factor, degree)

    def _add(self, start: int, sums: Array, factor: float, degree: float) -> None:
        """Add sums (h, k + 1) to the rows from `start` on: of Z, and of ones."""
        rows = slice(start, start + len(sums))
        self.moved[rows] += factor * sums[:, :-1]
        self.degrees[rows] += degree * sums[:, -1]

    def _drop_diagonal(
        self, tile: Array, weight: float, term: PointwiseKernel, area: TileArea
    ) -> None:
        """Zero the pairs of a row with itself, whose part in J alone is not nothing.

        In Phi they cancel exactly, `x_i - x_i` being 0; in single precision, with a kernel that
        is narrow, what their cancelling leaves would drown everything else.
        """
        both = np.arange(max(area.top, area.left), min(area.bottom, area.right))
        own = both - area.top, both - area.left
        if term.value_per_unit_slope is not None:
            self.objective += 2 * weight * term.value_per_unit_slope * float(tile[own].sum())
        tile[own] = 0.0


def _by_strips(tile: Array, columns: Array) -> Array:
    """Return `tile @ columns` (h, k) in float64, by strips of the tile's rows.

    Small products are twice as fast: above a million multiplications BLAS packs its operands.
    """
    (height, width), k = tile.shape, columns.shape[1]
    strip = max(_LEAST_STRIP, _SMALL_PRODUCT // (width * k) // _LEAST_STRIP * _LEAST_STRIP)
    product = np.empty((height, k))
    for top in range(0, height, strip):
        product[top : top + strip] = tile[top : top + strip] @ columns
    return product


def _inverse_widths(piece: LoadedShard) -> Array:
    """Return the (l, b) inverse widths of the rows, in the precision of the tiles."""
    return np.asarray(piece.facts[1].T.astype(piece.X.dtype))


def _scale(rows: Array | None, columns: Array | None, area: TileArea) -> Array | None:
    if rows is None or columns is None:
        return None
    return np.multiply.outer(rows[area.rows], columns[area.columns])


def _factor(term: PointwiseKernel) -> float:
    return term.amplitude * term.pairing.coupling


def _groups(head: LoadedShard, tail: LoadedShard, diagonal_size: int) -> Iterator[TileArea]:
    """Cut head x tail into groups of rows; on the diagonal, its upper triangle."""
    diagonal = head.start == tail.start
    size = diagonal_size if diagonal else _GROUP
    height, width = len(head.X), len(tail.X)
    for top in range(0, height, size):
        bottom = min(top + size, height)
        yield TileArea(top, bottom, top * diagonal, width, (bottom - top) * diagonal)


def project_piece(piece: LoadedShard, W: Array) -> Array:
    """Return Z (b, k), the rows of a piece times W, in their own precision."""
    return np.matmul(piece.X, W.astype(piece.X.dtype))


@QUIET
def phi_stripe(head: LoadedShard, tail: Iterator[LoadedShard], model: TileModel) -> StripeSums:
    """Return the half of `X^T (coupling Psi) X` (d, d) of a stripe, its degrees (n,) and J."""
    P = np.zeros_like(head.X)
    product = np.empty((_GROUP, head.X.shape[1]), head.X.dtype)

    def collect(M: Array, area: TileArea, piece: LoadedShard) -> None:
        rows = product[: len(M)]
        np.matmul(M, piece.X[area.columns], out=rows)
        P[area.rows] += rows

    stripe = Stripe(head, model)
    stripe.walk(tail, collect)
    cross = (head.X.T @ P).astype(np.float64)
    cross *= model.unit
    return cross, stripe.degrees, stripe.objective


def gradient_stripe(
    head: LoadedShard, tail: Iterator[LoadedShard], model: TileModel
) -> tuple[Array, Array, float]:
    """Return `(coupling Psi) Z` (n, k) of a stripe, its degrees (n,) and J."""
    stripe = Stripe(head, model, moves=True)
    stripe.walk(tail, None)
    return stripe.moved, stripe.degrees, stripe.objective


def objective_stripe(
    head: LoadedShard, tail: Iterator[LoadedShard], model: TileModel
) -> StripeSums:
    """Return J of a stripe, and the degrees that came along."""
    stripe = Stripe(head, model)
    stripe.walk(tail, None)
    return None, stripe.degrees, stripe.objective


def stripe_bytes(rows: int, model: TileModel, d: int, k: int, itemsize: int) -> int:
    """Return the most bytes that a stripe takes beside the raw shards handed to it.

    `rows` is the size of the largest shard, k the columns of W.
    """
    blocks = 3 * _BLOCK**2 + _GROUP * rows
    shards = 4 * rows * d  # head, tail, the tail before it, and P
    sides = 2 * rows * (3 * (k + 2) + model.gamma.breadth)  # Z, its operands, Gamma
    partial = 8 * (3 * d * d + 2 * model.n_rows * (1 + k))  # cast, scaled, and added
    partial += 3 * 8 * _BLOCK**2  # what a Gamma made on the fly takes for a block
    return itemsize * (blocks + shards + sides + _GROUP * d + d * d) + partial
