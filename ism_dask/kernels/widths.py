"""Compute kernel widths from the data: the median distance, the distance to a neighbour."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ism_dask._types import Array
from ism_dask.kernels.pairing import DISTANCE
from ism_dask.threads import side_by_side

# Widths of the gaussian kernels of statistics, as multiples of the median distance. The wide one
# detects trends under noise, the narrow ones details that the wide one smooths away.
MULTISCALE = (1.0, 0.5, 0.25)
# Rows of a batch, and the pairs within a batch that lie above the diagonal.
_BATCH = 256
_ABOVE = ~np.tri(_BATCH, dtype=bool)
# Numbers above this, or below its inverse, are rescaled before they are squared.
_LARGEST_LENGTH = 1e120
# Rows closer to each other than this share of their lengths count as copies: they differ by no
# more than rounding to single precision.
_SAME_POINT = 3e-7


def median_distance(rows: Array, what: str = 'sigma="median"') -> float:
    """Return the median Euclidean distance over all pairs of distinct rows of `rows` (m, d).

    `what` names the quantity in errors.
    """
    m = len(rows)
    if m < 2:
        raise ValueError(f"{what} needs two rows or more; got {m}")
    centred = _centred(rows, rows)
    largest = float(np.abs(centred).max())
    if largest and not 1 / _LARGEST_LENGTH < largest < _LARGEST_LENGTH:
        # A power of two rescales without rounding, and the squares stay finite.
        unit = float(np.ldexp(1.0, np.frexp(largest)[1] - 1))
        return unit * median_distance(centred / unit, what)
    # The median of rows in single precision is no more precise than they are.
    precision = np.float32 if rows.dtype == np.float32 else np.float64
    squared = _pairwise(centred.astype(precision))
    middle = _median_root(squared)
    if middle > 0:
        return middle
    # More than half of the pairs are copies: the median of the others still is a scale.
    positive = squared[squared > 0]
    if positive.size == 0:
        raise ValueError(f"{what} is 0: all rows that count are equal; give `sigma` a number")
    return _median_root(positive)


def mean_of_gaussians(squared: Array, median: float, widths: Sequence[float] = MULTISCALE) -> Array:
    """Return the mean of gaussian kernels of squared distances; widths are in medians."""
    scaled = squared / (-2.0 * median**2)
    return np.asarray(np.mean([np.exp(scaled / width**2) for width in widths], axis=0))


def neighbor_distances(rows: Array, anchors: Array, neighbor: int) -> Array:
    """Return the (n,) distances of `rows` (n, d) to their `neighbor`-th nearest distinct anchor.

    With fewer distinct anchors it is the distance to the farthest one, and 1 without any.
    """
    squared = _squared(_centred(rows, anchors), _centred(anchors, anchors))
    # The row itself, and exact copies of it, say nothing about its surroundings.
    squared[squared == 0] = np.inf
    squared.sort(axis=1)
    distinct = np.count_nonzero(np.isfinite(squared), axis=1)
    nearest = squared[np.arange(len(rows)), np.minimum(neighbor, np.maximum(distinct, 1)) - 1]
    return np.where(np.isfinite(nearest), np.sqrt(nearest), 1.0)


def _centred(rows: Array, origin: Array) -> Array:
    """Return `rows` in float64, less the mean of `origin`."""
    return np.asarray(rows, dtype=np.float64) - np.mean(origin, axis=0, dtype=np.float64)


def _squared(left: Array, right: Array) -> Array:
    """Return accurate squared distances (a, b), exactly 0 between copies."""
    operands, others = DISTANCE.operands(left)[0], DISTANCE.operands(right)[1]
    squared = DISTANCE.beta(operands, others, resolution=0.0)
    squared[squared <= _SAME_POINT**2 * np.add.outer(operands[:, -2], others[:, -1])] = 0.0
    return squared


def _pairwise(rows: Array) -> Array:
    """Return the m (m - 1) / 2 squared distances of `rows` (m, d) without an m x m matrix."""
    m = len(rows)
    squared = np.empty(m * (m - 1) // 2, rows.dtype)

    def fill(batch: slice) -> None:
        above = _squared(rows[batch], rows[batch.start :])
        own, others = np.split(above, [len(above)], axis=1)
        # The pairs of all rows before this batch come first.
        first = batch.start * (2 * m - batch.start - 1) // 2
        for pairs in (own[_ABOVE[: len(above), : len(above)]], others.ravel()):
            squared[first : first + pairs.size] = pairs
            first += pairs.size

    batches = [slice(start, min(start + _BATCH, m)) for start in range(0, m, _BATCH)]
    for _ in side_by_side([partial(fill, batch) for batch in batches]):
        pass
    return squared


def _median_root(squared: Array) -> float:
    # The two middle distances are averaged as distances, not as squares.
    half = squared.size // 2
    middle = (half,) if squared.size % 2 else (half - 1, half)
    squared.partition(middle)
    return float(np.mean(np.sqrt(squared[list(middle)], dtype=np.float64)))
