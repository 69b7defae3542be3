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


def kernel_matvec(points: Shards, kernel: Kernel, V: Array) -> Array:
    """Return `K V` (n, k) for V (n, k); the rows of `points` are the projected ones."""
    total = points.with_rows(_V, V).fold_pairs(_kernel_times_vectors, kernel, points.n_rows)
    return np.asarray(total)


def _kernel_times_vectors(
    head: LoadedShard, tail: Iterator[LoadedShard], kernel: Kernel, n_rows: int
) -> Array:
    V = head.facts[_V]
    total = np.zeros((n_rows, V.shape[1]))
    for piece in tail:
        for batch in gen_batches(len(head.X), _ROWS):
            tile = kernel.matrix(head.X[batch], piece.X)
            top = head.start + batch.start
            total[top : top + len(tile)] += tile @ piece.facts[_V].astype(tile.dtype)
            if piece.start != head.start:  # on the diagonal the transposed tile is another one
                rows = slice(piece.start, piece.start + len(piece.X))
                total[rows] += tile.T @ V[batch].astype(tile.dtype)
    return total
