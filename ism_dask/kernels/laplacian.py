"""The laplacian kernel: the exponential of a multiquadric."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, sqrt

import numpy as np

from ism_dask._types import Array
from ism_dask._validation import squarable_float
from ism_dask.kernels.shared_width import SharedWidth, clipped_exponential


@dataclass(frozen=True)
class Laplacian(SharedWidth):
    """`f(beta) = exp(-sqrt(2 (beta + c^2)) / sigma)` of squared distances.

    This is the exponential of a multiquadric. As a density of distances its standard deviation
    is sigma, like that of a gaussian with this sigma.
    """

    offset: float = 1.0

    def __post_init__(self) -> None:
        """Check the parameters: at offset 0 the slope at beta = 0 is infinite."""
        super().__post_init__()
        squarable_float("`offset`", self.offset)

    @property
    def amplitude(self) -> float:
        """`-1 / (sqrt(2) sigma)`."""
        return -sqrt(0.5) / self._width

    @property
    def slope_at_zero(self) -> float:
        """The slope at beta = 0."""
        return self.amplitude * exp(-sqrt(2.0) * self.offset / self._width) / self.offset

    def value(self, beta: Array, scale: Array | None = None, out: Array | None = None) -> Array:
        """Return `exp(-sqrt(2 (beta + c^2)) / sigma)`."""
        root = root_of(beta, self.offset, out)
        return clipped_exponential(np.multiply(root, -sqrt(2.0) / self._width, out=root))

    def unit_slope(
        self, beta: Array, scale: Array | None = None, out: Array | None = None
    ) -> Array:
        """Return `f / sqrt(beta + c^2)`."""
        root = root_of(beta, self.offset, None)
        value = np.exp(np.multiply(root, -sqrt(2.0) / self._width, out=out), out=out)
        return np.divide(value, root, out=value)


def root_of(beta: Array, offset: float, out: Array | None) -> Array:
    """Return `sqrt(beta + offset^2)`."""
    # Rounding can make beta negative, by more than c^2 if c is small.
    root = np.maximum(beta, 0.0, out=out)
    np.add(root, offset**2, out=root)
    return np.sqrt(root, out=root)
