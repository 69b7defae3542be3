"""The curvature of the prediction criterion at W, and the influence of each row on its slope.

Both have a closed form along directions that are orthogonal to W, so that one pass over the rows
gives them. `F = |Y|^2 / n - J` is the loss of the regression, and `B = (K + n lambda I)^-1`.
Without row i, `n F` is smaller by `n lambda |alpha_i|^2 / B_ii`. The derivative of that is the
influence of the row on the slope of `n F`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.linalg
from scipy import stats

from ism_dask._types import Array
from ism_dask.criteria.prediction import RidgeRegression, RowsInMemory
from ism_dask.kernels.base import PointwiseKernel
from ism_dask.threads import in_threads

# J is flat where its curvature is below this share of the largest one.
_FLAT_CURVATURE = 1e-4


@dataclass(frozen=True, eq=False)
class Tangents:
    """The directions along which W (d, q) can turn, as matrices `basis @ D` with D (d - q, q).

    The columns of the `basis` (d, d - q) are orthonormal, and orthogonal to W.
    """

    W: Array
    basis: Array

    @classmethod
    def at_weights(cls, W: Array) -> Tangents:
        """Return the directions at W (d, q)."""
        return cls(W, np.linalg.qr(W, mode="complete")[0][:, W.shape[1] :])

    @property
    def size(self) -> int:
        """The number p = (d - q) q of directions."""
        return self.basis.shape[1] * self.W.shape[1]

    def turned(self, direction: Array) -> Array:
        """Return W (d, q) after a turn along a direction (p,), by the arctangent of its length."""
        D = direction.reshape(-1, self.W.shape[1])
        return np.asarray(scipy.linalg.orth(self.W + self.basis @ D))


def curvature(
    regression: RidgeRegression,
    tangents: Tangents,
    blocks: Sequence[RowsInMemory],
) -> tuple[Array, Array]:
    """Return the second derivative (p, p) of 1 - J, and the influence (n, p) of rows on its slope.

    They are those of the mean over blocks of rows, each with a regression of its own. Influences
    are in the order of the blocks, and those of groups of rows if a block has groups.
    """
    calls = [partial(block_curvature, regression, tangents, block) for block in blocks]
    parts = in_threads(calls, sum(block.n_rows for block in blocks))
    hessians, influences, sizes = zip(*parts, strict=True)
    return sum(hessians) / sum(sizes), np.concatenate(influences) / sum(sizes)


def block_curvature(
    regression: RidgeRegression, tangents: Tangents, block: RowsInMemory
) -> tuple[Array, Array, float]:
    """Return the second derivative (p, p) of n F, the influences (n, p) on its slope, and n.

    Influences are those of rows, or of groups of them; n is the sum of the weights.
    """
    terms = _Terms(regression, block, tangents)
    hessian, influence = terms.gauss_newton()
    influence += terms.leverage_change()
    hessian += terms.second_derivative()
    if regression.scales is not None:  # a turn by D moves X W A by `X basis D A`
        turn = np.kron(np.eye(tangents.basis.shape[1]), regression.scales)
        hessian, influence = turn @ hessian @ turn.T, influence @ turn.T
    inner = tangents.W.T @ (block.size * regression.explained(block, tangents.W).product)
    hessian += np.kron(np.eye(tangents.basis.shape[1]), inner + inner.T)
    if block.groups is not None:
        order = np.argsort(block.groups, kind="stable")
        firsts = np.unique(block.groups[order], return_index=True)[1]
        influence = np.add.reduceat(influence[order], firsts)
    return (hessian + hessian.T) / 2, influence, block.size


def turn_covariance(hessian: Array, slopes: Array) -> Array:
    """Return `H^-1 S H^-1` (p, p): how rows turn W, from the covariance S (p, p) of its slope.

    Directions along which J is flat are undetermined: there W turns by a radian.
    """
    root, flat = inverse_curvature(hessian)
    return np.asarray(root @ slopes @ root + flat @ flat.T)


def inverse_curvature(hessian: Array) -> tuple[Array, Array]:
    """Return the inverse (p, p) of a curvature where J is not flat, and where it is: (p, k)."""
    values, vectors = np.linalg.eigh(hessian)
    is_flat = values <= _FLAT_CURVATURE * values[-1]
    inverse = np.divide(1.0, values, out=np.zeros_like(values), where=~is_flat)
    return vectors * inverse @ vectors.T, vectors[:, is_flat]


def wald_pvalue(tangents: Tangents, covariance: Array, features: Array) -> float:
    """Return the p-value of the hypothesis that the true weights of features (k,) are all 0.

    `covariance` (p, p) is that of the turns of W.
    """
    (e, q), weights = (tangents.basis.shape[1], tangents.W.shape[1]), tangents.W[features]
    turned = tangents.basis[features]
    paired = covariance.reshape(e, q, e, q)
    # As two products of matrices, which are far faster than one sum over all indices.
    of_weights = np.einsum("ia,akbl,jb->ikjl", turned, paired, turned, optimize=True)
    return wald_pvalue_of(weights.ravel(), of_weights.reshape(weights.size, weights.size))


def wald_pvalue_of(estimate: Array, covariance: Array) -> float:
    """Return the p-value of the hypothesis that what is estimated (k,) is 0, by Wald's test."""
    inverse = np.linalg.pinv(covariance, hermitian=True)
    return float(stats.chi2.sf(estimate @ inverse @ estimate, len(estimate)))


