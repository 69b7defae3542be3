"""The ISM family of kernels, their conic sums, and the registry of their names."""

from ism_dask.kernels.base import ConicSum, Kernel, PointwiseKernel
from ism_dask.kernels.gaussian import Gaussian, RelativeGaussian
from ism_dask.kernels.graph_kernel import Affinity, ValueAsSlope
from ism_dask.kernels.laplacian import Laplacian
from ism_dask.kernels.library import KERNELS, as_kernel
from ism_dask.kernels.negative_distances import DistanceKernel, Multiquadric, Squared
from ism_dask.kernels.polynomial import Linear, Polynomial
from ism_dask.kernels.shared_width import WIDTHS

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
