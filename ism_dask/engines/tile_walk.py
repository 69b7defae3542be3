"""Walk over a stripe of kernel tiles and sum them up, without storing more than one tile.

A stripe pairs the rows of one shard, the head, with its own rows and with those of the next half
of the other shards, so that all stripes together visit each pair once. Tiles on the diagonal have
half the weight, so that all results are made symmetric in the same way: `cross + cross^T`, sums
over both sides, and twice the objective.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeAlias

import numpy as np

from ism_dask._types import Array
from ism_dask.engines.row_facts import PROJECTED, terms_with_widths
from ism_dask.gamma.base import GAMMA_FACTS, Gamma
from ism_dask.kernels import Kernel, PointwiseKernel
from ism_dask.rows.tasks import LoadedShard

# Elementwise operations work on blocks that fit into a core's second-level cache.
_BLOCK = 512
# The product with X works on groups of rows that are long enough for BLAS to run at full speed. On
# the diagonal half of a group's square is wasted, so groups are shorter there if X is read.
_GROUP = 1024
_DIAGONAL_GROUP = 256
# The most multiplications of a product that BLAS does without packing, and the fewest rows of a
# strip.
_SMALL_PRODUCT, _LEAST_STRIP = 1_000_000, 64

# If a kernel overflows, the solver raises one error; tasks do not warn.
ignore_overflow = np.errstate(over="ignore", invalid="ignore")

StripeSums: TypeAlias = tuple[Array | None, Array, float]


@dataclass(frozen=True)
class TileModel:
    """The kernel, Gamma and the number of rows: small objects that travel with each task."""

    kernel: Kernel
    gamma: Gamma
    n_rows: int

    @property
    def unit(self) -> float:
        """The unit of `coupling * Psi` in tiles: the constant factors of the first term."""
        weight, term = self.kernel.terms[0]
        return weight * _factor(term)


@dataclass(frozen=True)
class TileSide:
    """A loaded shard with the arrays that its rows contribute to every tile.

    `gamma` holds the operand of the tiles of Gamma. For each term of the kernel, `operands` holds
    the operand of beta and `inverse_widths` the (b,) inverse widths, None without per-row widths.
    """

    piece: LoadedShard
    gamma: Array
    operands: tuple[Array, ...]
    inverse_widths: tuple[Array | None, ...]

    @cached_property
    def ones(self) -> Array:
        """A column of ones (b, 1): its product with a tile gives row sums."""
        return np.ones((len(self.piece.X), 1), self.piece.X.dtype)

    @cached_property
    def moving(self) -> Array:
        """Z and a column of ones (b, k + 1)."""
        return np.hstack([self.piece.facts[PROJECTED], self.ones])

    @classmethod
    def left(cls, piece: LoadedShard, model: TileModel) -> TileSide:
        """Return the side of a shard whose rows are the rows of tiles."""
        gamma = model.gamma.as_rows(piece.facts[GAMMA_FACTS], piece.X.dtype)
        return cls._of(piece, model, gamma, 0)

    @classmethod
    def right(cls, piece: LoadedShard, model: TileModel) -> TileSide:
        """Return the side of a shard whose rows are the columns of tiles."""
        gamma = model.gamma.as_columns(piece.facts[GAMMA_FACTS], piece.X.dtype)
        return cls._of(piece, model, gamma, 1)

    @classmethod
    def _of(cls, piece: LoadedShard, model: TileModel, gamma: Array, side: int) -> TileSide:
        terms = [term for _, term in model.kernel.terms]
        pairs = {term.pairing: term.pairing.operands(piece.facts[PROJECTED]) for term in terms}
        widths = tuple(
            None if each is None else each.astype(piece.X.dtype)
            for _, _, each in terms_with_widths(model.kernel, piece)
        )
        return cls(piece, gamma, tuple(pairs[term.pairing][side] for term in terms), widths)


@dataclass(frozen=True)
class TileArea:
    """Rows `top:bottom` of the head with columns `left:right` of the tail.

    The first `square` columns are the same rows again: their tile lies on the diagonal.
    """

    top: int
    bottom: int
    left: int
    right: int
    square: int

    @property
    def height(self) -> int:
        """The number of rows."""
        return self.bottom - self.top

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.right - self.left

    @property
    def rows(self) -> slice:
        """The rows in the head."""
        return slice(self.top, self.bottom)

    @property
    def columns(self) -> slice:
        """The columns in the tail."""
        return slice(self.left, self.right)

    def blocks(self) -> Iterator[TileArea]:
        """Yield blocks of the area that fit into the cache."""
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
        """Return this block of M, the matrix of the area `group`."""
        return M[
            self.top - group.top : self.bottom - group.top,
            self.left - group.left : self.right - group.left,
        ]


class _Buffers:
    """Buffers of a stripe: to allocate them for each block would cost more than the arithmetic."""

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
    """A walk over the tiles of a stripe that adds up their sums in float64.

    Parameters
    ----------
    head : LoadedShard
    model : TileModel
    moves : bool
        Whether Phi W is computed, instead of J or Phi alone.

    Attributes
    ----------
    degrees : (n,) array
        The degrees `degree * Psi 1`.
    moved : (n, k) array
        `(coupling Psi) Z`, without columns unless `moves`.
    objective : float
        J.
    """

    both_sides: ClassVar[bool] = True  # whether the columns of a tile get their sums too

    def __init__(self, head: LoadedShard, model: TileModel, *, moves: bool = False) -> None:
        self.model = model
        self.head = head
        self.left = TileSide.left(head, model)
        self.buffers = _Buffers(head.X.dtype)
        self.moves = moves
        self.degrees = np.zeros(model.n_rows)
        self.moved = np.zeros((model.n_rows, head.facts[PROJECTED].shape[1] if moves else 0))
        self.objective = 0.0

    @ignore_overflow
    def walk(self, tail: Iterator[LoadedShard], collect: _Collect | None) -> None:
        """Visit every tile; `collect` receives `coupling * Psi / unit` of each group of rows."""
        for piece in tail:
            right = TileSide.right(piece, self.model)
            for area in _groups(self.head, piece, _BLOCK if collect is None else _DIAGONAL_GROUP):
                M = self.visit(right, area, wanted=collect is not None)
                if collect and M is not None:
                    collect(M, area, piece)

    def visit(self, right: TileSide, area: TileArea, *, wanted: bool) -> Array | None:
        """Add an area to the sums, and return its `coupling * Psi / unit` if `wanted`."""
        M = self.buffers.wide(area.height, area.width) if wanted else None
        for block in area.blocks():
            self._block(right, block, None if M is None else block.within(M, area))
        return M

    def adjust_diagonal(self, gamma: Array, area: TileArea) -> None:
        """Halve Gamma on the diagonal, where each pair of rows is visited twice."""
        gamma[:, : area.square] *= 0.5

    def _block(self, right: TileSide, area: TileArea, into: Array | None) -> None:
        """Add a block of every term to the sums, and write it to `into` unless that is None."""
        gamma = self.model.gamma.tile(
            self.left.gamma[area.rows],
            right.gamma[..., area.columns],
            out=self.buffers.block(0, area),
        )
        if area.square:
            self.adjust_diagonal(gamma, area)
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
            unit_slope = term.unit_slope(beta, scale, out=beta)
            tile = np.multiply(unit_slope, gamma, out=unit_slope)
            if area.square and term.pairing.degree:
                self._drop_diagonal(tile, weight, term, area)
            # Sum before copying, while the block is still in the cache.
            self._add_sums(tile, weight, term, area, right)
            if into is not None and index == 0:
                into[...] = tile
            elif into is not None:
                into += (weight * _factor(term) / self.model.unit) * tile

    def _add_sums(
        self, tile: Array, weight: float, term: PointwiseKernel, area: TileArea, right: TileSide
    ) -> None:
        """Add the sums of `tile` (Gamma times the unit slope) to J, the degrees and Phi W."""
        ratio, degree = term.value_per_unit_slope, weight * term.amplitude * term.pairing.degree
        if ratio is None and not degree and not self.moves:
            return
        columns = right.moving if self.moves else right.ones
        sums = _by_strips(tile, columns[area.columns])
        if ratio is not None:
            self.objective += 2 * weight * ratio * float(sums[:, -1].sum())
        factor, start = weight * _factor(term), self.head.start + area.top
        self._add_rows(start, sums, factor, degree)
        if self.both_sides and (degree or self.moves):
            rows = self.left.moving if self.moves else self.left.ones
            sums = _by_strips(tile.T, rows[area.rows])
            self._add_rows(right.piece.start + area.left, sums, factor, degree)

    def _add_rows(self, start: int, sums: Array, factor: float, degree: float) -> None:
        """Add products (h, k + 1) with Z and ones to `moved` and `degrees`, from row `start` on."""
        rows = slice(start, start + len(sums))
        self.moved[rows] += factor * sums[:, :-1]
        self.degrees[rows] += degree * sums[:, -1]

    def _drop_diagonal(
        self, tile: Array, weight: float, term: PointwiseKernel, area: TileArea
    ) -> None:
        """Set the pairs of a row with itself to 0, after adding them to J.

        In Phi they cancel exactly because `x_i - x_i` is 0. In single precision, with a narrow
        kernel, the rounding error of that cancellation would exceed all other contributions.
        """
        index = np.arange(max(area.top, area.left), min(area.bottom, area.right))
        diagonal = index - area.top, index - area.left
        if term.value_per_unit_slope is not None:
            self.objective += 2 * weight * term.value_per_unit_slope * float(tile[diagonal].sum())
        tile[diagonal] = 0.0


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


def _scale(rows: Array | None, columns: Array | None, area: TileArea) -> Array | None:
    if rows is None or columns is None:
        return None
    return np.multiply.outer(rows[area.rows], columns[area.columns])


def _factor(term: PointwiseKernel) -> float:
    return term.amplitude * term.pairing.coupling


def _groups(head: LoadedShard, tail: LoadedShard, diagonal_size: int) -> Iterator[TileArea]:
    """Yield the groups of rows of head x tail; on the diagonal, of its upper triangle."""
    diagonal = head.start == tail.start
    size = diagonal_size if diagonal else _GROUP
    height, width = len(head.X), len(tail.X)
    for top in range(0, height, size):
        bottom = min(top + size, height)
        yield TileArea(top, bottom, top * diagonal, width, (bottom - top) * diagonal)


@ignore_overflow
def phi_stripe(head: LoadedShard, tail: Iterator[LoadedShard], model: TileModel) -> StripeSums:
    """Return C (d, d), the degrees (n,) and J of a stripe.

    Summed over all stripes, `C + C^T` is `X^T (coupling Psi) X`.
    """
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
    """Return J of a stripe, with the degrees that the walk computes anyway."""
    stripe = Stripe(head, model)
    stripe.walk(tail, None)
    return None, stripe.degrees, stripe.objective


def stripe_bytes(rows: int, model: TileModel, d: int, k: int, itemsize: int) -> int:
    """Return the peak memory of a stripe, in bytes, beside the raw shards passed to it.

    `rows` is the number of rows of the largest shard, k the number of columns of W.
    """
    blocks = 3 * _BLOCK**2 + _GROUP * rows
    shards = 4 * rows * d  # head, tail, the tail before it, and P
    sides = 2 * rows * (3 * (k + 2) + model.gamma.breadth)  # Z, its operands, Gamma
    partial = 8 * (3 * d * d + 2 * model.n_rows * (1 + k))  # cast, scaled, and added
    partial += 3 * 8 * _BLOCK**2  # a block of a Gamma that is computed on the fly
    return itemsize * (blocks + shards + sides + _GROUP * d + d * d) + partial
