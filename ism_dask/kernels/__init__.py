"""The ISM family of kernels, their conic sums, and the registry of their names."""

from ism_dask.kernels.base import ConicSum, Kernel, PointwiseKernel
from ism_dask.kernels.graph_kernel import Affinity, ValueAsSlope
from ism_dask.kernels.library import (
    KERNELS,
    WIDTHS,
    DistanceKernel,
    Gaussian,
    Laplacian,
    Linear,
    Multiquadric,
    Polynomial,
    RelativeGaussian,
    Squared,
    as_kernel,
)

__all__ = [
    "KERNELS",
    "WIDTHS",
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
