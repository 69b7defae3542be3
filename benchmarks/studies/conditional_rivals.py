"""Other tests of whether y depends on X given s, by their definitions; each returns a p-value."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.spatial.distance import cdist, pdist

Array = NDArray[Any]

_WIDTHS, _RIDGES = (0.5, 1.0, 2.0, 4.0), np.geomspace(1e-8, 1e2, 41)
_SIGNS = 499


def partial_correlation(X: Array, y: Array, s: Array) -> float:
    """Return that of the largest correlation of residuals of linear regressions, by Bonferroni."""
    rows = np.column_stack([np.ones(len(X)), _columns(s)])
    R, V = (each - rows @ np.linalg.lstsq(rows, each, rcond=None)[0] for each in (X, _columns(y)))
    r = (R.T @ V) / np.outer(np.linalg.norm(R, axis=0), np.linalg.norm(V, axis=0))
    free = len(X) - 1 - np.linalg.matrix_rank(rows)
    p = 2 * stats.t.sf(np.abs(r) * np.sqrt(free / (1 - r**2)), free)
    return float(min(1.0, p.min() * p.size))


def generalised_covariance(X: Array, y: Array, s: Array) -> float:
    """Return that of the largest mean product of residuals (Shah and Peters 2020)."""
    R, V = (_kernel_residual(each, _columns(s)) for each in (X, _columns(y)))
    G = (R[:, :, None] * V[:, None, :]).reshape(len(X), -1)
    deviation, root = G.std(axis=0), np.sqrt(len(X))
    largest = np.abs(root * G.mean(axis=0) / deviation).max()
    multipliers = np.random.default_rng(0).normal(size=(_SIGNS, len(X)))
    null = np.abs(multipliers @ (G - G.mean(axis=0)) / (deviation * root)).max(axis=1)
    return float((1 + np.count_nonzero(null >= largest)) / (1 + _SIGNS))


def kernel_conditional_independence(X: Array, y: Array, s: Array, ridge: float = 1e-3) -> float:
    """Return that of KCI (Zhang et al. 2011), with kernels of the median width."""
    S, n = _standard(_columns(s)), len(X)
    classes = y.dtype.kind in "iu"
    of_y = _centred(1.0 * (y[:, None] == y)) if classes else _gaussian(_standard(_columns(y)))
    R = ridge * np.linalg.inv(_gaussian(S) + ridge * np.eye(n))
    K, L = (R @ each @ R for each in (_gaussian(np.hstack([_standard(X), S / 2])), of_y))
    product = K * L
    mean, variance = np.trace(product), 2 * (product**2).sum()
    return float(stats.gamma.sf(product.sum(), mean**2 / variance, scale=variance / mean))


def _columns(values: Array) -> Array:
    """Return numbers as columns, and whole ones of a single column as indicators."""
    if values.ndim == 1 and values.dtype.kind in "iu":
        return (values[:, None] == np.unique(values)[1:]).astype(float)
    return np.asarray(values.reshape(len(values), -1), dtype=float)


def _standard(columns: Array) -> Array:
    return np.asarray((columns - columns.mean(axis=0)) / columns.std(axis=0))


def _gaussian(points: Array, width: float = 1.0) -> Array:
    scale = width * np.median(pdist(points)[pdist(points) > 0])
    return _centred(np.exp(-cdist(points, points, "sqeuclidean") / (2 * scale**2)))


def _centred(K: Array) -> Array:
    K = K - K.mean(axis=0)
    return np.asarray(K - K.mean(axis=1, keepdims=True))


def _kernel_residual(columns: Array, s: Array) -> Array:
    """Return residuals of kernel ridge regressions; each column has its best width and ridge."""
    columns, n = columns - columns.mean(axis=0), len(s)
    best, residual = np.full(columns.shape[1], np.inf), np.empty_like(columns)
    for width in _WIDTHS:
        values, vectors = np.linalg.eigh(_gaussian(_standard(s), width))
        along = vectors.T @ columns
        for ridge in _RIDGES * values[-1]:
            shares = np.maximum(values, 0) / (np.maximum(values, 0) + ridge)
            left = columns - vectors @ (shares[:, None] * along)
            score = (left**2).sum(axis=0) / (1 - (shares.sum() + 1) / n) ** 2
            better = (score < best) & (shares.sum() + 1 < n)
            best[better], residual[:, better] = score[better], left[:, better]
    return residual
