"""Rows of which other variables s are taken out: residuals of a regression on s."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ism_dask._types import Array
from ism_dask.estimators.preparation import Prepared
from ism_dask.gamma.residual import SideRegression
from ism_dask.rows.tasks import LoadedShard, RowFact

# The row of the factor of s (b, m), and how much the row counts (b,).
_SIDE, _COUNTS = RowFact("side"), RowFact("counts")


def rows_given(prepared: Prepared, regression: SideRegression) -> Prepared:
    """Return the rows minus what s explains of each column, computed now.

    Without it, J would be larger where X W tells s: y at fixed s depends on X W in one way for
    each s.
    """
    shards = prepared.shards.in_double().with_rows(_SIDE, regression.factor)
    shards = shards.with_rows(_COUNTS, regression.counts)
    cross, squares, sums = shards.fold(_sums)
    squares -= sums**2 / regression.counts.sum()
    coefficients = regression.coefficients(cross, squares)
    return replace(prepared, shards=shards.mapped(_residual, prepared.n_varying, coefficients))


def _sums(shard: LoadedShard) -> tuple[Array, Array, Array]:
    weighted = shard.facts[_COUNTS][:, None] * shard.X
    squares = np.einsum("ij,ij->j", weighted, shard.X)
    return shard.facts[_SIDE].T @ weighted, squares, weighted.sum(axis=0)


def _residual(shard: LoadedShard, coefficients: Array) -> Array:
    return np.asarray(shard.X - shard.facts[_SIDE] @ coefficients)
