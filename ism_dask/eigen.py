"""Leading eigenpairs of a symmetric matrix, told in one way only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.sparse.linalg

from ism_dask.typing import Array

# Up to here LAPACK's partial spectrum beats Lanczos started from nothing (measured: 1 s at 2,000).
_DENSE_LIMIT = 2000
# Vectors beside those asked for, and blocks kept at most: ten or so are needed.
_SPARE, _MOST_BLOCKS = 6, 24


@dataclass(frozen=True)
class Spectrum:
    """The q leading eigenpairs of a d x d matrix.

    Attributes
    ----------
    values : (q,) array
        The largest eigenvalues, falling.
    vectors : (d, q) array
        Their orthonormal eigenvectors, the largest entry of each positive.
    following : float
        The next eigenvalue; `values[-1] - following` is the eigengap.
    null : (q,) boolean array
        Which of the values are zero up to rounding.
    """

    values: Array
    vectors: Array
    following: float
    null: Array

    @property
    def gap(self) -> float:
        """The smallest chosen eigenvalue minus the largest not chosen."""
        return float(self.values[-1]) - self.following

    @property
    def determined(self) -> Array:
        """The (d, k) vectors that belong to values other than zero."""
        return self.vectors[:, ~self.null]


@dataclass(frozen=True)
class Pairs:
    """Leading eigenpairs by products.

    Attributes
    ----------
    values : (k,) array
        Falling.
    vectors : (n, k) array
    residual : float
        The largest, relative to the largest eigenvalue.
    """

    values: Array
    vectors: Array
    residual: float


def leading(matrix: Array, q: int, guess: Array | None = None) -> Spectrum:
    """Return the q largest (algebraic) eigenpairs of a symmetric `matrix` (d, d), q < d.

    Parameters
    ----------
    matrix : (d, d) array
    q : int
    guess : (d, k) array, optional
        Vectors near the answer, for the Krylov method that large matrices get.
    """
    d = len(matrix)
    if not 1 <= q < d:
        raise ValueError(f"q must be from 1 to {d - 1} for a {d} x {d} matrix; got {q}")
    values, vectors = _largest(matrix, q + 1, guess)
    noise = d * np.finfo(np.float64).eps * max(np.abs(values).max(), _norm_bound(matrix))
    null = np.abs(values[:q]) <= noise
    vectors = vectors[:, :q]
    if null.any():
        vectors = _settled(matrix, values[:q], vectors, null, noise)
    return Spectrum(values[:q], canonical_signs(vectors), float(values[q]), null)


def leading_by_products(
    apply: Callable[[Array], Array], n: int, k: int, tol: float, seed: int = 0
) -> Pairs:
    """Return the k largest eigenpairs of a symmetric operator told by its products with blocks.

    Block Lanczos with every block kept: passes over tiles are dear, tall vectors are not.

    Parameters
    ----------
    apply : callable
        Takes (n, b) to (n, b).
    n, k : int
    tol : float
        What residual to stop at. After `_MOST_BLOCKS` passes it is over in any case.
    seed : int
    """
    width = min(n, k + _SPARE)
    block = np.linalg.qr(np.random.default_rng(seed).normal(size=(n, width)))[0]
    basis, images = block, apply(block)
    while True:
        values, mix = scipy.linalg.eigh(basis.T @ images)
        values, mix = values[::-1][:k], mix[:, ::-1][:, :k]
        vectors = basis @ mix
        off = float(np.linalg.norm(images @ mix - vectors * values, axis=0).max())
        residual = off / abs(values[0]) if values[0] else 0.0
        room = n - basis.shape[1]
        if residual <= tol or room < 1 or basis.shape[1] >= _MOST_BLOCKS * width:
            return Pairs(values, vectors, residual)
        block = images[:, -width:][:, :room]
        for _ in range(2):  # once more, for the rounding of the first time
            block = block - basis @ (basis.T @ block)
            block = np.linalg.qr(block)[0]
        basis, images = np.hstack([basis, block]), np.hstack([images, apply(block)])


def canonical_signs(vectors: Array) -> Array:
    """Return `vectors` (d, q) with the largest-magnitude entry of each column positive."""
    peak = np.abs(vectors).argmax(axis=0)
    signs = np.sign(vectors[peak, np.arange(vectors.shape[1])])
    return np.ascontiguousarray(vectors * np.where(signs == 0, 1.0, signs))


def nearest_orthonormal(W: Array) -> Array:
    """Return the (d, q) array with orthonormal columns that is nearest to W (d, q)."""
    left, _, right = np.linalg.svd(W, full_matrices=False)
    return np.asarray(left @ right)


def sine(V: Array, W: Array) -> float:
    """Return the sine of the largest principal angle between the spans of V and W (d, q).

    1 where the spans differ in dimension.
    """
    if V.shape != W.shape:
        return 1.0
    # ||(I - V V^T) W|| keeps the digits of small angles that a cosine would lose.
    return min(1.0, float(np.linalg.norm(W - V @ (V.T @ W), 2)))


def _largest(matrix: Array, k: int, guess: Array | None) -> tuple[Array, Array]:
    d = len(matrix)
    if d > _DENSE_LIMIT and k < d // 20:
        # A start without structure: one that a symmetry of the matrix keeps misses eigenvectors.
        start = np.random.default_rng(0).normal(size=d) / np.sqrt(d)
        if guess is not None:
            start = 0.1 * start + guess.sum(axis=1)
        try:
            values, vectors = scipy.sparse.linalg.eigsh(matrix, k=k, which="LA", v0=start)
        except scipy.sparse.linalg.ArpackError:
            pass  # no convergence, or nothing but zeros: the dense method has no such trouble
        else:
            order = np.argsort(-values, kind="stable")
            return values[order], vectors[:, order]
    values, vectors = scipy.linalg.eigh(matrix, subset_by_index=[d - k, d - 1])
    return values[::-1], vectors[:, ::-1].copy()


def _norm_bound(matrix: Array) -> float:
    return float(np.abs(matrix).sum(axis=1).max()) / np.sqrt(len(matrix))


def _settled(matrix: Array, values: Array, vectors: Array, null: Array, noise: float) -> Array:
    """Return `vectors` with the null ones replaced by what axes leave in the null space.

    LAPACK returns rounding noise there, different on every machine. Whole coordinate axes, or
    what the null space holds of them, are the same everywhere, and as readable as a vector that
    carries nothing can be.
    """
    others = vectors[:, ~null]
    # The trace tells of negative eigenvalues: their vectors are not in the null space either.
    if np.trace(matrix) < values.sum() - len(matrix) * noise:
        every_value, every_vector = scipy.linalg.eigh(matrix)
        others = np.column_stack([others, every_vector[:, every_value < -10 * noise]])
    settled = vectors.copy()
    for column in np.flatnonzero(null):
        axis = _largest_axis_outside(others)
        settled[:, column] = axis
        others = np.column_stack([others, axis])
    return settled


def _largest_axis_outside(basis: Array) -> Array:
    """Return the unit vector (d,) that is left of the axis furthest from an orthonormal `basis`."""
    index = int(np.argmin((basis**2).sum(axis=1)))
    axis = np.zeros(len(basis))
    axis[index] = 1.0
    for _ in range(2):  # once more, for the rounding of the first time
        axis -= basis @ (basis.T @ axis)
    return axis / np.linalg.norm(axis)
