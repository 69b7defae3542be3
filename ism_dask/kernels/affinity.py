"""Kernels that weigh the edges of a graph: never negative, and positive semi-definite."""

from __future__ import annotations

from dataclasses import dataclass

from ism_dask.kernels.base import Kernel, PointwiseKernel, conic_sum
from ism_dask.kernels.family import Gaussian
from ism_dask.kernels.pairing import Pairing
from ism_dask.typing import Array


def affinity(kernel: Kernel) -> Kernel:
    """Return the kernel whose values say how near two projected rows are, not resolved yet.

    Degrees need values that are not negative, and an embedding a matrix that is positive
    semi-definite. A kernel with both is its own affinity. `-sqrt(beta + c^2)` becomes its
    exponential, which is positive semi-definite as that of every conditionally definite kernel
    is (Schoenberg). For all others, and for sums with such, a gaussian of the rows stands; for
    `-beta` that is the exponential as well, and for a linear kernel that of its distances.
    """
    own = [(weight, term.similarity) for weight, term in kernel.terms]
    known = [(weight, term) for weight, term in own if term is not None]
    return conic_sum(known) if len(known) == len(own) else Gaussian()


@dataclass(frozen=True)
class Values(PointwiseKernel):
    """A kernel whose slope is the value of another: what sums up slopes then sums up values.

    Its own value is never asked for.
    """

    base: PointwiseKernel

    amplitude = 1.0
    flat_slope = 1.0
    definite = True
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
    def local(self) -> bool:  # type: ignore[override]
        """That of the base."""
        return self.base.local

    def widths(self, rows: Array) -> Array:
        """Return the widths of the base."""
        return self.base.widths(rows)

    def value(self, beta: Array, scale: Array | None = None, out: Array | None = None) -> Array:
        """Refuse: an integral of the base is not known."""
        raise TypeError(f"{type(self.base).__name__} has no integral here")

    def shape(self, beta: Array, scale: Array | None = None, out: Array | None = None) -> Array:
        """Return the value of the base."""
        return self.base.value(beta, scale, out)
