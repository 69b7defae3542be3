"""Kernels that are negative distances: squared, multiquadric, and the distance itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ism_dask._types import Array
from ism_dask._validation import squarable_float
from ism_dask.kernels.base import PointwiseKernel, Proportional
from ism_dask.kernels.exponentials import Laplacian, root_of, scaled_median_distance
from ism_dask.kernels.pairing import DISTANCE
from ism_dask.linalg.arrays import into, namespace

# An offset too small to round off the tip of the kernel at beta = 0.
_NEGLIGIBLE_OFFSET = 1e-6
# The default offset of the distance kernel, as a share of the distance between rows.
_DISTANCE_OFFSET = 0.02


@dataclass(frozen=True)
class Squared(Proportional):
    """`f(beta) = -beta` of squared distances.

    The paper prints this kernel without the minus. Without it the kernel is not positive
    semi-definite, and its maximum is the null space of X. With it the kernel is conditionally
    positive definite, and since Gamma is centred the objective is a true HSIC.
    """

    pairing = DISTANCE
    amplitude = -1.0


@dataclass(frozen=True)
class Multiquadric(PointwiseKernel):
    """`f(beta) = -sqrt(beta + offset^2)` of squared distances.

    The minus is there for the reason given at `Squared`.
    """

    offset: float = 1.0

    pairing = DISTANCE
    slope_is_psd = True
    amplitude = -0.5

    def __post_init__(self) -> None:
        """Check the offset: at 0 the slope at beta = 0 is infinite."""
        squarable_float("`offset`", self.offset)

    @property
    def value_by_slope(self) -> tuple[float, float]:
        """`(2 c^2, 2)`."""
        return 2.0 * self.offset**2, 2.0

    def value(self, beta: Array, out: Array | None = None) -> Array:
        """Return `-sqrt(beta + c^2)`."""
        root = root_of(beta, self.offset, out)
        return namespace(root).negative(root, **into(root))

    def unit_slope(self, beta: Array, out: Array | None = None) -> Array:
        """Return `1 / sqrt(beta + c^2)`."""
        root = root_of(beta, self.offset, out)
        return namespace(root).reciprocal(root, **into(root))

    @property
    def similarity(self) -> Laplacian:
        """The exponential of this kernel, without the offset, which only the slope needs."""
        return Laplacian(offset=_NEGLIGIBLE_OFFSET)


@dataclass(frozen=True)
class DistanceKernel(Multiquadric):
    """`f(beta) = -sqrt(beta + offset^2)` with an offset much smaller than the distances.

    J is then the distance covariance of X W and y; if y are numbers, their distance replaces
    their kernel. There is no width to choose.

    Parameters
    ----------
    offset : float or None, default None
        None means a fiftieth of the width "root" of a gaussian. The offset keeps the slope at
        beta = 0 finite.
    """

    offset: float | None = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        """Check the offset unless it is None."""
        if self.offset is not None:
            super().__post_init__()

    def resolve(self, sample: Array, share: float = 1.0) -> DistanceKernel:
        """Return the kernel with a number for the offset."""
        if self.offset is not None:
            return self
        return replace(self, offset=_DISTANCE_OFFSET * scaled_median_distance(sample, share))
