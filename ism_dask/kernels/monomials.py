"""Finite feature maps phi with `unit_slope(beta_ij) = phi(z_i) . phi(z_j)`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from math import comb

import numpy as np
from scipy.special import gammaln

from ism_dask._types import Array


@dataclass(frozen=True)
class Monomials:
    """The feature map of `(z_i . z_j + offset)^degree`: all monomials of z (q,) up to `degree`.

    Attributes
    ----------
    q : int
        Columns of Z.
    degree : int
    offset : float
        With 0 only the monomials of exactly `degree` remain.
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
        """The number of factors to choose from: the columns of Z, and the root of the offset."""
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
    log_coefficients = gammaln(degree + 1) - gammaln(exponents + 1).sum(axis=1)
    return factors.T, np.sqrt(np.round(np.exp(log_coefficients)))
