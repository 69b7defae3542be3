"""The ISM family of kernels, their conic sums, and the registry of their names."""

from ism_dask.kernels.base import ConicSum, Kernel, PointwiseKernel
from ism_dask.kernels.family import (
    KERNELS,
    Gaussian,
    Linear,
    Multiquadric,
    Polynomial,
    RelativeGaussian,
    Squared,
    as_kernel,
)

__all__ = [
    "KERNELS",
    "ConicSum",
    "Gaussian",
    "Kernel",
    "Linear",
    "Multiquadric",
    "PointwiseKernel",
    "Polynomial",
    "RelativeGaussian",
    "Squared",
    "as_kernel",
]
