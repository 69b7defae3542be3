"""The ISM family of kernels, their conic sums, and the registry of their names.

A new kernel is one class in a file of this folder, and one line in `KERNELS`.
"""

from __future__ import annotations

from ism_dask.kernels.base import ConicSum, Kernel, PointwiseKernel, ValueAsSlope
from ism_dask.kernels.distances import (
    WIDTH_RULES,
    Affinity,
    DistanceKernel,
    Gaussian,
    Laplacian,
    Multiquadric,
    RelativeGaussian,
    Squared,
)
from ism_dask.kernels.inner_products import Linear, Polynomial

__all__ = [
    "KERNELS",
    "WIDTH_RULES",
    "Affinity",
    "ConicSum",
    "DistanceKernel",
    "Gaussian",
    "Kernel",
    "Laplacian",
    "Linear",
    "Multiquadric",
    "PointwiseKernel",
    "Polynomial",
    "RelativeGaussian",
    "Squared",
    "ValueAsSlope",
    "as_kernel",
]

KERNELS: dict[str, type[PointwiseKernel]] = {
    "linear": Linear,
    "polynomial": Polynomial,
    "squared": Squared,
    "gaussian": Gaussian,
    "multiquadric": Multiquadric,
    "distance": DistanceKernel,
    "relative_gaussian": RelativeGaussian,
}


def as_kernel(kernel: str | Kernel) -> Kernel:
    """Return the kernel with this name in `KERNELS`, or the kernel itself."""
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str) and kernel in KERNELS:
        return KERNELS[kernel]()
    raise ValueError(
        f"`kernel` must be a Kernel or one of {', '.join(sorted(KERNELS))}; got {kernel!r}"
    )
