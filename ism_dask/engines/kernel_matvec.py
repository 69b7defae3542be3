"""Multiply a kernel matrix with a few columns tile by tile, without storing the matrix.

The rows are projected ones, and the kernel is an affinity, which has no per-row widths.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.utils import gen_batches

from ism_dask._types import Array
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
    total = points.with_rows(_V, V).fold_pairs(_stripe, kernel, points.n_rows)
    return np.asarray(total)


def _stripe(head: LoadedShard, tail: Iterator[LoadedShard], kernel: Kernel, n_rows: int) -> Array:
    total = np.zeros((n_rows, head.facts[_V].shape[1]))
    for piece in tail:
        for rows in gen_batches(len(head.X), _ROWS):
            tile = kernel_values(kernel, head.X[rows], piece.X)
            _add(total, head.start + rows.start, tile, piece.facts[_V])
            if piece.start != head.start:
                _add(total, piece.start, tile.T, head.facts[_V][rows])
    return total


def _add(total: Array, first: int, tile: Array, V: Array) -> None:
    total[first : first + len(tile)] += tile @ V.astype(tile.dtype)
