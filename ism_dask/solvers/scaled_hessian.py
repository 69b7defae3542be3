"""The Hessian of J at a stationary W, scaled by eigengaps, and its extreme eigenvalues by Lanczos.

J depends only on the span of W: the Hessian is that on the Grassmann manifold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from ism_dask._types import Array
from ism_dask.engines.operator import check_finite
from ism_dask.linalg.eigen import nearest_orthonormal
from ism_dask.records.iteration import Solution
from ism_dask.solvers.lbfgs import Precondition
from ism_dask.solvers.time_limit import TimeLimited

# The least number of products, which estimates the eigenvalues, and the most, to decide the sign
# of the largest one: by differences, and by `curvature`, which is for few rows.
_PRODUCTS, _MOST_BY_DIFFERENCES, _MOST_BY_CURVATURE = 12, 60, 200
# The step of a finite difference, for exact and for approximate engines, whose error varies with W.
_STEP, _COARSE_STEP = 1e-5, 0.03
# Differences of eigenvalues are taken to be at least this share of the largest difference.
_LEAST_GAP = 1e-3
# Eigenvalues nearer to 0 are 0.
_FLAT = 1e-6
# An engine with an error may show eigenvalues up to this where J does not rise.
_ENGINE_ERROR = 0.05
# Within this distance second order describes J well enough to say where its maximum is.
FARTHEST = 0.05
# The chance that Lanczos misses a larger eigenvalue.
_CHANCE = 1e-4
# The remainder of an orthogonalised vector is rounding if it is a smaller share of the vector.
_NEGLIGIBLE = 1e-6


@dataclass(frozen=True)
class Extremes:
    """The extreme eigenvalues of the scaled Hessian.

    Attributes
    ----------
    least, largest : float
        The extreme Ritz values, which lie between the extreme eigenvalues.
    across, upward : (d, q) array
        Their directions.
    slack : float
        The largest eigenvalue exceeds the largest Ritz value by no more than this.
    error : float
        The error of the products, by their lack of symmetry.
    n_products : int
    slope : float
        Length of the gradient of J in the scaled coordinates, in units of the Hessian.
    shortest_scale : float
        A step of length 1 in the scaled coordinates is at most one of length `1 / shortest_scale`.
    least_gap : float
        The smallest eigenvalue of Phi within W minus the largest one outside.
    approximate : bool
        Whether the engine that gave the products has an error of its own.
    """

    least: float
    largest: float
    across: Array
    upward: Array
    slack: float
    error: float
    n_products: int
    slope: float
    shortest_scale: float
    least_gap: float
    approximate: bool

    @property
    def upper_bound(self) -> float:
        """A bound on the largest eigenvalue."""
        return self.largest + self.slack + self.error

    @property
    def rises(self) -> bool:
        """Whether J rises along `upward`."""
        least = _ENGINE_ERROR if self.approximate else _FLAT + self.error
        return self.largest > least

    @property
    def falls(self) -> bool:
        """Whether J falls in every direction."""
        return not self.approximate and self.upper_bound < -_FLAT

    @property
    def proves_maximum(self) -> bool:
        """Whether W is a maximum of J, or so near to one that second order describes it."""
        return self.falls and self.distance <= FARTHEST

    @property
    def is_flat(self) -> bool:
        """Whether J neither rises nor falls along `upward`."""
        return not self.rises and self.largest + self.error >= -_FLAT

    @property
    def is_decided(self) -> bool:
        """Whether more products would hardly change what the extremes say."""
        is_flat = self.is_flat and self.n_products >= 2 * _PRODUCTS
        return self.rises or self.proves_maximum or is_flat

    @property
    def spectral_step_leaves(self) -> bool:
        """Whether Phi has an eigenvalue outside of W that is larger than one within."""
        return self.least_gap < 0

    @property
    def distance(self) -> float:
        """A bound on the step from W to the maximum of J, to second order, if J `falls`."""
        return self.slope / (-self.upper_bound * self.shortest_scale)


@dataclass(frozen=True)
class ScaledHessian:
    """The Hessian of J at a stationary W.

    Directions Z (d, q) with `W^T Z = 0` are written in eigenvectors of Phi, and scaled so that the
    spectral step by itself would return to W at rate 1. The eigenvalues of the derivative of the
    step are then those of this Hessian, plus 1. Scaling changes the sign of none.

    Attributes
    ----------
    operator : TimeLimited
    W : (d, q) array
    product : (d, q) array
        Phi W.
    outside : (d, d - q) array
        The eigenvectors of Phi outside of W.
    gaps : (d - q, q) array
        The eigenvalues within W minus those outside.
    step : float or None
        The step of finite differences of the gradient; None if `curvature` gives the products.
    approximate : bool
        Whether the operator has an error beyond rounding.
    """

    operator: TimeLimited
    W: Array
    product: Array
    outside: Array
    gaps: Array
    step: float | None
    approximate: bool

    @classmethod
    def at(
        cls, operator: TimeLimited, solution: Solution, *, by_differences: bool = True
    ) -> ScaledHessian:
        """Return the Hessian at the W of a solution; this computes Phi once.

        Its products are finite differences of the gradient, or come from `operator.curvature`.
        """
        W = solution.W
        evaluation = operator.phi(W)
        outside, gaps = _gaps(evaluation.phi, W, solution.eigenvalues)
        step = _COARSE_STEP if evaluation.approximate else _STEP
        # Short steps need a gradient in double precision, and so does the distance to the maximum:
        # W may be stationary to the last digit of single precision.
        precise = evaluation.approximate or solution.in_double
        return cls(
            operator,
            W,
            solution.product if precise else operator.gradient(W).product,
            outside,
            gaps,
            step if by_differences else None,
            evaluation.approximate,
        )

    @property
    def _scales(self) -> Array:
        return np.sqrt(_sizes(self.gaps))

    @property
    def _most_products(self) -> int:
        if self.approximate:
            return _PRODUCTS
        return _MOST_BY_CURVATURE if self.step is None else _MOST_BY_DIFFERENCES

    def extremes(self) -> Extremes:
        """Return the extreme eigenpairs, by Lanczos until the sign of the largest is certain."""
        rng, most = np.random.default_rng(0), min(self._most_products, self.gaps.size)
        vectors: list[Array] = []
        images: list[Array] = []
        following = self._random_direction(rng)
        while True:
            vectors.append(_orthogonalised(vectors, following))
            images.append(self._product(vectors[-1]))
            if len(vectors) >= min(_PRODUCTS, most):
                extremes = self._ritz(np.array(vectors).T, np.array(images).T)
                if len(vectors) == most or extremes.is_decided:
                    return extremes
            following = _orthogonalised(vectors, images[-1])
            if not following.any():
                # The vectors span an invariant subspace: continue from another random direction.
                following = self._random_direction(rng)

    def _ritz(self, basis: Array, image: Array) -> Extremes:
        """Return the extremes from a basis (m, k) of scaled directions and its products (m, k)."""
        small = basis.T @ image
        values, mix = scipy.linalg.eigh((small + small.T) / 2)
        across, upward = (self._direction(basis @ mix[:, end]) for end in (0, -1))
        gradient = (self.outside.T @ self.product) / self._scales
        return Extremes(
            least=float(values[0]),
            largest=float(values[-1]),
            across=across,
            upward=upward,
            slack=_lanczos_slack(len(basis), len(values), float(values[-1] - values[0])),
            error=float(np.linalg.norm(small - small.T, 2)),
            n_products=basis.shape[1],
            slope=float(np.linalg.norm(gradient)),
            shortest_scale=float(self._scales.min()),
            least_gap=float(self.gaps.min()),
            approximate=self.approximate,
        )

    def _random_direction(self, rng: np.random.Generator) -> Array:
        """Draw a random direction in the coordinates of W, which do not depend on rounding."""
        return (self.outside.T @ rng.normal(size=self.W.shape)).ravel()

    def _product(self, vector: Array) -> Array:
        """Return the product of the scaled Hessian with a scaled direction."""
        Z = self._direction(vector)
        inner = self.W.T @ self.product
        change = self._derivative(Z) - Z @ (inner + inner.T) / 2
        return np.asarray((self.outside.T @ change / self._scales).ravel())

    def _derivative(self, Z: Array) -> Array:
        """Return the derivative (d, q) of `Phi(W) W` along Z (d, q)."""
        if self.step is None:
            return self.operator.curvature(self.W, Z)
        step = self.step / float(np.linalg.norm(Z))
        there = self.operator.gradient(nearest_orthonormal(self.W + step * Z)).product
        return np.asarray((there - self.product) / step)

    def _direction(self, vector: Array) -> Array:
        scaled = vector.reshape(self.gaps.shape) / self._scales
        return np.asarray(self.outside @ scaled)


def inverse_gaps(phi: Array, W: Array, eigenvalues: Array) -> Precondition:
    """Return the inverse of the Hessian of J near W (d, q) as far as Phi (d, d) tells it.

    It makes the slope a spectral step, to first order. W is rotated so that `W^T Phi W` is
    diagonal, with these eigenvalues (q,).
    """
    outside, gaps = _gaps(phi, W, eigenvalues)
    sizes = _sizes(gaps)
    largest = float(sizes.max())
    shares = largest / sizes - 1.0

    def precondition(Z: Array) -> Array:
        return np.asarray(Z + outside @ (shares * (outside.T @ Z))) / largest

    return precondition


def _gaps(phi: Array, W: Array, eigenvalues: Array) -> tuple[Array, Array]:
    """Return the eigenvectors of Phi outside of W, and the gaps, as `ScaledHessian` has them."""
    basis = np.linalg.qr(W, mode="complete")[0][:, W.shape[1] :]
    values, rotation = scipy.linalg.eigh(basis.T @ check_finite(phi) @ basis)
    return basis @ rotation, eigenvalues - values[:, None]


def _sizes(gaps: Array) -> Array:
    sizes = np.abs(gaps)
    return np.maximum(sizes, _LEAST_GAP * sizes.max())


def _lanczos_slack(size: int, steps: int, spread: float) -> float:
    """Return by how much the largest eigenvalue may exceed the largest Ritz value.

    `steps` of Lanczos from a random vector of `size` entries gave Ritz values over the range
    `spread`. They miss an extreme eigenvalue by more than a share e of the range of eigenvalues
    with a chance below `1.648 sqrt(size) exp(-sqrt(e) (2 steps - 1))` (Kuczynski and Wozniakowski,
    SIAM J. Matrix Anal. Appl. 13, 1992).
    """
    if steps == size:
        return 0.0
    share = (math.log(1.648 * math.sqrt(size) / _CHANCE) / (2 * steps - 1)) ** 2
    # Both ends may be missed: the eigenvalues range over no more than spread / (1 - 2 share).
    return share * spread / (1.0 - 2.0 * share) if share < 0.5 else math.inf


def _orthogonalised(vectors: list[Array], vector: Array) -> Array:
    """Return `vector` made orthogonal to orthonormal vectors, of length 1, or zeros."""
    size, remainder = float(np.linalg.norm(vector)), vector
    for _ in range(2):  # the second time removes the rounding of the first
        for each in vectors:
            remainder = remainder - (each @ remainder) * each
    length = float(np.linalg.norm(remainder))
    return np.asarray(remainder / length) if length > _NEGLIGIBLE * size else np.zeros_like(vector)
