"""Facts that engines attach to rows: the projected rows, and the inverse widths of kernels."""

from __future__ import annotations

import numpy as np

from ism_dask._types import Array
from ism_dask.kernels import Kernel
from ism_dask.rows.shards import Shards
from ism_dask.rows.tasks import LoadedShard, RowFact

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
