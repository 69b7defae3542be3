"""The base class of kernels with one width for all rows, and the rules that compute a width."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import Self

import numpy as np

from ism_dask._types import Array
from ism_dask._validation import squarable_float
from ism_dask.kernels.base import PointwiseKernel
from ism_dask.kernels.pairing import DISTANCE
from ism_dask.kernels.widths import median_distance

# The names of the rules that compute a width from the data.
WIDTHS = ("root", "median")


def scaled_median_distance(sample: Array, share: float) -> float:
    """Return the median distance of rows (m, d) times the root of the share of columns in use.

    Standardised columns contribute alike to squared distances, so this is the typical distance
    between rows of q columns.
    """
    return sqrt(share) * median_distance(sample, 'sigma="root"')


@dataclass(frozen=True)
class SharedWidth(PointwiseKernel):
    """A kernel of squared distances with one width for all rows."""

    sigma: float | str = "root"

    pairing = DISTANCE
    slope_is_psd = True
    positive_definite = True

    def __post_init__(self) -> None:
        """Check the width."""
        if not (isinstance(self.sigma, str) and self.sigma in WIDTHS):
            squarable_float("`sigma`", self.sigma, 'or "root" or "median"')

    def resolve(self, sample: Array, share: float = 1.0) -> Self:
        """Return the kernel with a number for sigma."""
        if self.sigma == "root":
            return replace(self, sigma=scaled_median_distance(sample, share))
        return replace(self, sigma=median_distance(sample)) if self.sigma == "median" else self

    @property
    def width_is_free(self) -> bool:
        """Whether sigma is the rule of thumb "root"."""
        return self.sigma == "root"

    def widened(self, factor: float) -> Self:
        """Return the kernel with its width multiplied by `factor`."""
        return replace(self, sigma=factor * self._width)

    @property
    def _width(self) -> float:
        if isinstance(self.sigma, str):
            name = type(self).__name__
            raise TypeError(f"{name}(sigma={self.sigma!r}) has no width yet: call resolve(rows)")
        return self.sigma

    @property
    def similarity(self) -> Self:
        """The kernel itself: it is never negative, and its matrix is positive definite."""
        return self


def clipped_exponential(exponent: Array) -> Array:
    """Compute exp in place, clipped to at most 1: rounding can make an exponent far above 0.

    It is at least 1e-26 (1e-260 in double precision), which is negligible beside 1: subnormal
    numbers would make every product with them a hundred times slower.
    """
    np.clip(exponent, -600.0 if exponent.dtype == np.float64 else -60.0, 0.0, out=exponent)
    return np.exp(exponent, out=exponent)
