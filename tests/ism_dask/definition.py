"""The definition by brute force, n x n and loop by loop: the judge of every engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ism_dask.gamma.base import Dependence
from ism_dask.kernels import Kernel, PointwiseKernel
from ism_dask.kernels.pairing import Inner

Array = NDArray[Any]


def dense_gamma(dependence: Dependence) -> Array:
    gamma, facts = dependence.weighted
    out = np.empty((len(facts), len(facts)))
    dtype = np.dtype(np.float64)
    return gamma.tile(gamma.as_rows(facts, dtype), gamma.as_columns(facts, dtype), out)


def centred(K: Array) -> Array:
    n = len(K)
    H = np.eye(n) - np.ones((n, n)) / n
    return H @ K @ H


@dataclass(frozen=True)
class Dense:
    """J and Phi as the double sums they are defined by."""

    X: Array
    Gamma: Array
    kernel: Kernel

    def objective(self, W: Array) -> float:
        return float(
            sum(
                weight * (self.Gamma * term.value(self._beta(term, W) * self._scale(term))).sum()
                for weight, term in self.kernel.terms
            )
        )

    def phi(self, W: Array) -> Array:
        return sum(
            weight
            * self._phi(
                term, term.slope(self._beta(term, W) * self._scale(term)) * self._scale(term)
            )
            for weight, term in self.kernel.terms
        )

    def phi0(self) -> Array:
        ones = np.ones_like(self.Gamma)
        return sum(
            weight * self._phi(term, term.slope_at_zero * ones * self._scale(term))
            for weight, term in self.kernel.terms
        )

    def _beta(self, term: PointwiseKernel, W: Array) -> Array:
        n = len(self.X)
        beta = np.empty((n, n))
        for i in range(n):
            for j in range(n):
                a, b = self._pair(term, i, j)
                beta[i, j] = a @ W @ W.T @ b
        return beta

    def _phi(self, term: PointwiseKernel, slope: Array) -> Array:
        n, d = self.X.shape
        total = np.zeros((d, d))
        for i in range(n):
            for j in range(n):
                a, b = self._pair(term, i, j)
                A = np.outer(b, a) + np.outer(a, b)
                total += 0.5 * self.Gamma[i, j] * slope[i, j] * A
        return total

    def _pair(self, term: PointwiseKernel, i: int, j: int) -> tuple[Array, Array]:
        if isinstance(term.pairing, Inner):
            return self.X[i], self.X[j]
        return self.X[i] - self.X[j], self.X[i] - self.X[j]

    def _scale(self, term: PointwiseKernel) -> Array | float:
        if not term.per_row_width:
            return 1.0
        widths = term.widths(self.X)
        return 1.0 / np.multiply.outer(widths, widths)
