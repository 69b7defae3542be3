"""Derive the kernel that weighs the edges of a graph: non-negative and positive semi-definite."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ism_dask._types import Array
from ism_dask.kernels.base import Kernel, PointwiseKernel, conic_sum
from ism_dask.kernels.distances import Gaussian, RelativeGaussian
from ism_dask.kernels.pairing import Pairing
from ism_dask.kernels.widths import median_distance

# The width of the gaussian between rows of X W, as a share of their median distance. A gaussian
# as wide as the one on all features hardly resolves neighbourhoods in the few columns of X W.
# Shares from 0.33 to 0.4 gave the best result on every data set.
_WIDTH_SHARE = 0.375


@dataclass(frozen=True)
class Affinity:
    """The affinity between two rows: the kernel that weighs the edges of the graph.

    Degrees need non-negative values, and a spectral embedding needs a positive semi-definite
    matrix. Only the gaussian has both. `-sqrt(beta + c^2)` is replaced by its exponential, which
    is positive semi-definite, like that of every conditionally positive definite kernel
    (Schoenberg). All other kernels, and sums that contain one, are replaced by a gaussian of the
    rows. For `-beta` this gaussian is its exponential too; for a linear kernel it is the
    exponential of the distances that belong to it.

    Attributes
    ----------
    whole : Kernel
        The resolved kernel between rows of X, and between rows of X W unless `narrow`.
    narrow : bool
        Whether rows of X W get a gaussian of their own width.
    """

    whole: Kernel
    narrow: bool = False

    @classmethod
    def for_kernel(cls, kernel: Kernel, sample: Array) -> Affinity:
        """Return the affinity for a kernel; widths are computed from rows of X, `sample` (m, d)."""
        weighted = [(weight, term.similarity) for weight, term in kernel.terms]
        usable = [(weight, term) for weight, term in weighted if term is not None]
        whole = conic_sum(usable) if len(usable) == len(weighted) else Gaussian()
        are_gaussian = [isinstance(term, Gaussian | RelativeGaussian) for _, term in kernel.terms]
        return cls(whole.resolve(sample), all(are_gaussian))

    def between(self, projected: Array) -> Kernel:
        """Return the kernel between rows of X W; its width is computed from `projected` (m, q)."""
        # If W maps all rows to one point, no width can be computed.
        if not self.narrow or not np.ptp(projected, axis=0).any():
            return self.whole
        return Gaussian(_WIDTH_SHARE * median_distance(projected))


@dataclass(frozen=True)
class ValueAsSlope(PointwiseKernel):
    """Wrap a kernel so that its values are returned as slopes; engines that sum f' then sum f.

    No engine needs `value` here, which would be the integral of the base kernel.
    """

    base: PointwiseKernel

    amplitude = 1.0
    slope_is_psd = True
    value_by_slope = (1.0, 0.0)

    @classmethod
    def wrapped(cls, kernel: Kernel) -> Kernel:
        """Return the kernel with each of its terms wrapped."""
        return kernel.mapped(cls)

    @property
    def title(self) -> str:
        """The title of the base kernel."""
        return self.base.title

    @property
    def pairing(self) -> Pairing:  # type: ignore[override]
        """The pairing of the base kernel."""
        return self.base.pairing

    @property
    def resolution(self) -> float:
        """The resolution of the base kernel."""
        return self.base.resolution

    def value(self, beta: Array, out: Array | None = None) -> Array:
        """Raise TypeError: no integral of the base kernel is available."""
        raise TypeError(f"{type(self.base).__name__} has no integral here")

    def unit_slope(self, beta: Array, out: Array | None = None) -> Array:
        """Return the value of the base kernel."""
        return self.base.value(beta, out)
