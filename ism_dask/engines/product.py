"""A kernel matrix times a few columns, by tiles: made, used and dropped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from sklearn.utils import gen_batches

from ism_dask.kernels import Kernel
from ism_dask.shards import Piece, Shards
from ism_dask.typing import Array

# Rows of a tile: with a shard across it stays at a few megabytes.
_ROWS = 256


@dataclass(frozen=True, eq=False)
class Points:
    """Projected rows as one side of kernel tiles.

    Attributes
    ----------
    Z : (b, q) array
    inverse_widths : (b, l) array or None
        Of the l local terms of the kernel.
    """

    Z: Array
    inverse_widths: Array | None = None

    def part(self, rows: slice) -> Points:
        """Return some of them."""
        widths = self.inverse_widths
        return Points(self.Z[rows], None if widths is None else widths[rows])


def values_between(kernel: Kernel, rows: Points, columns: Points) -> Array:
    """Return the values (a, b) of a kernel between points."""
    total: Array | None = None
    local = 0
    for weight, term in kernel.terms:
        left, right = term.pairing.operands(rows.Z)[0], term.pairing.operands(columns.Z)[1]
        beta, scale = term.pairing.beta(left, right), None
        if term.local and rows.inverse_widths is not None and columns.inverse_widths is not None:
            sides = rows.inverse_widths[:, local], columns.inverse_widths[:, local]
            scale, local = np.multiply.outer(*sides), local + 1
        value = term.value(beta, scale, out=beta)
        value *= weight
        total = value if total is None else np.add(total, value, out=total)
    if total is None:
        raise TypeError("a kernel has one term or more")
    return total


def product(points: Shards, kernel: Kernel, V: Array) -> Array:
    """Return `K V` (n, k) of V (n, k), where the rows of `points` are the projected ones.

    Fact 1 of these are the inverse widths, where the kernel has local terms.
    """
    total = points.with_rows(V).fold_pairs(_stripe, kernel, points.n_rows)
    return np.asarray(total)


def _stripe(head: Piece, tail: Iterator[Piece], kernel: Kernel, n_rows: int) -> Array:
    total = np.zeros((n_rows, head.facts[-1].shape[1]))
    for piece in tail:
        for rows in gen_batches(len(head.X), _ROWS):
            tile = values_between(
                kernel, points_of(head, kernel).part(rows), points_of(piece, kernel)
            )
            _add(total, head.start + rows.start, tile, piece.facts[-1])
            if piece.start != head.start:
                _add(total, piece.start, tile.T, head.facts[-1][rows])
    return total


def points_of(piece: Piece, kernel: Kernel) -> Points:
    """Return a piece, whose rows are projected ones, as a side of tiles."""
    local = any(term.local for _, term in kernel.terms)
    return Points(piece.X, piece.facts[1] if local else None)


def _add(total: Array, first: int, tile: Array, V: Array) -> None:
    total[first : first + len(tile)] += tile @ V.astype(tile.dtype)
