"""Finite feature maps phi with `unit_slope(beta_ij) = phi(z_i) . phi(z_j)`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
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
        free = self.q if self.offset else self.q - 1
        return comb(free + self.degree, self.degree)

    def __call__(self, Z: Array) -> Array:
        """Return the (b, size) values of the monomials at the rows of Z (b, q)."""
        table = _table(self)
        columns = np.empty((len(Z), table.width), Z.dtype)
        columns[:, 0] = 1
        if self.degree:
            columns[:, 1 : 1 + self.q] = Z
        for product in table.products:
            factor = Z[:, product.feature, None]
            np.multiply(columns[:, product.of], factor, out=columns[:, product.into])
        return columns[:, -self.size :] * table.scales.astype(Z.dtype)


@dataclass(frozen=True)
class _Product:
    """Monomials `into` are monomials `of`, one degree lower, times column `feature` of Z."""

    into: slice
    of: slice
    feature: int


@dataclass(frozen=True)
class _Table:
    """The recipe for all `width` monomials up to a degree, and the factors of the last ones."""

    width: int
    products: tuple[_Product, ...]
    scales: Array


@lru_cache(maxsize=8)
def _table(monomials: Monomials) -> _Table:
    """Return the products that make the monomials, and the (size,) factors that scale them.

    The factors are square roots of multinomial coefficients times powers of the offset. The
    table is cached: every iteration needs it, and with few rows building it takes longer
    than using it.
    """
    unit = np.eye(monomials.q, dtype=int)
    powers = [np.zeros((1, monomials.q), int), unit][: monomials.degree + 1]
    width, products = sum(map(len, powers)), []
    # begins[f]: the first monomial, one degree lower, that contains no column before column f.
    begins = [*range(1, 1 + monomials.q)]
    for _ in range(2, monomials.degree + 1):
        end, next_begins, exponents_of_degree = width, [], []
        for feature, begin in enumerate(begins):
            next_begins.append(width)
            into = slice(width, width + end - begin)
            products.append(_Product(into, slice(begin, end), feature))
            exponents_of_degree.append(powers[-1][begin - end :] + unit[feature])
            width = into.stop
        begins = next_begins
        powers.append(np.concatenate(exponents_of_degree))
    exponents = np.concatenate(powers)[-monomials.size :]
    rest_degree = monomials.degree - exponents.sum(axis=1)
    log_coefficients = (
        gammaln(monomials.degree + 1)
        - gammaln(exponents + 1).sum(axis=1)
        - gammaln(rest_degree + 1)
    )
    scales = np.sqrt(np.round(np.exp(log_coefficients)) * monomials.offset**rest_degree)
    return _Table(width, tuple(products), scales)
