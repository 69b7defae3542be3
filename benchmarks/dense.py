"""The gaussian fit by the dense definition, written plainly with NumPy, to compare with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

Array = NDArray[Any]


@dataclass(frozen=True)
class DenseFit:
    """W (d, q) and its objective."""

    W: Array
    objective: float


def standardised(X: Array) -> Array:
    """Return X (n, d) with mean 0 and deviation 1; constant columns become 0."""
    deviation = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)


def dense_gaussian_fit(X: Array, y: Array, q: int, tol: float = 0.01) -> DenseFit:
    """Fit W on standardised rows X (n, d) with five n x n matrices, as the method is published."""
    n = len(X)
    H = np.eye(n) - np.ones((n, n)) / n
    same = (y[:, None] == y).astype(float)
    Gamma = H @ same @ H
    rate = 0.5 / np.median(pdist(X)) ** 2

    def kernel(W: Array) -> Array:
        Z = X @ W
        lengths = (Z**2).sum(axis=1)
        return np.exp(-rate * np.maximum(lengths[:, None] + lengths - 2 * Z @ Z.T, 0))

    def phi(Psi: Array) -> Array:
        return 2 * X.T @ (np.diag(Psi.sum(axis=1)) - Psi) @ X

    values, vectors = np.linalg.eigh(phi(-rate * Gamma))
    before, W = values[-q:], vectors[:, -q:]
    for _ in range(100):
        values, vectors = np.linalg.eigh(phi(-rate * Gamma * kernel(W)))
        W, now = vectors[:, -q:], values[-q:]
        if np.linalg.norm(now - before) < tol * np.linalg.norm(now):
            break
        before = now
    return DenseFit(W, float((Gamma * kernel(W)).sum()))
