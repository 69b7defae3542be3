"""Finite maps phi with `shape(beta_ij) = phi(z_i) . phi(z_j)`, where a kernel has one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np
from scipy.special import gammaln

from ism_dask._types import Array


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
    """Monomials `into` are monomials `of`, of a degree less, times column `feature` of Z."""

    into: slice
    of: slice
    feature: int


@dataclass(frozen=True)
class _Table:
    """How all `width` monomials up to a degree are made, and the factors of the last ones."""

    width: int
    products: tuple[_Product, ...]
    scales: Array


@lru_cache(maxsize=8)
def _table(of: Monomials) -> _Table:
    """Return what makes the monomials, and the (size,) factors that go with them.

    These are square roots of multinomial coefficients times powers of the offset. An iteration
    needs them anew, and on few rows making them takes longer than using them.
    """
    unit = np.eye(of.q, dtype=int)
    powers = [np.zeros((1, of.q), int), unit][: of.degree + 1]
    width, products = sum(map(len, powers)), []
    # Where those of one degree less begin that have no column before the first, the second ...
    begins = [*range(1, 1 + of.q)]
    for _ in range(2, of.degree + 1):
        end, following, longer = width, [], []
        for feature, begin in enumerate(begins):
            following.append(width)
            into = slice(width, width + end - begin)
            products.append(_Product(into, slice(begin, end), feature))
            longer.append(powers[-1][begin - end :] + unit[feature])
            width = into.stop
        begins = following
        powers.append(np.concatenate(longer))
    exponents = np.concatenate(powers)[-of.size :]
    rest = of.degree - exponents.sum(axis=1)
    ways = gammaln(of.degree + 1) - gammaln(exponents + 1).sum(axis=1) - gammaln(rest + 1)
    scales = np.sqrt(np.round(np.exp(ways)) * of.offset**rest)
    return _Table(width, tuple(products), scales)
