"""Gaussian kernels: with one width for all rows, and with a width for each row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from ism_dask._types import Array
from ism_dask._validation import check_positive_int
from ism_dask.kernels.base import PointwiseKernel
from ism_dask.kernels.pairing import DISTANCE
from ism_dask.kernels.shared_width import SharedWidth, clipped_exponential
from ism_dask.kernels.widths import neighbor_distances


@dataclass(frozen=True)
class Gaussian(SharedWidth):
    """`f(beta) = exp(-beta / 2 sigma^2)` of squared distances.

    Parameters
    ----------
    sigma : float, "root" or "median", default "root"
        The width. "median" is the median distance between the standardised rows, as in the paper.
        "root" is that times sqrt(q / d): about the distance between rows in q columns.
        Clusterers and `hsic` use all columns, so that both widths are the same there.
    """

    @property
    def _rate(self) -> float:
        return 0.5 / self._width**2

    @property
    def value_by_slope(self) -> tuple[float, float]:
        """`(-2 sigma^2, 0)`."""
        return -1.0 / self._rate, 0.0

    @property
    def amplitude(self) -> float:
        """`-1 / 2 sigma^2`."""
        return -self._rate

    @property
    def slope_at_zero(self) -> float:
        """`-1 / 2 sigma^2`."""
        return -self._rate

    def value(self, beta: Array, scale: Array | None = None, out: Array | None = None) -> Array:
        """Return `exp(-beta / 2 sigma^2)`."""
        return clipped_exponential(np.multiply(beta, -self._rate, out=out))

    def unit_slope(
        self, beta: Array, scale: Array | None = None, out: Array | None = None
    ) -> Array:
        """Return f itself."""
        return self.value(beta, scale, out)


@dataclass(frozen=True)
class RelativeGaussian(PointwiseKernel):
    """`f(beta_ij) = exp(-beta_ij / 2 s_i s_j)`: each row i has a width s_i of its own.

    Parameters
    ----------
    neighbor : int
        s_i is the distance from row i to its `neighbor`-th nearest other row among the anchors,
        or to the farthest if there are fewer.
    anchors : (m, d) array, optional
        The rows to measure distances to. `fit` takes them from the standardised data: all rows
        up to 5,000, and a seeded sample above. A sample is thinner, which makes all widths
        larger by about the same factor.
    """

    neighbor: int = 7
    anchors: Array | None = field(default=None, repr=False, compare=False)

    pairing = DISTANCE
    per_row_width = True
    amplitude = -0.5
    slope_at_zero = -0.5

    def __post_init__(self) -> None:
        """Check the rank of the neighbour."""
        check_positive_int("`neighbor`", self.neighbor)

    def resolve(self, sample: Array, share: float = 1.0) -> RelativeGaussian:
        """Return the kernel with `sample` as anchors, unless it already has anchors."""
        return self if self.anchors is not None else replace(self, anchors=sample)

    def with_rows_mapped(self, lift: Callable[[Array], Array]) -> RelativeGaussian:
        """Return the kernel with its anchors replaced by `lift(anchors)`."""
        return self if self.anchors is None else replace(self, anchors=lift(self.anchors))

    def widths(self, rows: Array) -> Array:
        """Return the (n,) distances to the `neighbor`-th nearest distinct anchor."""
        if self.anchors is None:
            raise TypeError("RelativeGaussian has no anchors yet: call resolve(rows) first")
        if self.anchors.shape[1] != rows.shape[1]:
            raise ValueError(
                f"the anchors of this RelativeGaussian have {self.anchors.shape[1]} features, the "
                f"rows {rows.shape[1]}; its widths belong to the space they were taken in"
            )
        return neighbor_distances(rows, self.anchors, self.neighbor)

    def value(self, beta: Array, scale: Array | None = None, out: Array | None = None) -> Array:
        """Return `exp(-beta scale / 2)`."""
        exponent = np.multiply(beta, _require_scale(scale), out=out)
        return clipped_exponential(np.multiply(exponent, -0.5, out=exponent))

    def unit_slope(
        self, beta: Array, scale: Array | None = None, out: Array | None = None
    ) -> Array:
        """Return `f scale`."""
        value = self.value(beta, scale, out)
        return np.multiply(value, _require_scale(scale), out=value)


def _require_scale(scale: Array | None) -> Array:
    if scale is None:
        raise TypeError("a local kernel needs the tile of 1 / (s_i s_j) as `scale`")
    return scale
