"""Compute the derivative of Phi(W) W, for second-order steps and conditions, by tiles.

The derivative is that of the true kernel, whichever engine computed W: it contains f'', for which
no engine has a low-rank factor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils import gen_batches

from ism_dask._types import Array
from ism_dask.engines.row_facts import INVERSE_WIDTHS, project_piece
from ism_dask.engines.tile_walk import TileModel
from ism_dask.gamma.base import GAMMA_FACTS
from ism_dask.kernels import PointwiseKernel
from ism_dask.kernels.pairing import Moving
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
    points = problem.shards.derive(_MOVING, project_piece, np.hstack([W, Z])).settled()
    model = TileModel(problem.kernel, problem.gamma, problem.shards.n_rows)
    contributions = points.through(_MOVING, 2 * W.shape[1]).fold_pairs(_stripe, model)
    return np.asarray(points.with_rows(_CONTRIBUTIONS, contributions).fold(_back_to_columns))


def _stripe(head: LoadedShard, tail: Iterator[LoadedShard], model: TileModel) -> Array:
    """Return the contributions (n, k) of a stripe, before the product with X^T."""
    total = np.zeros((model.n_rows, head.facts[_MOVING].shape[1] // 2))
    for piece in tail:
        for rows in gen_batches(len(head.X), _ROWS):
            for columns in gen_batches(len(piece.X), _COLUMNS):
                here, there = _tile_contributions(head, piece, rows, columns, model)
                start = head.start + rows.start
                total[start : start + len(here)] += here
                if piece.start != head.start:
                    start = piece.start + columns.start
                    total[start : start + len(there)] += there
    return total


def phi_derivative_bytes(shards: Shards, k: int) -> int:
    """Return the peak memory, in bytes, of a task of `phi_derivative` for k columns of W."""
    tile = min(_ROWS, shards.largest) * min(_COLUMNS, shards.largest)
    sums = 8 * shards.n_rows * k
    return _COPIES * tile * shards.dtype.itemsize + 2 * sums


def _tile_contributions(
    head: LoadedShard, tail: LoadedShard, rows: slice, columns: slice, model: TileModel
) -> tuple[Array, Array]:
    """Return the contributions (b, k) and (t, k) of a tile to the rows on its two sides."""
    gamma, dtype = model.gamma, head.X.dtype
    tile = gamma.tile(
        gamma.as_rows(head.facts[GAMMA_FACTS][rows], dtype),
        gamma.as_columns(tail.facts[GAMMA_FACTS][columns], dtype),
        out=np.empty((rows.stop - rows.start, columns.stop - columns.start), dtype),
    )
    left, right = (
        Moving(*np.hsplit(side, 2))
        for side in (head.facts[_MOVING][rows], tail.facts[_MOVING][columns])
    )
    # The terms of a row with itself cancel exactly: they are dropped, so that rounding cannot
    # keep a rest of them, as in `tile_walk`.
    off_diagonal = _off_diagonal(rows, columns) if head.start == tail.start else None
    here, there, width_column = np.zeros_like(left.P), np.zeros_like(right.P), 0
    for weight, term in model.kernel.terms:
        scale = None
        if term.per_row_width:
            widths = (
                head.facts[INVERSE_WIDTHS][rows, width_column],
                tail.facts[INVERSE_WIDTHS][columns, width_column],
            )
            scale, width_column = np.multiply.outer(*widths), width_column + 1
        own = weight * tile
        if off_diagonal is not None and term.pairing.degree:
            own *= off_diagonal
        parts = _term_contributions(own, term, scale, left, right)
        here += parts[0]
        there += parts[1]
    return here, there


def _off_diagonal(rows: slice, columns: slice) -> Array:
    """Return ones (b, t), with zeros at the pairs of a row with itself."""
    indices = (np.arange(each.start, each.stop) for each in (rows, columns))
    return np.not_equal.outer(*indices)


def _term_contributions(
    gamma: Array, term: PointwiseKernel, scale: Array | None, left: Moving, right: Moving
) -> tuple[Array, Array]:
    pairing = term.pairing
    beta = term.beta(pairing.operands(left.P)[0], pairing.operands(right.P)[1], scale)
    psi = gamma * term.slope(beta, scale)
    psi_change = gamma * term.second_derivative(beta, scale) * pairing.change(left, right)
    here = pairing.coupling * (psi @ right.Q + psi_change @ right.P)
    there = pairing.coupling * (psi.T @ left.Q + psi_change.T @ left.P)
    if pairing.degree:
        here += pairing.degree * _degrees(psi, psi_change, left)
        there += pairing.degree * _degrees(psi.T, psi_change.T, right)
    return here, there


def _degrees(psi: Array, psi_change: Array, own: Moving) -> Array:
    return psi.sum(axis=1)[:, None] * own.Q + psi_change.sum(axis=1)[:, None] * own.P


def _back_to_columns(piece: LoadedShard) -> Array:
    product = np.matmul(piece.X.T, piece.facts[_CONTRIBUTIONS].astype(piece.X.dtype))
    return product.astype(np.float64)
