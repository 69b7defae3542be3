"""Finite maps phi with `shape(beta_ij) = phi(z_i) . phi(z_j)`, where a kernel has one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
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
        return np.asarray(self._monomials.fit_transform(Z)) * self._scales.astype(Z.dtype)

    @cached_property
    def _monomials(self) -> PolynomialFeatures:
        lowest = 0 if self.offset else self.degree
        return PolynomialFeatures((lowest, self.degree), include_bias=lowest == 0)

    @cached_property
    def _scales(self) -> Array:
        """The (size,) square roots of the multinomial coefficients times powers of the offset."""
        powers = self._monomials.fit(np.zeros((1, self.q))).powers_
        rest = self.degree - powers.sum(axis=1)
        ways = gammaln(self.degree + 1) - gammaln(powers + 1).sum(axis=1) - gammaln(rest + 1)
        return np.sqrt(np.round(np.exp(ways)) * self.offset**rest)
