"""Tiles of pairs of rows: the facts of rows for them, their sides and areas, and their beta."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ism_dask._types import Array
from ism_dask.gamma.base import GAMMA_FACTS, Gamma
from ism_dask.kernels import Kernel, PointwiseKernel
from ism_dask.rows.raw import LoadedShard, RowFact
from ism_dask.rows.shards import Shards

# If a kernel overflows, the solver raises one error; tasks do not warn.
ignore_overflow = np.errstate(over="ignore", invalid="ignore")
# Z (b, k), the rows times W.
PROJECTED = RowFact("projected")
# The (b, l) inverse widths of each row, for the l terms of the kernel with per-row widths.
INVERSE_WIDTHS = RowFact("inverse widths")


def with_projection(shards: Shards, W: Array) -> Shards:
    """Return the shards with Z = X W attached as the fact `PROJECTED`."""
    return shards.derive(PROJECTED, project_rows, W)


def project_rows(piece: LoadedShard, W: Array) -> Array:
    """Return Z (b, k), the rows of a shard times W, in the precision of the rows."""
    return np.asarray(piece.X @ W.astype(piece.X.dtype))


def with_inverse_widths(shards: Shards, kernel: Kernel) -> Shards:
    """Return the shards with the fact `INVERSE_WIDTHS`, if a term of the kernel needs it.

    The widths are computed in double precision: a row that is itself an anchor must have distance
    0 from it.
    """
    if not any(term.per_row_width for _, term in kernel.terms):
        return shards
    widths = shards.in_double().derive(INVERSE_WIDTHS, _inverse_widths, kernel).persisted()
    return shards.with_fact_of(widths, INVERSE_WIDTHS)


def _inverse_widths(piece: LoadedShard, kernel: Kernel) -> Array:
    return 1.0 / np.column_stack(
        [term.widths(piece.X) for _, term in kernel.terms if term.per_row_width]
    )


def coupling_of(term: PointwiseKernel) -> float:
    """Return the factor with which the unit slope of a term couples the rows of X in Phi."""
    return term.amplitude * term.pairing.coupling


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
        return weight * coupling_of(term)


@dataclass(frozen=True)
class TileSide:
    """A loaded shard with the arrays that its rows contribute to every tile.

    These are its projected rows Z (b, k), the operand of the tiles of Gamma, and the operand of
    beta and the inverse widths (b,) for each term of the kernel, None without per-row widths.
    """

    piece: LoadedShard
    Z: Array
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
        return np.hstack([self.Z, self.ones])

    @classmethod
    def from_shard(cls, piece: LoadedShard, model: TileModel, *, are_columns: bool) -> TileSide:
        """Return the side of a shard whose rows are the rows of tiles, or else their columns."""
        Z, dtype, terms = piece.facts[PROJECTED], piece.X.dtype, model.kernel.terms
        gamma = model.gamma.as_columns if are_columns else model.gamma.as_rows
        pairs = {term.pairing: term.pairing.operands(Z) for _, term in terms}
        operands = tuple(pairs[term.pairing][are_columns] for _, term in terms)
        columns = iter(np.transpose(piece.facts.get(INVERSE_WIDTHS, ())))
        widths = tuple(
            next(columns).astype(dtype) if term.per_row_width else None for _, term in terms
        )
        return cls(piece, Z, gamma(piece.facts[GAMMA_FACTS], dtype), operands, widths)


@dataclass(frozen=True)
class TileArea:
    """Rows `top:bottom` of the head with columns `left:right` of the tail.

    The first `square` columns are the same rows again: their tile lies on the diagonal.
    """

    top: int
    bottom: int
    left: int
    right: int
    square: int = 0

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and of columns."""
        return self.bottom - self.top, self.right - self.left

    @property
    def rows(self) -> slice:
        """The rows in the head."""
        return slice(self.top, self.bottom)

    @property
    def columns(self) -> slice:
        """The columns in the tail."""
        return slice(self.left, self.right)

    def cut(self, size: int) -> Iterator[TileArea]:
        """Yield the parts of the area with up to `size` rows and as many columns."""
        edge = self.left + self.square
        for top in range(self.top, self.bottom, size):
            bottom = min(top + size, self.bottom)
            for left in range(self.left, self.right, size):
                right, square = min(left + size, self.right), min(max(edge - left, 0), size)
                yield TileArea(top, bottom, left, right, square)

    def within(self, M: Array, group: TileArea) -> Array:
        """Return this part of M, the matrix of the area `group`."""
        return M[
            self.top - group.top : self.bottom - group.top,
            self.left - group.left : self.right - group.left,
        ]


def tile_terms(
    kernel: Kernel, left: TileSide, right: TileSide, area: TileArea, out: Array
) -> Iterator[tuple[float, PointwiseKernel, Array, Array | None]]:
    """Yield weight, term, beta (a, b) and the products of inverse widths for each term in a tile.

    Beta is multiplied by these products, if there are some; so a derivative of f by the squared
    distance has them as a factor. Every beta is stored in `out`.
    """
    for index, (weight, term) in enumerate(kernel.terms):
        rows, columns = left.inverse_widths[index], right.inverse_widths[index]
        scale = None
        if rows is not None and columns is not None:
            scale = np.multiply.outer(rows[area.rows], columns[area.columns])
        operands = left.operands[index][area.rows], right.operands[index][area.columns]
        yield weight, term, term.beta(*operands, scale, out=out), scale
