"""The definition by brute force, n x n: the judge of every engine and of every fit."""

from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import pdist, squareform

from ism_dask.kernels import Kernel
from ism_dask.kernels.pairing import TOLERATED_ROUNDINGS

# Anchors nearer to a row than this share of its length are copies of it.
_COPY = 3e-7
# The relative error of one rounding in double precision.
_UNIT = 2.0**-53


def dense_gamma(dependence):
    gamma, facts = dependence.weighted
    out = np.empty((len(facts), len(facts)))
    dtype = np.dtype(np.float64)
    return gamma.tile(gamma.as_rows(facts, dtype), gamma.as_columns(facts, dtype), out)


def centred(K):
    """Return H K H."""
    K = K - K.mean(axis=0)
    return K - K.mean(axis=1)[:, None]


def equal_classes(y):
    """Return the kernel of classes: 1 for two rows of one class, 0 for others."""
    return (y[:, None] == y[None]).astype(float)


def standardised(points):
    """Return points (n,) or (n, d) with mean 0 and standard deviation 1, as (n, d)."""
    points = points.reshape(len(points), -1)
    return (points - points.mean(axis=0)) / points.std(axis=0)


def relative_distances(points):
    """Return the distances between standardised points, in units of their median."""
    apart = pdist(standardised(points))
    return squareform(apart / np.median(apart))


def gaussian_kernel(points, *shares):
    """Return the mean of gaussians of these shares of the median distance, 1 by default."""
    apart = relative_distances(points)
    return np.mean([np.exp(-((apart / share) ** 2) / 2) for share in shares or (1.0,)], axis=0)


MULTISCALE = (1.0, 0.5, 0.25)


def arguments(term, left, right):
    """Return beta of all pairs of rows: inner products, or squared distances by differences."""
    if not term.pairing.degree:
        return left @ right.T
    apart = left[:, None, :] - right[None]
    return (apart * apart).sum(axis=2)


def kernel_matrix(kernel, left, right=None):
    """Return the kernel, whose width is that of no row, between all pairs of rows."""
    right = left if right is None else right
    return sum(weight * term.value(arguments(term, left, right)) for weight, term in kernel.terms)


@dataclass(frozen=True)
class Definition:
    """J and Phi as double sums over the pairs of rows, in the precision of X."""

    X: np.ndarray
    Gamma: np.ndarray
    kernel: Kernel

    def objective(self, W):
        """Return J."""
        terms = self._terms(W)
        return sum(w * (self.Gamma * t.value(b * s)).sum() for w, t, b, s in terms)

    def rounding(self, W):
        """Return a bound of what rounding in double precision does to J at an orthonormal W.

        A row is rounded twice as it is standardised, and summed over d columns up to three times.
        Beta may cancel to some roundings of what the kernel resolves; sums of n round n times.
        """
        (n, d), q = self.X.shape, W.shape[1]
        is_free = all(term.pairing.degree for _, term in self.kernel.terms)
        X = self.X - self.X.mean(axis=0) if is_free else self.X  # as a fit has them
        off = np.sqrt(q) * (3 * d + 8) * _UNIT * np.linalg.norm(X, axis=1)
        both = np.add.outer(off, off) * ~np.eye(n, dtype=bool)
        lengths = np.linalg.norm(self.X @ W, axis=1)
        total = 0.0
        for w, t, b, s in self._terms(W):
            if t.pairing.degree:
                moved = 2 * np.sqrt(b) * both + both**2
            else:
                moved = np.outer(lengths + off, off) + np.outer(off, lengths)
            if t.per_row_width:
                widths = (off + off.max()) * np.sqrt(np.diag(s))
                moved += b * np.add.outer(widths, widths)
            relative = (3 * TOLERATED_ROUNDINGS + 8 * n) * _UNIT
            slope = np.abs(t.slope(b * s))
            size = relative * (np.abs(t.value(b * s)) + np.abs(b * s) * slope) + moved * s * slope
            total += w * (np.abs(self.Gamma) * size).sum()
        return total

    def phi(self, W):
        """Return Phi (d, d), half the sum of Gamma_ij f'(beta_ij) A_ij."""
        return sum(
            self._weighted(t, w * self.Gamma * t.slope(b * s) * s) for w, t, b, s in self._terms(W)
        )

    def phi0(self):
        """Return Phi (d, d) with f'(0) in place of f'(beta_ij)."""
        W = np.zeros((self.X.shape[1], 1))
        return sum(
            self._weighted(t, w * self.Gamma * t.slope_at_zero * s) for w, t, _, s in self._terms(W)
        )

    def residual(self, W):
        """Return how far W is from a stationary point."""
        product = self.phi(W) @ W
        norm = float(np.linalg.norm(product))
        return float(np.linalg.norm(product - W @ (W.T @ product))) / norm if norm else 0.0

    def _terms(self, W):
        Z = self.X @ W.astype(self.X.dtype)
        for weight, term in self.kernel.terms:
            yield weight, term, arguments(term, Z, Z), self._scale(term)

    def _weighted(self, term, psi):
        """Return half the sum of psi_ij A_ij."""
        if term.pairing.degree:
            psi = 2.0 * (np.diag(psi.sum(axis=1)) - psi)
        total = self.X.T @ psi @ self.X
        return (total + total.T) / 2

    def _scale(self, term):
        if not term.per_row_width:
            return self.X.dtype.type(1)
        X, anchors = self.X, term.anchors.astype(self.X.dtype)
        squared = ((X[:, None, :] - anchors[None]) ** 2).sum(axis=2)
        sizes = np.add.outer((X * X).sum(axis=1), (anchors * anchors).sum(axis=1))
        squared[squared <= _COPY**2 * sizes] = np.inf
        squared.sort(axis=1)
        distinct = np.isfinite(squared).sum(axis=1)
        chosen = np.minimum(term.neighbor, np.maximum(distinct, 1)) - 1
        nearest = squared[np.arange(len(X)), chosen]
        widths = np.where(np.isfinite(nearest), np.sqrt(nearest), 1.0)
        return 1.0 / np.multiply.outer(widths, widths)
