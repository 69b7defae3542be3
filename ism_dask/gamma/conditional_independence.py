"""What other variables s leave of features of X and of y, and the products of both, row by row.

If y does not depend on X given s, then the products have mean 0 at each value of s, also where the
variance of X or y depends on s.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Self

import numpy as np

from ism_dask._types import Array
from ism_dask.gamma.residual import ridge_shares
from ism_dask.gamma.thin_factors import WHOLE, median_of, squared_distances, thin_factor
from ism_dask.kernels.widths import mean_of_gaussians

# Widths of the kernels of s, as multiples of the median distance.
_WIDTHS = (0.5, 1.0, 2.0)
# Random products that stand for all products of features, of more than 1,000 rows.
_PRODUCTS = 500
# If s leaves less than this share of X or y, there is nothing to test.
_NOTHING = 1e-8


class _Basis(NamedTuple):
    """Orthonormal functions (n, m) of s, with mean 0, and the eigenvalues (m,) of its kernel."""

    functions: Array
    values: Array


class Remainder(NamedTuple):
    """What s leaves of features (n, m), and the mean number of parameters that s took."""

    features: Array
    parameters: float


@dataclass(frozen=True, eq=False)
class Regressions:
    """Kernel ridge regressions on points s, with kernels of several widths.

    Each kernel is a linear one plus a gaussian one. Each feature has the width and the ridge of
    least cross-validation score, in closed form.

    Attributes
    ----------
    bases : tuple of _Basis
        One for each width.
    """

    bases: tuple[_Basis, ...]

    @classmethod
    def of(cls, points: Array, rng: np.random.Generator) -> Self:
        """Return the regressions on points (n, t); `rng` draws landmarks."""
        bases = []
        for width in _WIDTHS:
            factor = thin_factor(points, partial(_linear_and_gaussian, width=width), rng)
            values = np.einsum("ij,ij->j", factor, factor)
            bases.append(_Basis(factor / np.sqrt(values), values))
        return cls(tuple(bases))

    def remainder(self, features: Array, name: str) -> Remainder:
        """Return what s leaves of features (n, m), which have mean 0.

        Raise a ValueError with the name if that is nothing.
        """
        squares = np.einsum("ij,ij->j", features, features)
        along = [functions.T @ features for functions, _ in self.bases]
        chosen = [
            ridge_shares(values, each, squares, len(features))
            for (_, values), each in zip(self.bases, along, strict=True)
        ]
        best = np.argmin([scores for _, scores in chosen], axis=0)
        left, parameters = features.copy(), np.ones(len(squares))
        for number, (shares, _) in enumerate(chosen):
            columns = best == number
            fitted = shares[:, columns] * along[number][:, columns]
            left[:, columns] -= self.bases[number].functions @ fitted
            parameters[columns] += shares[:, columns].sum(axis=0)
        sizes = np.einsum("ij,ij->j", left, left)
        if sizes.sum() <= _NOTHING * squares.sum():
            raise ValueError(
                f"`given` explains {name} completely: nothing is left to test. Leave out of "
                f"`given` what {name} follows from"
            )
        return Remainder(left, float(np.average(parameters, weights=sizes)))


def products(F: Array, U: Array, points: Array, rng: np.random.Generator) -> Array:
    """Return G (n, p) with `G G^T` near the product of three kernels of the rows.

    Two have the factors F (n, m) and U (n, r). The third is that of functions of s, points (n, t):
    1 plus a gaussian kernel, by which covariances count that change sign with s. With up to 1,000
    rows, `G G^T` is the product itself, and with more its mean is.
    """
    median = median_of(points)
    if len(F) <= WHOLE:
        kernel = 1.0 + mean_of_gaussians(squared_distances(points, points), median, (1.0,))
        values, vectors = np.linalg.eigh((F @ F.T) * (U @ U.T) * kernel)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
    frequencies = rng.normal(size=(points.shape[1], _PRODUCTS)) / median
    waves = np.cos(points @ frequencies + rng.uniform(0.0, 2.0 * np.pi, _PRODUCTS))
    G = (1.0 + np.sqrt(2.0) * waves) / np.sqrt(_PRODUCTS)
    for factor in (F, U):
        G *= factor @ rng.normal(size=(factor.shape[1], _PRODUCTS))
    return np.asarray(G)


def _linear_and_gaussian(squared: Array, median: float, width: float) -> Array:
    # Centred, minus half of the squared distances is the linear kernel.
    return mean_of_gaussians(squared, median, (width,)) - squared / (2.0 * median**2)