class _Slope:
    """The slope f'(beta) (n, n) and the second derivative of a term of the kernel, weighted."""

    def __init__(self, weight: float, term: PointwiseKernel, Z: Array) -> None:
        beta = term.pairing.between(Z, Z)
        self.coupling, self.degree = term.pairing.coupling, term.pairing.degree
        slope = term.slope(beta.copy())
        self.first, self.second = weight * slope, weight * term.second_slope(beta, slope)

    def other(self, z: Array) -> Array:
        """Return G (n, n) of a new feature z (n,): `d beta_ij = t_i G_ij + t_j G_ji` along t."""
        return self.coupling * z[None, :] + self.degree * z[:, None]


class _Terms:
    """What the derivatives of the regression on a block have in common.

    `T` (n, d - q) are the rows along the basis of the tangents, `Z` (n, q) those along W, with
    their scales. The `inverse` (n, n) is B, `alpha` (n, r) is B Y, and `noise` is n lambda.
    """

    def __init__(
        self, regression: RidgeRegression, block: RowsInMemory, tangents: Tangents
    ) -> None:
        X, kernel = block.X.astype(np.float64, copy=False), regression.kernel
        self.T, self.Z = X @ tangents.basis, regression.projected(X, tangents.W)
        self.noise = noise = block.size * regression.ridge
        system = kernel.matrix(self.Z, self.Z, resolved=False)
        system.flat[:: len(X) + 1] += noise if block.weights is None else noise / block.weights
        self.inverse = scipy.linalg.inv(system, overwrite_a=True, assume_a="pos")
        self.alpha = self.inverse @ block.Y
        self.signs = np.ones(block.Y.shape[1]) if regression.signs is None else regression.signs
        self.slopes = [_Slope(weight, term, self.Z) for weight, term in kernel.terms]

    @property
    def unexplained(self) -> Array:
        """The errors (n, r) with which the other rows predict each row."""
        return np.asarray(self.alpha / np.diag(self.inverse)[:, None])

    def gauss_newton(self) -> tuple[Array, Array]:
        """Return the part (p, p) of the Hessian, and of the influences (n, p), from alpha."""
        p = self.T.shape[1] * self.Z.shape[1]
        hessian, influence = np.zeros((p, p)), np.zeros((len(self.T), p))
        for sign, alpha, errors in zip(self.signs, self.alpha.T, self.unexplained.T, strict=True):
            moved = self._kernel_change(alpha)
            alpha_change = self.inverse @ moved
            hessian += (2.0 * self.noise * sign) * (moved.T @ alpha_change)
            influence -= (2.0 * self.noise * sign) * (errors[:, None] * alpha_change)
        return hessian, influence

    def _kernel_change(self, alpha: Array) -> Array:
        """Return the derivatives (n, p) of `K alpha` for alpha (n,)."""
        T, Z = self.T, self.Z
        changes = np.zeros((len(T), T.shape[1], Z.shape[1]))
        for slope in self.slopes:
            through = slope.first @ (alpha[:, None] * T)
            for k, z in enumerate(Z.T):
                own = slope.first @ (alpha * z), slope.degree * z * (slope.first @ alpha)
                changes[:, :, k] += T * (slope.coupling * own[0] + own[1])[:, None]
                changes[:, :, k] += (slope.coupling * z)[:, None] * through
                if slope.degree:
                    changes[:, :, k] += slope.degree * (slope.first @ ((alpha * z)[:, None] * T))
        return changes.reshape(len(T), -1)

    def leverage_change(self) -> Array:
        """Return the part (n, p) of the influences from the diagonal of B."""
        T, Z, B = self.T, self.Z, self.inverse
        changes = np.zeros((len(T), T.shape[1], Z.shape[1]))
        for slope in self.slopes:
            for k, z in enumerate(Z.T):
                changes[:, :, k] += (B * ((slope.first * slope.other(z)) @ B).T) @ T
        squares = 2.0 * self.noise * (self.unexplained**2 @ self.signs)
        return (squares[:, None, None] * changes).reshape(len(T), -1)

    def second_derivative(self) -> Array:
        """Return the part (p, p) of the Hessian from the second derivatives of K."""
        T, Z = self.T, self.Z
        (e, q), noise = (T.shape[1], Z.shape[1]), self.noise
        hessian = np.zeros((e, q, e, q))
        gamma = -2.0 * noise * (self.alpha * self.signs) @ self.alpha.T
        for slope in self.slopes:
            first, second = gamma * slope.first, gamma * slope.second
            own = self._paired(slope.degree * first, slope.coupling * first)
            for k in range(q):
                hessian[:, k, :, k] += own
                G = slope.other(Z[:, k])
                for m in range(k + 1):
                    H = slope.other(Z[:, m])
                    both = self._paired(second * G * H, second * G * H.T)
                    hessian[:, k, :, m] += both
                    if m < k:
                        hessian[:, m, :, k] += both.T
        return hessian.reshape(e * q, e * q)

    def _paired(self, own: Array, other: Array) -> Array:
        """Return `sum_ij own_ij t_i t_i^T + other_ij t_i t_j^T` (d - q, d - q)."""
        T = self.T
        return np.asarray(T.T @ (own.sum(axis=1)[:, None] * T + other @ T))
