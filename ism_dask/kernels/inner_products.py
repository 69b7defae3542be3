"""Kernels of inner products, linear and polynomial, and the monomials that they consist of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from math import comb

import numpy as np
from scipy.special import factorial

from ism_dask._types import Array
from ism_dask._validation import check_positive_int, squarable_float
from ism_dask.kernels.base import PointwiseKernel, Proportional
from ism_dask.kernels.pairing import INNER


@dataclass(frozen=True)
class Linear(Proportional):
    """`f(beta) = beta` of inner products: supervised PCA."""

    pairing = INNER
    positive_definite = True
    amplitude = 1.0


@dataclass(frozen=True)
class Polynomial(PointwiseKernel):
    """`f(beta) = (beta + offset)^degree` of inner products.

    Parameters
    ----------
    degree : int, default 3
        From 1 up.
    offset : float, default 1.0
        From 0 up.
    """

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

    @property
    def power(self) -> tuple[int, float]:
        """`(p - 1, c)`."""
        return self.degree - 1, self.offset

    def value(self, beta: Array, out: Array | None = None) -> Array:
        """Return `(beta + c)^p`."""
        return self._power_of(beta, self.degree, out)

    def unit_slope(self, beta: Array, out: Array | None = None) -> Array:
        """Return `(beta + c)^(p-1)`."""
        return self._power_of(beta, self.degree - 1, out)

    def _power_of(self, beta: Array, exponent: int, out: Array | None) -> Array:
        base = np.add(beta, self.offset, out=out)
        # Repeated products are some thirty times faster than NumPy's general power.
        factor = base.copy() if exponent > 1 else base
        if exponent == 0:
            base[...] = 1.0
        for _ in range(exponent - 1):
            base *= factor
        return base


@dataclass(frozen=True)
class Monomials:
    """The feature map of `(z_i . z_j + offset)^degree`: all monomials of z (q,) up to `degree`.

    With an offset of 0 only the monomials of exactly this degree remain.
    """

    q: int
    degree: int
    offset: float

    @property
    def size(self) -> int:
        """The number of monomials."""
        return comb(self._variables + self.degree - 1, self.degree)

    @property
    def _variables(self) -> int:
        # The columns of Z, and the root of the offset.
        return self.q + (self.offset != 0)

    def __call__(self, Z: Array) -> Array:
        """Return the (b, size) values of the monomials at the rows of Z (b, q)."""
        factors, scales = _table(self._variables, self.degree)
        columns = np.full((self._variables, len(Z)), self.offset**0.5, Z.dtype)
        columns[: self.q] = Z.T
        values = np.repeat(scales.astype(Z.dtype)[:, None], len(Z), axis=1)
        for factor in factors:
            values *= columns[factor]
        return values.T


@lru_cache(maxsize=8)
def _table(variables: int, degree: int) -> tuple[Array, Array]:
    """Return the variables that make each monomial (degree, size), and its scale (size,).

    The scales are square roots of multinomial coefficients. The table is cached: every iteration
    needs it, and with few rows building it takes longer than using it.
    """
    chosen = list(combinations_with_replacement(range(variables), degree))
    factors = np.array(chosen, dtype=int).reshape(len(chosen), degree)
    exponents = (factors[:, :, None] == np.arange(variables)).sum(axis=1)
    return factors.T, np.sqrt(factorial(degree) / factorial(exponents).prod(axis=1))
