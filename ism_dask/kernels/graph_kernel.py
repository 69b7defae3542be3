"""Kernels that weigh the edges of a graph: never negative, and positive semi-definite."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ism_dask._types import Array
from ism_dask.kernels.base import Kernel, PointwiseKernel, conic_sum
from ism_dask.kernels.library import Gaussian, RelativeGaussian
from ism_dask.kernels.pairing import Pairing
from ism_dask.kernels.widths import median_distance

# Of the median distance between the rows of X W. A gaussian as wide as that of all features sees
# hardly any neighbourhood in the few that are left; from 0.33 to 0.4 all data sets came out best.
_NEAR = 0.375


@dataclass(frozen=True)
class Affinity:
    """What says how near two rows are.

    Degrees need values that are not negative, and an embedding a matrix that is positive
    semi-definite. Of the kernels only the gaussian is both. `-sqrt(beta + c^2)` becomes its
    exponential, which is positive semi-definite as that of every conditionally definite kernel
    is (Schoenberg). For all others, and for sums with such, a gaussian of the rows stands; for
    `-beta` that is the exponential as well, and for a linear kernel that of its distances.

    Attributes
    ----------
    whole : Kernel
        Between rows of X, and of X W too unless `narrow`; nothing is left to resolve.
    narrow : bool
        Whether rows of X W get a gaussian of their own width.
    """

    whole: Kernel
    narrow: bool = False

    @classmethod
    def of(cls, kernel: Kernel, sample: Array) -> Affinity:
        """Return that of a kernel, widths being taken from rows of X, `sample` (m, d)."""
        own = [(weight, term.similarity) for weight, term in kernel.terms]
        known = [(weight, term) for weight, term in own if term is not None]
        whole = conic_sum(known) if len(known) == len(own) else Gaussian()
        gaussians = [isinstance(term, Gaussian | RelativeGaussian) for _, term in kernel.terms]
        return cls(whole.resolve(sample), all(gaussians))

    def between(self, projected: Array) -> Kernel:
        """Return the kernel of rows of X W, widths being taken from `projected` (m, q)."""
        # Where W leaves nothing of the rows there is no width to take.
        if not self.narrow or not np.ptp(projected, axis=0).any():
            return self.whole
        return Gaussian(_NEAR * median_distance(projected))


@dataclass(frozen=True)
class ValueAsSlope(PointwiseKernel):
    """A kernel whose slope is the value of another: what sums up slopes then sums up values.

    Its own value is never asked for.
    """

    base: PointwiseKernel

    amplitude = 1.0
    slope_at_zero = 1.0
    slope_is_psd = True
    value_by_slope = (1.0, 0.0)

    @classmethod
    def of(cls, kernel: Kernel) -> Kernel:
        """Return the same for each term of a kernel."""
        return conic_sum([(weight, cls(term)) for weight, term in kernel.terms])

    @property
    def title(self) -> str:
        """That of the base."""
        return self.base.title

    @property
    def pairing(self) -> Pairing:  # type: ignore[override]
        """That of the base."""
        return self.base.pairing

    @property
    def resolution(self) -> float:
        """That of the base."""
        return self.base.resolution

    def value(self, beta: Array, scale: Array | None = None, out: Array | None = None) -> Array:
        """Refuse: an integral of the base is not known."""
        raise TypeError(f"{type(self.base).__name__} has no integral here")

    def unit_slope(
        self, beta: Array, scale: Array | None = None, out: Array | None = None
    ) -> Array:
        """Return the value of the base."""
        return self.base.value(beta, scale, out)
