"""A reference fit by the dense definition of the method, written plainly with NumPy."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

Array = NDArray[Any]
PhiOf = Callable[[Array], Array]

# As in the library, eigenvalues of Phi0 below this share of the largest are rounding noise.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class DenseFit:
    """The result of the dense iteration.

    Attributes
    ----------
    W : (d, q) array
    objective : float
    n_iter : int
    seconds : tuple of float
        Seconds of each iteration.
    """

    W: Array
    objective: float
    n_iter: int
    seconds: tuple[float, ...]


def standardised(X: Array) -> Array:
    """Return X (n, d) with columns of mean 0 and standard deviation 1; constant ones become 0."""
    deviation = X.std(axis=0)
    return np.asarray((X - X.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0))


def label_dependence(y: Array, *, by_products: bool = True) -> Array:
    """Return `Gamma = H K_Y H` (n, n) of labels y: by two products with H, or by means."""
    same = (y[:, None] == y).astype(float)
    if by_products:
        n = len(y)
        H = np.eye(n) - np.ones((n, n)) / n
        return np.asarray(H @ same @ H)
    means = same.mean(axis=0)
    return np.asarray(same - means[:, None] - means + means.mean())


def squared_distances(Z: Array) -> Array:
    """Return the (n, n) squared distances between rows of Z (n, k)."""
    lengths = (Z**2).sum(axis=1)
    return np.asarray(np.maximum(lengths[:, None] + lengths - 2 * Z @ Z.T, 0))


def median_distance(X: Array) -> float:
    """Return the median distance over all pairs of rows of X (m, d), from one (m, m) matrix."""
    above = np.triu_indices(len(X), k=1)
    return float(np.median(np.sqrt(squared_distances(X)[above])))


def gaussian(beta: Array, rate: float) -> Array:
    """Return `exp(-rate beta)`."""
    return np.asarray(np.exp(-rate * beta))


def distance_phi(X: Array, Psi: Array) -> Array:
    """Return Phi `2 X^T (D_Psi - Psi) X` (d, d) of a kernel of squared distances."""
    return np.asarray(2 * X.T @ (np.diag(Psi.sum(axis=1)) - Psi) @ X)


def inner_phi(X: Array, Psi: Array) -> Array:
    """Return Phi `X^T Psi X` (d, d) of a kernel of inner products."""
    return np.asarray(X.T @ Psi @ X)


def dense_gaussian_fit(
    X: Array,
    y: Array,
    q: int,
    tol: float = 0.01,
    *,
    sigma: float | None = None,
    Gamma: Array | None = None,
) -> DenseFit:
    """Fit W to standardised rows X (n, d) with the gaussian kernel and n x n matrices.

    This is the method as published. `sigma` is by default the median of all distances.
    """
    Gamma = label_dependence(y) if Gamma is None else Gamma
    rate = 0.5 / (np.median(pdist(X)) if sigma is None else sigma) ** 2

    def phi(W: Array) -> Array:
        return distance_phi(X, -rate * Gamma * gaussian(squared_distances(X @ W), rate))

    def objective(W: Array) -> float:
        return float((Gamma * gaussian(squared_distances(X @ W), rate)).sum())

    return _iterated(distance_phi(X, -rate * Gamma), phi, objective, q, tol)


def dense_polynomial_fit(
    X: Array,
    y: Array,
    q: int,
    tol: float = 0.01,
    *,
    degree: int = 3,
    offset: float = 1.0,
    Gamma: Array | None = None,
) -> DenseFit:
    """Fit W to standardised rows X (n, d) with the kernel `(x_i W W^T x_j + offset)^degree`."""
    Gamma = label_dependence(y) if Gamma is None else Gamma

    def base(W: Array) -> Array:
        Z = X @ W
        return np.asarray(Z @ Z.T + offset)

    def phi(W: Array) -> Array:
        return inner_phi(X, Gamma * (degree * base(W) ** (degree - 1)))

    def objective(W: Array) -> float:
        return float((Gamma * base(W) ** degree).sum())

    start = inner_phi(X, Gamma * (degree * offset ** (degree - 1)))
    return _iterated(start, phi, objective, q, tol)


def _iterated(
    start: Array, phi: PhiOf, objective: Callable[[Array], float], q: int, tol: float
) -> DenseFit:
    """Iterate from those leading eigenvectors of `start` (d, d) that are not rounding noise.

    With c classes, `start` has rank c - 1. A further vector would be noise, different on every
    machine, and the comparison would be one of two different starts.
    """
    values, vectors = np.linalg.eigh(start)
    before = values[-q:]
    W = vectors[:, -q:][:, np.abs(before) > _ROUNDING * np.abs(values).max()]
    seconds = []
    for _ in range(100):
        started = time.perf_counter()
        values, vectors = np.linalg.eigh(phi(W))
        W, now = vectors[:, -q:], values[-q:]
        seconds.append(time.perf_counter() - started)
        if np.linalg.norm(now - before) < tol * np.linalg.norm(now):
            break
        before = now
    return DenseFit(W, objective(W), len(seconds), tuple(seconds))
