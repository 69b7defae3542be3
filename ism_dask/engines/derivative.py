"""The derivative of Phi(W) W: second-order steps and conditions, by tiles of the true kernel.

Whatever engine made W, the derivative is that of the definition: it bends with f'', of which no
engine has an expansion.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils import gen_batches

from ism_dask._types import Array
from ism_dask.engines.tile_walk import TileModel, project_piece
from ism_dask.kernels import PointwiseKernel
from ism_dask.kernels.pairing import Moving
from ism_dask.rows import LoadedShard, Shards

if TYPE_CHECKING:
    from ism_dask.engines.base import Problem

# Rows and columns of a tile: a few megabytes, of which some copies are made.
_ROWS, _COLUMNS, _COPIES = 256, 2048, 10


def phi_derivative(problem: Problem, W: Array, Z: Array) -> Array:
    """Return `Phi Z + DPhi[Z] W` (d, k), the derivative of `Phi(W) W` at W (d, k) along Z (d, k).

    Half of what the gradient of J changes by. One pass over all pairs, O(n^2 k) time.
    """
    points = problem.shards.derive(project_piece, np.hstack([W, Z])).settled()
    model = TileModel(problem.kernel, problem.gamma, problem.shards.n_rows)
    moved = points.through(2 * W.shape[1]).fold_pairs(_stripe, model)
    return np.asarray(points.with_rows(moved).fold(_lifted))


def _stripe(head: LoadedShard, tail: Iterator[LoadedShard], model: TileModel) -> Array:
    """Return what the rows of a stripe bring to each other: (n, k)."""
    total = np.zeros((model.n_rows, head.facts[-1].shape[1] // 2))
    for piece in tail:
        for rows in gen_batches(len(head.X), _ROWS):
            for columns in gen_batches(len(piece.X), _COLUMNS):
                here, there = _between(head, piece, rows, columns, model)
                start = head.start + rows.start
                total[start : start + len(here)] += here
                if piece.start != head.start:
                    start = piece.start + columns.start
                    total[start : start + len(there)] += there
    return total


def phi_derivative_bytes(shards: Shards, k: int) -> int:
    """Return the most bytes that a task of `curvature` takes for k columns of W."""
    tile = min(_ROWS, shards.largest) * min(_COLUMNS, shards.largest)
    sums = 8 * shards.n_rows * k
    return _COPIES * tile * shards.dtype.itemsize + 2 * sums


def _between(
    head: LoadedShard, tail: LoadedShard, rows: slice, columns: slice, model: TileModel
) -> tuple[Array, Array]:
    """Return what some rows of two pieces bring to each other: (b, k) and (t, k)."""
    gamma, dtype = model.gamma, head.X.dtype
    tile = gamma.tile(
        gamma.as_rows(head.facts[0][rows], dtype),
        gamma.as_columns(tail.facts[0][columns], dtype),
        out=np.empty((rows.stop - rows.start, columns.stop - columns.start), dtype),
    )
    left, right = (
        Moving(*np.hsplit(both, 2)) for both in (head.facts[-1][rows], tail.facts[-1][columns])
    )
    # A row and itself: what cancels exactly is not to be left to rounding, as in `tiles`.
    apart = _apart(rows, columns) if head.start == tail.start else None
    here, there, local = np.zeros_like(left.P), np.zeros_like(right.P), 0
    for weight, term in model.kernel.terms:
        scale = None
        if term.per_row_width:
            widths = head.facts[1][rows, local], tail.facts[1][columns, local]
            scale, local = np.multiply.outer(*widths), local + 1
        own = weight * tile
        if apart is not None and term.pairing.degree:
            own *= apart
        parts = _brought(own, term, scale, left, right)
        here += parts[0]
        there += parts[1]
    return here, there


def _apart(rows: slice, columns: slice) -> Array:
    """Return ones (b, t), but for zeros where a row meets itself."""
    numbers = (np.arange(each.start, each.stop) for each in (rows, columns))
    return np.not_equal.outer(*numbers)


def _brought(
    gamma: Array, term: PointwiseKernel, scale: Array | None, left: Moving, right: Moving
) -> tuple[Array, Array]:
    pairing = term.pairing
    beta = term.beta(pairing.operands(left.P)[0], pairing.operands(right.P)[1], scale)
    psi = gamma * term.slope(beta, scale)
    bent = gamma * term.second_derivative(beta, scale) * pairing.change(left, right)
    here = pairing.coupling * (psi @ right.Q + bent @ right.P)
    there = pairing.coupling * (psi.T @ left.Q + bent.T @ left.P)
    if pairing.degree:
        here += pairing.degree * _degrees(psi, bent, left)
        there += pairing.degree * _degrees(psi.T, bent.T, right)
    return here, there


def _degrees(psi: Array, bent: Array, own: Moving) -> Array:
    return psi.sum(axis=1)[:, None] * own.Q + bent.sum(axis=1)[:, None] * own.P


def _lifted(piece: LoadedShard) -> Array:
    product = np.matmul(piece.X.T, piece.facts[-1].astype(piece.X.dtype))
    return product.astype(np.float64)
