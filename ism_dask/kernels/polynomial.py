"""Kernels of inner products: linear and polynomial."""

from __future__ import annotations

from dataclasses import dataclass

from ism_dask._types import Array
from ism_dask._validation import check_positive_int, squarable_float
from ism_dask.kernels.base import PointwiseKernel, Proportional
from ism_dask.kernels.monomials import Monomials
from ism_dask.kernels.pairing import INNER
from ism_dask.linalg.arrays import into, namespace


@dataclass(frozen=True)
class Linear(Proportional):
    """`f(beta) = beta` of inner products: supervised PCA."""

    pairing = INNER
    positive_definite = True
    amplitude = 1.0


@dataclass(frozen=True)
class Polynomial(PointwiseKernel):
    """`f(beta) = (beta + offset)^degree` of inner products."""

    degree: int = 3
    offset: float = 1.0

    pairing = INNER
    positive_definite = True
    slope_is_psd = True

    def __post_init__(self) -> None:
        """Check the parameters."""
        check_positive_int("`degree`", self.degree)
        if self.offset != 0:
            squarable_float("`offset`", self.offset, "or 0")

    @property
    def amplitude(self) -> float:
        """`p`."""
        return float(self.degree)

    @property
    def value_by_slope(self) -> tuple[float, float]:
        """`(c / p, 1 / p)`."""
        return self.offset / self.degree, 1.0 / self.degree

    def features(self, q: int) -> Monomials:
        """Return the monomials up to degree p - 1."""
        return Monomials(q, self.degree - 1, self.offset)

    def value(self, beta: Array, out: Array | None = None) -> Array:
        """Return `(beta + c)^p`."""
        return _power(namespace(beta).add(beta, self.offset, **into(out)), self.degree)

    def unit_slope(self, beta: Array, out: Array | None = None) -> Array:
        """Return `(beta + c)^(p-1)`."""
        return _power(namespace(beta).add(beta, self.offset, **into(out)), self.degree - 1)


def _power(base: Array, exponent: int) -> Array:
    # Repeated products are some thirty times faster than NumPy's general power.
    factor = namespace(base).asarray(base, copy=True) if exponent > 1 else base
    if exponent == 0:
        base[...] = 1.0
    for _ in range(exponent - 1):
        base *= factor
    return base
