"""Finite maps phi with `shape(beta_ij) = phi(z_i) . phi(z_j)`, where a kernel has one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np
from scipy.special import gammaln
from sklearn.preprocessing import PolynomialFeatures

from ism_dask.typing import Array


@dataclass(frozen=True)
class Monomials:
    """The map of `(z_i . z_j + offset)^degree`: all monomials of z (q,) up to that degree.

    Attributes
    ----------
    q : int
        Columns of Z.
    degree : int
    offset : float
        0 leaves only the monomials of exactly that degree.
    """

    q: int
    degree: int
    offset: float

    @property
    def size(self) -> int:
        """How many monomials there are."""
        free = self.q if self.offset else self.q - 1
        return comb(free + self.degree, self.degree)

    def __call__(self, Z: Array) -> Array:
        """Return the (b, size) values at the rows of Z (b, q)."""
        monomials, scales = _table(self)
        return np.asarray(monomials.transform(Z)) * scales.astype(Z.dtype)


@lru_cache(maxsize=8)
def _table(of: Monomials) -> tuple[PolynomialFeatures, Array]:
    """Return what makes the monomials, and the (size,) factors that go with them.

    These are square roots of multinomial coefficients times powers of the offset. An iteration
    asks for them anew, and on few rows making them takes longer than using them.
    """
    lowest = 0 if of.offset else of.degree
    monomials = PolynomialFeatures((lowest, of.degree), include_bias=lowest == 0)
    powers = monomials.fit(np.zeros((1, of.q))).powers_
    rest = of.degree - powers.sum(axis=1)
    ways = gammaln(of.degree + 1) - gammaln(powers + 1).sum(axis=1) - gammaln(rest + 1)
    return monomials, np.sqrt(np.round(np.exp(ways)) * of.offset**rest)
