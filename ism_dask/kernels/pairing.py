"""How beta comes from two projected rows, their inner product or their squared distance.

The distances of a sample of rows give the widths of kernels: the median one, that to a neighbour.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from ism_dask._types import Array
from ism_dask.threads import side_by_side

# A squared distance computed from squared lengths has an error of some roundings of the lengths.
# It does no harm up to this many roundings of the smallest beta that the kernel can resolve.
TOLERATED_ROUNDINGS = 512.0
# Beyond that, squared distances below this share of the squared lengths are computed again, from
# the differences of the rows.
CANCELLED_SHARE = 0.05
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


class Pairing(ABC):
    """A rule that computes beta from two rows, with the two constants that it brings to Phi.

    `Phi = X^T (coupling * Psi + degree * diag(Psi 1)) X` for `Psi = Gamma o f'(beta)`.
    """

    coupling: ClassVar[float]
    degree: ClassVar[float]

    @abstractmethod
    def operands(self, Z: Array) -> tuple[Array, Array]:
        """Return (n, k) arrays L and R with `beta_ij = L_i . R_j`, up to rounding."""

    @abstractmethod
    def own(self, Z: Array) -> Array:
        """Return the (n,) beta of each row of Z (n, k) with itself."""

    def beta(
        self, left: Array, right: Array, out: Array | None = None, resolution: float = np.inf
    ) -> Array:
        """Return the (a, b) tile of beta from operands `left` (a, k) and `right` (b, k).

        `resolution` is the beta at which the kernel begins to differ from its value at 0.
        """
        return np.matmul(left, right.T, out=out)

    def between(
        self, Z: Array, others: Array, out: Array | None = None, resolution: float = np.inf
    ) -> Array:
        """Return beta (a, b) of rows (a, q) and others (b, q), as `beta` does."""
        return self.beta(self.operands(Z)[0], self.operands(others)[1], out, resolution)


class Inner(Pairing):
    """`beta_ij = x_i^T W W^T x_j`, hence `A_ij = x_j x_i^T + x_i x_j^T`."""

    coupling = 1.0
    degree = 0.0

    def operands(self, Z: Array) -> tuple[Array, Array]:
        """Return Z twice."""
        return Z, Z

    def own(self, Z: Array) -> Array:
        """Return the squared lengths of the rows."""
        return np.einsum("ij,ij->i", Z, Z)


class Distance(Pairing):
    """`beta_ij = ||W^T (x_i - x_j)||^2`, hence `A_ij = 2 (x_i - x_j) (x_i - x_j)^T`."""

    coupling = -2.0
    degree = 2.0

    def operands(self, Z: Array) -> tuple[Array, Array]:
        """Return Z with its squared lengths as columns, so that one product gives distances.

        Cancellation can make beta slightly negative; kernels treat such a beta as zero.
        """
        lengths = INNER.own(Z)[..., None]
        ones = np.ones_like(lengths)
        left, right = [-2.0 * Z, lengths, ones], [Z, ones, lengths]
        return np.concat(left, axis=-1), np.concat(right, axis=-1)

    def beta(
        self, left: Array, right: Array, out: Array | None = None, resolution: float = np.inf
    ) -> Array:
        """Return squared distances (a, b), by differences of rows if lengths would cancel."""
        beta = super().beta(left, right, out)
        if resolution == np.inf:
            return beta
        lengths, others = left[:, -2], right[:, -1]
        reach = lengths.max(initial=0.0) + others.max(initial=0.0)
        if left.shape[1] * reach > TOLERATED_ROUNDINGS * resolution:
            # On a flat array `flatnonzero` is several times faster than `nonzero` on two axes.
            short = np.flatnonzero(beta < CANCELLED_SHARE * np.add.outer(lengths, others))
            rows, columns = np.divmod(short, beta.shape[1])
            squared = np.zeros(len(short), left.dtype)
            for z, other in zip(left.T[:-2], right.T, strict=False):
                # The left operand is -2 Z: halving is exact.
                difference = -0.5 * z[rows] - other[columns]
                squared += difference * difference
            beta[rows, columns] = squared
        return beta

    def own(self, Z: Array) -> Array:
        """Return zeros: a row has no distance from itself."""
        return np.zeros(len(Z))


INNER = Inner()
DISTANCE = Distance()


def median_distance(rows: Array, what: str = 'sigma="median"') -> float:
    """Return the median Euclidean distance over all pairs of `rows` (m, d).

    If it is 0, it is that over the pairs that differ. `what` names the quantity in errors.
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
    side_by_side([partial(fill, batch) for batch in batches])
    return squared


def _median_root(squared: Array) -> float:
    # The two middle distances are averaged as distances, not as squares.
    half = squared.size // 2
    middle = (half,) if squared.size % 2 else (half - 1, half)
    squared.partition(middle)
    return float(np.mean(np.sqrt(squared[list(middle)], dtype=np.float64)))
